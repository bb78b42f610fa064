//! Runs jobs on an engine, each on a store of its own, several at a time: most of their time they wait for the engine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use millrace_conformance::Subject;
use millrace_conformance::engines::TestEngine;
use millrace_conformance::shared::{alone, in_turn};
use millrace_store_sqlite::SqliteOptions;

use crate::place::{TestPlace, Way};
use crate::rounds::seed;

const THREADS: usize = 4;

/// How many handles commit to one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handles {
    Alone,
    /// Two, one after the other; their copies are compared in the end.
    Twins,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) way: Way,
    pub(crate) handles: Handles,
}

impl Mode {
    pub(crate) const ALL: [Mode; 6] = [
        Mode { way: Way::Direct, handles: Handles::Alone },
        Mode { way: Way::Direct, handles: Handles::Twins },
        Mode { way: Way::Faulty, handles: Handles::Alone },
        Mode { way: Way::Faulty, handles: Handles::Twins },
        Mode { way: Way::Lossy, handles: Handles::Alone },
        Mode { way: Way::Lossy, handles: Handles::Twins },
    ];
}

pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    /// Decides the faults.
    pub(crate) seed: u64,
    pub(crate) work: Box<dyn Fn(&mut Subject) + Send + Sync>,
}

/// Runs all jobs and prints how many. Skips an engine that is not there.
pub(crate) fn run(engine: TestEngine, jobs: &[Job]) {
    let began = Instant::now();
    let (next, done, lossy) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let (line_faults, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, SeqCst)) {
            let Some(place) = TestPlace::new(engine, job.mode.way, job.seed) else { return };
            let place = Arc::new(place);
            // A job that fails leaves the others alone.
            let outcome =
                catch_unwind(AssertUnwindSafe(|| (job.work)(&mut subject(&place, job.mode.handles))));
            if outcome.is_err() {
                failed.lock().unwrap().push(format!("{} {:?}", job.name, job.mode));
            }
            done.fetch_add(1, SeqCst);
            lossy.fetch_add(usize::from(job.mode.way == Way::Lossy), SeqCst);
            line_faults.fetch_add(place.line_faults(), SeqCst);
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    let (done, lossy, faults) = (done.into_inner(), lossy.into_inner(), line_faults.into_inner());
    if done > 0 {
        let (name, seed, took) = (engine.name(), seed(), began.elapsed());
        let mode = jobs.iter().all(|job| job.mode == jobs[0].mode).then(|| format!(", {:?}", jobs[0].mode));
        let mode = mode.unwrap_or_default();
        println!(
            "{name}: {done} cases{mode}, {lossy} over a line with {faults} faults, {took:.1?}, TEST_ENGINE_SEED={seed}"
        );
    }
    assert_eq!(failed.into_inner().unwrap(), Vec::<String>::new(), "these failed, the seed is {}", seed());
    assert!(lossy < 5 || faults > 0, "the line had no fault");
}

fn subject(place: &Arc<TestPlace>, handles: Handles) -> Subject {
    let place = place.clone();
    match handles {
        Handles::Alone => alone(move |copy| place.open(copy, &SqliteOptions::default())),
        Handles::Twins => in_turn(move |copy| place.open(copy, &small())),
    }
}

/// The small seams of a copy: its borders are met after a few events.
fn small() -> SqliteOptions {
    SqliteOptions {
        fold_events: 8,
        loc_events_max: 5,
        commits_kept: 64,
        wal_bytes: 64 << 10,
        readers_max: 1,
        ..SqliteOptions::default()
    }
}
