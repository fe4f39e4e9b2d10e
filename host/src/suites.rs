//! The shapes that `verify` and `bench` run.

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

/// A set of projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Suite {
    /// Small and odd shapes: seconds, even on the emulator.
    Small,
    /// The dense layers of the model that the kernels are tuned for, at every batch size that must be fast.
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

    /// Rows of the suite that this build cannot compute, each with the reason.
    pub const fn left_out(self) -> &'static [&'static str] {
        match self {
            Suite::Small => &[],
            Suite::Muse => &["router 256 × 8192: FP32 weights come with router support"],
        }
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
    fn small_stays_small() {
        let work: usize = Suite::Small
            .cases()
            .unwrap()
            .iter()
            .map(|c| c.shape.n() * c.shape.k() * c.m.div_ceil(8))
            .sum();
        assert!(work < 16 << 20, "{work} weight-tile products");
    }
}
