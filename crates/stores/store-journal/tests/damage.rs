//! The copy is damaged, deleted, full or poisoned: nothing is decided by it, no event is lost, and it is made anew.

#![allow(clippy::unwrap_used)]

mod harness;

use std::path::Path;
use std::sync::Arc;

use harness::clock::DAY;
use harness::machine::{
    LEAD_TIMEOUT, Machine, WHOLE, crash, dump, event, event_id, events, folded, heads, is_given_up_for,
    is_poisoned_by, meddle, memory, offset_of, publish, texts,
};
use millrace_conformance::build::{batch, equals, put, trim};
use millrace_journal::MemoryJournal;
use millrace_model::{Batch, Check, Offset, Outcome, Space, Timestamp};
use millrace_store::{KeyRange, Retention, Store, StoreError};
use millrace_store_journal::JournalStore;
use millrace_store_sqlite::{SqliteCopies, SqliteOptions};

/// Fills a store with events that brought ids, a row, and a lead row.
fn fill(store: &JournalStore) {
    for n in 0..20u64 {
        let event = Batch { now: Timestamp(1_000 + n * 10), ..event_id(&format!("id-{n}")) };
        store.commit(&[event]).unwrap();
    }
    store.commit(&[batch(1, vec![put(Space::Kv, "row", "value")])]).unwrap();
}

fn filled(machine: &Machine) -> Arc<JournalStore> {
    let store = machine.lead();
    fill(&store);
    // Reading everything brings everything into the file.
    store.streams().unwrap();
    store
}

fn lead_again(machine: &Machine) -> Arc<JournalStore> {
    let store = machine.open();
    machine.clock.pass(LEAD_TIMEOUT);
    assert!(store.try_lead().unwrap());
    store
}

/// Tries everything that reads the copy. Returns the first error.
fn use_all(store: &JournalStore) -> Result<(), StoreError> {
    for space in Space::ALL {
        store.scan(space, &KeyRange::all(), usize::MAX)?;
    }
    store.streams()?;
    store.read(&events(), Offset(1), WHOLE)?;
    store.seek(&events(), Timestamp(1_055))?;
    store
        .retention_start(&events(), Retention { older_than: Some(Timestamp(1_055)), bytes_max: Some(60) })?;
    let row = Check::Present { space: Space::Kv, key: "row".into() };
    store.commit(&[Batch { checks: vec![row], ..batch(2_000, vec![put(Space::Kv, "row", "other")]) }])?;
    for n in 0..20 {
        let outcomes = store.commit(&[Batch { now: Timestamp(2_000), ..event_id(&format!("id-{n}")) }])?;
        let [Outcome::Done(done)] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert!(done.appended[0].duplicate, "an id was decided by a damaged row: {done:?}");
        assert_eq!(done.appended[0].offset, Offset(n + 1));
    }
    Ok(())
}

/// A read or a commit met the damage; the commit says that nothing was written.
fn is_of_lost_copy(error: &StoreError) -> bool {
    matches!(error, StoreError::Poisoned(_)) || is_given_up_for(error, "")
}

/// The damage that may happen to rows.
const CHANGES: &[&str] = &[
    "UPDATE events SET payload = x'7b7d' WHERE offset = 7",
    "UPDATE events SET id = 'other' WHERE offset = 7",
    "UPDATE events SET offset = 70 WHERE offset = 7",
    "UPDATE events SET ts = 1 WHERE offset = 11",
    "UPDATE events SET ts = ts + 1000000 WHERE offset = 4",
    "UPDATE events SET stream = 99 WHERE offset = 7",
    "UPDATE events SET crc = crc + 1 WHERE offset = 7",
    "UPDATE streams SET start = start + 3",
    "UPDATE streams SET topic = 'suite/elsewhere'",
    "UPDATE streams SET crc = crc + 1",
    "UPDATE commits SET runs = x'00' WHERE c = (SELECT max(c) FROM commits)",
    "UPDATE loc SET pieces = x'00'",
    "UPDATE ids SET hashes = x'00'",
    "UPDATE kv SET value = x'00' WHERE key = 'row'",
    "UPDATE kv SET value = x'00' WHERE key = 'cluster/lead'",
    "UPDATE kv SET crc = crc + 1 WHERE key = 'cluster/lead'",
    "UPDATE meta SET value = x'00' WHERE key = 'journal'",
    "UPDATE meta SET value = substr(value, 1, 20) || x'ff' || substr(value, 22) WHERE key = 'journal'",
    "UPDATE meta SET value = x'00' WHERE key = 'hash_key'",
    "DELETE FROM meta WHERE key = 'journal'",
    "DELETE FROM events WHERE offset = 7",
];

