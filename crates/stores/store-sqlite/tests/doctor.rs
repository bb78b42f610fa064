//! The examination reports nothing for a healthy store, and names each kind of damage.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use millrace_conformance::build::{append, append_id, batch, stream, trim};
use millrace_model::{Findings, Op, Space};
use millrace_store::Store;
use millrace_store_sqlite::{Doctor, Examined, ReadOnlyError, ServeLock, SqliteOptions, SqliteStore};

/// Limits so small that everything is folded and pruned immediately.
fn small() -> SqliteOptions {
    SqliteOptions { fold_events: 16, loc_events_max: 8, commits_kept: 4, ..SqliteOptions::default() }
}

fn filled(folder: &Path, events: u64, options: SqliteOptions) -> PathBuf {
    let path = folder.join("store.db");
    let store = SqliteStore::open(&path, options).unwrap();
    for n in 1..=events {
        let mut ops = vec![append(&stream("a", 0), &format!("{n:0200}")), append(&stream("b", 0), "1")];
        let value = format!("{{\"committed\":{n},\"delivered\":{n}}}");
        for space in [Space::Cursors, Space::Attempts, Space::DueIds] {
            ops.push(Op::Put { space, key: format!("default/a/g{}/0", n % 40), value: value.clone().into() });
        }
        store.commit(&[batch(n * 10, ops)]).unwrap();
        store.maintain(3).unwrap();
    }
    path
}

fn meddle(path: &Path, sql: &str) {
    let conn = rusqlite::Connection::open(path).unwrap();
    assert!(conn.execute(sql, []).unwrap() > 0, "{sql}");
}

fn examine(path: &Path) -> Examined {
    Doctor::open(path).unwrap().examine()
}

#[track_caller]
fn assert_finds(path: &Path, expected: &str) {
    let examined = examine(path);
    let found: Vec<String> =
        examined.findings.list().iter().map(|one| format!("{}: {}", one.place, one.what)).collect();
    assert!(!examined.findings.is_healthy());
    assert!(found.iter().any(|one| one.contains(expected)), "{expected:?} is not in {found:#?}");
}

#[test]
fn a_healthy_store_has_nothing_to_tell() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path(), 100, small());
    let store = SqliteStore::open(&path, small()).unwrap();
    // A stream is trimmed and partly reclaimed, another dropped and partly reclaimed, and the store is open meanwhile.
    store.commit(&[batch(9999, vec![trim(&stream("a", 0), 45)])]).unwrap();
    let drop_b = millrace_model::Op::Drop { topic: stream("b", 0).topic };
    store.commit(&[batch(9999, vec![drop_b])]).unwrap();
    for _ in 0..30 {
        let examined = examine(&path);
        assert!(examined.findings.list().is_empty(), "{:#?}", examined.findings.list());
        assert_eq!((examined.streams.len(), examined.streams[0].next.0), (1, 101));
        store.maintain(7).unwrap();
    }
    while store.maintain(100).unwrap().more {}
    let examined = examine(&path);
    assert!(examined.findings.list().is_empty(), "{:#?}", examined.findings.list());
    assert_eq!((examined.events, examined.schema_version), (56, Some(6)));
}

