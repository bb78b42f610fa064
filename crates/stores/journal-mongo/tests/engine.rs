//! The journal on the real engine.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::{Arc, Barrier};
use std::thread;

use bytes::Bytes;
use millrace_journal::{HeadGuard, Journal, JournalError, ManifestVersion, Placed};
use millrace_journal_mongo::{MongoJournal, MongoSettings};
use mongodb::bson::{Document, doc};
use support::{TestDatabase, limit, numbers, part, place, with_option};

#[test]
fn the_engine_is_fit_and_may_be_checked_again() {
    let Some(database) = TestDatabase::new() else { return };
    let journal = database.open();
    let fitness = journal.check().unwrap();
    println!("{fitness:?}");
    assert!(fitness.engine.starts_with("MongoDB "), "{}", fitness.engine);
    assert_eq!(fitness.head_guard, HeadGuard::Manifest);
    assert_eq!(journal.check().unwrap(), fitness);
    let plain = MongoSettings::from_url_and_database(&database.url, &database.name).unwrap();
    match MongoJournal::new(plain).unwrap().check() {
        Ok(_) => assert!(!fitness.engine.contains("embedded"), "{}", fitness.engine),
        Err(error) => assert!(matches!(error, JournalError::Unfit(_)), "{error:?}"),
    }
    let left = database.with_driver(|database| async move {
        database.collection::<Document>("manifest").count_documents(doc! {}).await.unwrap()
    });
    assert_eq!(left, 0, "the check leaves nothing behind");
}

#[test]
fn a_number_is_placed_once_and_read_back() {
    let Some(database) = TestDatabase::new() else { return };
    let journal = database.checked();
    assert_eq!(place(&journal, 1, b"one").unwrap(), Placed::Yes);
    assert_eq!(place(&journal, 1, b"two").unwrap(), Placed::Taken);
    assert_eq!(place(&journal, 1, b"one").unwrap(), Placed::Taken);
    assert_eq!(place(&database.open(), 2, b"").unwrap(), Placed::Yes);
    let found = journal.read(1, limit(10, 1000)).unwrap();
    assert_eq!(found, [(1, Bytes::from_static(b"one")), (2, Bytes::new())]);
    assert_eq!(journal.read(3, limit(10, 1000)).unwrap(), []);
    assert_eq!(journal.read(u64::MAX, limit(10, 1000)).unwrap(), []);
}

#[test]
fn of_sixteen_writers_one_wins_each_number() {
    const WRITERS: usize = 16;
    const RACES: u64 = 150;
    let Some(database) = TestDatabase::new() else { return };
    let journals: Vec<Arc<MongoJournal>> = (0..4).map(|_| Arc::new(database.checked())).collect();
    let barrier = Arc::new(Barrier::new(WRITERS));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (journal, barrier) = (journals[writer % journals.len()].clone(), barrier.clone());
            thread::spawn(move || {
                let mut won = Vec::new();
                for n in 1..=RACES {
                    barrier.wait();
                    if place(&journal, n, &[writer as u8]).unwrap() == Placed::Yes {
                        won.push((n, Bytes::from(vec![writer as u8])));
                    }
                }
                won
            })
        })
        .collect();
    let mut won: Vec<(u64, Bytes)> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    won.sort();
    let stored = journals[0].read(1, limit(1000, 1 << 20)).unwrap();
    assert_eq!(won.len() as u64, RACES);
    assert_eq!(won, stored);
}

#[test]
fn reading_stops_at_gaps_and_limits() {
    let Some(database) = TestDatabase::new() else { return };
    let journal = database.checked();
    for n in [1, 2, 3, 5, 6] {
        place(&journal, n, &[7; 100]).unwrap();
    }
    assert_eq!(numbers(&journal, 1), [1, 2, 3]);
    assert_eq!(numbers(&journal, 4), [5, 6]);
    assert_eq!(journal.read(1, limit(2, 1000)).unwrap().len(), 2);
    assert_eq!(journal.read(1, limit(10, 250)).unwrap().len(), 2);
    assert_eq!(journal.read(1, limit(10, 1)).unwrap().len(), 1, "a record is always returned");
    assert_eq!(journal.read(1, limit(0, 1000)).unwrap().len(), 0);
}

