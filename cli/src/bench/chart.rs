//! Bars: a panel per layer, a group per number of tokens, a bar for each who was measured, a mark where the floor is.

use super::rows::{Recorded, RecordedRow};
use crate::error::{Error, Result};
use crate::plot::{failed, readable};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::HashSet;
use std::ops::Range;

/// Panels in a row, at most.
const COLUMNS: usize = 2;
const PANEL: (u32, u32) = (680, 330);
const TITLE_LINE: u32 = 20;
const LEGEND_LINE: u32 = 22;
/// Entries of the legend in a line.
const LEGEND_COLUMNS: usize = 4;
/// The part of a group's width that its bars take.
const FILLED: f64 = 0.86;
/// Ours first, in blues and greens; peers in warm colours.
const OURS: [RGBColor; 5] = [
    RGBColor(31, 93, 160),
    RGBColor(88, 160, 214),
    RGBColor(60, 70, 110),
    RGBColor(38, 128, 96),
    RGBColor(126, 190, 130),
];
const PEERS: [RGBColor; 5] = [
    RGBColor(222, 128, 40),
    RGBColor(190, 60, 50),
    RGBColor(150, 110, 170),
    RGBColor(200, 170, 60),
    RGBColor(130, 130, 130),
];
/// What peers are called in their rows, and what a person calls them.
const PEER_NAMES: [(&str, &str); 5] = [
    ("cublas", "cuBLAS"),
    ("cublas_chain", "cuBLAS"),
    ("two_gemm_router", "two GEMMs and an add"),
    ("triton_router", "Triton, split K"),
    ("eager_gate", "two GEMMs and a gate in PyTorch"),
];
/// The same for the parts of our own.
const OPS: [(&str, &str); 4] = [
    ("project", "projection"),
    ("logits", "router logits"),
    ("route", "router with gate"),
    ("pair", "pair of projections"),
];
const FORMATS: [(&str, &str); 4] = [
    ("bf16", "BF16"),
    ("bf16rows", "BF16 kept row-major too"),
    ("window12", "12-bit"),
    ("f32", "FP32"),
];
/// Rows of files of peers that are of ours, earlier.
const EARLIER: &str = "prototype";

/// One who was measured.
struct Series<'a> {
    name: String,
    colour: RGBColor,
    rows: Vec<&'a RecordedRow>,
}

/// One layer, with the numbers of tokens that we were measured at.
struct Panel<'a> {
    layer: &'a str,
    tokens: Vec<usize>,
}

