//! Trimming: a server that slept while its numbers were trimmed and deleted must not believe that they are free.

#![allow(clippy::unwrap_used)]

mod harness;

use std::sync::Arc;

use harness::clock::{DAY, HOUR, MINUTE};
use harness::machine::{
    LEAD_TIMEOUT, Machine, crash, dump, event_id, folded, heads, is_poisoned_by, manifest_of, memory,
    offset_of, publish, texts,
};
use millrace_conformance::journal::JournalCall;
use millrace_journal::Journal;
use millrace_store::Store;
use millrace_store_journal::JournalStore;

/// Runs a case on the journal in memory and on one in a folder.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod in_memory {
            $(#[test] fn $name() { super::$name(&super::memory()); })*
        }
        mod in_a_folder {
            $(#[test] fn $name() {
                let folder = tempfile::tempdir().unwrap();
                let journal = millrace_journal::DirectoryJournal::new(folder.path().join("journal"));
                super::$name(&std::sync::Arc::new(journal));
            })*
        }
    };
}

on_both! {
    a_writer_that_slept_is_told_that_nothing_was_placed
    a_writer_that_slept_between_its_check_and_its_placing_is_told_too
    an_answer_from_the_past_is_not_given
    a_record_that_a_sleeper_left_is_not_folded
    records_are_deleted_after_the_grace_time_and_the_newest_are_kept
    a_copy_behind_the_trim_is_made_anew
}

fn is_place(call: JournalCall) -> bool {
    matches!(call, JournalCall::Place { .. })
}

/// Takes the lead on `machine`, publishes, makes a snapshot, and deletes what is trimmed after its grace time.
fn trim_and_delete(machine: &Machine, events: usize) -> Arc<JournalStore> {
    let store = machine.open();
    machine.clock.pass(LEAD_TIMEOUT);
    assert!(store.try_lead().unwrap());
    for n in 0..events {
        publish(&store, &format!("meanwhile {n}")).unwrap();
    }
    store.snapshot().unwrap();
    machine.clock.pass(DAY);
    store.keep();
    store
}

fn first_record(journal: &dyn Journal) -> u64 {
    heads(journal)[0].n
}

type Sleep = fn(&Machine);

/// How the sleep shows: by all clocks, by one of them only, or only by the engine's.
const SLEEPS: [(&str, Sleep); 4] = [
    ("both clocks", |machine| machine.clock.pass(3 * DAY)),
    ("the clock that never steps", |machine| machine.clock.pass_mono(3 * DAY)),
    ("the wall clock", |machine| machine.clock.pass_wall(3 * DAY)),
    ("the engine's clock", |machine| machine.wire.set_engine_time(1_700_000_000_000 + 3 * DAY)),
];

fn with_engine_time(machine: Machine) -> Machine {
    machine.wire.set_engine_time(1_700_000_000_000);
    machine
}

fn a_writer_that_slept_is_told_that_nothing_was_placed<J: Journal>(journal: &Arc<J>) {
    for (at, (name, sleep)) in SLEEPS.into_iter().enumerate() {
        let (sleeper, other) = (with_engine_time(Machine::new(journal)), Machine::new(journal));
        sleeper.clock.pass(LEAD_TIMEOUT);
        let store = sleeper.open();
        sleeper.clock.pass(LEAD_TIMEOUT);
        assert!(store.try_lead().unwrap());
        publish(&store, &format!("before {at}")).unwrap();
        let next = store.status().position.n + 1;
        let _leader = trim_and_delete(&other, 10);
        assert!(first_record(&**journal) > next, "the number is free again");
        let before = (heads(&**journal), folded(journal));
        sleep(&sleeper);
        let error = publish(&store, "for nobody").unwrap_err();
        assert!(is_poisoned_by(&error, "stale") && !error.wrote_nothing(), "{name}: {error}");
        assert!(sleeper.is_condemned_as("stale"));
        assert_eq!((heads(&**journal), folded(journal)), before, "{name}");
        assert!(is_poisoned_by(&publish(&store, "again").unwrap_err(), "stale"));
        drop(store);
        assert_eq!(texts(&sleeper.open()), before.1, "{name}: made anew from the snapshot");
        assert_eq!(sleeper.aside("stale"), [""; 0], "a stale copy is of no use");
    }
}

