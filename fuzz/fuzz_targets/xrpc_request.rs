#![no_main]
//! See `highwater_fuzz::xrpc_request`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::xrpc_request(data));
