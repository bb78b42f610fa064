//! Answers of an engine: nothing for ever, a refusal in the middle, records that cannot be read, another store.

#![allow(clippy::unwrap_used)]

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use harness::clock::MINUTE;
use harness::machine::{
    LEAD_TIMEOUT, Machine, crash, dump, event, event_id, folded, heads, manifest_of, memory, publish, texts,
};
use harness::wire::{Moment, unknown};
use millrace_conformance::journal::JournalCall;
use millrace_journal::{Journal, JournalError, JournalReadLimit, MemoryJournal, Placing, Tip};
use millrace_store::{Store, StoreError};
use millrace_store_journal::{JournalStore, Manifest, OpenError};
use millrace_store_sqlite::SqliteCopies;

fn is_place(call: JournalCall) -> bool {
    matches!(call, JournalCall::Place { .. })
}

fn refused(text: &str) -> JournalError {
    JournalError::Refused(text.to_owned().into())
}

/// Ends the wait of another thread also when a check of the test fails.
struct CloseAtEnd<'a>(&'a JournalStore);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Replaces a record by other bytes.
fn replace(journal: &MemoryJournal, n: u64, change: impl Fn(&mut Vec<u8>)) {
    let limit = JournalReadLimit { records_max: 1_000, bytes_max: usize::MAX };
    let records = journal.read(n, limit).unwrap();
    journal.lose_from(n);
    for (at, record) in records {
        let mut record = record.to_vec();
        if at == n {
            change(&mut record);
        }
        let placing = Placing { n: at, prev: Tip::START, tip: Tip::START, record: &record, settles: &[] };
        journal.place(&placing).unwrap();
    }
}

#[test]
fn commits_begin_an_interval_apart_and_an_idle_store_commits_at_once() {
    let journal = memory();
    let machine = Machine::new(&journal).with(|settings| settings.commit_interval_ms = 100);
    let store = machine.lead();
    machine.clock.pass(1_000);
    let began = machine.clock.mono();
    // The placing itself takes 30 ms, which count.
    let clock = machine.clock.clone();
    machine.wire.on(move |call, moment| {
        if is_place(call) && moment == Moment::Before {
            clock.pass(30);
        }
        None
    });
    publish(&store, "at once").unwrap();
    assert_eq!(machine.clock.mono(), began + 30);
    publish(&store, "after the interval").unwrap();
    assert_eq!(machine.clock.mono(), began + 130);
    // A writer waits before it takes the batches, and the commit does not wait again.
    store.wait_to_commit();
    assert_eq!(machine.clock.mono(), began + 200);
    publish(&store, "with what came meanwhile").unwrap();
    assert_eq!(machine.clock.mono(), began + 230);
    machine.clock.pass(70);
    store.wait_to_commit();
    assert_eq!(machine.clock.mono(), began + 300);
}

#[test]
fn a_commit_waits_for_ever_and_closing_ends_the_wait() {
    // The request is lost, or its answer; or what was read to find out.
    type Loss = fn(JournalCall, Moment) -> bool;
    let losses: [Loss; 3] = [
        |call, moment| is_place(call) && moment == Moment::Before,
        |_, moment| moment == Moment::Before,
        |_, moment| moment == Moment::After,
    ];
    for is_lost in losses {
        let journal = memory();
        let machine = Machine::new(&journal);
        let store = machine.lead();
        machine.wire.on(move |call, moment| is_lost(call, moment).then(|| unknown("gone")));
        thread::scope(|scope| {
            let _closing = CloseAtEnd(&store);
            let waiting = scope.spawn(|| publish(&store, "unknown"));
            while store.status().engine_failures < 100 {
                thread::yield_now();
            }
            assert!(!waiting.is_finished());
            assert!(store.status().unreachable.unwrap().reason.contains("gone"));
            assert!(store.waits_for().unwrap().contains("gone"));
            // Reads go on meanwhile.
            assert_eq!(texts(&store), [""; 0]);
            store.close();
            let error = waiting.join().unwrap().unwrap_err();
            assert!(matches!(error, StoreError::Closed(_)) && !error.wrote_nothing(), "{error}");
        });
        assert!(matches!(publish(&store, "closed"), Err(StoreError::Closed(_))));
        drop(store);
        machine.wire.mend();
        // The record is there or not, and whole if it is.
        assert!(texts(&machine.open()).len() <= 1);
    }
}