/// The drawing as SVG.
pub(super) fn bars(ours: &Recorded, peers: Option<&Recorded>) -> Result<String> {
    let mut timed = ours
        .rows
        .iter()
        .filter(|row| row.us.is_some() && row.m.is_some())
        .peekable();
    if timed.peek().is_none() {
        return Err(Error::NoTimesIn {
            path: ours.path.clone(),
        });
    }
    let mut panels: Vec<Panel<'_>> = Vec::new();
    let mut series: Vec<Series<'_>> = Vec::new();
    let mut drawn = HashSet::new();
    for row in timed {
        add_to_panels(&mut panels, row);
        add_to_series(&mut series, row, our_name(&row.what), &OURS, 0);
        once(&mut drawn, row, ours)?;
        few("layers", panels.len(), ours)?;
        few("kinds of rows", series.len(), ours)?;
        few(
            "numbers of tokens",
            panels.iter().map(|panel| panel.tokens.len()).max().unwrap_or(0),
            ours,
        )?;
    }
    let first = series.len();
    let shown = |row: &&RecordedRow| {
        let place = panels.iter().find(|panel| panel.layer == row.layer);
        !row.what.starts_with(EARLIER) && place.is_some_and(|place| row.m.is_some_and(|m| place.tokens.contains(&m)))
    };
    if let Some(peers) = peers {
        drawn.clear();
        for row in peers.rows.iter().filter(shown) {
            add_to_series(&mut series, row, called(&PEER_NAMES, &row.what), &PEERS, first);
            once(&mut drawn, row, peers)?;
            few("kinds of rows", series.len(), peers)?;
        }
    }
    let titles = titles(ours, peers);
    let columns = panels.len().min(COLUMNS);
    let lines = panels.len().div_ceil(columns);
    let legend_lines = (series.len() + 1).div_ceil(LEGEND_COLUMNS);
    let head = TITLE_LINE * titles.len() as u32 + LEGEND_LINE * legend_lines as u32 + 20;
    let mut svg = String::new();
    {
        // The head wants the width of two panels.
        let size = (PANEL.0 * COLUMNS as u32, head + PANEL.1 * lines as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let (top, rest) = root.split_vertically(head);
        head_of(&top, &titles, &series).map_err(failed)?;
        for (area, shown) in rest.split_evenly((lines, columns)).iter().zip(&panels) {
            panel(area, shown, &series).map_err(failed)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

/// Of each thing, at most so many are drawn.
const MOST: usize = 64;

/// Fails where a file has more of something than a drawing has room for.
fn few(what: &str, count: usize, recorded: &Recorded) -> Result<()> {
    if count <= MOST {
        return Ok(());
    }
    let file = recorded.path.display();
    Err(failed(format!(
        "{file} has more than {MOST} {what}: draw a part of its rows"
    )))
}

/// Fails where two rows are about the same: one of their bars would hide the other.
fn once<'a>(
    drawn: &mut HashSet<(&'a str, &'a str, Option<usize>)>,
    row: &'a RecordedRow,
    recorded: &Recorded,
) -> Result<()> {
    if drawn.insert((&row.what, &row.layer, row.m)) {
        return Ok(());
    }
    let m = row.m.map_or(String::new(), |m| format!(" at m = {m}"));
    let file = recorded.path.display();
    Err(failed(format!(
        "{file} has `{}` of `{}`{m} twice: keep one of these rows",
        row.what, row.layer
    )))
}

fn add_to_panels<'a>(panels: &mut Vec<Panel<'a>>, row: &'a RecordedRow) {
    let Some(m) = row.m else { return };
    let place = match panels.iter().position(|panel| panel.layer == row.layer) {
        Some(place) => place,
        None => {
            let (layer, tokens) = (row.layer.as_str(), Vec::new());
            panels.push(Panel { layer, tokens });
            panels.len() - 1
        }
    };
    let tokens = &mut panels[place].tokens;
    if let Err(place) = tokens.binary_search(&m) {
        tokens.insert(place, m);
    }
}

/// Colours go round from the series `first` on.
fn add_to_series<'a>(
    series: &mut Vec<Series<'a>>,
    row: &'a RecordedRow,
    name: String,
    colours: &[RGBColor],
    first: usize,
) {
    match series.iter_mut().find(|series| series.name == name) {
        Some(series) => series.rows.push(row),
        None => {
            let colour = colours[(series.len() - first) % colours.len()];
            let rows = vec![row];
            series.push(Series { name, colour, rows });
        }
    }
}

fn called(names: &[(&str, &str)], given: &str) -> String {
    let found = names.iter().find(|(name, _)| *name == given);
    found.map_or(given, |(_, called)| called).to_owned()
}

/// `<op>_<mode>_<format>` as a person says it.
fn our_name(what: &str) -> String {
    match what.split('_').collect::<Vec<_>>()[..] {
        [op, mode, format] => format!("our {}, {} ({mode})", called(&OPS, op), called(&FORMATS, format)),
        _ => what.to_owned(),
    }
}

fn titles(ours: &Recorded, peers: Option<&Recorded>) -> Vec<String> {
    let place = |recorded: &Recorded| {
        let said = |key: &str, before: &str| {
            let value = recorded.note(key).map(str::to_owned);
            value.unwrap_or_else(|| format!("{before} not recorded"))
        };
        format!(
            "{}, driver {}, CUDA {}, {}",
            said("gpu", "GPU"),
            said("driver", "version"),
            said("cuda", "version"),
            said("date", "date")
        )
    };
    let mut titles = vec![format!("hopper-proj on {}", place(ours))];
    titles.extend(peers.map(|peers| format!("peers on {}", place(peers))));
    titles.extend(ours.note("protocol").map(str::to_owned));
    titles
}

type Drawn<B> = std::result::Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn head_of<B: DrawingBackend>(area: &DrawingArea<B, Shift>, titles: &[String], series: &[Series<'_>]) -> Drawn<B> {
    let left = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
    let mut y = 10;
    for (at, title) in titles.iter().enumerate() {
        let size = if at == 0 { 17 } else { 12 };
        area.draw(&Text::new(readable(title), (16, y), left(size)))?;
        y += TITLE_LINE as i32;
    }
    let floor = "floor: only reading the weights' bytes";
    let entries = series.iter().map(|series| (series.name.as_str(), Some(series.colour)));
    for (at, (name, colour)) in entries.chain([(floor, None)]).enumerate() {
        let x = 16 + (at % LEGEND_COLUMNS) as i32 * (2 * PANEL.0 as usize / LEGEND_COLUMNS) as i32;
        let y = y + 6 + (at / LEGEND_COLUMNS) as i32 * LEGEND_LINE as i32;
        match colour {
            Some(colour) => area.draw(&Rectangle::new([(x, y), (x + 14, y + 12)], colour.filled()))?,
            None => area.draw(&Rectangle::new([(x, y + 5), (x + 14, y + 7)], BLACK.filled()))?,
        }
        area.draw(&Text::new(readable(name), (x + 20, y), left(13)))?;
    }
    Ok(())
}

/// An axis of groups, each of width 1, with the number of tokens below its middle.
struct Groups<'a>(&'a [usize]);

impl Ranged for Groups<'_> {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = value / self.range().end;
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.0.len()).map(|group| group as f64 + 0.5).collect()
    }

    fn range(&self) -> Range<f64> {
        0.0..self.0.len().max(1) as f64
    }
}