fn is_there(path: &Path, change: &str) -> bool {
    // Events are folded into `loc` and `ids` by housekeeping only.
    let conn = rusqlite::Connection::open(path).unwrap();
    for table in ["loc", "ids"] {
        if change.contains(&format!("UPDATE {table} ")) {
            let rows: i64 =
                conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
            return rows > 0;
        }
    }
    true
}

#[test]
fn rows_that_were_changed_while_the_copy_was_closed_cost_a_rebuild_and_no_event() {
    for is_folded in [false, true] {
        for change in CHANGES {
            let journal = memory();
            let mut machine = Machine::new(&journal);
            machine.options =
                SqliteOptions { fold_events: if is_folded { 4 } else { 1_000 }, ..harness::small() };
            let store = filled(&machine);
            while is_folded && store.maintain(100).unwrap().more {}
            drop(store);
            if !is_there(&machine.path, change) {
                assert!(!is_folded, "{change}");
                continue;
            }
            meddle(&machine.path, change);
            check_heals(&machine, &journal, &format!("{change}, folded: {is_folded}"));
        }
    }
}

/// Opens the copy, uses everything, and opens it again if that failed: then all is well.
fn check_heals(machine: &Machine, journal: &Arc<MemoryJournal>, what: &str) {
    let mut attempts = 0;
    loop {
        let store = lead_again(machine);
        match use_all(&store) {
            Ok(()) => break,
            Err(error) => {
                assert!(is_of_lost_copy(&error), "{what}: {error}");
                assert!(store.ended().is_some(), "{what}: the handle ends");
            }
        }
        attempts += 1;
        assert!(attempts < 3, "{what}: it does not heal");
    }
    let store = lead_again(machine);
    assert_eq!(texts(&store).len(), 20, "{what}");
    store.maintain(100).unwrap();
    assert_eq!(dump(&store), dump(&Machine::new(journal).open()), "{what}");
}

#[test]
fn rows_that_are_changed_while_the_copy_is_open_cost_a_rebuild_and_no_event() {
    for change in CHANGES {
        let journal = memory();
        let mut machine = Machine::new(&journal);
        machine.options = SqliteOptions { fold_events: 4, ..harness::small() };
        let store = filled(&machine);
        while store.maintain(100).unwrap().more {}
        if !is_there(&machine.path, change) {
            continue;
        }
        meddle(&machine.path, change);
        // Rows that the handle has in memory are not looked at again.
        if let Err(error) = use_all(&store) {
            assert!(is_of_lost_copy(&error), "{change}: {error}");
            assert!(store.ended().is_some(), "{change}");
        }
        drop(store);
        check_heals(&machine, &journal, change);
    }
}

