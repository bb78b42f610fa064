//! Loads against a real server: a process of its own, with a temporary folder, over its sockets.

mod clients;
mod consume;
mod fanout;
mod inflight;
pub(crate) mod link;
mod recovery;
mod serial;
pub(crate) mod server;
pub(crate) mod stage;

use crate::BenchOptions;
use crate::bus::server::BenchServer;
use crate::bus::stage::BusStage;
use crate::error::BenchError;
use crate::probe::Probe;
use crate::report::{BenchReport, Collector};

/// Name, and whether the scenario runs by default.
pub const BUS_SCENARIOS: &[(&str, bool)] = &[
    ("serial", true),
    ("inflight", true),
    ("clients", true),
    ("consume", true),
    ("fanout", true),
    ("recovery", true),
];

pub(crate) type Scenario = fn(&mut BusStage<'_>) -> Result<(), BenchError>;

/// Scenarios that every round runs one after the other on one server.
pub(crate) const EVERY_ROUND: &[(&str, Scenario)] = &[
    ("serial", serial::run),
    ("inflight", inflight::run),
    ("clients", clients::run),
    ("consume", consume::run),
    ("fanout", fanout::run),
];

/// Scenarios that take long, say little about pace, and need a log of their own: run once.
const ONCE: &[(&str, Scenario)] = &[("recovery", recovery::run)];

pub fn bench_bus(options: &BenchOptions, progress: &mut dyn FnMut(&str)) -> Result<BenchReport, BenchError> {
    options.check(BUS_SCENARIOS)?;
    let mut out = Collector::default();
    let wanted = |runs: &'static [(&str, Scenario)]| {
        let wanted = runs.iter().filter(|(name, _)| options.wants(BUS_SCENARIOS, name));
        wanted.copied().collect::<Vec<_>>()
    };
    let every_round = wanted(EVERY_ROUND);
    for round in 1..=options.rounds {
        if every_round.is_empty() {
            break;
        }
        progress(&format!("round {round} of {}", options.rounds));
        on_a_server(options, &every_round, &mut out, progress)?;
    }
    for once in wanted(ONCE) {
        on_a_server(options, &[once], &mut out, progress)?;
    }
    let title = format!(
        "bus: {} B payloads, synced before the answer, {} rounds, medians",
        options.payload_bytes, options.rounds
    );
    Ok(out.report(&title))
}

fn on_a_server(
    options: &BenchOptions,
    runs: &[(&str, Scenario)],
    out: &mut Collector,
    progress: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let folder = options.scratch()?;
    let mut server = BenchServer::start(&options.program, folder.path())?;
    for (name, run) in runs {
        progress(name);
        let mut probe = Probe::open(folder.path())?;
        run(&mut BusStage { server: &mut server, options, probe: &mut probe, out, suffix: "" })?;
        out.add_disk_probe(name, &probe);
    }
    server.stop()
}
