//! A format for tests of those who know none: bytes with a scale, as checkpoints come with them. A matrix `X` is stored
//! as `X`, U8 `[N, K]`, and `X.scale`, F32 `[1]`; a weight is its byte times the scale.

use super::matrix::Matrix;
use super::room::{Description, Form, Index, Room};
use super::{Fault, FileFault, Weights, window12};
use crate::io::container::Tensors;
use crate::{Result, Shape, bf16};
use std::ops::Range;

pub(super) struct Bytes;

/// The names of the matrices.
struct Found(Vec<String>);

impl Room for Bytes {
    fn index(&self, file: &Tensors<'_>) -> Result<Option<Box<dyn Index>>, FileFault> {
        let tensors = file.header().tensors.iter();
        let names = tensors.map(|tensor| tensor.name.clone());
        let mut found: Vec<String> = names.filter(|name| file.place(&scale(name)).is_some()).collect();
        found.sort();
        Ok((!found.is_empty()).then(|| Box::new(Found(found)) as Box<dyn Index>))
    }
}

fn scale(name: &str) -> String {
    format!("{name}.scale")
}

impl Index for Found {
    fn format(&self) -> &'static str {
        "bytes"
    }

    fn names(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    fn parts(&self, name: &str) -> Vec<String> {
        vec![name.to_owned(), scale(name)]
    }

    fn places(&self, file: &Tensors<'_>, name: &str) -> Result<(Shape, Vec<usize>), Fault> {
        let missing = || Fault::from(window12::Fault::NotPacked { name: name.to_owned() });
        let places = [name, &scale(name)].map(|name| file.place(name));
        let [Some(values), Some(scale)] = places else {
            return Err(missing());
        };
        match *file.header().tensors[values].shape {
            [n, k] => Ok((Shape::new(n, k).map_err(|_| missing())?, vec![values, scale])),
            _ => Err(missing()),
        }
    }

    fn weights<'a>(&self, file: &Tensors<'a>, name: &str) -> Result<Weights<'a>, Fault> {
        let matrix = self.matrix(file, name)?;
        let mut values = vec![bf16::ZERO; matrix.bytes.len()];
        let rows = bytemuck::cast_slice_mut(&mut values);
        matrix.decode_all(rows);
        Ok(Matrix::decoded(values, matrix.shape).into())
    }

    fn form<'a>(&self, file: &Tensors<'a>, name: &str) -> Result<Box<dyn Form + 'a>, Fault> {
        Ok(Box::new(self.matrix(file, name)?))
    }
}

impl Found {
    fn matrix<'a>(&self, file: &Tensors<'a>, name: &str) -> Result<Scaled<'a>, Fault> {
        let (shape, places) = self.places(file, name)?;
        let scale = file.bytes(places[1]).as_chunks().0[0];
        Ok(Scaled {
            shape,
            bytes: file.bytes(places[0]),
            scale: f32::from_le_bytes(scale),
        })
    }
}

struct Scaled<'a> {
    shape: Shape,
    bytes: &'a [u8],
    scale: f32,
}

impl Scaled<'_> {
    fn decode_all(&self, out: &mut [u16]) {
        let value = |&byte: &u8| bf16::from_f32(f32::from(byte) * self.scale).to_bits();
        out.iter_mut()
            .zip(self.bytes)
            .for_each(|(out, byte)| *out = value(byte));
    }
}

impl Form for Scaled<'_> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn bytes(&self) -> usize {
        self.bytes.len() + 4
    }

    fn unit(&self) -> [usize; 2] {
        [self.shape.n(), self.shape.k()]
    }

    fn decode(&self, _row_block: usize, _units: Range<usize>, rows: &mut [u16]) {
        self.decode_all(rows);
    }

    fn describe(&self) -> Description {
        Description {
            format: "bytes",
            dtype: "U8",
            bytes: Form::bytes(self) as u64,
            bits_per_weight: 8.0,
            summary: "8 bits per weight".to_owned(),
            details: String::new(),
            fields: vec![("scale", self.scale.into())],
            exponents: Vec::new(),
            odd: String::new(),
        }
    }
}
