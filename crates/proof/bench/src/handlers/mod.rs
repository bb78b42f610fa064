//! Durable handlers: a program that embeds `millrace` on one file, alone and as one of eight processes.

mod enqueue;
mod idle;
mod load;
pub(crate) mod processes;
mod retained;
mod roundtrip;
mod run;
mod stage;
mod worker;

pub use worker::bench_handlers_worker;

use crate::BenchOptions;
use crate::error::BenchError;
use crate::probe::Probe;
use crate::report::{BenchReport, Collector};
use stage::HandlersStage;

/// Name, and whether the scenario runs by default.
pub const HANDLER_SCENARIOS: &[(&str, bool)] = &[
    ("noop", true),
    ("keyed", true),
    ("state", true),
    ("one", true),
    ("many", true),
    ("emit", true),
    ("enqueue", true),
    ("processes", true),
    ("roundtrip", true),
    ("retained", true),
    ("idle", false),
];

type Scenario = fn(&mut HandlersStage<'_>) -> Result<(), BenchError>;

const EVERY_ROUND: &[(&str, Scenario)] = &[
    ("noop", run::noop),
    ("keyed", run::keyed),
    ("state", run::state),
    ("one", run::one),
    ("many", run::many),
    ("emit", run::emit),
    ("enqueue", enqueue::run),
    ("processes", processes::run),
    ("roundtrip", roundtrip::run),
];

/// Filling the store takes long, and so does waiting until processes are calm: run once.
const ONCE: &[(&str, Scenario)] = &[("retained", retained::run), ("idle", idle::run)];

pub fn bench_handlers(
    options: &BenchOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<BenchReport, BenchError> {
    options.check(HANDLER_SCENARIOS)?;
    let mut out = Collector::default();
    let mut all = |runs: &[(&str, Scenario)], round: &str| {
        for (name, run) in runs.iter().filter(|(name, _)| options.wants(HANDLER_SCENARIOS, name)) {
            progress(&format!("{round}{name}"));
            let folder = options.scratch()?;
            let mut probe = Probe::open(folder.path())?;
            run(&mut HandlersStage { folder: folder.path(), options, probe: &mut probe, out: &mut out })?;
            out.add_disk_probe(name, &probe);
        }
        Ok::<_, BenchError>(())
    };
    for round in 1..=options.rounds {
        all(EVERY_ROUND, &format!("round {round} of {}: ", options.rounds))?;
    }
    all(ONCE, "")?;
    let title = format!(
        "handlers: {} B payloads, synced before the answer (retained: nothing synced), {} rounds, medians",
        options.payload_bytes, options.rounds
    );
    Ok(out.report(&title))
}
