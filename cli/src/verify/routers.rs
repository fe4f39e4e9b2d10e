//! Routers against FP64: their logits by the relative error, their gates by the rules.

use super::{Report, Row};
use crate::error::Result;
use crate::inputs::Inputs;
use crate::route;
use hopper_proj::Engine;
use hopper_proj::reference::{self, LOGITS_GOAL, gate};
use hopper_proj::suites::RouterCase;
use hopper_proj::{Router, RouterOptions, RouterWeights};

/// The cases of one layer, which share its weights.
pub(super) fn check(engine: &Engine, layer: &[RouterCase], inputs: &mut Inputs, report: &mut Report<'_>) -> Result<()> {
    let Some(RouterCase {
        shape, config, biased, ..
    }) = layer.first()
    else {
        return Ok(());
    };
    let weights = inputs.fp32_weights(shape.n() * shape.k());
    let config = if *biased {
        config.clone().bias(inputs.fp32_weights(shape.n()))
    } else {
        config.clone()
    };
    let most = layer.iter().map(|case| case.m).max().unwrap_or(1);
    let options = RouterOptions::default().max_tokens(most);
    let router = Router::prepare(engine, RouterWeights::Fp32(&weights), *shape, &config, options)?;
    for case in layer {
        report.start(case.layer, case.m);
        let x = inputs.x(case.m * shape.k());
        let expected = reference::logits(&x, &weights, *shape, case.m)?;
        let results = route::compute(engine, &router, &x, case.m, None, true)?;
        let logits = results.logits.unwrap_or_default();
        let rel_error = reference::relative_error_fp32(&logits, &expected);
        let gate = gate::check(&results.ids, &results.weights, &logits, router.gate(), None);
        if let Err(wrong) = &gate {
            report.say(&format!("{} at m = {}: {wrong}", case.layer, case.m))?;
        }
        report.add(Row {
            op: "route",
            layer: case.layer,
            m: case.m,
            n: shape.n(),
            k: shape.k(),
            format: "f32",
            device: engine.device().driver.to_string(),
            instance: results.instance,
            rel_error,
            pass: rel_error <= LOGITS_GOAL && gate.is_ok(),
        })?;
        report.done();
    }
    Ok(())
}
