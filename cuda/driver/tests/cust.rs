//! `cust`, unmodified, on the emulated driver.

use cust::error::CudaError;
use cust::memory::{CopyDestination as _, DeviceBuffer};
use cust::module::Module;
use hopper_cuda_driver::{Choice, Selected, select};

/// `out[i] = a[i] + b[i]` for i < n, one thread each.
const ADD: &str = include_str!("ptx/add.ptx");

fn context() -> cust::context::Context {
    assert_eq!(select(Choice::Emulated).unwrap(), Selected::Emulated);
    cust::quick_init().unwrap()
}

#[test]
fn memory_goes_there_and_back() {
    let _context = context();
    let given: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let buffer = DeviceBuffer::from_slice(&given).unwrap();
    let mut seen = vec![0.0; given.len()];
    buffer.copy_to(&mut seen).unwrap();
    assert_eq!(seen, given);
}

#[test]
fn text_that_is_no_ptx_is_refused() {
    let _context = context();
    assert_eq!(
        Module::from_ptx("this is no PTX", &[]).err(),
        Some(CudaError::InvalidPtx)
    );
}

#[test]
fn a_kernel_is_found_by_its_name_alone() {
    let _context = context();
    let module = Module::from_ptx(ADD, &[]).unwrap();
    assert!(module.get_function("add").is_ok());
    assert_eq!(module.get_function("sub").err(), Some(CudaError::NotFound));
}