#[test]
fn a_refusal_in_the_middle_ends_the_handle_and_names_the_cause() {
    type Act = fn(&Machine, &JournalStore);
    let acts: [(&str, Act); 3] = [
        ("place", |_, store| drop(publish(store, "x"))),
        ("beat", |machine, store| {
            machine.clock.pass(LEAD_TIMEOUT);
            store.keep();
        }),
        ("nothing to write", |_, store| drop(store.commit(&[event_id("same")]))),
    ];
    for (name, act) in acts {
        let journal = memory();
        let machine = Machine::new(&journal);
        let store = machine.lead();
        store.commit(&[event_id("same")]).unwrap();
        let before = heads(&*journal);
        machine.wire.on(|_, moment| {
            (moment == Moment::Before).then(|| refused("permission denied for table millrace_journal"))
        });
        act(&machine, &store);
        let error = store.ended().unwrap();
        let text = error.to_string();
        assert!(text.contains("permission denied for table millrace_journal"), "{name}: {text}");
        assert!(matches!(error, StoreError::Poisoned(_)), "{name}");
        assert_eq!(store.status().ended, Some(text));
        assert_eq!(heads(&*journal), before, "{name}");
        assert!(store.wait_for_end(std::time::Duration::from_secs(60)).is_some());
        assert_eq!(texts(&store), ["same"], "reads go on");
        machine.wire.mend();
        assert!(publish(&store, "ended").is_err(), "an ended handle stays ended");
        drop(store);
        let again = machine.open();
        machine.clock.pass(LEAD_TIMEOUT);
        assert!(again.try_lead().unwrap() && publish(&again, "y").is_ok());
    }
}

#[test]
fn a_record_of_a_newer_format_stops_this_server_and_nothing_else() {
    let journal = memory();
    let (one, other) = (Machine::new(&journal), Machine::new(&journal));
    let (leader, follower) = (one.lead(), other.open());
    publish(&leader, "old format").unwrap();
    publish(&leader, "new format").unwrap();
    replace(&journal, 3, |record| record[4] = 2);
    let error = follower.follow().unwrap_err();
    assert!(matches!(error, StoreError::Unusable(_)), "{error}");
    assert!(
        error.to_string().contains("record 3 of the journal cannot be read")
            && error.to_string().contains("upgrade this server")
    );
    assert_eq!(texts(&follower), ["old format"], "what came before is folded");
    drop(follower);
    for machine in [&other, &Machine::new(&journal)] {
        let error = machine.try_open().unwrap_err();
        assert!(error.to_string().contains("upgrade this server"), "{error}");
        assert_eq!(machine.aside(""), [""; 0], "no copy is thrown away");
    }
}

#[test]
fn a_damaged_record_is_named_and_nothing_behind_it_is_folded() {
    let journal = memory();
    let (one, other) = (Machine::new(&journal), Machine::new(&journal));
    let (leader, follower) = (one.lead(), other.open());
    for n in 0..3 {
        publish(&leader, &n.to_string()).unwrap();
    }
    replace(&journal, 3, |record| record[60] ^= 1);
    let error = follower.follow().unwrap_err();
    assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
    assert!(
        error.to_string().contains("record 3 of the journal cannot be read: it is damaged: its checksum"),
        "{error}"
    );
    assert!(follower.status().position.n <= 2);
    drop(follower);
    let text = other.try_open().unwrap_err().to_string();
    assert!(text.contains("restore the engine's data"), "{text}");
    assert_eq!(other.aside(""), [""; 0]);
    // The leader's copy has it, and goes on.
    publish(&leader, "goes on").unwrap();
}

