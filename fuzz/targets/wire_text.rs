//! The target `wire_text`: see `src/wire_text.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| millrace_fuzz::wire_text::check(input));
