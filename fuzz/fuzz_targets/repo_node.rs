#![no_main]
//! See `highwater_fuzz::repo_node`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::repo_node(data));
