//! Benchmarks of Millrace. Every figure is reported beside a raw `fdatasync` probe of the same disk in the same run:
//! machines differ and are noisy, so the ratios are the result.
//!
//! No limit here fails a run. Where there is an aim the report says met or missed; tests judge.
//!
//! Start with [`bench_bus`] (a server as a process of its own, loads over its sockets) and [`bench_store`] (the store
//! alone), [`bench_handlers`] (a program that embeds the library), [`bench_router`] (the CQRS loop over its Unix
//! socket, beside a raw echo), [`bench_engines`] (servers on PostgreSQL, object storage, MongoDB, beside raw requests of
//! those), [`bench_runs`] (effect runs, in this process), [`bench_loop`] (`sys/loop` of zABI
//! guests, in this process). [`bench_growth`] measures whether a server gets slower as its store grows, [`bench_soak`]
//! whether it stays healthy over time.

mod aim;
mod bus;
mod cpu;
mod engines;
mod error;
mod figures;
mod growth;
mod guest_loop;
mod handlers;
mod probe;
mod report;
mod router;
mod runs;
mod soak;
mod store;

pub use aim::Verdict;
pub use bus::{BUS_SCENARIOS, bench_bus};
pub use engines::{ENGINE_SCENARIOS, EngineOptions, bench_engines};
pub use error::BenchError;
pub use figures::{Latencies, Rounds};
pub use growth::{GrowthOptions, bench_growth};
pub use guest_loop::{LOOP_SCENARIOS, bench_loop};
pub use handlers::{HANDLER_SCENARIOS, bench_handlers, bench_handlers_worker};
pub use probe::Probe;
pub use report::{BenchReport, Row};
pub use router::{ROUTER_SCENARIOS, bench_router};
pub use runs::{RUNS_SCENARIOS, bench_runs};
pub use soak::{SoakCheck, SoakOptions, SoakReport, bench_soak};
pub use store::{STORE_SCENARIOS, bench_store};

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The options of a benchmark: which scenarios run, how long and where.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Where the temporary folder is made, which decides the disk that is measured. `None` = the system's place for
    /// such folders.
    pub folder: Option<PathBuf>,
    /// How often every scenario runs, interleaved with the others; medians are reported. (`recovery` runs once.)
    pub rounds: usize,
    /// How long a timed load runs.
    pub seconds: f64,
    pub payload_bytes: usize,
    /// Names out of [`BUS_SCENARIOS`], [`STORE_SCENARIOS`] and the like; empty = those that run by default.
    pub scenarios: Vec<String>,
    /// How many events `recovery` (bus), `reads` and `claims` (store), `retained` (handlers) and `fold` (engines) put
    /// into the log, and how many requests `memory` (router) makes.
    pub log_events: u64,
    /// The program whose `serve` is measured.
    pub program: PathBuf,
    /// Set by another thread to end a run early; the run cleans up.
    pub stop: Arc<AtomicBool>,
}

impl BenchOptions {
    fn wants(&self, all: &[(&str, bool)], name: &str) -> bool {
        match self.scenarios.is_empty() {
            true => all.iter().any(|(known, by_default)| *known == name && *by_default),
            false => self.scenarios.iter().any(|wanted| wanted == name),
        }
    }

    fn check(&self, all: &[(&str, bool)]) -> Result<(), BenchError> {
        match self.scenarios.iter().find(|wanted| !all.iter().any(|(known, _)| known == wanted)) {
            Some(unknown) => Err(BenchError::UnknownScenario {
                name: unknown.clone(),
                known: all.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", "),
            }),
            None => Ok(()),
        }
    }

    fn scratch(&self) -> Result<tempfile::TempDir, BenchError> {
        scratch(self.folder.as_deref())
    }

    fn go_on(&self) -> Result<(), BenchError> {
        go_on(&self.stop)
    }
}

fn scratch(folder: Option<&Path>) -> Result<tempfile::TempDir, BenchError> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("millrace-bench-");
    let made = match folder {
        Some(folder) => builder.tempdir_in(folder),
        None => builder.tempdir(),
    };
    made.map_err(|source| BenchError::io("making a temporary folder", source))
}

fn go_on(stop: &AtomicBool) -> Result<(), BenchError> {
    match stop.load(Ordering::Relaxed) {
        true => Err(BenchError::Interrupted),
        false => Ok(()),
    }
}
