//! Snapshots: made under load, fetched by a new machine, torn, damaged, missing, and made by two servers at once.

#![allow(clippy::unwrap_used)]

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use harness::clock::{DAY, HOUR, MINUTE};
use harness::machine::{
    LEAD_TIMEOUT, Machine, dump, event, event_id, heads, is_poisoned_by, manifest_of, meddle, memory,
    publish, texts,
};
use harness::wire::{Moment, unknown};
use millrace_conformance::build::{append, batch, put, stream, trim};
use millrace_conformance::journal::{FaultPlan, FaultyJournal, JournalCall};
use millrace_journal::{Journal, MemoryJournal, PartName};
use millrace_model::Space;
use millrace_store::{Store, StoreError};
use millrace_store_journal::{JournalStore, Manifest, OpenError, import};
use millrace_store_sqlite::{SqliteOptions, SqliteStore};

fn fill(store: &JournalStore, events: usize) {
    for n in 0..events {
        publish(store, &format!("{n} {}", "x".repeat(300))).unwrap();
    }
}

/// Deletes the records that the manifest allows to delete, as if its grace time were over.
fn delete_trimmed(journal: &MemoryJournal) {
    journal.delete_below(manifest_of(journal).trimmed_to + 1).unwrap();
}

fn parts(journal: &MemoryJournal) -> Vec<PartName> {
    journal.parts().unwrap()
}

fn named(journal: &MemoryJournal) -> Vec<String> {
    let snapshot = manifest_of(journal).snapshot.unwrap();
    snapshot.parts.into_iter().map(|part| part.name).collect()
}

fn is_busy<T: std::fmt::Debug>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Busy(_)))
}

#[test]
fn a_new_machine_begins_with_the_snapshot_and_then_follows() {
    let journal = memory();
    let leader_machine = Machine::new(&journal);
    let leader = leader_machine.lead();
    fill(&leader, 30);
    let rows =
        vec![put(Space::Kv, "row", "value"), append(&stream("other", 3), "x"), trim(&stream("events", 0), 5)];
    leader.commit(&[batch(1, rows), event_id("brought")]).unwrap();
    let at_snapshot = dump(&leader);
    let made = leader.snapshot().unwrap();
    assert!(made.parts > 3, "{made:?}");
    assert_eq!(made.n, leader.status().position.n);
    delete_trimmed(&journal);
    let first = heads(&*journal)[0].n;
    assert!(first > 1 && first <= made.n);

    let new = Machine::new(&journal);
    let follower = new.open();
    assert_eq!(dump(&follower), at_snapshot);
    assert_eq!(follower.status().position, leader.status().position);
    publish(&leader, "later").unwrap();
    follower.follow().unwrap();
    assert_eq!(dump(&follower), dump(&leader));
    // Ids that were brought before the snapshot are known behind it.
    leader.step_down().unwrap();
    assert!(follower.try_lead().unwrap());
    let again = follower.commit(&[event_id("brought")]).unwrap();
    assert!(format!("{again:?}").contains("duplicate: true"), "{again:?}");
}

#[test]
fn a_snapshot_under_load_is_of_one_moment() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let leader = machine.lead();
    fill(&leader, 50);
    let done = AtomicBool::new(false);
    let made = thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                publish(&leader, &format!("load {n}")).unwrap();
                leader.maintain(10).unwrap();
                if done.load(SeqCst) {
                    break;
                }
            }
        });
        let made: Vec<_> = (0..4).map(|_| leader.snapshot().unwrap()).collect();
        done.store(true, SeqCst);
        made
    });
    assert!(made.is_sorted_by_key(|made| made.n));
    delete_trimmed(&journal);
    let follower = Machine::new(&journal).open();
    assert_eq!(dump(&follower), dump(&leader));
}

