#![cfg(target_arch = "nvptx64")]
//! What a kernel may say.
#![no_std]
