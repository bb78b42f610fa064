//! The journal on real servers: SeaweedFS, and moto as the oracle for conditions.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use millrace_journal::{Journal, JournalError, JournalReadLimit, ManifestVersion, PartName, Placed};
use support::line::LineWithoutBodies;
use support::{SEAWEED, TestPlace, open_at, place, read_all};

fn check_twice(server: &TestPlace) {
    let journal = server.open();
    let fitness = journal.check().unwrap();
    assert!(fitness.engine.starts_with("object storage s3://millrace-tests/test-"), "{}", fitness.engine);
    assert!(!fitness.is_replicated);
    assert!(journal.set_manifest(b"manifest", None).unwrap());
    journal.check().unwrap();
}

fn records(server: &TestPlace) {
    let journal = server.open();
    assert!(read_all(&journal, 1).is_empty());
    for n in 1..=30 {
        assert_eq!(place(&journal, n, format!("record {n}").as_bytes()).unwrap(), Placed::Yes);
    }
    assert_eq!(place(&journal, 7, b"another").unwrap(), Placed::Taken);
    let read = read_all(&journal, 5);
    assert_eq!(read.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (5..=30).collect::<Vec<_>>());
    assert_eq!(read[2].1, "record 7");
    let small = JournalReadLimit { records_max: 100, bytes_max: 20 };
    assert_eq!(journal.read(1, small).unwrap().len(), 2);
    assert!(read_all(&journal, 31).is_empty());
    let other = server.open();
    assert_eq!(read_all(&other, 30), [(30, "record 30".into())], "another server on the same journal");
}