#[test]
fn deleted_numbers_are_gone_and_free_again() {
    let Some(database) = TestDatabase::new() else { return };
    let journal = database.checked();
    for n in 1..=20 {
        place(&journal, n, b"x").unwrap();
    }
    journal.delete_below(11).unwrap();
    journal.delete_below(11).unwrap();
    journal.delete_below(5).unwrap();
    assert_eq!(numbers(&journal, 1), (11..=20).collect::<Vec<_>>());
    // The reason for `HeadGuard::Manifest`.
    assert_eq!(place(&journal, 3, b"late").unwrap(), Placed::Yes);
    journal.delete_below(u64::MAX).unwrap();
    assert!(numbers(&journal, 1).is_empty());
}

#[test]
fn more_records_than_are_deleted_at_once_are_all_deleted() {
    let Some(database) = TestDatabase::new() else { return };
    let journal = database.checked();
    database.with_driver(|database| async move {
        let records = (1..=12_000_i64).map(|n| doc! { "_id": n, "r": binary(&[1]) });
        database.collection::<Document>("journal").insert_many(records).await.unwrap();
    });
    journal.delete_below(11_991).unwrap();
    assert_eq!(numbers(&journal, 1), (11_991..=12_000).collect::<Vec<_>>());
}

#[test]
fn the_manifest_is_replaced_only_from_the_expected_version() {
    let Some(database) = TestDatabase::new() else { return };
    let journal = database.checked();
    assert_eq!(journal.manifest().unwrap(), None);
    assert!(!journal.set_manifest(b"x", Some(&ManifestVersion("1".to_owned()))).unwrap());
    assert!(journal.set_manifest(b"first", None).unwrap());
    assert!(!journal.set_manifest(b"x", None).unwrap());
    let first = journal.manifest().unwrap().unwrap();
    assert_eq!(first.bytes, b"first".as_slice());
    assert!(first.engine_time_ms.is_some_and(|time| time > 1_600_000_000_000), "{first:?}");
    assert!(journal.set_manifest(b"second", Some(&first.version)).unwrap());
    assert!(!journal.set_manifest(b"third", Some(&first.version)).unwrap());
    assert!(!journal.set_manifest(b"third", Some(&ManifestVersion("\"etag\"".to_owned()))).unwrap());
    let second = journal.manifest().unwrap().unwrap();
    assert_eq!(second.bytes, b"second".as_slice());
    assert_ne!(second.version, first.version);
}

#[test]
fn one_of_many_manifests_wins_each_version() {
    let Some(database) = TestDatabase::new() else { return };
    let journal = Arc::new(database.checked());
    for _ in 0..10 {
        let was = journal.manifest().unwrap().map(|manifest| manifest.version);
        let writers: Vec<_> = (0..8_u8)
            .map(|writer| {
                let (journal, was) = (journal.clone(), was.clone());
                thread::spawn(move || journal.set_manifest(&[writer], was.as_ref()).unwrap())
            })
            .collect();
        let won: Vec<bool> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        assert_eq!(won.iter().filter(|won| **won).count(), 1);
        let winner = won.iter().position(|won| *won).unwrap() as u8;
        assert_eq!(journal.manifest().unwrap().unwrap().bytes, [winner].as_slice());
    }
}

