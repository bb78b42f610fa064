//! How much is run: `TEST_ENGINE_ROUNDS` asks for every case in every way and so many random histories in each,
//! `TEST_ENGINE_SEED` repeats the choices of an earlier run.

use std::sync::OnceLock;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

/// Returns `None` for the ordinary run, which has each case once.
pub(crate) fn rounds() -> Option<u64> {
    number("TEST_ENGINE_ROUNDS")
}

/// Returns the number that every choice of this process depends on.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| number("TEST_ENGINE_SEED").unwrap_or_else(|| rand::random_range(0..1_000_000)))
}