#[test]
fn a_missing_or_damaged_part_is_named_when_the_journal_is_trimmed() {
    for damage in [None, Some(&b"other bytes"[..])] {
        let journal = memory();
        let machine = Machine::new(&journal);
        let leader = machine.lead();
        fill(&leader, 30);
        leader.snapshot().unwrap();
        let broken = PartName(named(&journal)[2].clone());
        match damage {
            None => journal.delete_part(&broken).unwrap(),
            Some(bytes) => journal.put_part(&broken, bytes).unwrap(),
        }
        // As long as the whole journal is there, it is folded instead.
        let whole = Machine::new(&journal).open();
        assert_eq!(dump(&whole), dump(&leader));
        drop(whole);

        delete_trimmed(&journal);
        let new = Machine::new(&journal);
        for _ in 0..2 {
            let refused = new.try_open().unwrap_err();
            assert!(matches!(refused, OpenError::Store(StoreError::Unusable(_))), "{refused:?}");
            let text = refused.to_string();
            let what = if damage.is_some() { "is damaged" } else { "is missing" };
            assert!(text.contains(&format!("part {broken} of the snapshot {what}")), "{text}");
            assert!(text.contains("the journal begins at record"), "{text}");
        }
        // A server that has a copy makes another snapshot, and then new machines start again.
        publish(&leader, "more").unwrap();
        leader.snapshot().unwrap();
        assert_eq!(dump(&new.open()), dump(&leader));
    }
}

/// A new machine fetches slowly; meanwhile there is a newer snapshot, and the old parts are deleted.
#[test]
fn a_snapshot_that_is_replaced_while_it_is_fetched_is_given_up_for_the_newer_one() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let leader = machine.lead();
    fill(&leader, 30);
    leader.snapshot().unwrap();
    delete_trimmed(&journal);
    let new = Machine::new(&journal);
    let (fast, engine, mut fetched) = (leader.clone(), journal.clone(), 0);
    new.wire.on(move |call, moment| {
        fetched += usize::from(call == JournalCall::GetPart && moment == Moment::After);
        if fetched == 2 {
            fetched += 1;
            let old = named(&engine);
            fill(&fast, 10);
            fast.snapshot().unwrap();
            old.into_iter().for_each(|part| engine.delete_part(&PartName(part)).unwrap());
            delete_trimmed(&engine);
        }
        None
    });
    assert_eq!(dump(&new.open()), dump(&leader));
}

/// The process dies, or the engine is away, after the parts were stored and before the manifest names them.
#[test]
fn a_torn_upload_changes_nothing_and_its_parts_are_deleted_a_day_after_the_next_snapshot() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let leader = machine.lead();
    fill(&leader, 20);
    leader.snapshot().unwrap();
    let (before, first) = (manifest_of(&*journal), parts(&journal));
    fill(&leader, 10);
    machine.wire.on(|call, _| (call == JournalCall::SetManifest).then(|| unknown("gone")));
    assert!(is_busy(&leader.snapshot()));
    machine.wire.mend();
    let torn: Vec<PartName> = parts(&journal).into_iter().filter(|part| !first.contains(part)).collect();
    assert!(torn.len() > 3);
    assert_eq!(manifest_of(&*journal), before);
    assert_eq!(dump(&Machine::new(&journal).open()), dump(&leader));

    // As long as there is no newer snapshot, the upload could still be under way.
    for _ in 0..10 {
        machine.clock.pass(DAY);
        leader.keep();
    }
    assert!(torn.iter().all(|part| parts(&journal).contains(part)));
    fill(&leader, 5);
    leader.snapshot().unwrap();
    for _ in 0..24 {
        machine.clock.pass(HOUR);
        leader.keep();
        assert!(torn.iter().chain(&first).all(|part| parts(&journal).contains(part)), "not yet a day");
    }
    machine.clock.pass(HOUR);
    leader.keep();
    let mut left: Vec<String> = parts(&journal).into_iter().map(|part| part.0).collect();
    left.sort();
    let mut expected = named(&journal);
    expected.sort();
    assert_eq!(left, expected, "only the named parts are left");
    assert_eq!(dump(&Machine::new(&journal).open()), dump(&leader));
}

