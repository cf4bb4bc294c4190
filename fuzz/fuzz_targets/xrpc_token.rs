#![no_main]
//! See `highwater_fuzz::xrpc_token`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| highwater_fuzz::xrpc_token(data));
