//! Drawings.

use crate::error::{Error, Result};
use hopper_proj::convert::{Inspected, Stored};
use hopper_proj::weights::window12::Histogram;
use plotters::prelude::*;

/// A panel per matrix, at most so many in a row.
const COLUMNS: usize = 3;
const PANEL: (u32, u32) = (420, 240);
/// What 1 is in an exponent field.
const BIAS: i32 = 127;

/// How often each exponent occurs, matrix by matrix, as SVG: what a palette holds in one colour, exceptions in another.
pub(crate) fn exponents(tensors: &[Inspected]) -> Result<String> {
    let panels: Vec<(&str, [u8; 8], &Histogram)> = tensors
        .iter()
        .filter_map(|tensor| {
            let name = tensor.name.as_str();
            match &tensor.stored {
                Stored::Packed { palette, histogram, .. } => Some((name, *palette, histogram)),
                Stored::Matrix { estimate, histogram } => Some((name, estimate.palette(), histogram)),
                _ => None,
            }
        })
        .collect();
    let columns = panels.len().clamp(1, COLUMNS);
    let rows = panels.len().div_ceil(columns).max(1);
    let mut svg = String::new();
    {
        let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        for (area, &(name, palette, histogram)) in root.split_evenly((rows, columns)).iter().zip(&panels) {
            panel(area, name, palette, histogram).map_err(failed)?;
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
    palette: [u8; 8],
    histogram: &Histogram,
) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let total = histogram.weights() as f64;
    let bars: Vec<(usize, f64)> = histogram
        .counts()
        .iter()
        .enumerate()
        .filter(|&(_, &count)| count > 0)
        .map(|(exponent, &count)| (exponent, count as f64 / total))
        .collect();
    let power = |exponent: usize| exponent as i32 - BIAS;
    let (first, last) = (bars.first().map_or(0, |bar| bar.0), bars.last().map_or(0, |bar| bar.0));
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
        .x_desc(format!(
            "power of two; {} of {total} weights are exceptions (orange)",
            histogram.exceptions(&palette)
        ))
        .y_desc("share of the weights")
        .y_label_formatter(&|share| format!("{share:.0e}"))
        .label_style(("sans-serif", 10))
        .draw()?;
    chart.draw_series(bars.iter().map(|&(exponent, share)| {
        let held = palette.contains(&((exponent / 2) as u8));
        let colour = if held {
            RGBColor(70, 110, 170)
        } else {
            RGBColor(215, 95, 30)
        };
        let mut bar = Rectangle::new(
            [(power(exponent), floor), (power(exponent) + 1, share)],
            colour.filled(),
        );
        bar.set_margin(0, 0, 1, 1);
        bar
    }))?;
    Ok(())
}
