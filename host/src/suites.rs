//! The shapes that `verify` and `bench` run.

use crate::gate::{RouterConfig, Score};
use crate::{Result, Shape};

/// One projection to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// The layer's name.
    pub layer: &'static str,
    /// The weights' shape.
    pub shape: Shape,
    /// Tokens.
    pub m: usize,
}

/// One router to run, with FP32 weights.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterCase {
    /// The layer's name.
    pub layer: &'static str,
    /// Experts × columns.
    pub shape: Shape,
    /// Tokens.
    pub m: usize,
    /// The gate; [`RouterCase::biased`] ones want a bias beside.
    pub config: RouterConfig,
    /// Whether a bias for the selection belongs to it, of random values like the weights.
    pub biased: bool,
}

/// A pair of projections to run, the second on the result of the first, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainCase {
    /// The pair's name.
    pub layer: &'static str,
    /// The first one's weights.
    pub down: Shape,
    /// The second one's, of as many rows as the first one has columns, and the other way round.
    pub up: Shape,
    /// Tokens.
    pub m: usize,
}

/// A set of projections and routers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Suite {
    /// Small and odd shapes: seconds, even on the emulator.
    Small,
    /// The dense layers and the router of the model that the kernels are tuned for, at every batch size that must be
    /// fast.
    Muse,
}

struct Layer {
    name: &'static str,
    n: usize,
    k: usize,
    tokens: &'static [usize],
}

const SMALL: &[Layer] = &[
    Layer {
        name: "dot",
        n: 1,
        k: 1,
        tokens: &[1, 8],
    },
    Layer {
        name: "odd",
        n: 33,
        k: 129,
        tokens: &[1, 5, 17],
    },
    Layer {
        name: "one_unit",
        n: 16,
        k: 64,
        tokens: &[1, 8, 9, 32, 33],
    },
    Layer {
        name: "ragged_rows",
        n: 100,
        k: 512,
        tokens: &[1, 7, 16],
    },
    Layer {
        name: "ragged_columns",
        n: 128,
        k: 1000,
        tokens: &[1, 8, 32],
    },
    Layer {
        name: "wide",
        n: 64,
        k: 4096,
        tokens: &[1, 8, 16],
    },
    Layer {
        name: "tall",
        n: 2048,
        k: 64,
        tokens: &[1, 8, 65],
    },
    Layer {
        name: "block",
        n: 384,
        k: 1536,
        tokens: &[1, 5, 32],
    },
];

const TOKENS: &[usize] = &[1, 8, 16, 32, 128, 256];

/// At up to 8 tokens the unpooler runs as one GPU's tensor-parallel share of its rows.
const MUSE: &[Layer] = &[
    Layer {
        name: "qkv_gate",
        n: 2304,
        k: 8192,
        tokens: TOKENS,
    },
    Layer {
        name: "o",
        n: 8192,
        k: 1024,
        tokens: TOKENS,
    },
    Layer {
        name: "pooler",
        n: 4096,
        k: 8192,
        tokens: TOKENS,
    },
    Layer {
        name: "unpooler",
        n: 1024,
        k: 4096,
        tokens: &[1, 8],
    },
    Layer {
        name: "unpooler",
        n: 8192,
        k: 4096,
        tokens: &[16, 32, 128, 256],
    },
];

struct RouterLayer {
    name: &'static str,
    n: usize,
    k: usize,
    tokens: &'static [usize],
    gate: fn() -> RouterConfig,
    biased: bool,
}

const SMALL_ROUTERS: &[RouterLayer] = &[
    RouterLayer {
        name: "router_top2",
        n: 72,
        k: 256,
        tokens: &[1, 9, 33],
        gate: || RouterConfig::new(Score::Softmax, 2).renormalize(),
        biased: false,
    },
    RouterLayer {
        name: "router_odd",
        n: 144,
        k: 333,
        tokens: &[3, 40],
        gate: || RouterConfig::new(Score::SqrtSoftplus, 6).renormalize().scale(2.5),
        biased: true,
    },
    RouterLayer {
        name: "router_over_topk",
        n: 64,
        k: 512,
        tokens: &[8, 130],
        gate: || RouterConfig::new(Score::Identity, 4).softmax_over_topk(),
        biased: false,
    },
    RouterLayer {
        name: "router_top1",
        n: 17,
        k: 640,
        tokens: &[5],
        gate: || RouterConfig::new(Score::Sigmoid, 1),
        biased: false,
    },
];

const MUSE_ROUTERS: &[RouterLayer] = &[RouterLayer {
    name: "router",
    n: 256,
    k: 8192,
    tokens: TOKENS,
    gate: || {
        RouterConfig::new(Score::Sigmoid, 8)
            .groups(8, 4)
            .renormalize()
            .scale(2.5)
    },
    biased: true,
}];

