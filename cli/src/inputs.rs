//! Inputs: random ones for checks and benches, and the `FILE[:TENSOR]` arguments.

use crate::error::{Error, Result};
use hopper_proj::io::checkpoint::{Checkpoint, Matrix};
use hopper_proj::{Dtype, bf16};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::StandardNormal;
use std::path::{Path, PathBuf};

/// The deviation of weights: what trained layers tend to have.
pub(crate) const DEVIATION: f32 = 0.02;

/// A source of random values that one number repeats.
pub(crate) struct Inputs(StdRng);

impl Inputs {
    pub(crate) fn new(seed: u64) -> Self {
        Inputs(StdRng::seed_from_u64(seed))
    }

    /// Activations: normal, of deviation 1.
    pub(crate) fn x(&mut self, len: usize) -> Vec<bf16> {
        self.normal(len, 1.0)
    }

    /// Weights: normal, of a deviation that is mostly [`DEVIATION`].
    pub(crate) fn weights(&mut self, len: usize, deviation: f32) -> Vec<bf16> {
        self.normal(len, deviation)
    }

    /// Weights of [`DEVIATION`] in FP32.
    pub(crate) fn fp32_weights(&mut self, len: usize) -> Vec<f32> {
        (0..len)
            .map(|_| self.0.sample::<f32, _>(StandardNormal) * DEVIATION)
            .collect()
    }

    fn normal(&mut self, len: usize, deviation: f32) -> Vec<bf16> {
        (0..len)
            .map(|_| bf16::from_f32(self.0.sample::<f32, _>(StandardNormal) * deviation))
            .collect()
    }
}

/// Splits `FILE[:TENSOR]`: the longest way to read it as an existing file wins, as both halves may hold colons.
pub(crate) fn file_and_tensor(given: &Path) -> Result<(PathBuf, Option<String>)> {
    if given.exists() {
        return Ok((given.to_owned(), None));
    }
    let missing = || Error::NoFile {
        given: given.to_owned(),
    };
    let text = given.to_str().ok_or_else(missing)?;
    let mut splits = text
        .rmatch_indices(':')
        .map(|(at, _)| (Path::new(&text[..at]), &text[at + 1..]));
    let (file, tensor) = splits
        .find(|(file, tensor)| file.exists() && !tensor.is_empty())
        .ok_or_else(missing)?;
    Ok((file.to_owned(), Some(tensor.to_owned())))
}

/// Activations, which are BF16: a call rounds none.
pub(crate) fn activations<'a>(file: &'a Checkpoint, tensor: Option<&str>) -> Result<Matrix<'a>> {
    let path = || file.path().to_owned();
    let x = file.matrix(tensor).map_err(|err| {
        let nothing_else = tensor.is_some() || file.matrix_names().is_empty();
        if nothing_else && file.vector(tensor).is_ok() {
            Error::XVector { path: path() }
        } else {
            err.into()
        }
    })?;
    match x.dtype() {
        Dtype::Bf16 => Ok(x),
        given => Err(Error::XDtype { path: path(), given }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_input() {
        assert_eq!(Inputs::new(7).x(100), Inputs::new(7).x(100));
        assert_ne!(Inputs::new(7).x(100), Inputs::new(8).x(100));
    }

    #[test]
    fn the_tensor_follows_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, colon) = (folder.path().join("w"), folder.path().join("w:a"));
        std::fs::write(&plain, "").unwrap();
        let name = |tail: &str| PathBuf::from(format!("{}{tail}", plain.display()));
        assert_eq!(file_and_tensor(&plain).unwrap(), (plain.clone(), None));
        assert_eq!(file_and_tensor(&name(":a")).unwrap(), (plain.clone(), Some("a".into())));
        assert_eq!(
            file_and_tensor(&name(":a:b")).unwrap(),
            (plain.clone(), Some("a:b".into()))
        );
        assert!(file_and_tensor(&name(":")).is_err());
        assert!(file_and_tensor(&name("x:a")).is_err());
        std::fs::write(&colon, "").unwrap();
        assert_eq!(
            file_and_tensor(&name(":a:b")).unwrap(),
            (colon.clone(), Some("b".into()))
        );
        assert_eq!(file_and_tensor(&name(":a")).unwrap(), (colon, None));
    }
}
