//! `millrace doctor`: healthy stores, and each kind of damage by its name.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::run::{Ran, run};
use crate::server::Server;

/// Returns a stopped server whose store has some of every kind of data.
fn stopped() -> (Server, PathBuf) {
    let mut server = Server::start();
    let url = server.ws_url();
    run(&["topics", "create", "t", "--partitions", "2", "--url", &url]).ok();
    run(&["pub", "t", "{\"n\":1}", "--count", "40", "--url", &url]).ok();
    run(&["sub", "t", "--group", "g", "--from", "earliest", "--count", "30", "--url", &url]).ok();
    run(&["pub", "gone", "1", "--count", "5", "--url", &url]).ok();
    run(&["topics", "delete", "gone", "--url", &url]).ok();
    let mut socket = server.socket();
    socket
        .send(&json!({"type": "PUBLISH", "topic": "t", "payload": 1, "delay_ms": 3_600_000, "id": "later"}));
    assert_eq!(socket.next()["type"], "PUBLISHED");
    socket.subscribe("t", "h", &json!({"from": {"kind": "earliest"}}));
    let message = socket.next();
    socket.send(&json!({"type": "NACK", "topic": "t", "partition": message["partition"], "group": "h",
                        "offset": message["offset"], "delay_ms": 3_600_000, "reason": "not now", "rid": 1}));
    while socket.next()["type"] != "OK" {}
    drop(socket);
    assert_eq!(server.terminate(), Some(0));
    let path = server.folder().join("test.db");
    (server, path)
}

fn doctor(server: &Server, args: &[&str]) -> Ran {
    run(&[&["doctor", "--store", &server.store_url()], args].concat())
}

#[test]
fn a_healthy_store_is_told_so_served_or_not() {
    let (mut server, _) = stopped();
    let ran = doctor(&server, &[]).ok();
    assert!(ran.contains("is healthy: schema 6, 40 whole events in 2 streams"), "{ran}");
    assert!(!ran.contains("problem"), "{ran}");
    server.restart();
    let seen = doctor(&server, &["--json"]).json();
    assert_eq!((&seen["healthy"], &seen["problems"]), (&json!(true), &json!([])));
    assert!(
        seen["notes"][0]["what"].as_str().unwrap().contains(&format!("process {}", server.pid())),
        "{seen}"
    );
}

#[test]
fn each_kind_of_damage_is_named_with_what_to_do() {
    for (sql, expected) in [
        ("UPDATE events SET payload = x'31' WHERE seq = 7", "its checksum does not match"),
        ("DELETE FROM events WHERE seq = 7", "its row is missing"),
        ("DELETE FROM streams WHERE partition = 1", "belong to no stream"),
        ("DELETE FROM commits WHERE c = (SELECT max(c) - 1 FROM commits)", "rows are missing"),
        ("UPDATE commits SET runs = x'00' WHERE c = (SELECT max(c) - 1 FROM commits)", "fails its checksum"),
        (
            "UPDATE cursors SET crc = NULL, value = CAST('{\"committed\":9000,\"delivered\":9000}' AS BLOB)",
            "beyond the last event",
        ),
        ("UPDATE cursors SET crc = NULL, value = x'7b'", "cannot be read"),
        ("UPDATE topics SET crc = NULL, value = 'text'", "is not text and bytes"),
        ("UPDATE topics SET crc = NULL, value = x'7b'", "cannot be read"),
        ("DELETE FROM topics", "no row in table topics"),
        ("DELETE FROM groups", "its group is not there"),
        ("UPDATE tries SET crc = NULL, value = x'5b'", "cannot be read"),
        ("UPDATE due SET crc = NULL, value = x'5b'", "cannot be read"),
        ("PRAGMA user_version = 7", "schema version 7, this build knows up to 6"),
    ] {
        let (server, path) = stopped();
        rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let ran = doctor(&server, &["--json"]);
        assert_eq!(ran.code, Some(1), "{sql}: {}", ran.stderr);
        let seen: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(seen["healthy"], json!(false));
        let problems = seen["problems"].as_array().unwrap();
        let found = problems.iter().find(|one| one["what"].as_str().unwrap().contains(expected));
        let found = found.unwrap_or_else(|| panic!("{sql}: {expected:?} is not in {seen}"));
        assert!(found["advice"].as_str().is_some_and(|advice| !advice.is_empty()));
        let shown = doctor(&server, &[]);
        assert_eq!(shown.code, Some(1));
        assert!(shown.stdout.contains(expected) && shown.stderr.contains("found"), "{}", shown.stdout);
    }
}

#[test]
fn a_flipped_byte_of_a_payload_is_found() {
    let (server, path) = stopped();
    rusqlite::Connection::open(&path).unwrap().execute_batch("VACUUM").unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let hit = bytes.windows(7).rposition(|window| window == b"{\"n\":1}").unwrap();
    bytes[hit + 5] ^= 2;
    std::fs::write(&path, bytes).unwrap();
    let ran = doctor(&server, &[]);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.contains("its checksum does not match"), "{}", ran.stdout);
}

/// SQLite takes a broken frame for the end of its log and reports nothing.
#[test]
fn commits_behind_a_broken_frame_of_the_log_are_told() {
    let mut server = Server::start();
    let notes = |server: &Server| {
        let seen: Value = serde_json::from_str(&doctor(server, &["--json"]).stdout).unwrap();
        let notes = seen["notes"].as_array().unwrap().clone();
        notes.into_iter().filter(|note| note["place"].as_str().unwrap().ends_with("-wal")).collect::<Vec<_>>()
    };
    // The rest of the log after a kill is no reason for a note, nor are the parts that a new server then overwrites.
    for _ in 0..5 {
        let mut socket = server.socket();
        for n in 0..40 {
            socket.publish("t", &json!(n));
        }
        for n in 0..40 {
            socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": "x".repeat(100 * n)}));
        }
        assert_eq!(notes(&server), Vec::<Value>::new(), "while it is served");
        server.kill();
        assert_eq!(notes(&server), Vec::<Value>::new(), "after a kill");
        server.restart();
    }
    server.kill();
    let wal = server.folder().join("test.db-wal");
    let mut bytes = std::fs::read(&wal).unwrap();
    // Damage a byte in the page of the third frame.
    let at = 32 + 2 * (24 + 4096) + 1000;
    bytes[at] ^= 1;
    std::fs::write(&wal, bytes).unwrap();
    let found = notes(&server);
    let what = found.first().and_then(|note| note["what"].as_str()).unwrap_or_default();
    assert!(what.contains("whole commits behind frame 3, which is damaged"), "{found:?}");
    let shown = doctor(&server, &[]).stdout;
    assert!(shown.contains("note: ") && shown.contains("SQLite reads none of them"), "{shown}");
}

#[test]
fn one_is_counted_as_one() {
    let mut server = Server::start();
    assert_eq!(server.socket().publish("t", &json!(1)), 1);
    server.terminate();
    let said = doctor(&server, &[]).ok();
    assert!(said.contains("1 whole event in 1 stream\n"), "{said}");
}