/// A pair of layers: as many rows as the other one has columns.
struct Pair {
    name: &'static str,
    narrow: usize,
    wide: usize,
    tokens: &'static [usize],
}

const SMALL_PAIR: Pair = Pair {
    name: "down+up",
    narrow: 48,
    wide: 320,
    tokens: &[1, 9],
};

const MUSE_PAIR: Pair = Pair {
    name: "pooler+unpooler",
    narrow: 4096,
    wide: 8192,
    tokens: &[1, 8, 16, 32],
};

impl Suite {
    /// Every suite.
    pub const ALL: [Suite; 2] = [Suite::Small, Suite::Muse];

    /// The name, as the command line spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Suite::Small => "small",
            Suite::Muse => "muse",
        }
    }

    /// The projections of the suite, in a fixed order.
    pub fn cases(self) -> Result<Vec<Case>> {
        let layers = match self {
            Suite::Small => SMALL,
            Suite::Muse => MUSE,
        };
        let mut cases = Vec::new();
        for layer in layers {
            let shape = Shape::new(layer.n, layer.k)?;
            cases.extend(layer.tokens.iter().map(|&m| Case {
                layer: layer.name,
                shape,
                m,
            }));
        }
        Ok(cases)
    }

    /// The chains of the suite, in a fixed order.
    pub fn chain_cases(self) -> Result<Vec<ChainCase>> {
        let pair = match self {
            Suite::Small => SMALL_PAIR,
            Suite::Muse => MUSE_PAIR,
        };
        let (down, up) = (Shape::new(pair.narrow, pair.wide)?, Shape::new(pair.wide, pair.narrow)?);
        let case = |&m: &usize| ChainCase {
            layer: pair.name,
            down,
            up,
            m,
        };
        Ok(pair.tokens.iter().map(case).collect())
    }

    /// The routers of the suite, in a fixed order.
    pub fn router_cases(self) -> Result<Vec<RouterCase>> {
        let layers = match self {
            Suite::Small => SMALL_ROUTERS,
            Suite::Muse => MUSE_ROUTERS,
        };
        let mut cases = Vec::new();
        for layer in layers {
            let shape = Shape::new(layer.n, layer.k)?;
            cases.extend(layer.tokens.iter().map(|&m| RouterCase {
                layer: layer.name,
                shape,
                m,
                config: (layer.gate)(),
                biased: layer.biased,
            }));
        }
        Ok(cases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn muse_is_four_layers_at_six_batch_sizes() {
        let cases = Suite::Muse.cases().unwrap();
        assert_eq!(cases.len(), 24);
        for layer in ["qkv_gate", "o", "pooler", "unpooler"] {
            let tokens: Vec<usize> = cases.iter().filter(|c| c.layer == layer).map(|c| c.m).collect();
            assert_eq!(tokens, TOKENS);
        }
        let slice: Vec<usize> = cases.iter().filter(|c| c.shape.n() == 1024).map(|c| c.m).collect();
        assert_eq!(slice, [1, 8]);
    }

    #[test]
    fn muse_has_its_router_at_six_batch_sizes() {
        let cases = Suite::Muse.router_cases().unwrap();
        let tokens: Vec<usize> = cases.iter().map(|c| c.m).collect();
        assert_eq!(tokens, TOKENS);
        assert!(cases.iter().all(|c| (c.shape.n(), c.shape.k()) == (256, 8192)));
    }

    #[test]
    fn every_router_is_one_that_there_is() {
        for case in Suite::ALL.into_iter().flat_map(|suite| suite.router_cases().unwrap()) {
            let bias = vec![0.5; case.shape.n()];
            let config = if case.biased {
                case.config.bias(bias)
            } else {
                case.config
            };
            config.gate(case.shape.n()).unwrap();
        }
    }

    /// The norm of a few logits may happen to be far smaller than what was added up, and any error large beside it.
    #[test]
    fn every_router_gives_enough_logits_to_bound_their_error() {
        for case in Suite::ALL.into_iter().flat_map(|suite| suite.router_cases().unwrap()) {
            assert!(case.m * case.shape.n() >= 64, "{case:?}");
        }
    }

    #[test]
    fn small_stays_small() {
        let projections = Suite::Small.cases().unwrap().into_iter().map(|c| (c.shape, c.m));
        let routers = Suite::Small.router_cases().unwrap().into_iter().map(|c| (c.shape, c.m));
        let work: usize = (projections.chain(routers))
            .map(|(shape, m)| shape.n() * shape.k() * m.div_ceil(8))
            .sum();
        assert!(work < 16 << 20, "{work} weight-tile products");
    }
}
