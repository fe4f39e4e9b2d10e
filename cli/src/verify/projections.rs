//! Projections against FP64.

use super::{Report, Row};
use crate::bench::{KEPT, Kept, prepared, tokens};
use crate::error::Result;
use crate::inputs::{DEVIATION, Inputs};
use hopper_proj::reference::{self, TOLERANCE};
use hopper_proj::suites::Case;
use hopper_proj::{DriverInUse, Engine, Projection, Stream, bf16};

/// The cases of one layer, which share its weights.
pub(super) fn check(engine: &Engine, layer: &[Case], inputs: &mut Inputs, report: &mut Report<'_>) -> Result<()> {
    let Some(Case { shape, .. }) = layer.first() else {
        return Ok(());
    };
    let stream = engine.stream()?;
    let weights = inputs.weights(shape.n() * shape.k(), DEVIATION);
    let mut projections = Vec::new();
    let matters = |kept: &Kept, case: &Case| kept.matters(engine, case.shape, case.m);
    for kept in KEPT.iter().filter(|kept| layer.iter().any(|case| matters(kept, case))) {
        let m = tokens(layer.iter().map(|case| case.m));
        let one = prepared(engine, &weights, *shape, kept, m, |_| 1)?;
        projections.extend(one.into_iter().map(|projection| (kept, projection)));
    }
    for case in layer {
        report.start(case.layer, case.m);
        let x = inputs.x(case.m * shape.k());
        let expected = reference::project(&x, &weights, *shape, case.m)?;
        for (kept, projection) in projections.iter().filter(|(kept, _)| matters(kept, case)) {
            let (y, instance) = project(engine, projection, &x, case.m, &stream)?;
            let rel_error = reference::relative_error(&y, &expected);
            report.add(Row {
                op: "project",
                layer: case.layer,
                m: case.m,
                n: shape.n(),
                k: shape.k(),
                format: kept.name,
                device: engine.device().driver.to_string(),
                instance,
                rel_error,
                pass: rel_error <= TOLERANCE,
            })?;
        }
        report.done();
    }
    Ok(())
}

/// Values of y beyond its end that a GPU run watches; the emulator checks every access by itself.
const GUARD: usize = 64;
/// A NaN that no kernel writes.
const POISON: bf16 = bf16::from_bits(0xffff);

/// One projection into a poisoned output: a value that no CTA writes stays NaN, and so fails.
fn project(
    engine: &Engine,
    projection: &Projection,
    x: &[bf16],
    m: usize,
    stream: &Stream,
) -> Result<(Vec<bf16>, &'static str)> {
    let len = m * projection.shape().n();
    let guard = if engine.device().driver == DriverInUse::Emulated {
        0
    } else {
        GUARD
    };
    let x = engine.upload(x)?;
    let mut y = engine.upload(&vec![POISON; len + guard])?;
    let instance = engine.kernel(projection, &x, m)?.unwrap_or_default();
    engine.project(projection, &x, m, y.slice_mut(..len)?, stream)?;
    let mut result = engine.download(&y, stream)?;
    if result[len..].iter().any(|value| value.to_bits() != POISON.to_bits()) {
        // A write past the end is as wrong as a wrong value.
        result.fill(POISON);
    }
    result.truncate(len);
    Ok((result, instance))
}
