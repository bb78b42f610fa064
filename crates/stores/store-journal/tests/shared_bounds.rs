//! The bounds of a shared store: every server that leads keeps the same, whatever its own settings are.

#![allow(clippy::unwrap_used)]

mod harness;

use std::sync::Arc;

use harness::machine::{Machine, crash, event_id, manifest_of, memory, offset_of};
use harness::wire::{Moment, unknown};
use millrace_conformance::journal::JournalCall;
use millrace_journal::Journal;
use millrace_model::Offset;
use millrace_store::{Store, StoreError};
use millrace_store_journal::JournalStore;

fn remembering(journal: &Arc<impl Journal>, ids_max: u64) -> Machine {
    Machine::new(journal).with(|settings| settings.dedupe_ids_max = Some(ids_max))
}

fn send(store: &JournalStore, id: &str) -> Offset {
    offset_of(&store.commit(&[event_id(id)]).unwrap())
}

#[test]
fn a_leader_with_a_smaller_setting_forgets_no_ids() {
    let journal = memory();
    let (large, small) = (remembering(&journal, 100), remembering(&journal, 2));
    let leader = large.lead();
    for n in 1..=10 {
        assert_eq!(send(&leader, &format!("id-{n}")), Offset(n));
    }
    leader.step_down().unwrap();
    crash(leader);
    let leader = small.lead();
    assert_eq!(send(&leader, "id-1"), Offset(1), "a publish that is sent again is stored once");
    assert_eq!(manifest_of(&*journal).dedupe_ids_max, Some(100));
    // Also after a restart, and in a copy that is made anew.
    crash(leader);
    small.clock.pass(harness::machine::LEAD_TIMEOUT);
    std::fs::remove_file(&small.path).unwrap();
    let leader = small.open();
    small.clock.pass(harness::machine::LEAD_TIMEOUT);
    assert!(leader.try_lead().unwrap());
    assert_eq!(send(&leader, "id-1"), Offset(1));
}

#[test]
fn a_copy_that_was_opened_before_the_bound_was_raised_does_not_lead() {
    let journal = memory();
    let (small, large) = (remembering(&journal, 2), remembering(&journal, 100));
    let follower = small.open();
    let leader = large.lead();
    for n in 1..=10 {
        send(&leader, &format!("id-{n}"));
    }
    leader.step_down().unwrap();
    let refused = follower.try_lead();
    assert!(matches!(refused, Err(StoreError::Deposed(_))), "{refused:?}");
    assert!(follower.ended().is_some(), "its server opens the store again");
    crash(follower);
    let follower = small.open();
    assert!(follower.try_lead().unwrap());
    for n in 11..=12 {
        send(&follower, &format!("id-{n}"));
    }
    assert_eq!(send(&follower, "id-11"), Offset(11));
}

#[test]
fn two_servers_that_raise_the_bound_at_once_both_get_what_they_need() {
    let journal = memory();
    drop(remembering(&journal, 1).open());
    let (one, other) = (remembering(&journal, 50), remembering(&journal, 70));
    drop(other.open());
    drop(one.open());
    assert_eq!(manifest_of(&*journal).dedupe_ids_max, Some(70), "a bound never falls");
    // The answer to the change is lost: the change has happened, and is not made twice.
    let third = remembering(&journal, 90);
    let mut is_lost = false;
    third.wire.on(move |call, moment| {
        let is_answer = matches!((call, moment), (JournalCall::SetManifest, Moment::After));
        (is_answer && !std::mem::replace(&mut is_lost, true)).then(|| unknown("the answer is lost"))
    });
    drop(third.open());
    assert_eq!(manifest_of(&*journal).dedupe_ids_max, Some(90));
}

#[test]
fn a_tool_raises_nothing() {
    let journal = memory();
    drop(remembering(&journal, 5).open());
    drop(Machine::new(&journal).open());
    assert_eq!(manifest_of(&*journal).dedupe_ids_max, Some(5));
}

#[test]
fn the_bound_of_the_store_is_the_one_that_counts() {
    let journal = memory();
    let machine = remembering(&journal, 2);
    let leader = machine.lead();
    for n in 1..=10 {
        send(&leader, &format!("id-{n}"));
    }
    assert_eq!(send(&leader, "id-1"), Offset(11), "the two newest ids are remembered");
    assert_eq!(send(&leader, "id-10"), Offset(10));
}
