//! Runs the cases of the conformance suite, each on a store of its own, several at a time: most of their time they wait
//! for the engine.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use millrace_conformance::engines::TestEngine;
use millrace_conformance::shared::{alone, in_turn};
use millrace_conformance::{CASES, Subject, run_case};
use millrace_store_sqlite::SqliteOptions;

use crate::place::{TestPlace, Way};

const THREADS: usize = 4;

/// How many handles commit to one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handles {
    Alone,
    /// Two, one after the other; their copies are compared in the end.
    Twins,
}

/// The small seams of a copy: its borders are met after a few events.
pub(crate) fn small() -> SqliteOptions {
    SqliteOptions {
        fold_events: 8,
        loc_events_max: 5,
        commits_kept: 64,
        wal_bytes: 64 << 10,
        readers_max: 1,
        ..SqliteOptions::default()
    }
}

pub(crate) fn subject(place: &Arc<TestPlace>, handles: Handles) -> Subject {
    let place = place.clone();
    match handles {
        Handles::Alone => alone(move |copy| place.open(copy, &SqliteOptions::default())),
        Handles::Twins => in_turn(move |copy| place.open(copy, &small())),
    }
}

/// Runs all cases and prints how many.
pub(crate) fn all_cases(engine: TestEngine, way: Way, handles: Handles) {
    each(engine, way, CASES.len(), |at, place| {
        run_case(CASES[at].0, &mut subject(place, handles));
    });
}

/// Runs `count` cases, each on a fresh store, and prints what it did. Skips an engine that is not there.
pub(crate) fn each(
    engine: TestEngine,
    way: Way,
    count: usize,
    case: impl Fn(usize, &Arc<TestPlace>) + Sync,
) {
    let began = Instant::now();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (line_faults, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let at @ 0.. = next.fetch_add(1, SeqCst)
            && at < count
        {
            let Some(place) = TestPlace::new(engine, way, at as u64) else { return };
            let place = Arc::new(place);
            match catch_unwind(AssertUnwindSafe(|| case(at, &place))) {
                Ok(()) => done.fetch_add(1, SeqCst),
                Err(_) => {
                    failed.lock().unwrap().push(CASES.get(at).map_or(at.to_string(), |(name, _)| (*name).into()));
                    0
                }
            };
            line_faults.fetch_add(place.line_faults(), SeqCst);
        }
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    assert_eq!(failed.into_inner().unwrap(), Vec::<String>::new(), "these cases failed");
    let (done, faults) = (done.into_inner(), line_faults.into_inner());
    if done > 0 {
        let name = engine.name();
        println!("{name}: {done} cases, {way:?}, {faults} faults of the line, {:.1?}", began.elapsed());
        assert!(way != Way::Lossy || faults > 0, "the line had no fault");
    }
}