#[test]
fn an_engine_that_is_away_at_the_start_is_waited_for() {
    let calls: [fn(JournalCall) -> bool; 4] = [
        |call| call == JournalCall::Check,
        |call| call == JournalCall::Manifest,
        |call| matches!(call, JournalCall::Read { .. }),
        |call| call == JournalCall::GetPart,
    ];
    let journal = memory();
    let leader_machine = Machine::new(&journal);
    let leader = leader_machine.lead();
    (0..20).for_each(|n| drop(publish(&leader, &n.to_string())));
    leader.snapshot().unwrap();
    journal.delete_below(manifest_of(&*journal).trimmed_to + 1).unwrap();
    for is_it in calls {
        let machine = Machine::new(&journal);
        let losses = Arc::new(AtomicUsize::new(0));
        let lost = losses.clone();
        machine.wire.on(move |call, moment| {
            let is_lost = moment == Moment::Before && is_it(call) && lost.fetch_add(1, SeqCst) < 30;
            is_lost.then(|| unknown("not there yet"))
        });
        assert_eq!(dump(&machine.open()), dump(&leader));
        assert!(losses.load(SeqCst) >= 30);

        let limited = Machine::new(&journal).with(|settings| {
            settings.store_wait_ms = Some(MINUTE);
            settings.backoff_ms_max = 1_000;
        });
        limited
            .wire
            .on(move |call, moment| (moment == Moment::Before && is_it(call)).then(|| unknown("no route")));
        let began = limited.clock.mono();
        let error = limited.try_open().unwrap_err();
        assert!(matches!(&error, OpenError::Unreachable(cause) if cause.contains("no route")), "{error:?}");
        assert!(limited.clock.mono() - began >= MINUTE);
        limited.wire.mend();
        assert_eq!(dump(&limited.open()), dump(&leader), "the next start is an ordinary one");
    }
}

#[test]
fn opening_stops_when_it_is_told_to() {
    let journal = memory();
    let leader_machine = Machine::new(&journal);
    let leader = leader_machine.lead();
    (0..20).for_each(|n| drop(publish(&leader, &n.to_string())));
    leader.snapshot().unwrap();
    let machine = Machine::new(&journal);
    let open = |progress: &mut dyn millrace_store_journal::OpenProgress| {
        let copies = Arc::new(SqliteCopies::new(machine.path.clone(), machine.options.clone()));
        let (wire, clock) = (machine.wire.clone(), machine.clock.clone());
        JournalStore::open(wire, copies, machine.settings.clone(), clock, progress)
    };
    machine.wire.cut();
    let mut told = Vec::new();
    let stopped = open(&mut |text: &str| {
        told.push(text.to_owned());
        told.len() < 5
    });
    assert!(matches!(stopped, Err(OpenError::Stopped)));
    assert!(
        told[0].contains("looking at the engine: waiting for the engine of the shared store"),
        "{told:?}"
    );
    machine.wire.mend();
    for word in ["fetching a snapshot", "folding the journal"] {
        let stopped = open(&mut |text: &str| !text.contains(word));
        assert!(matches!(stopped, Err(OpenError::Stopped)), "{word}");
    }
    let mut told = Vec::new();
    let store = open(&mut |text: &str| {
        told.push(text.to_owned());
        true
    });
    assert_eq!(dump(&store.unwrap()), dump(&leader));
    assert!(!told.is_empty());
}

