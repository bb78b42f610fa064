//! Placing and reading records: one winner per number, tips compared, pages bounded, partitions at their borders.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use millrace_journal::{Journal, JournalReadLimit, Placed, Placing, Tip};
use support::*;

#[test]
fn a_number_is_placed_once_and_only_behind_its_predecessor() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.checked();
    assert_eq!(place(&journal, 0).unwrap(), Placed::Taken, "numbers begin at 1");
    assert_eq!(place(&journal, 2).unwrap(), Placed::Taken, "1 is missing");
    assert_eq!(place(&journal, 1).unwrap(), Placed::Yes);
    assert_eq!(place(&journal, 1).unwrap(), Placed::Taken);
    let other = schema.journal();
    assert_eq!(place(&other, 1).unwrap(), Placed::Taken, "also for another handle");
    assert_eq!(place(&other, 2).unwrap(), Placed::Yes);
    let found = journal.read(1, EVERYTHING).unwrap();
    let expected: Vec<_> = (1..=2).map(|n| (n, bytes::Bytes::from(record(n)))).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_record_behind_another_history_is_not_placed() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.checked();
    place_up_to(&journal, 1, 3);
    let wrong = Placing { n: 4, prev: tip(2), tip: tip(4), record: b"x", settles: &[] };
    assert_eq!(journal.place(&wrong).unwrap(), Placed::Taken);
    let from_the_start = Placing { prev: Tip::START, ..wrong };
    assert_eq!(journal.place(&from_the_start).unwrap(), Placed::Taken);
    assert_eq!(numbers(&journal, 1), [1, 2, 3]);
    assert_eq!(place(&journal, 4).unwrap(), Placed::Yes);
}

#[test]
fn each_of_150_races_of_16_has_one_winner() {
    let Some(schema) = Schema::new() else { return };
    let journals: Arc<Vec<_>> = Arc::new((0..16).map(|_| schema.checked()).collect());
    for n in 1..=150 {
        let journals = journals.clone();
        let placed = together(16, move |thread| {
            let own = format!("record {n} of {thread}");
            let prev = if n == 1 { Tip::START } else { tip(n - 1) };
            let placing = Placing { n, prev, tip: tip(n), record: own.as_bytes(), settles: &[] };
            (journals[thread].place(&placing).unwrap() == Placed::Yes).then_some(own)
        });
        let winners: Vec<String> = placed.into_iter().flatten().collect();
        let found = schema.checked().read(n, EVERYTHING).unwrap();
        assert_eq!(winners.len(), 1, "{n}: {winners:?}");
        assert_eq!(found, [(n, bytes::Bytes::from(winners[0].clone()))]);
    }
}

#[test]
fn many_threads_of_one_handle_take_turns() {
    let Some(schema) = Schema::new() else { return };
    let journal = Arc::new(schema.checked());
    let shared = journal.clone();
    let placed =
        together(8, move |_| (1..=20).filter(|n| place(&shared, *n).unwrap() == Placed::Yes).count());
    let found = numbers(&journal, 1);
    assert_eq!(placed.iter().sum::<usize>(), found.len());
    assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
}

#[test]
fn records_of_every_size_come_back_as_they_were() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.checked();
    let sizes = [0, 1, 300, 2_000, 2_100, 8_000, 8_300, 100_000, 12 << 20];
    for (n, size) in (1..).zip(sizes) {
        let bytes: Vec<u8> = (0..size).map(|at: usize| (at * 31 + at / 251) as u8).collect();
        let prev = if n == 1 { Tip::START } else { tip(n - 1) };
        let placing = Placing { n, prev, tip: tip(n), record: &bytes, settles: &[] };
        assert_eq!(journal.place(&placing).unwrap(), Placed::Yes);
        let found = journal.read(n, EVERYTHING).unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].1 == bytes, "{size} bytes");
    }
    let found = journal.read(1, EVERYTHING).unwrap();
    assert_eq!(found.iter().map(|(_, record)| record.len()).collect::<Vec<_>>(), sizes);
}