/// A slow upload of one server, while another one, whose clock is a month ahead or behind, cleans up.
#[test]
fn no_clock_makes_a_server_delete_parts_of_an_upload_under_way_or_of_the_standing_snapshot() {
    for (ahead, behind) in [(30 * DAY, 0), (0, 30 * DAY)] {
        let journal = memory();
        let slow = Machine::new(&journal);
        let old_leader = slow.lead();
        fill(&old_leader, 20);
        old_leader.snapshot().unwrap();
        fill(&old_leader, 10);
        slow.clock.set_back(behind);
        let (other, engine) = (Machine::new(&journal), journal.clone());
        let uploaded = move || {
            other.clock.pass_wall(ahead);
            let leader = other.open();
            other.clock.pass(LEAD_TIMEOUT);
            assert!(leader.try_lead().unwrap());
            let before = parts(&engine);
            for _ in 0..60 {
                other.clock.pass(HOUR);
                leader.keep();
            }
            assert_eq!(parts(&engine), before);
        };
        slow.wire.once_before(|call| call == JournalCall::SetManifest, uploaded);
        let made = old_leader.snapshot().unwrap();
        assert_eq!(manifest_of(&*journal).snapshot.unwrap().n, made.n);
        let all: Vec<String> = parts(&journal).into_iter().map(|part| part.0).collect();
        assert!(named(&journal).iter().all(|part| all.contains(part)));
        delete_trimmed(&journal);
        assert_eq!(texts(&Machine::new(&journal).open()).len(), 30);
    }
}

#[test]
fn of_two_snapshots_at_once_one_is_named_and_whole() {
    let journal = memory();
    let (one, two) = (Machine::new(&journal), Machine::new(&journal));
    let (leader, other) = (one.lead(), two.open());
    fill(&leader, 20);
    other.follow().unwrap();
    let rival = other.clone();
    one.wire.once_before(
        |call| call == JournalCall::SetManifest,
        move || {
            rival.snapshot().unwrap();
        },
    );
    let lost = leader.snapshot();
    assert!(is_busy(&lost), "{lost:?}");
    assert!(leader.snapshot().is_ok(), "the next attempt is free");
    delete_trimmed(&journal);
    assert_eq!(dump(&Machine::new(&journal).open()), dump(&leader));
}

/// A snapshot that was begun before the standing one is not named any more: others may delete its parts.
#[test]
fn a_snapshot_never_replaces_a_newer_one() {
    let journal = memory();
    let (one, two) = (Machine::new(&journal), Machine::new(&journal));
    let (leader, slow) = (one.lead(), two.open());
    fill(&leader, 20);
    slow.follow().unwrap();
    let (fast, also_slow) = (leader.clone(), slow.clone());
    two.wire.once_before(
        |call| call == JournalCall::PutPart,
        move || {
            fill(&fast, 5);
            fast.snapshot().unwrap();
            // Knows the newer manifest, and would succeed in replacing it.
            also_slow.keep();
        },
    );
    let newest = || manifest_of(&*journal).snapshot.unwrap().n;
    let lost = slow.snapshot();
    assert!(is_busy(&lost), "{lost:?}");
    assert_eq!(newest(), leader.status().position.n);
}

#[test]
fn two_snapshots_of_one_handle_do_not_mix() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let leader = machine.lead();
    fill(&leader, 10);
    let again = leader.clone();
    machine
        .wire
        .once_before(|call| call == JournalCall::PutPart, move || assert!(is_busy(&again.snapshot())));
    leader.snapshot().unwrap();
}

