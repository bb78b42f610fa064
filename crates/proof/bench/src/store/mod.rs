//! The store alone: no sockets, no engine, one caller.

pub(crate) mod append;
pub(crate) mod claims;
mod reads;

use std::path::Path;

use crate::BenchOptions;
use crate::aim::TOPICS_RATIO;
use crate::error::BenchError;
use crate::probe::Probe;
use crate::report::{BenchReport, Collector};

/// Name, and whether the scenario runs by default.
pub const STORE_SCENARIOS: &[(&str, bool)] =
    &[("append", true), ("topics", true), ("reads", true), ("claims", true)];

type Scenario = fn(&Path, &BenchOptions, &mut Probe, &mut Collector) -> Result<(), BenchError>;

const RUNS: &[(&str, Scenario)] = &[
    ("append", append::run),
    ("topics", append::run_topics),
    ("reads", reads::run),
    ("claims", claims::run),
];

pub fn bench_store(
    options: &BenchOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<BenchReport, BenchError> {
    options.check(STORE_SCENARIOS)?;
    let mut collector = Collector::default();
    for round in 1..=options.rounds {
        for (name, run) in RUNS.iter().filter(|(name, _)| options.wants(STORE_SCENARIOS, name)) {
            progress(&format!("round {round} of {}: {name}", options.rounds));
            let folder = options.scratch()?;
            let mut probe = Probe::open(folder.path())?;
            run(folder.path(), options, &mut probe, &mut collector)?;
            collector.add_disk_probe(name, &probe);
        }
    }
    if let Some(ratio) = append::topics_ratio(&collector) {
        collector.add("topics", TOPICS_RATIO, "ratio", ratio);
    }
    let title = format!(
        "store: {} B payloads, every commit synced (claims: none), {} rounds, medians",
        options.payload_bytes, options.rounds
    );
    Ok(collector.report(&title))
}
