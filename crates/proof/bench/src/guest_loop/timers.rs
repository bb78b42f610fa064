//! Arming and cancelling a timer beside 100,000 others.

use std::time::Duration;

use super::guest::Guest;
use crate::BenchOptions;
use crate::cpu::CpuTime;
use crate::error::BenchError;
use crate::report::Collector;

const TIMERS: u64 = 100_000;
/// No timer of this load is due before it ends.
const HOUR_NS: u64 = 3_600_000_000_000;
/// Pairs (arm and cancel) between two readings of the clock.
const PAIRS_TOGETHER: u64 = 1000;

pub(super) fn measure(options: &BenchOptions, out: &mut Collector) -> Result<(), BenchError> {
    let mut guest = Guest::new()?;
    // Spreads the deadlines in an order unlike that of the numbers (multiplied by an odd constant), so that practically
    // no two are equal.
    let spread = |number: u64| HOUR_NS + number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % HOUR_NS;
    for number in 1..=TIMERS {
        guest.arm(number, spread(number))?;
    }
    let (mut pairs, time) = (0, Duration::from_secs_f64(options.seconds) / 2);
    let begun = CpuTime::start();
    while begun.elapsed() < time {
        options.go_on()?;
        for _ in 0..PAIRS_TOGETHER {
            pairs += 1;
            guest.arm(TIMERS + pairs, spread(TIMERS + pairs))?;
            guest.cancel(TIMERS + pairs)?;
        }
    }
    let each_us = begun.elapsed().as_secs_f64() * 1e6 / (2 * pairs) as f64;
    out.add("timers", "arm or cancel beside 100,000 timers", "us", each_us);
    Ok(())
}
