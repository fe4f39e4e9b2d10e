//! Weights of a real model: a slice that is checked in, and a whole layer of a file that a variable names.

use hopper_proj::io::checkpoint::{Cast, Checkpoint, Matrix};
use hopper_proj::{Dtype, Error};
use hopper_proj_tests::{Device, Values, check, data, prepare};

/// Names a safetensors file for the second test.
const VARIABLE: &str = "HOPPER_PROJ_TEST_MODEL";
const LAYER: &str = "encoder.layer.0.intermediate.dense.weight";
const TOKENS: usize = 5;

/// Projects random tokens by a matrix of a file, cast to BF16, and holds the result against FP64.
fn project(matrix: &Matrix<'_>) {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let shape = matrix.shape().unwrap();
    let weights = matrix.to_bf16(Some(Cast::Bf16)).unwrap();
    let x = values.bf16(TOKENS * shape.k());
    let projection = prepare(&device.engine, &weights, shape).unwrap();
    let y = device.project(None, &projection, &x, 8, TOKENS).unwrap();
    check(&y, &x, &weights, shape, TOKENS).unwrap();
}

#[test]
fn a_slice_of_a_real_layer() {
    let file = Checkpoint::open(data("minilm-l6-v2-slice.safetensors")).unwrap();
    let matrix = file.matrix(Some(LAYER)).unwrap();
    assert_eq!((matrix.rows(), matrix.cols(), matrix.dtype()), (256, 384, Dtype::F32));
    assert!(
        matches!(matrix.to_bf16(None), Err(Error::Fp32Weights)),
        "a cast must be asked for"
    );
    project(&matrix);
}

#[test]
fn a_real_layer_of_a_model_that_a_variable_names() {
    let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else {
        println!("{VARIABLE} names no file: the checked-in slice is all that was tested");
        return;
    };
    let file = Checkpoint::open(path).unwrap();
    let floating = |name: &String| matches!(file.matrix(Some(name)), Ok(m) if m.to_bf16(Some(Cast::Bf16)).is_ok());
    let names = file.matrix_names();
    let name = names
        .iter()
        .find(|name| *name == LAYER)
        .or_else(|| names.iter().find(|name| floating(name)))
        .expect("a matrix of floating-point values");
    println!("{name} of {}", file.path().display());
    project(&file.matrix(Some(name)).unwrap());
}
