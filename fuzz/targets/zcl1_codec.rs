//! The target `zcl1_codec`: see `src/codec.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| millrace_fuzz::codec::check(input));