#[test]
fn a_leader_makes_a_snapshot_when_enough_lies_behind_the_last_one() {
    let journal = memory();
    let machine = Machine::new(&journal).with(|settings| settings.snapshot_bytes = 8_000);
    let noise = |n: u64| -> String {
        // Does not compress.
        let mut state = n + 1;
        (0..250)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b'a' + ((state >> 40) % 26) as u8)
            })
            .collect()
    };
    let snapshot_n = || manifest_of(&*journal).snapshot.map_or(0, |snapshot| snapshot.n);
    let leader = machine.lead();
    let round = |leader: &JournalStore, n: u64| {
        publish(leader, &noise(n)).unwrap();
        machine.clock.pass(LEAD_TIMEOUT);
        leader.keep();
    };
    (0..15).for_each(|n| round(&leader, n));
    assert_eq!(snapshot_n(), 0, "too little");
    // The count goes on in the next process.
    drop(leader);
    let leader = machine.lead();
    let follower = Machine::new(&journal).with(|settings| settings.snapshot_bytes = 1).open();
    follower.keep();
    assert_eq!(snapshot_n(), 0, "a follower makes none");
    for n in 0..60 {
        round(&leader, n);
        if snapshot_n() > 0 {
            break;
        }
    }
    let first = snapshot_n();
    assert!((25..70).contains(&first), "{first}");
    // The next one is due when as much as the last one holds lies behind it.
    round(&leader, 100);
    assert_eq!(snapshot_n(), first);
    let bytes = manifest_of(&*journal).snapshot.unwrap().bytes;
    assert!(bytes > 8_000);
    for n in 0..bytes / 250 {
        round(&leader, 1000 + n);
    }
    assert!(snapshot_n() > first);

    let many = Machine::new(&journal).with(|settings| settings.snapshot_records = 5);
    drop(leader);
    let leader = many.lead();
    for n in 0..7 {
        publish(&leader, &n.to_string()).unwrap();
    }
    let before = snapshot_n();
    leader.keep();
    assert!(snapshot_n() > before, "many small records");
}

#[test]
fn a_snapshot_is_made_over_a_wire_that_loses() {
    let journal = memory();
    let plan = FaultPlan {
        seed: 11,
        lose_request_every: 6,
        lose_answer_every: 6,
        repeat_every: 7,
        ..FaultPlan::default()
    };
    let faulty = Arc::new(FaultyJournal::new(journal.clone(), plan));
    let machine = Machine::new(&faulty);
    let leader = machine.lead();
    fill(&leader, 30);
    let made = (0..20).find_map(|_| leader.snapshot().ok()).unwrap();
    assert!(made.parts > 3);
    delete_trimmed(&journal);
    assert_eq!(dump(&Machine::new(&faulty).open()), dump(&leader));
}

/// SQLite copies a row with a flipped bit as it is. In a snapshot, such a row would be lost for everybody.
#[test]
fn a_damaged_copy_makes_no_snapshot() {
    for change in [
        "UPDATE events SET payload = x'7b7d' WHERE offset = 3",
        "UPDATE events SET ts = ts + 1 WHERE offset = 3",
        "DELETE FROM events WHERE offset = 3",
        "UPDATE streams SET bytes = bytes + 1",
        "UPDATE kv SET value = x'00' WHERE key = 'row'",
    ] {
        let journal = memory();
        let (machine, other) = (Machine::new(&journal), Machine::new(&journal));
        let leader = machine.lead();
        fill(&leader, 10);
        leader.commit(&[batch(1, vec![put(Space::Kv, "row", "value")])]).unwrap();
        let follower = other.open();
        // Reading everything brings everything into the file.
        leader.streams().unwrap();
        meddle(&machine.path, change);
        let error = leader.snapshot().unwrap_err();
        assert!(is_poisoned_by(&error, "damaged"), "{change}: {error}");
        assert_eq!(manifest_of(&*journal).snapshot, None, "{change}");
        assert!(machine.is_condemned_as("damaged"));
        assert!(publish(&leader, "no more").is_err());
        // The lead is given back, although the copy cannot be used.
        drop(leader);
        assert!(follower.try_lead().unwrap(), "{change}");
        assert_eq!(dump(&machine.open()), dump(&follower), "{change}");
    }
}

/// A server whose copy has records that the engine lost must not make it everybody's beginning.
#[test]
fn a_copy_that_has_diverged_makes_no_snapshot() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let leader = machine.lead();
    fill(&leader, 10);
    journal.lose_from(9);
    let error = leader.snapshot().unwrap_err();
    assert!(is_poisoned_by(&error, "diverged"), "{error}");
    assert_eq!(manifest_of(&*journal).snapshot, None);
}

