//! Gives the library the name under which programs ask for NVIDIA's, and makes it use its own symbols, whatever the
//! program has of the same names.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    }
}
