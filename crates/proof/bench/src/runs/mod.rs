//! Effect runs: the scheduler alone with scripted guests, the memory, fairness and timers of many runs, and the steps
//! of wasm programs.
//!
//! Nothing here touches a disk or waits, so times are processor time, which does not depend on how busy the machine is.
//! `scheduler` is compared with the same guests stepped in a plain loop, without a scheduler.

mod scheduler;
mod sleeps;
mod suspended;
mod wasm;

use std::time::Duration;

use crate::BenchOptions;
use crate::aim::{IDLE_RATIO, SCHEDULER_RATIO};
use crate::error::BenchError;
use crate::report::{BenchReport, Collector};
use crate::runs::scheduler::{SchedulerLoad, bare_loop};

/// Name, and whether the scenario runs by default.
pub const RUNS_SCENARIOS: &[(&str, bool)] = &[
    ("scheduler", true),
    ("idle", true),
    ("suspended", true),
    ("fairness", true),
    ("sleeps", true),
    ("wasm", true),
];

/// Runs that are always ready.
const BUSY_RUNS: usize = 1000;
const FEW_IDLE: usize = 10;
const MANY_IDLE: usize = 100_000;
/// Loads that are compared alternate this often, because a machine's pace changes.
const SLICES: u32 = 10;

pub fn bench_runs(options: &BenchOptions, progress: &mut dyn FnMut(&str)) -> Result<BenchReport, BenchError> {
    options.check(RUNS_SCENARIOS)?;
    let mut out = Collector::default();
    let wants = |name: &str| options.wants(RUNS_SCENARIOS, name);
    // Measured first: later the allocator has free memory from other loads, and the figure would be too small.
    if wants("suspended") {
        progress("suspended");
        suspended::measure(MANY_IDLE, &mut out)?;
    }
    for round in 1..=options.rounds {
        progress(&format!("round {round} of {}", options.rounds));
        if wants("scheduler") {
            progress("scheduler");
            scheduler(options, &mut out)?;
        }
        if wants("idle") {
            progress("idle");
            idle(options, &mut out)?;
        }
        if wants("fairness") {
            progress("fairness");
            let served = scheduler::ticks_until_served(BUSY_RUNS)?;
            out.add("fairness", "ticks until served, 1,000 endless runs", "ticks", served.ticks as f64);
            out.add("fairness", "time until served", "ms", served.time.as_secs_f64() * 1000.0);
        }
        if wants("sleeps") {
            progress("sleeps");
            let took = sleeps::measure(options)?;
            out.add("sleeps", "a million virtual sleeps in random order", "s", took.as_secs_f64());
        }
        if wants("wasm") {
            progress("wasm");
            wasm::measure(&mut out)?;
        }
        options.go_on()?;
    }
    let title = format!(
        "runs: scripted guests and wasm programs on one thread, {} rounds, medians, processor time; the bare loop steps the same scripted \
         guests without a scheduler",
        options.rounds
    );
    Ok(out.report(&title))
}

fn slice(options: &BenchOptions) -> Duration {
    Duration::from_secs_f64(options.seconds) / SLICES
}

fn scheduler(options: &BenchOptions, out: &mut Collector) -> Result<(), BenchError> {
    let (mut many, mut one) = (SchedulerLoad::new(BUSY_RUNS, 0)?, SchedulerLoad::new(1, 0)?);
    let mut bare = StepPace::default();
    let (mut of_many, mut of_one) = (StepPace::default(), StepPace::default());
    let slice = slice(options) / 3;
    for _ in 0..SLICES {
        options.go_on()?;
        bare.add(bare_loop(BUSY_RUNS, slice));
        of_many.add(many.answer_at_once(slice)?);
        of_one.add(one.answer_at_once(slice)?);
    }
    out.add("scheduler", "1,000 runs, immediate effects", "steps/s", of_many.per_second());
    out.add("scheduler", "1 run, immediate effects", "steps/s", of_one.per_second());
    out.add("scheduler", "bare loop over 1,000 guests", "steps/s", bare.per_second());
    out.add("scheduler", SCHEDULER_RATIO, "ratio", bare.per_second() / of_many.per_second());
    Ok(())
}

/// Every idle run waits for a handler and has two timers: a wake-up of its handler and its deadline.
fn idle(options: &BenchOptions, out: &mut Collector) -> Result<(), BenchError> {
    let (mut few, mut many) =
        (SchedulerLoad::new(BUSY_RUNS, FEW_IDLE)?, SchedulerLoad::new(BUSY_RUNS, MANY_IDLE)?);
    let mut paces = [StepPace::default(); 4];
    let slice = slice(options) / 4;
    for _ in 0..SLICES {
        options.go_on()?;
        paces[0].add(few.answer_at_once(slice)?);
        paces[1].add(many.answer_at_once(slice)?);
        paces[2].add(few.sleep_one_ms(slice)?);
        paces[3].add(many.sleep_one_ms(slice)?);
    }
    let [few, many, few_sleeping, many_sleeping] = paces.map(|pace| 1e9 / pace.per_second());
    out.add("idle", "step beside 10 idle runs", "ns", few);
    out.add("idle", "step beside 100,000 idle runs", "ns", many);
    out.add("idle", IDLE_RATIO, "ratio", many / few);
    out.add("idle", "sleeping step beside 10 idle runs", "ns", few_sleeping);
    out.add("idle", "sleeping step beside 100,000 idle runs", "ns", many_sleeping);
    out.add("idle", &format!("{IDLE_RATIO}, sleeping"), "ratio", many_sleeping / few_sleeping);
    Ok(())
}

/// Steps and the processor time they took.
#[derive(Clone, Copy, Debug, Default)]
struct StepPace {
    steps: u64,
    time: Duration,
}

impl StepPace {
    fn add(&mut self, other: StepPace) {
        self.steps += other.steps;
        self.time += other.time;
    }

    fn per_second(self) -> f64 {
        self.steps as f64 / self.time.as_secs_f64().max(1e-9)
    }
}
