//! Random numbers for programs: from the system, or from a seed so that a run can be repeated.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// How many bytes one `fill_bytes` returns at most.
pub const FILL_BYTES_MAX: usize = 1_000_000;

/// A random generator, shared by the runs of one host: with a seed, the same calls in the same order draw the same
/// numbers.
#[derive(Debug)]
pub struct RandomSource(Mutex<StdRng>);

impl RandomSource {
    /// Seeded by the system.
    pub fn fresh() -> RandomSource {
        RandomSource(Mutex::new(StdRng::from_os_rng()))
    }

    pub fn seeded(seed: u64) -> RandomSource {
        RandomSource(Mutex::new(StdRng::seed_from_u64(seed)))
    }

    pub fn next_i64(&self) -> i64 {
        self.0.lock().next_u64().cast_signed()
    }

    pub fn bytes(&self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count.min(FILL_BYTES_MAX)];
        self.0.lock().fill_bytes(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same() {
        let (one, two, other) = (RandomSource::seeded(7), RandomSource::seeded(7), RandomSource::seeded(8));
        let first = (one.next_i64(), one.bytes(5));
        assert_eq!(first, (two.next_i64(), two.bytes(5)));
        assert_ne!(first, (other.next_i64(), other.bytes(5)));
        assert_ne!(RandomSource::fresh().bytes(16), RandomSource::fresh().bytes(16));
    }

    #[test]
    fn a_request_for_too_much_is_cut() {
        assert_eq!(RandomSource::seeded(1).bytes(usize::MAX).len(), FILL_BYTES_MAX);
    }
}