/// Bits of the file flip anywhere, while it is closed.
#[test]
fn flipped_bits_anywhere_in_the_file_lose_no_event() {
    let mut random = 1u64;
    let mut below = |bound: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % bound
    };
    let journal = memory();
    let machine = Machine::new(&journal);
    drop(filled(&machine));
    let whole = std::fs::read(&machine.path).unwrap();
    let mut rebuilt = 0;
    for round in 0..120 {
        let mut bytes = whole.clone();
        for _ in 0..1 + below(3) {
            let at = below(bytes.len());
            bytes[at] ^= 1 << below(8);
        }
        let copy = Machine::new(&journal).free();
        std::fs::write(&copy.path, bytes).unwrap();
        let store = copy.open();
        // Whatever can be read is right.
        for _ in 0..2 {
            if let Ok(page) = store.read(&events(), Offset(1), WHOLE) {
                let ids: Vec<String> = page.events.iter().map(|event| event.id.to_string()).collect();
                let expected: Vec<String> = (0..20).map(|n| format!("id-{n}")).collect();
                assert_eq!(ids, expected, "round {round}");
            }
        }
        // Whatever is decided is right.
        for n in 0..20 {
            let Ok(outcomes) =
                store.commit(&[Batch { now: Timestamp(2_000), ..event_id(&format!("id-{n}")) }])
            else {
                break;
            };
            assert_eq!(offset_of(&outcomes), Offset(n + 1), "round {round}: an id was not found");
        }
        let is_damaged = store.ended().is_some();
        drop(store);
        let again = copy.open();
        assert_eq!(texts(&again).len(), 20, "round {round}");
        rebuilt += usize::from(is_damaged || !copy.aside("damaged").is_empty());
    }
    assert!(rebuilt > 5, "{rebuilt}");
}

#[test]
fn a_broken_page_costs_a_rebuild() {
    let journal = memory();
    let machine = Machine::new(&journal);
    drop(filled(&machine));
    let pages = std::fs::metadata(&machine.path).unwrap().len() / 4096;
    for page in 0..pages {
        let copy = Machine::new(&journal);
        let mut bytes = std::fs::read(&machine.path).unwrap();
        let start = page as usize * 4096;
        bytes[start..start + 64].fill(0xa5);
        std::fs::write(&copy.path, bytes).unwrap();
        check_heals(&copy, &journal, &format!("page {page}"));
    }
}

#[test]
fn a_file_that_was_cut_or_is_something_else_costs_a_rebuild() {
    let journal = memory();
    let machine = Machine::new(&journal);
    drop(filled(&machine));
    let whole = std::fs::read(&machine.path).unwrap();
    for bytes in [&[][..], b"text", &whole[..whole.len() / 2], &whole[..4096], &[0; 9000][..]] {
        let copy = Machine::new(&journal);
        std::fs::write(&copy.path, bytes).unwrap();
        check_heals(&copy, &journal, &format!("{} bytes", bytes.len()));
    }
}

/// A damaged copy that is kept for examination does not fill the disk.
#[test]
fn of_damaged_copies_the_last_one_is_kept() {
    let journal = memory();
    let machine = Machine::new(&journal);
    drop(filled(&machine));
    for _ in 0..4 {
        meddle(&machine.path, "UPDATE meta SET value = x'00' WHERE key = 'journal'");
        drop(machine.open());
        assert_eq!(machine.aside("damaged").len(), 1);
    }
}

/// A leader with a damaged copy hands the lead over when it is closed; the next one need not wait for the timeout.
#[test]
fn a_leader_whose_copy_is_damaged_gives_the_lead_back() {
    let journal = memory();
    let (machine, other) = (Machine::new(&journal), Machine::new(&journal));
    let (leader, follower) = (filled(&machine), other.open());
    meddle(&machine.path, "UPDATE kv SET value = x'00' WHERE key = 'row'");
    let checks = vec![equals(Space::Kv, "row", "value")];
    let error = leader.commit(&[Batch { checks, ..event("never") }]).unwrap_err();
    assert!(is_given_up_for(&error, "damaged"), "{error}");
    assert!(!follower.try_lead().unwrap(), "not yet");
    drop(leader);
    assert!(follower.try_lead().unwrap());
    assert_eq!(follower.status().term, 2);
    assert_eq!(folded(&journal).len(), 20);
}

#[test]
fn a_deleted_copy_is_made_anew() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let store = filled(&machine);
    let expected = dump(&store);
    // Killed: a log lies beside the file, and somebody deletes the file alone.
    let wal = machine.folder.path().join("copy.db-wal");
    let frames = std::fs::read(&wal).unwrap();
    assert!(!frames.is_empty());
    crash(store);
    std::fs::write(&wal, frames).unwrap();
    std::fs::remove_file(&machine.path).unwrap();
    assert_eq!(dump(&machine.open()), expected);

    // With a failed write before.
    let poison = machine.folder.path().join("copy.db-locks/poison");
    std::fs::write(poison, format!("!{:<511}", "the disk failed")).unwrap();
    std::fs::remove_file(&machine.path).unwrap();
    assert_eq!(dump(&machine.open()), expected);

    // All of it.
    std::fs::remove_dir_all(machine.folder.path().join("copy.db-locks")).unwrap();
    std::fs::remove_file(&machine.path).unwrap();
    assert_eq!(dump(&machine.open()), expected);
}

