//! All random choices of the crash test derive from one seed, so that a run can be repeated.

use std::time::{SystemTime, UNIX_EPOCH};

const VARIABLE: &str = "MILLRACE_CRASH_SEED";

/// Returns the seed from the environment, or one from the clock.
pub fn seed() -> u64 {
    match std::env::var(VARIABLE) {
        Ok(text) => {
            text.parse().unwrap_or_else(|_| panic!("{VARIABLE} is {text:?}: a whole number is expected"))
        }
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_micros() as u64,
    }
}

/// A random generator (SplitMix64): short, and good enough to pick moments.
pub struct Dice(u64);

impl Dice {
    /// Returns separate dice for every thread of every round: the draws of one thread do not depend on the pace of the
    /// others.
    pub fn of(seed: u64, round: u64, who: u64) -> Dice {
        let mut dice = Dice(seed ^ (round << 32) ^ (who << 48));
        dice.below(1);
        dice
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