impl ValueFormatter<f64> for Groups<'_> {
    fn format(value: &f64) -> String {
        value.to_string()
    }

    fn format_ext(&self, value: &f64) -> String {
        self.0.get(*value as usize).map_or(String::new(), usize::to_string)
    }
}

fn panel<B: DrawingBackend>(area: &DrawingArea<B, Shift>, panel: &Panel<'_>, series: &[Series<'_>]) -> Drawn<B> {
    // Who was not measured on this layer takes no room in its groups.
    let of_layer = |series: &Series<'_>| -> Vec<RecordedRow> {
        let rows = series.rows.iter().filter(|row| row.layer == panel.layer);
        rows.map(|row| (*row).clone()).collect()
    };
    let here: Vec<(RGBColor, Vec<RecordedRow>)> = series
        .iter()
        .map(|series| (series.colour, of_layer(series)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    let highest = here
        .iter()
        .flat_map(|(_, rows)| rows)
        .filter_map(|row| row.us)
        .fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(readable(panel.layer), ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(38)
        .y_label_area_size(52)
        .build_cartesian_2d(Groups(&panel.tokens), 0.0..highest * 1.12)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("tokens (m)")
        .y_desc("µs per call")
        .x_labels(panel.tokens.len())
        .label_style(("sans-serif", 11))
        .draw()?;
    let width = FILLED / here.len().max(1) as f64;
    let figure = ("sans-serif", 9).into_font().color(&BLACK);
    let figure = figure.pos(Pos::new(HPos::Center, VPos::Bottom));
    for (at, (colour, rows)) in here.iter().enumerate() {
        for row in rows {
            let group = row.m.and_then(|m| panel.tokens.binary_search(&m).ok());
            let (Some(group), Some(us)) = (group, row.us) else {
                continue;
            };
            let left = group as f64 + (1.0 - FILLED) / 2.0 + at as f64 * width;
            let right = left + width * 0.92;
            chart.draw_series([Rectangle::new([(left, 0.0), (right, us)], colour.filled())])?;
            if let Some(floor) = row.floor_us {
                let mark = ShapeStyle::from(&BLACK).stroke_width(2);
                chart.draw_series([PathElement::new(vec![(left, floor), (right, floor)], mark)])?;
            }
            let middle = (left + right) / 2.0;
            chart.draw_series([Text::new(format!("{us:.1}"), (middle, us), figure.clone())])?;
        }
    }
    Ok(())
}
