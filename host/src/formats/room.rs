//! What a format of weights is on the host, for those who convert, read and describe files of it without knowing which
//! it is.
//!
//! A format is a [`Room`]: it says which tensors of a file belong to a matrix ([`Index`]), and gives a matrix piece by
//! piece ([`Form`]). One that values can be packed into is a [`Packer`] too, which makes a matrix piece by piece
//! ([`Packing`]). So no matrix need fit in memory twice.

use super::source::Source;
use super::{Fault, FileFault, Weights};
use crate::io::container::Tensors;
use crate::{Result, Shape};
use serde_json::Value;
use std::ops::Range;

/// Weights that are converted at a time.
pub(crate) const PIECE: usize = 4 << 20;

/// A format of weights in files.
pub(crate) trait Room: Sync {
    /// The matrices that a file says it stores in this format, if it says so of any.
    fn index(&self, file: &Tensors<'_>) -> Result<Option<Box<dyn Index>>, FileFault>;
}

/// A format that values can be packed into, and unpacked from as they were.
pub(crate) trait Packer: Sync {
    /// Looks at a matrix that may be packed.
    fn packing<'a>(&self, source: Source<'a>, shape: Shape) -> Result<Box<dyn Packing + 'a>>;

    /// The names of the tensors that a matrix becomes.
    fn part_names(&self, name: &str) -> Vec<String>;

    /// The metadata of a file with these packed matrices, as a key and its text. The original may have had no metadata
    /// at all.
    fn metadata(&self, matrices: &[(&str, Shape)], added: bool) -> (String, String);
}

/// What a file says of its matrices in one format. It is believed once a matrix is opened.
pub(crate) trait Index {
    /// The name of the format.
    fn format(&self) -> &'static str;

    /// Whether a [`Packer`] made the matrices, so that unpacking gives back what was packed. Others came in this
    /// format, and stay in it.
    fn is_packed(&self) -> bool {
        false
    }

    /// The names of the matrices, sorted.
    fn names(&self) -> Vec<&str>;

    /// The names of the tensors of a matrix. The first stands where the matrix does.
    fn parts(&self, name: &str) -> Vec<String>;

    /// The shape of a matrix and the places of its tensors, which are of the types and shapes that they must have.
    fn places(&self, file: &Tensors<'_>, name: &str) -> Result<(Shape, Vec<usize>), Fault>;

    /// A matrix, checked through and through.
    fn weights<'a>(&self, file: &Tensors<'a>, name: &str) -> Result<Weights<'a>, Fault>;

    /// The same, to read piece by piece.
    fn form<'a>(&self, file: &Tensors<'a>, name: &str) -> Result<Box<dyn Form + 'a>, Fault>;

    /// Takes back what [`Packer::metadata`] has added.
    fn strip(&self, _metadata: &mut Option<(usize, Vec<(String, String)>)>) {}
}

/// A matrix of a format.
pub(crate) trait Form: Sync {
    /// Its shape.
    fn shape(&self) -> Shape;

    /// Bytes of all its tensors.
    fn bytes(&self) -> usize;

    /// Rows and columns of a unit: what can be decoded apart.
    fn unit(&self) -> [usize; 2];

    /// Decodes some columns of the units of a row block, from unit to unit. `rows` is row-major BF16 and has just the
    /// rows and the columns that exist.
    fn decode(&self, row_block: usize, units: Range<usize>, rows: &mut [u16]);

    /// What is to be said of it.
    fn describe(&self) -> Description;
}

/// A matrix that can be packed.
pub(crate) trait Packing {
    /// Why it should stay as it is, if it should.
    fn leave(&self) -> Option<String>;

    /// What packing it gives.
    fn describe(&self) -> Description;

    /// The tensors that it becomes, in order.
    fn parts(&self, name: &str) -> Vec<StoredTensor>;

    /// Writes them. False if the values are no longer those that were looked at, so that the parts do not fit.
    fn write(&self, sink: &mut dyn Sink) -> Result<bool>;
}

/// Where a matrix's tensors go.
pub(crate) trait Sink {
    /// Writes bytes of a part, from its byte `at` on.
    fn write(&mut self, part: usize, at: usize, bytes: &[u8]) -> Result<()>;

    /// So many bytes of the values have been packed since the last time.
    fn progress(&mut self, bytes: usize);
}

/// A tensor that a matrix is stored as.
pub(crate) struct StoredTensor {
    pub(crate) name: String,
    /// Its element type, as files spell it.
    pub(crate) dtype: &'static str,
    pub(crate) shape: Vec<usize>,
    /// Bytes of all elements.
    pub(crate) bytes: usize,
}

/// What a format makes of a matrix, or would make of it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// The format's name.
    pub format: &'static str,
    /// The type of the matrix's elements, as files spell it.
    pub dtype: &'static str,
    /// Bytes of all parts.
    pub bytes: u64,
    /// Bits of all parts per weight.
    pub bits_per_weight: f64,
    /// The size, and what matters most of what is inside, in a few words.
    pub summary: String,
    /// The rest of it, to follow the summary.
    pub details: String,
    /// The same for programs: names and values.
    pub fields: Vec<(&'static str, Value)>,
    /// The exponents that occur, ascending.
    pub exponents: Vec<Exponent>,
    /// What sets the odd exponents apart, and of how many weights that is true.
    pub odd: String,
}

/// How many weights of a matrix have an exponent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exponent {
    /// The exponent as BF16 has it, 0 to 255.
    pub exponent: u8,
    /// Weights that have it, of either sign.
    pub weights: u64,
    /// Whether the format stores these weights in another way than most.
    pub is_odd: bool,
}

impl Description {
    /// Weights of the matrix.
    pub fn weights(&self) -> u64 {
        self.exponents.iter().map(|exponent| exponent.weights).sum()
    }
}
