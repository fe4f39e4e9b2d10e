//! Results as safetensors files. A file appears whole or not at all.

use crate::io::FileError;
use crate::io::container::Header;
use crate::io::output::write_whole;
use crate::{Result, Shape};
use half::bf16;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::path::Path;

/// Writes one BF16 matrix.
pub fn write_bf16(path: &Path, name: &str, rows: usize, cols: usize, values: &[bf16]) -> Result<()> {
    Shape::check_len("the result", values.len(), rows, cols)?;
    write(path, &[(name, Dtype::BF16, [rows, cols], bytemuck::cast_slice(values))])
}

/// What a router gave for `m` tokens.
#[derive(Debug, Clone, Copy)]
pub struct Routed<'a> {
    /// Tokens.
    pub m: usize,
    /// Experts per token.
    pub top_k: usize,
    /// `[m, top_k]`.
    pub ids: &'a [i32],
    /// `[m, top_k]`.
    pub weights: &'a [f32],
    /// The number of experts and `[m, experts]`, if the logits were asked for.
    pub logits: Option<(usize, &'a [f32])>,
}

/// Writes `topk_ids` (I32), `topk_weights` (F32) and, where they are there, `logits` (F32).
pub fn write_routed(path: &Path, routed: &Routed<'_>) -> Result<()> {
    let Routed { m, top_k, .. } = *routed;
    Shape::check_len("ids", routed.ids.len(), m, top_k)?;
    Shape::check_len("weights", routed.weights.len(), m, top_k)?;
    let mut tensors = vec![
        ("topk_ids", Dtype::I32, [m, top_k], bytemuck::cast_slice(routed.ids)),
        (
            "topk_weights",
            Dtype::F32,
            [m, top_k],
            bytemuck::cast_slice(routed.weights),
        ),
    ];
    if let Some((experts, logits)) = routed.logits {
        Shape::check_len("logits", logits.len(), m, experts)?;
        tensors.push(("logits", Dtype::F32, [m, experts], bytemuck::cast_slice(logits)));
    }
    write(path, &tensors)
}

fn write(path: &Path, tensors: &[(&str, Dtype, [usize; 2], &[u8])]) -> Result<()> {
    let unreadable = |reason| FileError::Unreadable {
        path: path.to_owned(),
        reason,
    };
    let unwritable = |err: safetensors::SafeTensorError| unreadable(err.to_string());
    let views = tensors
        .iter()
        .map(|&(name, dtype, shape, bytes)| TensorView::new(dtype, shape.to_vec(), bytes).map(|view| (name, view)));
    let views = views.collect::<Result<Vec<_>, _>>().map_err(unwritable)?;
    let bytes = safetensors::serialize(views, None).map_err(unwritable)?;
    // A tensor's name may be the key of the metadata.
    Header::read(&bytes).map_err(unreadable)?;
    write_whole(path, &bytes)
}
