//! `sys/loop` of zABI guests: the cost of a POLL with many idle watches, the cost of a timer beside many others, how
//! late timers are, and how fast a guest echoes.
//!
//! Costs are processor time of this process, which does not depend on how busy the machine is. Lateness and echo are
//! wall-clock time, compared with epoll without a guest in the same round.

mod echo;
mod guest;
mod lateness;
mod poll;
mod timers;

use crate::BenchOptions;
use crate::error::BenchError;
use crate::report::{BenchReport, Collector};

/// Name, and whether the scenario runs by default.
pub const LOOP_SCENARIOS: &[(&str, bool)] =
    &[("poll", true), ("timers", true), ("lateness", true), ("echo", true)];

type Scenario = fn(&BenchOptions, &mut Collector) -> Result<(), BenchError>;

const EVERY_ROUND: &[(&str, Scenario)] = &[
    ("poll", poll::measure),
    ("timers", timers::measure),
    ("lateness", lateness::measure),
    ("echo", echo::measure),
];

pub fn bench_loop(options: &BenchOptions, progress: &mut dyn FnMut(&str)) -> Result<BenchReport, BenchError> {
    options.check(LOOP_SCENARIOS)?;
    let mut out = Collector::default();
    for round in 1..=options.rounds {
        for (name, measure) in EVERY_ROUND.iter().filter(|(name, _)| options.wants(LOOP_SCENARIOS, name)) {
            options.go_on()?;
            progress(&format!("round {round} of {}: {name}", options.rounds));
            measure(options, &mut out)?;
        }
    }
    let title = format!(
        "loop: a zABI guest on one thread, through zi_write and zi_read, {} rounds, medians; poll and timers: processor time",
        options.rounds
    );
    Ok(out.report(&title))
}