#[test]
fn a_copy_that_is_deleted_while_it_is_open_is_noticed_and_made_anew() {
    let journal = memory();
    let (machine, other) = (Machine::new(&journal), Machine::new(&journal));
    let (store, follower) = (filled(&machine), other.open());
    assert_eq!(store.lost_names(), None);
    std::fs::remove_file(&machine.path).unwrap();
    // Everything goes to the journal as before.
    publish(&store, "still here").unwrap();
    let what = store.lost_names().unwrap();
    assert!(what.contains("was removed or replaced while it was in use"), "{what}");
    let told = store.retire().unwrap();
    assert!(told.contains("The journal has everything"), "{told}");
    assert!(is_given_up_for(&publish(&store, "no more").unwrap_err(), "was removed"));
    drop(store);
    assert!(follower.try_lead().unwrap(), "the lead was given back");
    assert_eq!(dump(&machine.open()), dump(&follower));
    assert_eq!(texts(&follower).len(), 21);
}

/// A copy that may not grow: what does not fit is not placed, and the handle goes on when there is room.
#[test]
fn a_commit_that_finds_no_room_before_its_record_is_placed_writes_nothing() {
    let journal = memory();
    let mut machine = Machine::new(&journal);
    machine.options = SqliteOptions { file_bytes_max: Some(400 << 10), ..harness::small() };
    let leader = machine.lead();
    let large = "x".repeat(4_000);
    let mut stored = 0;
    let error = loop {
        match publish(&leader, &large) {
            Ok(offset) => stored = offset.0,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::NoSpace(_)) && error.may_be_retried(), "{error}");
    assert_eq!(leader.ended(), None);
    assert_eq!(folded(&journal).len() as u64, stored, "what was told is what the journal has");
    // Deleting makes room.
    leader.commit(&[batch(1, vec![trim(&events(), stored)])]).unwrap();
    while leader.maintain(100).unwrap().more {}
    assert_eq!(publish(&leader, &large).unwrap(), Offset(stored + 1));

    // A follower without room stops following, says so, and goes on when it has some.
    let mut small = Machine::new(&journal);
    small.options = SqliteOptions { file_bytes_max: Some(200 << 10), ..harness::small() };
    for n in 0..60 {
        publish(&leader, &format!("{n} {large}")).unwrap();
    }
    let error = small.try_open().unwrap_err();
    assert!(error.to_string().contains("is full"), "{error}");
    small.options.file_bytes_max = None;
    assert_eq!(texts(&small.open()), texts(&leader));
}

/// The disk of the copy is full when the copy is to follow a record that is placed already.
#[test]
fn a_full_disk_after_the_placing_tells_the_outcome_and_ends_the_handle() {
    let journal = memory();
    let Some(mut machine) = on_small_disk(&journal) else {
        println!("skipped: a small file system cannot be mounted here");
        return;
    };
    // The log is never copied, so every commit needs room in it.
    machine.options = SqliteOptions { wal_bytes: 1 << 30, ..harness::small() };
    let other = Machine::new(&journal);
    let (leader, follower) = (machine.lead(), other.open());
    let text = "x".repeat(20_000);
    let mut told = Vec::new();
    let error = loop {
        match leader.commit(&[event(&format!("{} {text}", told.len()))]) {
            Ok(outcomes) => told.push(offset_of(&outcomes)),
            Err(error) => break error,
        }
    };
    let ended = leader.ended().unwrap();
    assert!(is_poisoned_by(&ended, "cannot follow the journal"), "{ended}");
    // The commit whose record was placed was told; the next one failed, and wrote nothing.
    assert!(is_given_up_for(&error, "cannot follow the journal"), "{error}");
    assert_eq!(folded(&journal).len(), told.len(), "every record that was placed was told, and nothing else");
    assert_eq!(told.last(), Some(&Offset(told.len() as u64)));
    drop(leader);
    assert!(follower.try_lead().unwrap(), "the lead was given back although there is no room");
    publish(&follower, "goes on").unwrap();
    // With room again, the copy catches up.
    std::fs::remove_file(machine.folder.path().join("ballast")).unwrap();
    let again = machine.open();
    assert_eq!(texts(&again), texts(&follower));
    drop(again);
    unmount(machine.folder.path());
}

