//! Rows of measurements, as text: written, and read again.

use super::counted::Counts;
use crate::error::{Error, Result};
use hopper_proj::io::FileError;
use serde::Serialize;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The columns of every file of measurements.
const COLUMNS: &str = "what,layer,m,bytes,us,instance,floor_us,ratio";
/// The first of them: what files of others may be content with.
const FEWER_COLUMNS: &str = "what,layer,m,bytes,us";
/// Bytes of a file, at most.
const LONGEST: u64 = 16 << 20;
/// Microseconds that something may have taken: what a file can tell apart from nothing, and a quarter of an hour.
const TIMES: RangeInclusive<f64> = 0.001..=1e9;

/// What was measured of one call.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// `<op>_<mode>_<format>`.
    pub(super) what: String,
    pub(super) layer: String,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    /// Of the weights as they are kept, padding and exceptions included.
    pub(super) bytes: usize,
    pub(super) us: Option<f64>,
    pub(super) instance: String,
    /// Of only reading as many bytes.
    pub(super) floor_us: Option<f64>,
    pub(super) ratio: Option<f64>,
    pub(super) tb_per_s: Option<f64>,
    pub(super) floor_tb_per_s: Option<f64>,
    /// Calls of a graph, each on weights of its own.
    pub(super) calls: usize,
    /// Replays that the time is the median of.
    pub(super) replays: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) counts: Option<Counts>,
}

impl Row {
    /// Sets the times and what follows from them.
    pub(super) fn timed(&mut self, us: f64, floor_us: f64, replays: usize) {
        let rate = |us: f64| Some(self.bytes as f64 / us / 1e6);
        (self.tb_per_s, self.floor_tb_per_s) = (rate(us), rate(floor_us));
        (self.us, self.floor_us, self.ratio) = (Some(us), Some(floor_us), Some(us / floor_us));
        self.replays = Some(replays);
    }
}

/// The text of a file of rows.
pub(super) fn text(rows: &[Row]) -> String {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
    let mut text = format!("{COLUMNS}\n");
    for row in rows {
        let (us, floor, ratio) = (number(row.us), number(row.floor_us), number(row.ratio));
        text += &format!(
            "{},{},{},{},{us},{},{floor},{ratio}\n",
            row.what, row.layer, row.m, row.bytes, row.instance
        );
    }
    text
}

/// A file of measurements.
#[derive(Debug, PartialEq)]
pub(super) struct Recorded {
    pub(super) path: PathBuf,
    /// Its lines `# key: value`.
    pub(super) notes: Vec<(String, String)>,
    pub(super) rows: Vec<RecordedRow>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct RecordedRow {
    pub(super) what: String,
    pub(super) layer: String,
    /// Empty for what has no tokens, like a reader of memory.
    pub(super) m: Option<usize>,
    pub(super) us: Option<f64>,
    pub(super) floor_us: Option<f64>,
}

impl Recorded {
    pub(super) fn of(rows: &[Row], notes: Vec<(String, String)>, path: &Path) -> Self {
        let row = |row: &Row| RecordedRow {
            what: row.what.clone(),
            layer: row.layer.clone(),
            m: Some(row.m),
            us: row.us,
            floor_us: row.floor_us,
        };
        Recorded {
            path: path.to_owned(),
            notes,
            rows: rows.iter().map(row).collect(),
        }
    }

    pub(super) fn note(&self, key: &str) -> Option<&str> {
        let found = self.notes.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let failed = |source| {
            hopper_proj::Error::from(FileError::Io {
                verb: "read",
                path: path.to_owned(),
                source,
            })
        };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LONGEST {
            return Err(fault(path, 1, format!("the file is longer than {LONGEST} bytes")));
        }
        Recorded::parse(path, &String::from_utf8_lossy(&bytes))
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let mut recorded = Recorded {
            path: path.to_owned(),
            notes: Vec::new(),
            rows: Vec::new(),
        };
        let mut columns = None;
        for (line, at) in text.lines().map(str::trim_ascii).zip(1..) {
            if let Some(note) = line.strip_prefix('#') {
                if let Some((key, value)) = note.split_once(':') {
                    let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
                    recorded.notes.push((key, value));
                }
            } else if line.is_empty() {
            } else if let Some(columns) = columns {
                let row = row(line, columns).map_err(|problem| fault(path, at, problem))?;
                recorded.rows.push(row);
            } else if line == COLUMNS || line == FEWER_COLUMNS {
                columns = Some(line.split(',').count());
            } else {
                let problem = format!("the columns must be `{COLUMNS}` or `{FEWER_COLUMNS}`");
                return Err(fault(path, at, problem));
            }
        }
        if recorded.rows.is_empty() {
            return Err(fault(path, 1, "it has no rows of measurements".to_owned()));
        }
        Ok(recorded)
    }
}

fn fault(path: &Path, line: usize, problem: String) -> Error {
    Error::Measurements {
        path: path.to_owned(),
        line,
        problem,
    }
}

fn row(line: &str, columns: usize) -> std::result::Result<RecordedRow, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim_ascii).collect();
    let field = |at: usize| fields.get(at).copied().unwrap_or("");
    if fields.len() != columns {
        return Err(format!("it has {} fields, the first line has {columns}", fields.len()));
    }
    if field(0).is_empty() || field(1).is_empty() {
        return Err("`what` or `layer` is empty".to_owned());
    }
    let m = match field(2) {
        "" => None,
        m => Some(
            m.parse()
                .map_err(|_| "`m` must be a whole number, or empty".to_owned())?,
        ),
    };
    let time = |at: usize, name: &str| match field(at) {
        "" => Ok(None),
        time => match time.parse::<f64>() {
            Ok(us) if TIMES.contains(&us) => Ok(Some(us)),
            _ => Err(format!(
                "`{name}` must be a number of microseconds from {} to {}, or empty",
                TIMES.start(),
                TIMES.end()
            )),
        },
    };
    Ok(RecordedRow {
        what: field(0).to_owned(),
        layer: field(1).to_owned(),
        m,
        us: time(4, "us")?,
        floor_us: time(6, "floor_us")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_and_rows_are_read() {
        let text = format!("# gpu: A, B\n# no key\n{FEWER_COLUMNS}\n\ncublas,o,1,100,2.5\nreader,o,,100,\n");
        let read = Recorded::parse(Path::new("p"), &text).unwrap();
        assert_eq!((read.note("gpu"), read.note("date")), (Some("A, B"), None));
        let rows: Vec<_> = read.rows.iter().map(|row| (row.what.as_str(), row.m, row.us)).collect();
        assert_eq!(rows, [("cublas", Some(1), Some(2.5)), ("reader", None, None)]);
    }

    #[test]
    fn bad_lines_are_named() {
        for (row, words) in [
            ("cublas,o,1,100", "4 fields"),
            (",o,1,100,1", "empty"),
            ("cublas,o,one,100,1", "whole number"),
            ("cublas,o,1,100,nan", "from 0.001 to"),
            ("cublas,o,1,100,-1", "from 0.001 to"),
            ("cublas,o,1,100,1e-320", "from 0.001 to"),
            ("cublas,o,1,100,1e308", "from 0.001 to"),
        ] {
            let text = format!("{FEWER_COLUMNS}\n{row}\n");
            let message = Recorded::parse(Path::new("p"), &text).unwrap_err().to_string();
            assert!(
                message.starts_with("p, line 2: ") && message.contains(words),
                "{message}"
            );
        }
        for text in ["", "what,layer\n", COLUMNS] {
            assert!(Recorded::parse(Path::new("p"), text).is_err(), "{text}");
        }
    }
}
