//! Loads against a real server: a process of its own, on a temporary folder, over its sockets.

mod clients;
mod consume;
mod fanout;
mod inflight;
mod link;
mod recovery;
mod serial;
mod server;

use crate::error::BenchError;
use crate::probe::probe;
use crate::report::{Collector, Report};
use crate::{BenchOptions, bus::server::Server};

/// Name, and whether it runs when nothing is asked for.
pub const BUS_SCENARIOS: &[(&str, bool)] = &[
    ("serial", true),
    ("inflight", true),
    ("clients", true),
    ("consume", true),
    ("fanout", true),
    ("recovery", false),
];

type Scenario = fn(&mut Server, &BenchOptions, &mut Collector) -> Result<(), BenchError>;

const RUNS: &[(&str, Scenario)] = &[
    ("serial", serial::run),
    ("inflight", inflight::run),
    ("clients", clients::run),
    ("consume", consume::run),
    ("fanout", fanout::run),
    ("recovery", recovery::run),
];

pub fn bench_bus(options: &BenchOptions, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    options.check(BUS_SCENARIOS)?;
    let mut collector = Collector::default();
    for round in 1..=options.rounds {
        let folder = options.scratch()?;
        let mut server = Server::start(&options.program, folder.path())?;
        for (name, run) in RUNS.iter().filter(|(name, _)| options.wants(BUS_SCENARIOS, name)) {
            progress(&format!("round {round} of {}: {name}", options.rounds));
            let before = probe(folder.path())?.quantile_ms(0.5);
            run(&mut server, options, &mut collector)?;
            let after = probe(folder.path())?.quantile_ms(0.5);
            collector.add_probe(name, f64::midpoint(before, after));
        }
        server.stop()?;
    }
    let title = format!(
        "bus: {} B payloads, synced before the answer, {} rounds, medians",
        options.payload_bytes, options.rounds
    );
    Ok(collector.report(&title))
}
