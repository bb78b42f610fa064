//! A million runs that each sleep once, under a virtual clock that moves from deadline to deadline.

use std::time::Duration;

use millrace_model::Mono;
use millrace_runs::{Answer, Effect, Guest, Input};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::BenchOptions;
use crate::cpu::CpuTime;
use crate::error::BenchError;
use crate::runs::scheduler::{SchedulerLoad, asks_once};

const SLEEPS: usize = 1_000_000;
/// The longest sleep: large, so that nearly all deadlines are different.
const SLEEP_MS_MAX: u64 = 100_000_000;
/// Ticks between two checks whether the user has interrupted.
const TICKS: u32 = 10_000;

/// Measures from the first start to the last outcome.
pub(super) fn measure(options: &BenchOptions) -> Result<Duration, BenchError> {
    let mut random = SmallRng::seed_from_u64(12);
    let begun = CpuTime::start();
    let mut load = SchedulerLoad::empty();
    let script = asks_once();
    for _ in 0..SLEEPS {
        load.start(&script, None)?;
    }
    let (mut now, mut ended, mut ticks) = (Mono(0), 0, 0_u32);
    while let Some(at) = load.runs.next_deadline() {
        now = now.max(at);
        load.runs.tick(now);
        while load.runs.step(&mut load.log) {
            while let Some(effect) = load.runs.next_effect() {
                match effect {
                    Effect::Call { call, .. } => {
                        let at = Mono(random.random_range(1..SLEEP_MS_MAX));
                        load.runs.handle(now, Input::AnswerAt { call, at, answer: Answer::Resume(1) })?;
                    }
                    Effect::Release { guest, .. } => guest.release(&mut load.log),
                    Effect::Outcome { .. } => ended += 1,
                    _ => {}
                }
            }
        }
        ticks = ticks.wrapping_add(1);
        if ticks.is_multiple_of(TICKS) {
            options.go_on()?;
        }
    }
    match ended == SLEEPS {
        true => Ok(begun.elapsed()),
        false => Err(BenchError::Unexpected(format!("{ended} of {SLEEPS} sleeping runs ended"))),
    }
}