#[test]
fn nothing_is_made_where_nothing_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.db");
    assert!(matches!(Doctor::open(&path), Err(ReadOnlyError::NoStore(_))));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn each_kind_of_damage_is_named() {
    for options in [small(), SqliteOptions::default()] {
        for (sql, expected) in [
            ("UPDATE events SET payload = x'31' WHERE offset = 7", "offset 7: its checksum does not match"),
            ("DELETE FROM events WHERE offset IN (5, 6)", "offsets 5 to 6: its row is missing"),
            ("DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)", "offset 40: its row is missing"),
            ("DELETE FROM streams WHERE topic LIKE '%a'", "belong to no stream"),
            ("UPDATE streams SET crc = NULL, topic = 'x'", "names no topic and partition"),
            (
                "UPDATE streams SET crc = NULL, reclaimed = 9, start = 8",
                "rows below 9 are said to be deleted",
            ),
            (
                "UPDATE streams SET crc = NULL, compacted_to = 900",
                "is compacted up to 900, behind its end at 41",
            ),
            ("UPDATE streams SET crc = NULL, start = 900", "starts at 900, behind its end at 41"),
            ("UPDATE commits SET runs = x'00' WHERE c = (SELECT max(c) FROM commits)", "fails its checksum"),
            ("DELETE FROM commits WHERE c = (SELECT max(c) - 1 FROM commits)", "rows are missing"),
            ("UPDATE commits SET c = c + 1 WHERE c = (SELECT max(c) FROM commits)", "fails its checksum"),
            ("UPDATE events SET seq = 90000 WHERE seq = (SELECT max(seq) FROM events)", "at place 90000"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = filled(folder.path(), 40, options.clone());
            meddle(&path, sql);
            assert_finds(&path, expected);
        }
    }
}

#[test]
fn damage_in_what_is_folded_is_named() {
    for (sql, expected) in [
        ("UPDATE loc SET pieces = x'00' WHERE first_offset = 9", "from offset 9: fails its checksum"),
        ("DELETE FROM loc WHERE first_offset = 9", "offsets 9 to 16: no row says where it is"),
        ("UPDATE streams SET crc = NULL, folded = folded + 100", "no row says where it is"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = filled(folder.path(), 40, small());
        meddle(&path, sql);
        assert_finds(&path, expected);
    }
}

#[test]
fn a_damaged_page_and_a_damaged_head_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path(), 400, SqliteOptions::default());
    let whole = std::fs::read(&path).unwrap();
    let needle = format!("{:0200}", 200).into_bytes();
    let hit = whole.windows(needle.len()).position(|window| window == needle).unwrap();
    let mut bytes = whole.clone();
    bytes[hit / 4096 * 4096..][..16].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    assert_finds(&path, "SQLite reports");
    assert_finds(&path, "its page is damaged");
    let mut bytes = whole.clone();
    bytes[hit + 3] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_finds(&path, "offset 200: its checksum does not match");
    let mut bytes = whole;
    bytes[..16].fill(0);
    std::fs::write(&path, &bytes).unwrap();
    assert_finds(&path, "cannot be read as a store");
}

#[test]
fn a_row_that_fails_its_checksum_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path(), 3, SqliteOptions::default());
    meddle(&path, "UPDATE streams SET start = 2 WHERE id = 1");
    assert_finds(&path, "table streams, row 1: fails its checksum");
    assert!(SqliteStore::open(&path, SqliteOptions::default()).is_err(), "nobody acts on it");
    let path = filled(&folder.path().join("other"), 3, SqliteOptions::default());
    meddle(
        &path,
        "UPDATE cursors SET value = CAST(replace(value, '3', '2') AS BLOB) WHERE key = 'default/a/g3/0'",
    );
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let error = store.scan(Space::Cursors, &millrace_store::KeyRange::all(), 100).unwrap_err().to_string();
    assert!(error.contains(r#"row "default/a/g3/0" of table cursors fails its checksum"#), "{error}");
    let (_, problems) = rows(&path);
    assert_eq!(problems, 1);
}

/// With another key every remembered id would be stored again.
#[test]
fn a_damaged_key_of_the_remembered_ids_is_told_and_not_acted_on() {
    const DAY_MS: u64 = 86_400_000;
    for meddling in [
        "UPDATE meta SET value = CAST(zeroblob(4) || substr(value, 5) AS BLOB) WHERE key = 'hash_key'",
        "UPDATE meta SET key = 'hash_kex' WHERE key = 'hash_key'",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let publish = |store: &SqliteStore, n: u64| {
            let op = append_id(&stream("a", 0), &format!("id{n}"), "1", DAY_MS);
            store.commit(&[batch(n * 10, vec![op])]).unwrap()
        };
        let store = SqliteStore::open(&path, small()).unwrap();
        let answers: Vec<_> = (1..=100).map(|n| publish(&store, n)).collect();
        while store.maintain(100).unwrap().more {}
        drop(store);
        // A key from before checksums is accepted, and gets a checksum when the store is opened.
        meddle(&path, "UPDATE meta SET value = substr(value, 1, 16) WHERE key = 'hash_key'");
        let store = SqliteStore::open(&path, small()).unwrap();
        let again = publish(&store, 1);
        assert_eq!(
            format!("{again:?}").replace("duplicate: true", "duplicate: false"),
            format!("{:?}", answers[0])
        );
        drop(store);
        assert!(examine(&path).findings.is_healthy());

        meddle(&path, meddling);
        assert_finds(&path, "table meta, row \"hash_key\"");
        let refused = SqliteStore::open(&path, small()).unwrap_err().to_string();
        assert!(refused.contains("hash_key"), "{refused}");
    }
}

#[test]
fn versions_and_strangers_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path(), 3, SqliteOptions::default());
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    drop(conn);
    assert_finds(&path, "schema version 99, this build knows up to 6");
    let stranger = folder.path().join("stranger.db");
    rusqlite::Connection::open(&stranger).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
    assert_finds(&stranger, "is no Millrace store");
    let empty = folder.path().join("empty.db");
    std::fs::write(&empty, "").unwrap();
    assert_finds(&empty, "holds no store");
}

