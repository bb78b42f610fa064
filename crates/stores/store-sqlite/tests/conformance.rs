//! The conformance suite of the store crate, once with the defaults and once with every limit made small.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use millrace_conformance::Subject;
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

fn subject(options: SqliteOptions) -> Subject {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("store.db");
    let open = move || Box::new(SqliteStore::open(&path, options.clone()).unwrap());
    let open_beside = open.clone();
    let subject = Subject::new(open(), move |store| {
        let _keep = &folder;
        drop(store);
        open()
    });
    subject.open_beside(move || open_beside())
}

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

mod with_defaults {
    millrace_conformance::conformance_suite!(|| super::subject(
        millrace_store_sqlite::SqliteOptions::default()
    ));
}

mod with_small_seams {
    millrace_conformance::conformance_suite!(|| super::subject(super::small()));
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_history_matches_the_memory_store(seed: u64) {
        let steps = millrace_conformance::steps_from_seed(seed, 120);
        millrace_conformance::check_against_memory(&mut subject(small()), &steps);
    }

    #[test]
    fn any_history_of_claims_matches_the_memory_store(seed: u64) {
        millrace_conformance::check_claims_against_memory(&mut subject(small()), seed, 100);
    }
}