#[test]
fn parts_of_full_size_are_kept() {
    let Some(database) = TestDatabase::new() else { return };
    let journal = database.checked();
    let full: Vec<u8> = (0..8 << 20).map(|i: u32| (i % 251) as u8).collect();
    journal.put_part(&part("00000000000000000007-ab/0"), &full).unwrap();
    journal.put_part(&part("00000000000000000007-ab/0"), &full).unwrap();
    journal.put_part(&part("00000000000000000007-ab/1"), b"").unwrap();
    assert_eq!(journal.get_part(&part("00000000000000000007-ab/0")).unwrap().unwrap(), full);
    assert_eq!(journal.get_part(&part("00000000000000000007-ab/1")).unwrap().unwrap(), Bytes::new());
    assert_eq!(journal.get_part(&part("other/0")).unwrap(), None);
    let mut names = journal.parts().unwrap();
    names.sort();
    assert_eq!(names, [part("00000000000000000007-ab/0"), part("00000000000000000007-ab/1")]);
    journal.delete_part(&part("00000000000000000007-ab/0")).unwrap();
    journal.delete_part(&part("00000000000000000007-ab/0")).unwrap();
    assert_eq!(journal.parts().unwrap(), [part("00000000000000000007-ab/1")]);
}

#[test]
fn the_largest_record_fits_and_a_larger_one_than_a_document_is_refused() {
    let Some(database) = TestDatabase::new() else { return };
    let journal = database.checked();
    let largest = vec![9; (12 << 20) + 200];
    assert_eq!(place(&journal, 1, &largest).unwrap(), Placed::Yes);
    assert_eq!(place(&journal, 2, &largest).unwrap(), Placed::Yes);
    let found = journal.read(1, limit(10, 64 << 20)).unwrap();
    assert_eq!(found.len(), 2, "a read goes on over the engine's answers of 16 MiB");
    assert!(found.iter().all(|(_, record)| *record == largest));
    let limit = 16 * 1024 * 1024 - 1024;
    assert_eq!(place(&journal, 3, &vec![9; limit]).unwrap(), Placed::Yes);
    let JournalError::Refused(cause) = place(&journal, 4, &vec![9; limit + 1]).unwrap_err() else { panic!() };
    assert!(cause.text().contains("record 4 has 16776193 bytes"), "{cause}");
}

#[test]
fn documents_of_others_are_refused_not_misread() {
    let Some(database) = TestDatabase::new() else { return };
    let journal = database.checked();
    database.with_driver(|database| async move {
        database
            .collection::<Document>("journal")
            .insert_one(doc! { "_id": 1_i64, "text": "x" })
            .await
            .unwrap();
        database.collection("manifest").insert_one(doc! { "_id": "manifest", "x": 1 }).await.unwrap();
    });
    assert!(matches!(journal.read(1, limit(10, 1000)), Err(JournalError::Refused(_))));
    assert!(matches!(journal.manifest(), Err(JournalError::Refused(_))));
}

#[test]
fn a_capped_collection_is_unfit() {
    let Some(database) = TestDatabase::new() else { return };
    database.with_driver(|database| async move {
        database.create_collection("journal").capped(true).size(1 << 20).await.unwrap();
    });
    let JournalError::Unfit(text) = database.open().check().unwrap_err() else { panic!() };
    assert!(text.contains("capped"), "{text}");
}

#[test]
fn a_wrong_password_is_refused_and_not_shown() {
    let Some(database) = TestDatabase::new() else { return };
    let url =
        with_option(&database.url, "allow_unsynced=true").replacen("mongodb://", "mongodb://ann:hush@", 1);
    let journal = MongoJournal::new(MongoSettings::from_url(&url).unwrap()).unwrap();
    for error in [journal.check().unwrap_err(), place(&journal, 1, b"x").unwrap_err()] {
        assert!(matches!(error, JournalError::Refused(_)), "{error:?}");
        let shown = format!("{error} {error:?} {journal:?}");
        assert!(!shown.contains("hush"), "{shown}");
    }
}

#[tokio::test]
async fn a_journal_may_be_used_and_dropped_inside_a_runtime() {
    let Some(database) = TestDatabase::new() else { return };
    let journal = database.open();
    assert_eq!(place(&journal, 1, b"x").unwrap(), Placed::Yes);
    drop(journal);
    // The database's own drop starts a runtime, which must happen outside of this one.
    tokio::task::spawn_blocking(move || drop(database)).await.unwrap();
}

fn binary(bytes: &[u8]) -> mongodb::bson::Binary {
    mongodb::bson::Binary { subtype: mongodb::bson::spec::BinarySubtype::Generic, bytes: bytes.to_vec() }
}
