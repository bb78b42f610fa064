//! The store alone: no sockets, no engine, one caller.

mod append;
mod reads;

use crate::BenchOptions;
use crate::error::BenchError;
use crate::probe::probe;
use crate::report::{Collector, Report};

/// Name, and whether it runs when nothing is asked for.
pub const STORE_SCENARIOS: &[(&str, bool)] = &[("append", true), ("topics", true), ("reads", true)];

type Scenario = fn(&std::path::Path, &BenchOptions, &mut Collector) -> Result<(), BenchError>;

const RUNS: &[(&str, Scenario)] =
    &[("append", append::run), ("topics", append::run_topics), ("reads", reads::run)];

pub fn bench_store(options: &BenchOptions, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    options.check(STORE_SCENARIOS)?;
    let mut collector = Collector::default();
    for round in 1..=options.rounds {
        for (name, run) in RUNS.iter().filter(|(name, _)| options.wants(STORE_SCENARIOS, name)) {
            progress(&format!("round {round} of {}: {name}", options.rounds));
            let folder = options.scratch()?;
            let before = probe(folder.path())?.quantile_ms(0.5);
            run(folder.path(), options, &mut collector)?;
            let after = probe(folder.path())?.quantile_ms(0.5);
            collector.add_probe(name, f64::midpoint(before, after));
        }
    }
    if let Some(ratio) = append::topics_ratio(&collector) {
        collector.add("topics", "1,000 topics / 1 topic", "ratio", ratio);
    }
    let title = format!(
        "store: {} B payloads, every commit synced, {} rounds, medians",
        options.payload_bytes, options.rounds
    );
    Ok(collector.report(&title))
}