#[test]
fn who_serves_and_why_nobody_writes_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path(), 3, SqliteOptions::default());
    let serve = ServeLock::acquire(&path).unwrap();
    let examined = examine(&path);
    assert!(examined.findings.is_healthy());
    assert!(examined.findings.list()[0].what.contains(&format!("served by process {}", std::process::id())));
    drop(serve);
    std::fs::write(folder.path().join("store.db-locks/poison"), format!("!{:511}", "no space")).unwrap();
    assert_finds(&path, "nothing is written any more: no space");
}

#[test]
fn what_a_reader_has_set_aside_is_still_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path(), 10, SqliteOptions::default());
    meddle(&path, "DELETE FROM events WHERE offset = 4");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let limit = millrace_store::ReadLimit { events_max: 100, bytes_max: usize::MAX };
    store.read(&stream("a", 0), millrace_model::Offset(1), limit).unwrap();
    while store.maintain(100).unwrap().more {}
    assert_finds(&path, "offset 4: its row is missing (known");
}

/// Returns every row of the small tables, and how many problems the doctor reports about them.
fn rows(path: &Path) -> (Vec<(Space, String, Vec<u8>)>, u64) {
    let Ok(doctor) = Doctor::open(path) else { return (Vec::new(), 1) };
    if doctor.examine().schema_version.is_none() {
        return (Vec::new(), 1);
    }
    let (mut rows, mut findings) = (Vec::new(), Findings::default());
    for space in Space::ALL {
        doctor
            .each_row(space, &mut findings, |key, value| rows.push((space, key.to_owned(), value.to_vec())));
    }
    (rows, findings.problems())
}

/// How many bits are flipped; the positions are the same in every run.
const FLIPS: usize = 1000;

#[test]
fn a_flipped_bit_is_found_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let path = filled(folder.path(), 120, small());
    let whole = std::fs::read(&path).unwrap();
    let clean = examine(&path);
    let clean_rows = rows(&path);
    let mut draw: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut silent = Vec::new();
    for _ in 0..FLIPS {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (at, bit) = ((draw >> 20) as usize % whole.len(), (draw >> 60) & 7);
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        let damaged = folder.path().join("damaged.db");
        std::fs::write(&damaged, bytes).unwrap();
        let seen = examine(&damaged);
        let (found, unreadable) = rows(&damaged);
        let healthy = seen.findings.is_healthy() && unreadable == 0;
        if healthy
            && ((seen.events, &seen.streams) != (clean.events, &clean.streams) || found != clean_rows.0)
        {
            silent.push((at, bit));
        }
    }
    assert!(silent.is_empty(), "{silent:?}");
}