#[test]
fn a_copy_of_another_store_is_refused() {
    let (journal, other) = (memory(), memory());
    let mine = Machine::new(&journal);
    publish(&mine.lead(), "mine").unwrap();
    publish(&Machine::new(&other).lead(), "theirs").unwrap();
    let wrong = Machine { wire: Arc::new(harness::wire::Wire::new(other.clone())), ..Machine::new(&other) };
    std::fs::copy(&mine.path, &wrong.path).unwrap();
    for _ in 0..2 {
        let error = wrong.try_open().unwrap_err();
        assert!(matches!(error, OpenError::Store(StoreError::Unusable(_))), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("the local copy is of another store") && text.contains("another cache folder"),
            "{text}"
        );
    }
    assert_eq!(wrong.aside(""), [""; 0], "a copy that may be needed elsewhere stays");
    assert_eq!(texts(&mine.open()), ["mine"]);
}

#[test]
fn an_engine_that_was_emptied_gets_no_new_store_from_a_server_that_has_a_copy() {
    let machine = Machine::new(&memory());
    publish(&machine.lead(), "there").unwrap();
    let emptied = memory();
    let again =
        Machine { wire: Arc::new(harness::wire::Wire::new(emptied.clone())), ..Machine::new(&emptied) };
    std::fs::copy(&machine.path, &again.path).unwrap();
    for _ in 0..2 {
        let text = again.try_open().unwrap_err().to_string();
        assert!(text.contains("holds no store any more") && text.contains("restore"), "{text}");
        assert_eq!(emptied.manifest().unwrap(), None);
    }
    assert_eq!(again.aside(""), [""; 0], "the copy may be the last one");
    // An empty store is made for those who ask for it.
    std::fs::remove_file(&again.path).unwrap();
    publish(&again.lead(), "new").unwrap();
}

/// Somebody has emptied the engine and made another store in the same place, or lost its manifest.
#[test]
fn a_store_that_was_replaced_while_it_was_open_is_noticed() {
    let other = |_: &Manifest| Some(Manifest::new(7).encode());
    let damaged = |standing: &Manifest| {
        let mut bytes = standing.encode();
        let last = bytes.len() - 4;
        bytes[last] ^= 1;
        Some(bytes)
    };
    type Change = fn(&Manifest) -> Option<Vec<u8>>;
    for (change, word) in [(other as Change, "its id has changed"), (damaged as Change, "damaged")] {
        let journal = memory();
        let machine = Machine::new(&journal);
        let store = machine.lead();
        publish(&store, "before").unwrap();
        store.keep();
        let read = journal.manifest().unwrap().unwrap();
        let changed = change(&Manifest::decode(&read.bytes).unwrap()).unwrap();
        assert!(journal.set_manifest(&changed, Some(&read.version)).unwrap());
        machine.clock.pass(MINUTE);
        store.keep();
        let text = store.ended().unwrap().to_string();
        assert!(text.contains(word), "{text}");
        drop(store);
        let text = machine.try_open().unwrap_err().to_string();
        assert!(text.contains("another store") || text.contains("damaged"), "{text}");
    }
}

#[test]
fn records_without_a_manifest_are_refused_and_not_mistaken_for_a_new_store() {
    let journal = memory();
    publish(&Machine::new(&journal).lead(), "there").unwrap();
    let bare = memory();
    for (n, record) in journal.read(1, JournalReadLimit { records_max: 10, bytes_max: usize::MAX }).unwrap() {
        bare.place(&Placing { n, prev: Tip::START, tip: Tip::START, record: &record, settles: &[] }).unwrap();
    }
    let text = Machine::new(&bare).try_open().unwrap_err().to_string();
    assert!(text.contains("whose manifest is gone"), "{text}");
    assert_eq!(bare.manifest().unwrap(), None);
}

/// Two servers make the store at the same time, and one of them has already written when the other looks.
#[test]
fn two_servers_that_make_the_store_at_once_have_one_store() {
    let calls: [fn(JournalCall) -> bool; 2] =
        [|call| matches!(call, JournalCall::Read { .. }), |call| call == JournalCall::SetManifest];
    for is_it in calls {
        let journal = memory();
        let (one, other) = (Machine::new(&journal), Machine::new(&journal));
        one.wire.once_before(is_it, move || {
            publish(&other.lead(), "of the first").unwrap();
        });
        assert_eq!(texts(&one.open()), ["of the first"]);
    }
}