#[test]
fn a_page_is_bounded_in_records_and_bytes_and_never_empty_for_that() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.checked();
    place_up_to(&journal, 1, 9);
    let page = |from, records_max, bytes_max| -> Vec<u64> {
        let found = journal.read(from, JournalReadLimit { records_max, bytes_max }).unwrap();
        found.into_iter().map(|(n, _)| n).collect()
    };
    // A record has eight bytes.
    assert_eq!(page(1, 3, 1000), [1, 2, 3]);
    assert_eq!(page(4, 100, 24), [4, 5, 6]);
    assert_eq!(page(4, 100, 23), [4, 5]);
    assert_eq!(page(4, 100, 1), [4]);
    assert_eq!(page(4, 100, 0), [4]);
    assert_eq!(page(8, usize::MAX, usize::MAX), [8, 9]);
    assert_eq!(page(0, 2, 1000), [1, 2]);
    assert_eq!(page(10, 100, 1000), [0; 0]);
    assert_eq!(page(u64::MAX, 100, 1000), [0; 0]);
    assert_refused(place(&journal, u64::MAX), "too large");
}

#[test]
fn records_behind_a_gap_are_not_returned() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.checked();
    place_up_to(&journal, 1, 6);
    schema.query("DELETE FROM {s}.millrace_journal WHERE n IN (1, 4)");
    assert_eq!(numbers(&journal, 1), [2, 3]);
    assert_eq!(numbers(&journal, 4), [5, 6]);
}

#[test]
fn partitions_are_made_ahead_and_borders_are_crossed() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.with_partitions(10);
    let count = || {
        schema.count("SELECT count(*) FROM pg_inherits WHERE inhparent = '{s}.millrace_journal'::regclass")
    };
    assert_eq!(count(), 2);
    // Without any reading in between, placings make what they miss themselves.
    place_up_to(&journal, 1, 45);
    assert!(count() >= 5, "{}", count());
    // Reading and looking into the outbox do it ahead.
    for n in 46..=120 {
        assert_eq!(place(&journal, n).unwrap(), Placed::Yes);
        journal.outbox(None, 1).unwrap();
        let past = schema.count(
            "SELECT max((regexp_match(pg_get_expr(relpartbound, oid), 'TO \\(''(\\d+)'))[1]::bigint) FROM pg_class
             WHERE relname LIKE 'millrace\\_journal\\_0%' AND relnamespace = '{s}'::regnamespace",
        );
        assert!(past.unsigned_abs() > n + 10, "partitions end at {past}, the head is {n}");
    }
    assert_eq!(numbers(&journal, 1), (1..=120).collect::<Vec<_>>());
    let storage = schema.query(
        "SELECT DISTINCT attstorage::text FROM pg_attribute a JOIN pg_inherits i ON i.inhrelid = a.attrelid
         WHERE inhparent = '{s}.millrace_journal'::regclass AND attname = 'record'",
    );
    assert_eq!(storage, ["e"]);
}

#[test]
fn servers_with_partitions_of_different_sizes_get_along() {
    let Some(schema) = Schema::new() else { return };
    let journals = Arc::new([7, 10, 25].map(|size| schema.with_partitions(size)));
    let shared = journals.clone();
    together(3, move |thread| {
        for n in 1..=200 {
            place(&shared[thread], n).unwrap();
            if n % 8 == thread as u64 {
                shared[thread].read(n, JournalReadLimit { records_max: 1, bytes_max: 1 }).unwrap();
            }
        }
    });
    let head = schema.count("SELECT n FROM {s}.millrace_head").unsigned_abs();
    place_up_to(&journals[0], head + 1, 210);
    assert_eq!(numbers(&journals[2], 1), (1..=210).collect::<Vec<_>>());
}

#[test]
fn whole_partitions_below_a_number_are_dropped_and_their_numbers_stay_taken() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.with_partitions(10);
    place_up_to(&journal, 1, 35);
    journal.delete_below(5).unwrap();
    assert_eq!(numbers(&journal, 1).first(), Some(&1), "a partition is dropped as a whole or not");
    journal.delete_below(25).unwrap();
    assert_eq!(numbers(&journal, 1), (20..=35).collect::<Vec<_>>());
    journal.delete_below(25).unwrap();
    assert_eq!(numbers(&journal, 21).first(), Some(&21));
    for n in [1, 7, 20, 35] {
        assert_eq!(place(&journal, n).unwrap(), Placed::Taken, "{n}");
    }
    journal.delete_below(u64::MAX).unwrap();
    assert_eq!(numbers(&journal, 1), (30..=35).collect::<Vec<_>>(), "the partition of the head stays");
    place_up_to(&journal, 36, 60);
}

