#![no_main]
//! See `highwater_fuzz::node_cluster_file`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::node_cluster_file(data));