#[test]
fn an_engine_that_is_not_fit_is_refused_with_its_reason() {
    let journal = memory();
    let machine = Machine::new(&journal);
    machine.wire.on(|call, moment| {
        (call == JournalCall::Check && moment == Moment::After)
            .then(|| JournalError::Unfit("fsync is off: set fsync = on".into()))
    });
    let error = machine.try_open().unwrap_err();
    assert!(error.to_string().contains("fsync is off: set fsync = on"), "{error}");
    assert!(!machine.path.exists(), "nothing was made");
}

/// The commit of many batches becomes as many records as it needs, and an answer that was lost stores nothing twice.
#[test]
fn a_large_commit_becomes_several_records() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let store = machine.lead();
    let mut losses = 3;
    machine.wire.on(move |call, moment| {
        let is_lost = is_place(call) && moment == Moment::After && losses > 0;
        losses -= i32::from(is_lost);
        is_lost.then(|| unknown("lost"))
    });
    let large = "x".repeat(5 << 20);
    let batches: Vec<_> = (0..6).map(|_| event(&large)).collect();
    let before = heads(&*journal).len();
    let outcomes = store.commit(&batches).unwrap();
    assert_eq!(outcomes.len(), 6);
    assert_eq!(heads(&*journal).len() - before, 3, "two batches of five MiB fit into a record");
    assert_eq!(folded(&journal).len(), 6);
    let too_large = event(&"x".repeat(13 << 20));
    assert!(matches!(store.commit(&[too_large]), Err(StoreError::TooLarge { .. })));
    assert_eq!(store.ended(), None);
}

/// A placing that arrives late, after the process that sent it has died.
#[test]
fn a_placing_that_arrives_after_the_crash_of_its_writer_is_an_ordinary_record() {
    let journal = memory();
    let (one, other) = (Machine::new(&journal), Machine::new(&journal));
    let (leader, follower) = (one.lead(), other.open());
    publish(&leader, "before").unwrap();
    // The answer is lost, and the process dies before it looks.
    let dying = leader.clone();
    one.wire.on(move |call, moment| {
        if is_place(call) && moment == Moment::After {
            dying.close();
        }
        (moment == Moment::After).then(|| unknown("lost"))
    });
    assert!(matches!(publish(&leader, "arrives"), Err(StoreError::Closed(_))));
    one.wire.mend();
    crash(leader);
    other.clock.pass(LEAD_TIMEOUT);
    follower.follow().unwrap();
    other.clock.pass(LEAD_TIMEOUT);
    assert!(follower.try_lead().unwrap());
    publish(&follower, "next").unwrap();
    assert_eq!(texts(&follower), ["before", "arrives", "next"]);
    assert_eq!(dump(&one.open()), dump(&follower), "the copy of the dead process had not folded it");
}

#[test]
fn a_handle_that_has_promised_more_machines_ends_when_the_engine_has_fewer() {
    let journal = memory();
    let machine = Machine::new(&journal);
    machine.wire.set_replicated(true);
    let store = machine.lead();
    assert!(store.fitness().is_replicated);
    machine.clock.pass(2 * MINUTE);
    store.keep();
    assert_eq!(store.ended(), None);
    machine.wire.set_replicated(false);
    machine.clock.pass(2 * MINUTE);
    store.keep();
    let ended = store.ended().unwrap().to_string();
    assert!(ended.contains("more than one machine"), "{ended}");
    assert!(publish(&store, "promised too much").is_err());
    crash(store);
    let store = machine.open();
    assert!(!store.fitness().is_replicated, "the promise that holds now");
}