fn a_writer_that_slept_between_its_check_and_its_placing_is_told_too<J: Journal>(journal: &Arc<J>) {
    for (at, (name, sleep)) in SLEEPS.into_iter().enumerate() {
        let (sleeper, other) = (Arc::new(with_engine_time(Machine::new(journal))), Machine::new(journal));
        let store = sleeper.open();
        sleeper.clock.pass(LEAD_TIMEOUT);
        assert!(store.try_lead().unwrap());
        publish(&store, &format!("before {at}")).unwrap();
        let next = store.status().position.n + 1;
        let asleep = sleeper.clone();
        sleeper.wire.once_before(is_place, move || {
            trim_and_delete(&other, 10);
            sleep(&asleep);
        });
        let error = publish(&store, "for nobody").unwrap_err();
        assert!(is_poisoned_by(&error, "stale"), "{name}: {error}");
        assert!(sleeper.is_condemned_as("stale"));
        // The record lies there, and nobody ever folds it.
        assert_eq!(first_record(&**journal), next);
        sleeper.wire.mend();
        assert!(!folded(journal).contains(&"for nobody".to_owned()), "{name}");
        drop(store);
        assert!(!texts(&sleeper.open()).contains(&"for nobody".to_owned()));
        // The next server that cleans up deletes it.
        drop(trim_and_delete(&Machine::new(journal), 3));
        assert!(first_record(&**journal) > next, "{name}");
    }
}

/// A commit that changes nothing looks whether the copy is at the journal's end: a deleted number is no such sign.
fn an_answer_from_the_past_is_not_given<J: Journal>(journal: &Arc<J>) {
    let (sleeper, other) = (Machine::new(journal).free(), Machine::new(journal));
    let store = sleeper.open();
    store.commit(&[event_id("brought")]).unwrap();
    let again = store.commit(&[event_id("brought")]).unwrap();
    assert_eq!(offset_of(&again).0, 1, "a duplicate");
    drop(trim_and_delete(&other, 10));
    sleeper.clock.pass(3 * DAY);
    let error = store.commit(&[event_id("brought")]).unwrap_err();
    assert!(is_poisoned_by(&error, "stale"), "{error}");
}

/// A follower that slept too would find the record of a sleeping writer, with the right tip before it.
fn a_record_that_a_sleeper_left_is_not_folded<J: Journal>(journal: &Arc<J>) {
    let (sleeper, reader) = (Arc::new(Machine::new(journal)), Machine::new(journal));
    let (store, follower) = (sleeper.lead(), reader.open());
    publish(&store, "before").unwrap();
    follower.follow().unwrap();
    let (asleep, other) = (sleeper.clone(), Machine::new(journal));
    sleeper.wire.once_before(is_place, move || {
        trim_and_delete(&other, 10);
        asleep.clock.pass(3 * DAY);
    });
    publish(&store, "for nobody").unwrap_err();
    reader.clock.pass(3 * DAY);
    let error = follower.follow().unwrap_err();
    assert!(is_poisoned_by(&error, "stale"), "{error}");
    assert_eq!(texts(&follower), ["before"]);
    drop(follower);
    let again = reader.open();
    assert_eq!(texts(&again).len(), 11);
    assert_eq!(reader.aside("diverged"), [""; 0], "the engine has lost nothing");

    // Also a copy that was closed meanwhile.
    let closed = Machine::new(journal);
    crash(closed.open());
}

fn records_are_deleted_after_the_grace_time_and_the_newest_are_kept<J: Journal>(journal: &Arc<J>) {
    let machine = Machine::new(journal).with(|settings| settings.records_kept = 4);
    let leader = machine.lead();
    for n in 0..9 {
        publish(&leader, &n.to_string()).unwrap();
    }
    let made = leader.snapshot().unwrap();
    assert_eq!((made.n, manifest_of(&**journal).trimmed_to), (10, 6));
    // A clean-up is due every ten minutes.
    for _ in 0..23 * 6 + 5 {
        machine.clock.pass(10 * MINUTE);
        leader.keep();
        assert_eq!(first_record(&**journal), 1, "the grace time is not over");
    }
    machine.clock.pass(10 * MINUTE);
    leader.keep();
    assert_eq!(first_record(&**journal), 7);
    publish(&leader, "goes on").unwrap();
    assert_eq!(dump(&Machine::new(journal).free().open()), dump(&leader));
}

fn a_copy_behind_the_trim_is_made_anew<J: Journal>(journal: &Arc<J>) {
    let (behind, other) = (Machine::new(journal), Machine::new(journal));
    let store = behind.lead();
    publish(&store, "before").unwrap();
    drop(store);
    let leader = trim_and_delete(&other, 10);
    publish(&leader, "after").unwrap();
    let again = behind.open();
    assert_eq!(dump(&again), dump(&leader));
    assert_eq!(behind.aside("stale"), [""; 0]);
}

