//! How much memory a conversion takes. One test, so that nothing else happens in its process.
#![cfg(target_os = "linux")]

use hopper_proj::formats::PackFormat;
use hopper_proj::io::convert::{self, PackOptions};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Of weights: zeros, which take no room on the disk.
const BYTES: u64 = 256 << 20;
/// Beyond the tensors themselves. Less than the tensor, so that a copy of it would be noticed.
const LIMIT: u64 = 128 << 20;

/// Anonymous memory of this process.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn no_tensor_is_held_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (k, n) = (8192, BYTES / 2 / 8192);
    let header = format!(r#"{{"w":{{"dtype":"BF16","shape":[{n},{k}],"data_offsets":[0,{BYTES}]}}}}"#);
    let mut file = File::create(path("in")).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + BYTES).unwrap();
    let before = anonymous();
    let mut peak = 0;
    let mut watch = |_| peak = peak.max(anonymous());
    let mut options = PackOptions::default();
    options.format = PackFormat::Window12;
    convert::pack(&path("in"), &path("packed"), &options, &mut watch).unwrap();
    convert::unpack(&path("packed"), &path("back"), &mut watch).unwrap();
    convert::inspect(&path("packed"), &mut watch).unwrap();
    let size = |path: &Path| path.metadata().unwrap().len();
    assert!(size(&path("packed")) > BYTES / 4 * 3 && size(&path("back")) > BYTES);
    let taken = peak.saturating_sub(before);
    println!("{} MiB", taken >> 20);
    assert!(taken < LIMIT, "{taken} bytes");
}