#[test]
fn a_partition_in_use_is_dropped_later_and_placing_goes_on() {
    let Some(schema) = Schema::new() else { return };
    let journal = schema.with_partitions(10);
    place_up_to(&journal, 1, 25);
    let mut reader = schema.client();
    let mut transaction = reader.transaction().unwrap();
    transaction.query(&format!("SELECT count(*) FROM {}.millrace_journal", schema.name), &[]).unwrap();
    journal.delete_below(20).unwrap();
    assert_eq!(numbers(&journal, 1).first(), Some(&1));
    assert_eq!(place(&journal, 26).unwrap(), Placed::Yes);
    transaction.commit().unwrap();
    journal.delete_below(20).unwrap();
    assert_eq!(numbers(&journal, 1).first(), Some(&20));
}

#[test]
fn a_placing_does_not_wait_behind_other_requests() {
    let Some(schema) = Schema::new() else { return };
    let journal = Arc::new(schema.checked());
    let mut blocker = schema.client();
    let mut transaction = blocker.transaction().unwrap();
    let tables = format!("{0}.millrace_outbox, {0}.millrace_parts", schema.name);
    transaction.batch_execute(&format!("LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")).unwrap();
    let (reading, keeping) = (journal.clone(), journal.clone());
    let outbox = std::thread::spawn(move || reading.outbox(None, 10));
    let parts = std::thread::spawn(move || keeping.parts());
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation IN
                   ('{s}.millrace_outbox'::regclass, '{s}.millrace_parts'::regclass)";
    while schema.count(waiting) < 2 {
        std::thread::yield_now();
    }
    place_up_to(&journal, 1, 20);
    transaction.commit().unwrap();
    assert_eq!(outbox.join().unwrap().unwrap(), []);
    assert_eq!(parts.join().unwrap().unwrap(), []);
}

#[test]
fn the_manifest_is_replaced_by_comparison_and_parts_are_kept() {
    let Some(schema) = Schema::new() else { return };
    let (journal, other) = (schema.checked(), schema.journal());
    assert_eq!(journal.manifest().unwrap(), None);
    assert!(journal.set_manifest(b"one", None).unwrap());
    assert!(!other.set_manifest(b"two", None).unwrap());
    let first = other.manifest().unwrap().unwrap();
    assert_eq!(first.bytes, "one");
    assert!(first.engine_time_ms.is_some());
    assert!(other.set_manifest(b"two", Some(&first.version)).unwrap());
    assert!(!journal.set_manifest(b"three", Some(&first.version)).unwrap());
    let foreign = millrace_journal::ManifestVersion("\"etag\"".to_owned());
    assert!(!journal.set_manifest(b"three", Some(&foreign)).unwrap());
    assert_eq!(journal.manifest().unwrap().unwrap().bytes, "two");

    let name = |text: &str| millrace_journal::PartName(text.to_owned());
    let large = vec![7; 8 << 20];
    journal.put_part(&name("12-ab/0"), &large).unwrap();
    journal.put_part(&name("12-ab/0"), &large).unwrap();
    journal.put_part(&name("12-ab/1"), b"").unwrap();
    assert!(other.get_part(&name("12-ab/0")).unwrap().unwrap() == large);
    assert_eq!(other.get_part(&name("12-ab/1")).unwrap().unwrap().len(), 0);
    assert_eq!(other.get_part(&name("12-ab/2")).unwrap(), None);
    let mut parts = other.parts().unwrap();
    parts.sort();
    assert_eq!(parts, [name("12-ab/0"), name("12-ab/1")]);
    journal.delete_part(&name("12-ab/0")).unwrap();
    journal.delete_part(&name("12-ab/0")).unwrap();
    assert_eq!(journal.parts().unwrap(), [name("12-ab/1")]);
}