/// A follower that is open and lags behind the trim, whose records are still there, goes on folding them.
#[test]
fn a_follower_less_than_an_hour_behind_the_trim_goes_on() {
    let journal = memory();
    let (one, other) = (Machine::new(&journal), Machine::new(&journal));
    let (leader, follower) = (one.lead(), other.open());
    for round in 0..3 {
        for n in 0..10 {
            publish(&leader, &format!("{round} {n}")).unwrap();
        }
        leader.snapshot().unwrap();
        assert!(manifest_of(&*journal).trimmed_to > follower.status().position.n + 5);
        other.clock.pass(20 * MINUTE);
        follower.keep();
        assert_eq!(follower.ended(), None, "round {round}");
        assert_eq!(texts(&follower), texts(&leader));
    }
}

#[test]
fn a_closed_copy_whose_records_are_still_there_is_not_made_anew() {
    let journal = memory();
    let (one, other) = (Machine::new(&journal), Machine::new(&journal));
    let leader = one.lead();
    publish(&leader, "first").unwrap();
    drop(other.open());
    for n in 0..10 {
        publish(&leader, &n.to_string()).unwrap();
    }
    leader.snapshot().unwrap();
    other.wire.take_calls();
    let again = other.open();
    assert_eq!(texts(&again), texts(&leader));
    assert!(!other.wire.take_calls().contains(&JournalCall::GetPart), "the journal was enough");
}

#[test]
fn the_manifest_is_read_again_when_the_last_reading_is_an_hour_old() {
    let journal = memory();
    let machine = Machine::new(&journal).free();
    let store = machine.open();
    let readings = |act: &dyn Fn()| {
        machine.wire.take_calls();
        act();
        machine.wire.take_calls().iter().filter(|call| **call == JournalCall::Manifest).count()
    };
    let place = || assert!(publish(&store, "x").is_ok());
    let look = || assert!(store.commit(&[event_id("same")]).is_ok());
    let follow = || assert!(store.follow().is_ok());
    look();
    for act in [&place as &dyn Fn(), &look, &follow] {
        machine.clock.pass(HOUR);
        assert_eq!(readings(act), 1);
        machine.clock.pass(HOUR - 1);
        assert_eq!(readings(act), 0, "young enough");
        machine.clock.pass_wall(1);
        assert_eq!(readings(act), 1, "old by the wall clock only");
        machine.clock.set_back(3 * HOUR);
        assert_eq!(readings(act), 0, "a clock that was set back says nothing");
        machine.clock.pass_mono(HOUR);
        assert_eq!(readings(act), 1, "old by the other clock only");
    }
}

/// The wall clocks of the servers differ by a month: nothing is deleted that somebody with an older manifest relies on.
#[test]
fn a_wall_clock_that_is_ahead_deletes_nothing_early() {
    let journal = memory();
    let (one, other) = (Machine::new(&journal), Machine::new(&journal));
    let leader = one.lead();
    for n in 0..10 {
        publish(&leader, &n.to_string()).unwrap();
    }
    leader.snapshot().unwrap();
    drop(leader);
    other.clock.pass_wall(30 * DAY);
    let next = other.lead();
    for _ in 0..11 {
        next.keep();
        assert_eq!(first_record(&*journal), 1);
        other.clock.pass(10 * MINUTE);
    }
    // By now everybody has had to read the manifest again.
    other.clock.pass(15 * MINUTE);
    next.keep();
    assert!(first_record(&*journal) > 1);
}

#[test]
fn an_engine_that_guards_its_head_needs_no_manifest() {
    let journal = memory();
    let machine = Machine::wired(harness::wire::Wire::guarding_head(journal.clone()));
    let store = machine.lead();
    machine.clock.pass(3 * DAY);
    machine.wire.take_calls();
    publish(&store, "placed").unwrap();
    store.follow().unwrap();
    assert!(!machine.wire.take_calls().contains(&JournalCall::Manifest));
}

/// The engine is away when the manifest has to be read again: the commit waits, and is told afterwards.
#[test]
fn a_manifest_that_cannot_be_read_is_waited_for() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let store = machine.lead();
    machine.clock.pass(2 * HOUR);
    let mut losses = 4;
    machine.wire.on(move |call, _| {
        let is_lost = call == JournalCall::Manifest && losses > 0;
        losses -= i32::from(is_lost);
        is_lost.then(|| harness::wire::unknown("away"))
    });
    publish(&store, "after all").unwrap();
    assert_eq!(folded(&journal), ["after all"]);
}
