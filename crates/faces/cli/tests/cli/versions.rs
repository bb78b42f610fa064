//! Stores of every older schema version under today's server: its responses match those of that version's server.

use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};

use crate::run::run;
use crate::server::Server;

macro_rules! fixture {
    ($version:literal) => {
        (
            include_str!(concat!("../../../../stores/store-sqlite/tests/fixtures/", $version, ".sql")),
            include_str!(concat!("../../../../stores/store-sqlite/tests/fixtures/", $version, ".answers")),
        )
    };
}

/// Made by `cargo xtask fixtures`: a store as SQL text, and the responses of its own server.
const FIXTURES: [(&str, &str); 5] =
    [fixture!("v1"), fixture!("v2"), fixture!("v3"), fixture!("v4"), fixture!("v5")];

fn make(sql: &str, path: &Path) {
    rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// Returns whether `found` contains everything in `told`; newer responses may have more fields.
fn says(found: &Value, told: &Value) -> bool {
    match (found, told) {
        (Value::Object(found), Value::Object(told)) => {
            told.iter().all(|(name, told)| found.get(name).is_some_and(|found| says(found, told)))
        }
        (Value::Array(found), Value::Array(told)) => {
            found.len() == told.len() && found.iter().zip(told).all(|(found, told)| says(found, told))
        }
        (found, told) => found == told,
    }
}

#[test]
fn todays_server_answers_what_the_old_one_did() {
    for (at, (sql, answers)) in FIXTURES.iter().enumerate() {
        let version = at + 1;
        // Compaction would remove more while the responses are compared.
        let mut server = Server::on_store_with(|path| make(sql, path), &["--compact-interval-ms", "3600000"]);
        let lines: Vec<_> = answers.lines().collect();
        assert!(lines.len() >= 20);
        for pair in lines.chunks(2) {
            let (status, found) = server.get(pair[0]);
            let told: Value = serde_json::from_str(pair[1]).unwrap();
            assert!(status == 200 && says(&found, &told), "version {version}: {}: {found}\n{told}", pair[0]);
        }
        // Deliveries that were never acknowledged were attempts, and still count.
        let (group, window) = (["--group", "audit", "--no-ack"], ["--count", "40", "--max-inflight", "64"]);
        let url = server.ws_url();
        let read = run(&[&["sub", "orders", "--json", "--url", &url], &group[..], &window[..]].concat()).ok();
        assert_eq!(read.matches("\"attempts\":2").count(), 3, "version {version}: {read}");
        if version >= 3 {
            let letters = ["events", "dead-letters", "--namespace", "strict", "--store", &server.store_url()];
            let listed = run(&letters).ok();
            assert_eq!(listed.matches("it always fails").count(), 2, "version {version}: {listed}");
        }
        assert_eq!(server.terminate(), Some(0));
        let seen = run(&["doctor", "--store", &server.store_url(), "--json"]).json();
        assert_eq!(
            (&seen["healthy"], &seen["schema"]),
            (&json!(true), &json!(6)),
            "version {version}: {seen}"
        );
    }
}

/// An older Millrace has the store open: every version holds this lock.
#[test]
fn no_command_migrates_a_store_beside_an_older_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    make(FIXTURES[3].0, &path);
    let url = format!("sqlite:///{}", path.display());
    let locks = folder.path().join("test.db-locks");
    std::fs::create_dir(&locks).unwrap();
    std::fs::set_permissions(&locks, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let held = File::create(locks.join("open")).unwrap();
    held.lock_shared().unwrap();
    // The older process also has the file open, but only with SQLite's own lock.
    let older = rusqlite::Connection::open(&path).unwrap();
    older.pragma_update(None, "journal_mode", "WAL").unwrap();
    older.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema").unwrap();
    let told = ["schema version 4", "this build writes 6", "older Millrace", "stop every process"];
    run(&["events", "list-namespaces", "--store", &url]).refused(3, &told);
    run(&["serve", "--listen", "127.0.0.1:0", "--socket", "none", "--store", &url]).refused(3, &told);
    let version = || {
        let conn = rusqlite::Connection::open(&path).unwrap();
        conn.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(version(), 4);
    drop((older, held));
    run(&["events", "list-namespaces", "--store", &url]).ok();
    assert_eq!(version(), 6);
}

/// The file was migrated to a newer schema version by a process that this server does not know of.
#[test]
fn a_server_writes_nothing_to_a_version_it_does_not_know() {
    let mut server = Server::start();
    let mut socket = server.socket();
    assert_eq!(socket.publish("t", &json!(1)), 1);
    let path = server.folder().join("test.db");
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 7).unwrap();
    socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": 2}));
    let refused = socket.next();
    assert_eq!(refused["code"], "storage_failed", "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("schema version 7") && message.contains("Nothing was written"), "{message}");
    server.kill();
    // Other programs can still open the store, and nothing of the event is stored.
    let conn = rusqlite::Connection::open(&path).unwrap();
    let events: i64 = conn
        .query_row(
            "SELECT count(*) FROM events JOIN streams ON streams.id = stream \
        WHERE topic = 'default/t'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    conn.pragma_update(None, "user_version", 6).unwrap();
    assert_eq!(events, 1);
    drop(conn);
    server.restart();
    assert_eq!(server.socket().publish("t", &json!(2)), 2);
}
