//! Empty: the tests of this package are programs that know the CUDA driver through `cudarc` alone. They need the
//! library that `cargo xtask emulated-driver` builds on their path; `cargo xtask emulated-driver --test` puts it there
//! and runs them.
