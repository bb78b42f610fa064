//! Servers on a store that the command line names, beside the raw requests of its engine in the same run.
//!
//! Every scenario has a fresh store of its own, beside what the URL names (`place.rs`), and removes it. The probe of a
//! scenario is the engine's own smallest durable write (`raw.rs`), slice by slice in turn with the load.

mod commits;
mod fold;
mod inflight;
mod journal_bytes;
mod outbox;
mod payloads;
mod place;
mod puts;
mod raw;
#[cfg(feature = "mongo")]
mod raw_mongo;
#[cfg(feature = "object")]
mod raw_object;
#[cfg(feature = "postgres")]
mod raw_postgres;
mod row_rate;
mod serial;
mod stage;
mod takeover;

use self::payloads::Payloads;
use self::place::{BenchPlace, EngineKind, MeasuredStore};
use self::stage::EngineStage;
use crate::BenchOptions;
use crate::error::BenchError;
use crate::figures::Rounds;
use crate::report::{BenchReport, Collector};

/// Name, and whether the scenario runs by default.
pub const ENGINE_SCENARIOS: &[(&str, bool)] = &[
    ("serial", true),
    ("inflight", true),
    ("commits", true),
    ("fold", true),
    ("bytes", true),
    ("outbox", true),
    ("puts", true),
    ("takeover", true),
];

/// The stores to measure and the limits of `takeover`, beside the options of every benchmark.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// URLs of stores. Nothing that is there is touched.
    pub stores: Vec<String>,
    /// How often `takeover` kills the leader.
    pub kills: u32,
    /// `None` = the engine's own.
    pub lead_timeout_ms: Option<u64>,
}

type Scenario = fn(&mut EngineStage<'_>) -> Result<(), BenchError>;
type Fits = fn(EngineKind) -> bool;

const SHARED: Fits = EngineKind::is_shared;
const ALL: Fits = |_| true;
const POSTGRES: Fits = |kind| matches!(kind, EngineKind::Postgres);

const EVERY_ROUND: &[(&str, Fits, Scenario)] = &[
    ("serial", ALL, serial::run),
    ("inflight", ALL, inflight::run),
    ("commits", SHARED, commits::run),
    ("fold", SHARED, fold::run),
    ("bytes", SHARED, journal_bytes::run),
    ("outbox", POSTGRES, outbox::run),
];

/// Scenarios that mostly wait: run once.
const ONCE: &[(&str, Fits, Scenario)] = &[("puts", SHARED, puts::run), ("takeover", SHARED, takeover::run)];

pub fn bench_engines(
    options: &BenchOptions,
    engine_options: &EngineOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<BenchReport, BenchError> {
    options.check(ENGINE_SCENARIOS)?;
    let stores = MeasuredStore::all(&engine_options.stores)?;
    let mut payloads = Payloads::new(options.payload_bytes);
    let mut out = Collector::default();
    let rounds =
        (1..=options.rounds).map(|round| (format!("round {round} of {}: ", options.rounds), EVERY_ROUND));
    for (prefix, scenarios) in rounds.chain([(String::new(), ONCE)]) {
        for (scenario, fits, run) in
            scenarios.iter().filter(|(name, ..)| options.wants(ENGINE_SCENARIOS, name))
        {
            for store in stores.iter().filter(|store| fits(store.kind)) {
                progress(&format!("{prefix}{scenario} on {}", store.label));
                let folder = options.scratch()?;
                let mut place = BenchPlace::new(store)?;
                let mut stage = EngineStage {
                    kind: store.kind,
                    name: format!("{} {scenario}", store.label),
                    place: &mut place,
                    folder: folder.path(),
                    options,
                    engine_options,
                    out: &mut out,
                    payloads: &mut payloads,
                    probe: Rounds::default(),
                };
                let ran = run(&mut stage);
                let (name, probe) = (stage.name, stage.probe);
                // Also after a failure, which counts more than one of the removal.
                let removed = place.remove();
                ran.and(removed)?;
                out.add_probe(&name, probe.median());
            }
        }
    }
    let title = format!(
        "engines: {} B payloads that cannot be compressed, {} rounds, medians; probe = the engine's own smallest \
         durable write",
        options.payload_bytes, options.rounds
    );
    Ok(out.report(&title))
}
