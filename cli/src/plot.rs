//! Drawings.

use crate::error::{Error, Result};
use hopper_proj::formats::Description;
use hopper_proj::io::convert::{Inspected, Stored};
use plotters::prelude::*;

/// A panel per matrix, at most so many in a row.
const COLUMNS: usize = 3;
const PANEL: (u32, u32) = (420, 240);
/// What 1 is in an exponent field.
const BIAS: i32 = 127;

/// How often each exponent occurs, matrix by matrix, as SVG: those that a format stores in another way than most in a
/// colour of their own.
pub(crate) fn exponents(tensors: &[Inspected]) -> Result<String> {
    let panels: Vec<(&str, &Description)> = tensors
        .iter()
        .filter_map(|tensor| match &tensor.stored {
            Stored::Packed(packed) | Stored::Matrix { packed, .. } => Some((tensor.name.as_str(), packed)),
            _ => None,
        })
        .collect();
    let columns = panels.len().clamp(1, COLUMNS);
    let rows = panels.len().div_ceil(columns).max(1);
    let mut svg = String::new();
    {
        let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        for (area, &(name, packed)) in root.split_evenly((rows, columns)).iter().zip(&panels) {
            panel(area, name, packed).map_err(failed)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

/// A text of somebody else's as XML can hold it: control characters have no place in there.
pub(crate) fn readable(text: &str) -> String {
    let unfit = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.replace(unfit, "\u{fffd}")
}

/// The error of a drawing that failed.
pub(crate) fn failed(err: impl std::fmt::Display) -> Error {
    Error::Plot {
        reason: err.to_string(),
    }
}

fn panel<B: DrawingBackend>(
    area: &DrawingArea<B, plotters::coord::Shift>,
    name: &str,
    packed: &Description,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let total = packed.weights() as f64;
    let bars = &packed.exponents;
    let power = |exponent: u8| i32::from(exponent) - BIAS;
    let (first, last) = (
        bars.first().map_or(0, |bar| bar.exponent),
        bars.last().map_or(0, |bar| bar.exponent),
    );
    // A weight alone still has a bar of some height.
    let floor = 0.5 / total;
    let mut chart = ChartBuilder::on(area)
        .caption(readable(name), ("sans-serif", 12))
        .margin(6)
        .x_label_area_size(32)
        .y_label_area_size(52)
        .build_cartesian_2d(power(first)..power(last) + 1, (floor..1.0).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc(format!("power of two; {} (orange)", packed.odd))
        .y_desc("share of the weights")
        .y_label_formatter(&|share| format!("{share:.0e}"))
        .label_style(("sans-serif", 10))
        .draw()?;
    chart.draw_series(bars.iter().map(|bar| {
        let colour = if bar.is_odd {
            RGBColor(215, 95, 30)
        } else {
            RGBColor(70, 110, 170)
        };
        let (power, share) = (power(bar.exponent), bar.weights as f64 / total);
        let mut bar = Rectangle::new([(power, floor), (power + 1, share)], colour.filled());
        bar.set_margin(0, 0, 1, 1);
        bar
    }))?;
    Ok(())
}
