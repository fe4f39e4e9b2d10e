//! What the tests of the command line share.

use assert_cmd::Command;
use std::path::{Path, PathBuf};

/// The binary, on the emulated device unless the arguments say otherwise.
pub(crate) fn hopper_proj(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("hopper-proj").expect("the binary is built with its tests");
    command.env("HOPPER_PROJ_DEVICE", "emulated").args(args);
    command
}

/// Runs to failure and gives the one line on stderr.
pub(crate) fn error_line(args: &[&str]) -> String {
    let output = hopper_proj(args).assert().code(1).get_output().clone();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.starts_with("error: ") && stderr.trim_end().lines().count() == 1,
        "{stderr}"
    );
    assert!(
        !stderr.contains("panicked") && !stderr.contains("internal fault"),
        "{stderr}"
    );
    stderr
}

/// A folder and names in it.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn name(&self, name: &str) -> String {
        self.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a text and gives its file's name.
    pub(crate) fn text(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path().join(name), text).unwrap();
        self.name(name)
    }
}

/// A tensor to write.
pub(crate) struct Tensor<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: safetensors::Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl<'a> Tensor<'a> {
    pub(crate) fn bf16(name: &'a str, shape: [usize; 2], value: impl Fn(usize) -> f32) -> Self {
        // Test values are chosen to be exact in BF16, where truncation is no rounding.
        let bytes = (0..shape[0] * shape[1])
            .flat_map(|i| ((value(i).to_bits() >> 16) as u16).to_le_bytes())
            .collect();
        Tensor {
            name,
            dtype: safetensors::Dtype::BF16,
            shape: shape.to_vec(),
            bytes,
        }
    }

    pub(crate) fn f32(name: &'a str, shape: [usize; 2], value: impl Fn(usize) -> f32) -> Self {
        let bytes = (0..shape[0] * shape[1]).flat_map(|i| value(i).to_le_bytes()).collect();
        Tensor {
            name,
            dtype: safetensors::Dtype::F32,
            shape: shape.to_vec(),
            bytes,
        }
    }

    /// One dimension of any type.
    pub(crate) fn vector(name: &'a str, dtype: safetensors::Dtype, len: usize, bytes: Vec<u8>) -> Self {
        Tensor {
            name,
            dtype,
            shape: vec![len],
            bytes,
        }
    }
}

/// Writes tensors to `folder/file` and gives its path as text.
pub(crate) fn write(folder: &Path, file: &str, tensors: &[Tensor<'_>]) -> String {
    let views = tensors.iter().map(|t| {
        let view = safetensors::tensor::TensorView::new(t.dtype, t.shape.clone(), &t.bytes).unwrap();
        (t.name.to_owned(), view)
    });
    let path: PathBuf = folder.join(file);
    std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The one BF16 tensor of a file: its shape and values.
pub(crate) fn read(path: &str) -> (Vec<usize>, Vec<f32>) {
    let bytes = std::fs::read(path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let y = file.tensor("y").unwrap();
    assert_eq!((file.len(), y.dtype()), (1, safetensors::Dtype::BF16));
    let values = y
        .data()
        .as_chunks::<2>()
        .0
        .iter()
        .map(|&b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16));
    (y.shape().to_vec(), values.collect())
}
