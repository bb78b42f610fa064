//! The conformance suite on a shared store: with one handle, with twins, and over a journal that loses and repeats.

mod harness;

use std::sync::Arc;

use harness::{handles, small};
use millrace_conformance::Subject;
use millrace_conformance::journal::{FaultPlan, FaultyJournal};
use millrace_conformance::shared::{alone, in_turn};
use millrace_journal::{Journal, MemoryJournal};
use millrace_store_sqlite::SqliteOptions;

fn memory() -> impl Fn() -> Arc<dyn Journal> {
    let journal = Arc::new(MemoryJournal::new());
    move || journal.clone()
}

fn faulty() -> impl Fn() -> Arc<dyn Journal> {
    let journal = Arc::new(MemoryJournal::new());
    let plan = FaultPlan {
        seed: 7,
        lose_request_every: 5,
        lose_answer_every: 5,
        repeat_every: 7,
        late_every: 9,
        ..FaultPlan::default()
    };
    move || Arc::new(FaultyJournal::new(journal.clone(), plan))
}

fn one_handle() -> Subject {
    alone(handles(SqliteOptions::default(), memory()))
}

fn twin_handles() -> Subject {
    in_turn(handles(small(), memory()))
}

fn one_handle_with_faults() -> Subject {
    alone(handles(small(), faulty()))
}

fn twins_with_faults() -> Subject {
    in_turn(handles(SqliteOptions::default(), faulty()))
}

mod alone {
    millrace_conformance::conformance_suite!(super::one_handle);
}

mod in_turn {
    millrace_conformance::conformance_suite!(super::twin_handles);
}

mod alone_with_faults {
    millrace_conformance::conformance_suite!(super::one_handle_with_faults);
}

mod in_turn_with_faults {
    millrace_conformance::conformance_suite!(super::twins_with_faults);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 12, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_history_of_twins_matches_the_memory_store(seed: u64) {
        let steps = millrace_conformance::steps_from_seed(seed, 120);
        millrace_conformance::check_against_memory(&mut twin_handles(), &steps);
    }

    #[test]
    fn any_history_of_twins_with_faults_matches_the_memory_store(seed: u64) {
        let steps = millrace_conformance::steps_from_seed(seed, 120);
        millrace_conformance::check_against_memory(&mut twins_with_faults(), &steps);
    }

    #[test]
    fn any_history_of_claims_of_twins_matches_the_memory_store(seed: u64) {
        millrace_conformance::check_claims_against_memory(&mut twins_with_faults(), seed, 100);
    }
}
