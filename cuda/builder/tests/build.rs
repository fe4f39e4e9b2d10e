//! Builds a tiny kernel crate with everything that a kernel project does: a table, a barrier between two branches on
//! the same condition, dynamic shared memory.

use std::fs;
use std::path::{Path, PathBuf};

use cuda_builder::{BuildError, CudaBuilder, EntrySpec, FinishError};
use ptx_emulator::parse;

const SOURCE: &str = r#"
#![no_std]
#![cfg(target_arch = "nvptx64")]
#![feature(abi_ptx, stdarch_nvptx, link_llvm_intrinsics, abi_unadjusted)]
use core::arch::nvptx::_thread_idx_x;

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    fn barrier(id: i32);
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn twice(data: *mut u32) {
    unsafe {
        let thread = _thread_idx_x() as usize;
        if thread == 0 {
            *data += 1;
        }
        barrier(0);
        if thread == 0 {
            *data.add(1) = *data + 1;
        }
    }
}
"#;

fn write_crate(folder: &Path) -> PathBuf {
    let krate = folder.join("kernels");
    fs::create_dir_all(krate.join("src")).unwrap();
    let manifest = "[package]\nname = \"tiny-kernels\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(krate.join("Cargo.toml"), manifest).unwrap();
    fs::write(krate.join("src/lib.rs"), SOURCE).unwrap();
    krate
}

/// One folder for all tests and all runs, so that `core` is built once.
fn builder(krate: &Path) -> CudaBuilder {
    CudaBuilder::new(krate).target_dir(Path::new(env!("CARGO_TARGET_TMPDIR")).join("ptx"))
}

#[test]
fn a_kernel_crate_becomes_the_same_finished_ptx_in_any_folder() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let built = folders.each_ref().map(|folder| {
        let krate = write_crate(folder.path());
        let out = folder.path().join("new/folder/out.ptx");
        let table = [EntrySpec::new("twice", 128).min_ctas(4)];
        assert_eq!(builder(&krate).launch_bounds(table).copy_to(&out).build().unwrap(), out);
        fs::read_to_string(out).unwrap()
    });
    assert_eq!(built[0], built[1]);
    let text = &built[0];
    assert!(text.starts_with("// Compiled by rustc 1."), "{text}");
    assert!(text.contains(".target sm_90a"), "{text}");
    assert!(text.contains(".maxntid 128, 1, 1\n.minnctapersm 4\n{"), "{text}");

    let module = parse::parse(text).unwrap();
    let barriers = (module.entries[0].body.iter())
        .filter(|inst| inst.mnemonic() == "bar.sync")
        .count();
    assert_eq!(
        barriers, 1,
        "a barrier between two branches on the same condition stays one:\n{text}"
    );
}

#[test]
fn a_table_that_does_not_fit_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let krate = write_crate(folder.path());
    match builder(&krate).launch_bounds([EntrySpec::new("thrice", 32)]).build() {
        Err(BuildError::Finish(FinishError::Entries { only_ptx, only_table })) => {
            assert_eq!((only_ptx, only_table), (vec!["twice".into()], vec!["thrice".into()]));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_compiler_says_of_a_broken_crate_reaches_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let krate = write_crate(folder.path());
    fs::write(krate.join("src/lib.rs"), "#![no_std]\nfn f() -> u32 { \"text\" }\n").unwrap();
    let error = builder(&krate).build().unwrap_err().to_string();
    assert!(error.contains("mismatched types"), "{error}");
}

#[test]
fn a_folder_without_a_crate_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = CudaBuilder::new(folder.path()).build().unwrap_err().to_string();
    assert!(error.contains("is no crate"), "{error}");
}