/// Returns a machine whose folder is a file system of its own, nearly full.
fn on_small_disk(journal: &Arc<MemoryJournal>) -> Option<Machine> {
    let machine = Machine::new(journal);
    let folder = machine.folder.path();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
        .arg(folder)
        .stderr(std::process::Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return None;
    }
    std::fs::write(folder.join("ballast"), vec![1; 2 << 20]).unwrap();
    Some(machine)
}

fn unmount(folder: &Path) {
    let status = std::process::Command::new("umount").arg("-l").arg(folder).status().unwrap();
    assert!(status.success());
}

/// A failed write stops the copy; the next process has it again.
#[test]
fn a_poisoned_copy_ends_the_handle_and_is_used_again_after_reopening() {
    let journal = memory();
    let (machine, other) = (Machine::new(&journal), Machine::new(&journal));
    let (leader, follower) = (filled(&machine), other.open());
    let spoil = "INSERT INTO commits (c, seq, runs) SELECT max(c) + 1, max(seq), x'00' FROM commits";
    meddle(&machine.path, spoil);
    publish(&leader, "placed, and not in the copy").unwrap();
    leader.streams().unwrap_err();
    let error = publish(&leader, "never").unwrap_err();
    assert!(is_given_up_for(&error, "is damaged"), "{error}");
    assert!(matches!(leader.ended(), Some(StoreError::Poisoned(_))));
    assert_eq!(folded(&journal).len(), 21, "what was told was placed, and nothing else");
    meddle(&machine.path, "DELETE FROM commits WHERE runs = x'00'");
    drop(leader);
    assert!(follower.try_lead().unwrap());
    publish(&follower, "next").unwrap();
    let again = machine.open();
    assert_eq!(dump(&again), dump(&follower));
}

/// An id that was brought before is looked up in its event, or in what is left of it: if that is damaged, nothing is
/// stored, because nobody knows whether it would be stored twice.
#[test]
fn a_damaged_id_decides_nothing() {
    for is_trimmed in [false, true] {
        let journal = memory();
        let machine = Machine::new(&journal);
        let store = filled(&machine);
        if is_trimmed {
            store.commit(&[batch(3_000, vec![trim(&events(), 15)])]).unwrap();
            while store.maintain(100).unwrap().more {}
            meddle(&machine.path, "UPDATE gone_ids SET id = 'other' WHERE offset = 7");
        } else {
            meddle(&machine.path, "UPDATE events SET id = 'other' WHERE offset = 7");
        }
        let again = |n: u64| store.commit(&[Batch { now: Timestamp(3_000), ..event_id(&format!("id-{n}")) }]);
        assert_eq!(offset_of(&again(5).unwrap()), Offset(6), "its neighbour is known");
        let error = again(6).unwrap_err();
        assert!(is_given_up_for(&error, "damaged"), "trimmed: {is_trimmed}: {error}");
        drop(store);
        let store = lead_again(&machine);
        let outcomes = store.commit(&[Batch { now: Timestamp(3_000), ..event_id("id-6") }]).unwrap();
        assert_eq!(offset_of(&outcomes), Offset(7), "the copy that was made anew knows it");
        assert_eq!(dump(&store), dump(&Machine::new(&journal).open()));
    }
}