fn large_record(server: &TestPlace) {
    let journal = server.open();
    let record: Vec<u8> =
        (0..12_u32 << 20).map(|n| u8::try_from(n.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect();
    assert_eq!(place(&journal, 1, &record).unwrap(), Placed::Yes);
    assert_eq!(read_all(&journal, 1)[0].1, record);
    assert_eq!(place(&journal, 2, b"").unwrap(), Placed::Yes);
    assert_eq!(read_all(&journal, 2)[0].1, "", "an empty object is one");
}

fn manifest(server: &TestPlace) {
    let journal = server.open();
    assert_eq!(journal.manifest().unwrap(), None);
    let stale = ManifestVersion("\"00000000000000000000000000000000\"".into());
    assert!(!journal.set_manifest(b"from nothing", Some(&stale)).unwrap(), "there is none to replace");
    assert!(journal.set_manifest(b"first", None).unwrap());
    assert!(!journal.set_manifest(b"other", None).unwrap());
    let first = journal.manifest().unwrap().unwrap();
    assert_eq!(first.bytes, "first");
    assert!(first.engine_time_ms.is_some(), "the server sends a Date");
    assert!(journal.set_manifest(b"second", Some(&first.version)).unwrap());
    assert!(!journal.set_manifest(b"third", Some(&first.version)).unwrap());
    let second = journal.manifest().unwrap().unwrap();
    assert_eq!(second.bytes, "second");
    assert_ne!(second.version, first.version);
}

fn parts(server: &TestPlace) {
    let journal = server.open();
    assert_eq!(journal.parts().unwrap(), []);
    let name = |number: usize| PartName(format!("17-ab12/{number:06}"));
    for number in 0..5 {
        journal.put_part(&name(number), &vec![u8::try_from(number).unwrap(); 1 << 20]).unwrap();
    }
    journal.put_part(&name(4), b"again").unwrap();
    assert_eq!(journal.get_part(&name(4)).unwrap().unwrap(), "again");
    assert_eq!(journal.get_part(&name(3)).unwrap().unwrap(), vec![3; 1 << 20]);
    assert_eq!(journal.get_part(&name(9)).unwrap(), None);
    journal.delete_part(&name(0)).unwrap();
    journal.delete_part(&name(0)).unwrap();
    let listed: BTreeSet<PartName> = journal.parts().unwrap().into_iter().collect();
    assert_eq!(listed, (1..5).map(name).collect());
    let bad = journal.put_part(&PartName("../manifest".into()), b"x");
    assert!(matches!(bad, Err(JournalError::Refused(_))), "{bad:?}");
}

/// More records than a listing or a bulk request holds.
fn trimming(server: &TestPlace, count: u64) {
    let journal = Arc::new(server.open());
    let writers = (0..8).map(|writer| {
        let journal = Arc::clone(&journal);
        thread::spawn(move || {
            for n in (1..=count).filter(|n| n % 8 == writer) {
                assert_eq!(place(&journal, n, b"record").unwrap(), Placed::Yes);
            }
        })
    });
    writers.collect::<Vec<_>>().into_iter().for_each(|writer| writer.join().unwrap());
    journal.put_part(&PartName("1-a/0".into()), b"part").unwrap();
    journal.delete_below(1).unwrap();
    assert_eq!(read_all(&journal, 1)[0].0, 1);
    journal.delete_below(count).unwrap();
    journal.delete_below(count).unwrap();
    for n in [1, 2, 999, 1_000, 1_001, count - 1].into_iter().filter(|n| *n < count) {
        assert_eq!(
            read_all(&journal, n),
            [(count, "record".into())],
            "{n} is deleted, and the last one is left"
        );
    }
    assert_eq!(read_all(&journal, count), [(count, "record".into())]);
    assert_eq!(journal.get_part(&PartName("1-a/0".into())).unwrap().unwrap(), "part");
}

/// Rounds are run by several groups of creators at once: SeaweedFS lets losers wait for seconds.
fn races(server: &TestPlace, creators: usize, groups: u64, rounds: u64) {
    let journals: Vec<_> = (0..creators).map(|_| server.open()).collect();
    let barriers: Vec<_> = (0..groups).map(|_| Barrier::new(creators)).collect();
    let outcomes = Mutex::new(BTreeMap::<u64, Vec<_>>::new());
    let race = |creator: usize, group: u64| {
        for round in 0..rounds {
            let n = 1 + group * rounds + round;
            barriers[usize::try_from(group).unwrap()].wait();
            // Nothing may panic here: the others of the group wait at the barrier.
            let outcome = place(&journals[creator], n, format!("creator {creator}").as_bytes());
            outcomes.lock().unwrap().entry(n).or_default().push((creator, outcome));
        }
    };
    thread::scope(|scope| {
        for (creator, group) in
            (0..creators).flat_map(|creator| (0..groups).map(move |group| (creator, group)))
        {
            let race = &race;
            scope.spawn(move || race(creator, group));
        }
    });
    let outcomes = outcomes.into_inner().unwrap();
    let read = read_all(&journals[0], 1);
    assert_eq!(u64::try_from(read.len()).unwrap(), groups * rounds);
    for (n, record) in read {
        let of_round = &outcomes[&n];
        let told = of_round.iter().filter(|(_, outcome)| *outcome == Ok(Placed::Yes)).count();
        let unknown = of_round.iter().filter(|(_, outcome)| outcome.is_err()).count();
        // The winner may have waited for longer than its deadline.
        assert!(told == 1 || told == 0 && unknown > 0, "round {n}: {of_round:?}");
        let won = |(creator, outcome): &&(usize, Result<Placed, JournalError>)| {
            record == format!("creator {creator}") && *outcome != Ok(Placed::Taken)
        };
        let winners: Vec<_> = of_round.iter().filter(won).collect();
        assert!(
            winners.len() == 1 && (told == 0 || winners[0].1.is_ok()),
            "round {n}: {record:?}, {of_round:?}"
        );
        println!("round {n}: {} took it, {} without an answer", winners[0].0, unknown);
    }
}

/// SeaweedFS stores an empty object for a request whose body never came, if the request does not say what the body is.
fn lost_bodies(server: &TestPlace) {
    let line = LineWithoutBodies::start(&server.endpoint);
    let journal = server.open();
    for n in 1..=20 {
        let record = format!("record {n}");
        let lost = place(&server.open_through(&line.endpoint), n, record.as_bytes());
        assert!(matches!(lost, Err(JournalError::Unknown(_))), "{lost:?}");
        assert_eq!(place(&journal, n, record.as_bytes()).unwrap(), Placed::Yes, "nothing is in its place");
        assert_eq!(read_all(&journal, n), [(n, record.into())]);
    }
}

fn no_bucket(server: &TestPlace) {
    let journal = open_at(&server.endpoint, "millrace-tests-that-are-not-there", "store");
    let outcome = journal.check();
    assert!(matches!(outcome, Err(JournalError::Refused(_))), "{outcome:?}");
}

macro_rules! on_both {
    ($($name:ident => $test:expr;)*) => {
        mod seaweed {
            use super::*;
            $(#[test] fn $name() {
                if let Some(server) = TestPlace::at(SEAWEED) { ($test)(&server); }
            })*
        }
        mod moto {
            use super::*;
            $(#[test] fn $name() {
                if let Some(server) = TestPlace::on_moto() { ($test)(&server); }
            })*
        }
    };
}

on_both! {
    a_server_is_fit_when_the_store_is_made_and_later => check_twice;
    a_record_is_placed_once_and_read_in_order => records;
    the_largest_record_and_the_smallest_survive => large_record;
    the_manifest_is_replaced_by_those_who_know_it => manifest;
    parts_are_stored_listed_and_deleted => parts;
    a_request_that_loses_its_body_leaves_nothing => lost_bodies;
    a_bucket_that_is_not_there_is_refused => no_bucket;
}

#[test]
fn many_records_are_deleted_on_seaweed() {
    if let Some(server) = TestPlace::at(SEAWEED) {
        trimming(&server, 2_503);
    }
}

#[test]
fn records_are_deleted_on_moto() {
    if let Some(server) = TestPlace::on_moto() {
        trimming(&server, 43);
    }
}

#[test]
fn sixteen_creators_have_one_winner_in_each_of_fifty_rounds_on_seaweed() {
    if let Some(server) = TestPlace::at(SEAWEED) {
        races(&server, 16, 10, 5);
    }
}

#[test]
fn four_creators_have_one_winner_in_each_of_ten_rounds_on_moto() {
    if let Some(server) = TestPlace::on_moto() {
        races(&server, 4, 2, 5);
    }
}
