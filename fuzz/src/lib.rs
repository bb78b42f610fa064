//! The checks that every input of a fuzz target must pass. `targets/` hands them the inputs of libFuzzer.
//!
//! A check that fails panics, and libFuzzer keeps the input. How to run the targets, and an input again:
//! `docs/fuzzing.md`.

// The tests are compiled with the same counters as the targets, and libFuzzer holds the counters.
#[cfg(test)]
use libfuzzer_sys as _;

pub mod codec;
pub mod dispatcher;
pub mod seeds;
pub mod wire_text;