#[test]
fn a_snapshot_that_is_not_what_the_manifest_says_is_refused() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let leader = machine.lead();
    fill(&leader, 20);
    leader.snapshot().unwrap();
    delete_trimmed(&journal);
    let read = journal.manifest().unwrap().unwrap();
    let mut manifest = Manifest::decode(&read.bytes).unwrap();
    manifest.snapshot.as_mut().unwrap().n -= 1;
    assert!(journal.set_manifest(&manifest.encode(), Some(&read.version)).unwrap());
    let refused = Machine::new(&journal).try_open().unwrap_err().to_string();
    assert!(refused.contains("the snapshot stands at") && refused.contains("the manifest says"), "{refused}");
}

/// The copy's file was replaced by that of another store while the server ran.
#[test]
fn a_snapshot_of_a_file_of_another_store_is_not_made() {
    let (journal, foreign) = (memory(), memory());
    let (machine, other) = (Machine::new(&journal), Machine::new(&foreign));
    drop(other.lead());
    let leader = machine.lead();
    fill(&leader, 3);
    std::fs::remove_dir_all(machine.folder.path().join("copy.db-locks")).unwrap();
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(machine.folder.path().join(format!("copy.db{suffix}")));
    }
    std::fs::copy(&other.path, machine.folder.path().join("new")).unwrap();
    std::fs::rename(machine.folder.path().join("new"), &machine.path).unwrap();
    leader.snapshot().unwrap_err();
    assert_eq!(manifest_of(&*journal).snapshot, None);
    assert!(leader.lost_names().is_some());
}

/// A store that was made of a file: its journal alone is not the whole store.
#[test]
fn a_store_that_was_imported_never_begins_without_its_snapshot() {
    let (journal, folder) = (memory(), tempfile::tempdir().unwrap());
    let path = folder.path().join("file.db");
    {
        let file = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
        (0..50).for_each(|n| drop(file.commit(&[event(&format!("{n} {}", "x".repeat(300)))]).unwrap()));
    }
    let mut source = std::fs::File::open(&path).unwrap();
    import(&*journal, &mut source, &harness::machine::settings(), 7).unwrap();
    let again = import(&*journal, &mut std::fs::File::open(&path).unwrap(), &harness::machine::settings(), 7);
    assert!(matches!(again, Err(StoreError::InUse(_))), "{again:?}");
    let (one, other) = (Machine::new(&journal), Machine::new(&journal));
    let leader = one.lead();
    assert_eq!(publish(&leader, "behind").unwrap().0, 51);
    assert_eq!(dump(&other.open()), dump(&leader));
    for is_replaced in [false, true] {
        if is_replaced {
            leader.snapshot().unwrap();
        }
        let part = PartName(named(&journal)[1].clone());
        let bytes = journal.get_part(&part).unwrap().unwrap();
        journal.delete_part(&part).unwrap();
        let refused = Machine::new(&journal).try_open().unwrap_err().to_string();
        assert!(refused.contains("is missing") && refused.contains("begins at record 1"), "{refused}");
        journal.put_part(&part, &bytes).unwrap();
        assert_eq!(dump(&Machine::new(&journal).open()), dump(&leader));
    }
    assert!(manifest_of(&*journal).is_imported, "later snapshots keep this");
}

#[test]
fn closing_a_handle_ends_an_upload() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let leader = machine.lead();
    fill(&leader, 30);
    let closing = leader.clone();
    machine.wire.once_before(|call| call == JournalCall::PutPart, move || closing.close());
    machine.wire.take_calls();
    assert!(matches!(leader.snapshot(), Err(StoreError::Closed(_))));
    let puts = machine.wire.take_calls().iter().filter(|call| **call == JournalCall::PutPart).count();
    assert_eq!(puts, 1);
    machine.clock.pass(MINUTE);
    assert!(leader.commit(&[event("closed")]).is_err());
}