/// Retention must not be decided by a row whose time was changed: events would be gone for everybody.
#[test]
fn a_damaged_time_trims_nothing() {
    for bytes_max in [None, Some(50)] {
        let journal = memory();
        let machine = Machine::new(&journal);
        let store = filled(&machine);
        meddle(
            &machine.path,
            "UPDATE events SET ts = 1, payload = payload || zeroblob(1000) WHERE offset BETWEEN 5 AND 20",
        );
        let older_than = bytes_max.is_none().then_some(Timestamp(1_055));
        let error = store.retention_start(&events(), Retention { older_than, bytes_max }).unwrap_err();
        assert!(is_poisoned_by(&error, "damaged"), "{error}");
        assert!(machine.is_condemned_as("damaged"));
        drop(store);
        assert_eq!(texts(&machine.open()).len(), 20);
    }
}

/// A copy that another process still has open is not set aside under it: closing would delete the log of the new one.
#[test]
fn a_copy_that_is_open_elsewhere_is_not_set_aside() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let store = filled(&machine);
    meddle(&machine.path, "UPDATE events SET payload = x'7b7d' WHERE offset = 7");
    assert!(store.read(&events(), Offset(1), WHOLE).is_err());
    assert!(machine.is_condemned_as("damaged"));
    let error = machine.try_open().unwrap_err();
    assert!(error.to_string().contains("already served by process"), "{error}");
    assert!(machine.path.exists() && machine.is_condemned_as("damaged"));
    drop(store);
    assert_eq!(texts(&machine.open()).len(), 20);
}

/// A crash while a copy was being set aside: the log has its new name already, the database has not.
#[test]
fn a_copy_that_was_half_set_aside_is_not_used() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let store = filled(&machine);
    let whole = texts(&store);
    // The database as it is without its log.
    let bytes = std::fs::read(&machine.path).unwrap();
    drop(store);
    std::fs::write(&machine.path, bytes).unwrap();
    std::fs::write(machine.folder.path().join("copy.db.condemned"), "diverged").unwrap();
    assert_eq!(texts(&machine.open()), whole);
    assert!(!machine.is_condemned_as("diverged"));
    // A mark that was cut short by a full disk still says that the copy is bad.
    std::fs::write(machine.folder.path().join("copy.db.condemned"), "").unwrap();
    assert_eq!(texts(&machine.open()), whole);
    assert_eq!(machine.aside("damaged").len(), 1);
}

/// Setting aside marks the copy before it moves anything, so that a crash in between is noticed.
#[test]
fn setting_aside_marks_first() {
    use millrace_store::Copies;
    let journal = memory();
    let machine = Machine::new(&journal);
    drop(filled(&machine));
    // Makes the last step fail: the lock folder cannot be removed while a file stands in its place.
    let copies = SqliteCopies::new(machine.path.clone(), machine.options.clone());
    let wal = machine.folder.path().join("copy.db-wal");
    std::fs::create_dir(machine.folder.path().join("copy.db-shm")).unwrap();
    std::fs::write(&wal, "frames").unwrap();
    assert!(copies.set_aside("stale").is_err());
    assert_eq!(copies.condemned().unwrap().as_deref(), Some("stale"));
    std::fs::remove_dir(machine.folder.path().join("copy.db-shm")).unwrap();
    assert_eq!(texts(&machine.open()).len(), 20);
}

/// The disk lost the end of the copy with the power: the journal has it.
#[test]
fn a_copy_that_lost_its_end_catches_up() {
    let journal = memory();
    let machine = Machine::new(&journal);
    let store = machine.lead();
    publish(&store, "first").unwrap();
    drop(store);
    let early = std::fs::read(&machine.path).unwrap();
    let store = lead_again(&machine);
    for n in 0..30 {
        publish(&store, &n.to_string()).unwrap();
    }
    let expected = dump(&store);
    crash(store);
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(machine.folder.path().join(format!("copy.db{suffix}")));
    }
    std::fs::write(&machine.path, early).unwrap();
    let again = machine.open();
    assert_eq!(dump(&again), expected);
    machine.clock.pass(DAY);
    assert!(again.try_lead().unwrap());
    assert_eq!(publish(&again, "next").unwrap(), Offset(32), "offsets go on where the journal is");
    assert!(heads(&*journal).len() > 32);
}
