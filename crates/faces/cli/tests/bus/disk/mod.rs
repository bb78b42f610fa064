//! A disk that is full, hangs or is broken, and another process that blocks every writer: what clients see, and what is
//! stored afterwards.

mod faults;
mod first_start;
mod gate;
mod lost_names;
mod neighbour;
mod stalled;

use serde_json::{Value, json};

use crate::disk::faults::Faults;
use crate::disk::neighbour::Neighbour;
use crate::server::{Server, eventually};
use crate::socket::Socket;

fn publish(socket: &mut Socket, n: u64) {
    socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": n, "rid": n}));
}

/// Returns the value of a gauge or counter without labels.
#[track_caller]
fn metric(server: &Server, name: &str) -> f64 {
    let (status, page) = server.request("GET", "/metrics", None);
    assert_eq!(status, 200);
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("millrace_{name} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
}

/// Waits until the server reports that it is not ready, for this reason.
#[track_caller]
fn not_ready(server: &Server, why: &str) {
    let mut last = Value::Null;
    eventually("the server is not ready", || {
        let (status, problem) = server.get("/readyz");
        last = problem;
        status == 503 && last["detail"].as_str().is_some_and(|detail| detail.contains(why))
    });
    assert_eq!(last["code"], "storage_failed");
}

#[track_caller]
fn ready_again(server: &Server) {
    eventually("the server is ready", || server.get("/readyz").0 == 200);
    assert!(metric(server, "commit_age_seconds") < 1.0);
}

#[track_caller]
fn logged(server: &Server, words: &[&str]) {
    eventually("a line of the log", || {
        let log = server.log();
        log.lines().any(|line| words.iter().all(|word| line.contains(word)))
    });
}

#[track_caller]
fn stored(server: &Server, topic: &str) -> Vec<Value> {
    let (status, page) = server.get(&format!("/topics/{topic}/events?limit=100"));
    assert_eq!(status, 200, "{page}");
    page["events"].as_array().expect("events").iter().map(|event| event["payload"].clone()).collect()
}

#[test]
fn a_full_disk_is_waited_out_without_a_restart_and_loses_nothing() {
    let faults = Faults::new();
    let server = Server::with_log_and_env(&[], &faults.env());
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    publish(&mut socket, 1);
    assert_eq!((socket.expect("PUBLISHED")["offset"].clone(), socket.message()), (json!(1), 1));

    faults.begin("full");
    publish(&mut socket, 2);
    not_ready(&server, "disk of the store is full");
    eventually("it is tried again and again", || metric(&server, "commits_retried_total") > 2.0);
    assert!(metric(&server, "commit_age_seconds") > 0.0);
    // Wait until the engine knows: before, a publish would be accepted and wait like the first one. From now on
    // publishes are refused and not queued; stored events can be read.
    logged(&server, &["WARN", "publishes are refused"]);
    let (status, problem) = server.post("/topics/t/events", &json!({"payload": 0}));
    assert_eq!((status, &problem["code"]), (507, &json!("storage_failed")), "{problem}");
    assert!(metric(&server, "no_space") > 0.0);
    let mut other = server.socket();
    publish(&mut other, 9);
    let refused = other.refused("storage_failed");
    assert!(refused.contains("full") && refused.contains("until there is room"), "{refused}");
    assert_eq!(stored(&server, "t"), [json!(1)]);
    assert_eq!(server.get("/healthz").0, 200);
    socket
        .send(&json!({"type": "ACK", "topic": "t", "partition": 0, "group": "g", "offset": 1, "rid": "ack"}));
    logged(&server, &["WARN", "a commit is kept and tried again", "full"]);
    logged(&server, &["WARN", "a commit has not come through yet"]);

    faults.end("full");
    let mut answers: Vec<Value> = (0..3).map(|_| socket.next()).collect();
    answers.sort_by_key(|answer| answer["type"].to_string());
    assert_eq!((&answers[0]["type"], &answers[0]["offset"]), (&json!("MESSAGE"), &json!(2)), "{answers:?}");
    assert_eq!((&answers[1]["type"], &answers[1]["rid"]), (&json!("OK"), &json!("ack")), "{answers:?}");
    assert_eq!((&answers[2]["offset"], &answers[2]["rid"]), (&json!(2), &json!(2)), "{answers:?}");
    ready_again(&server);
    eventually("publishes are taken", || server.post("/topics/t/events", &json!({"payload": 3})).0 == 200);
    assert!(metric(&server, "no_space") < 1.0);
    assert_eq!(stored(&server, "t"), [json!(1), json!(2), json!(3)]);
    assert_eq!(server.committed("t", "g", 0), 1);
    logged(&server, &["commits come through again"]);
}

#[test]
fn below_the_mark_publishes_are_refused_and_everything_else_goes_on() {
    let mut before = Server::start();
    let mut socket = before.socket();
    for n in 1..=3 {
        publish(&mut socket, n);
        socket.expect("PUBLISHED");
    }
    socket.publish("old", &json!(1));
    before.terminate();
    let store = before.store_url();
    let server = Server::with(&["--store", &store, "--disk-free-bytes-min", "1000000000000000000"]);
    eventually("the mark is noticed", || metric(&server, "no_space") > 0.0);
    assert!(metric(&server, "disk_free_bytes") > 0.0 && metric(&server, "store_bytes") > 0.0);
    assert!(metric(&server, "disk_free_bytes") < metric(&server, "disk_free_bytes_min"));
    let mut socket = server.socket();
    publish(&mut socket, 4);
    let refused = socket.refused("storage_failed");
    assert!(refused.contains("bytes free, at least 1000000000000000000 are wanted"), "{refused}");
    let events = json!([{"payload": 4}]);
    for (path, body) in [
        ("/topics/t/events", json!({"payload": 4})),
        ("/topics/t/events", events),
        ("/topics/new/events", json!({"payload": 4, "delay_ms": 1000})),
    ] {
        let (status, problem) = server.post(path, &body);
        assert_eq!((status, &problem["code"]), (507, &json!("storage_failed")), "{problem}");
    }
    socket.subscribe("t", "g", &json!({"from": {"kind": "earliest"}}));
    for offset in 1..=3 {
        assert_eq!(socket.message(), offset);
    }
    socket.ack("t", "g", 3);
    assert_eq!(server.committed("t", "g", 0), 3);
    assert_eq!(server.request("DELETE", "/topics/old", None).0, 204);
    assert_eq!(server.get("/readyz").0, 200);
    assert_eq!(stored(&server, "t"), [json!(1), json!(2), json!(3)]);
}

#[test]
fn a_failed_sync_is_answered_and_ends_the_server_with_what_was_confirmed() {
    let faults = Faults::new();
    let mut server = Server::with_log_and_env(&[], &faults.env());
    let (mut socket, mut other) = (server.socket(), server.socket());
    publish(&mut socket, 1);
    socket.expect("PUBLISHED");
    // Both publishes wait for a commit when the disk breaks.
    faults.begin("hang");
    publish(&mut socket, 2);
    faults.hangs();
    publish(&mut other, 3);
    eventually("the second one waits", || metric(&server, "backlog_batches") > 1.0);
    faults.begin("broken");
    faults.end("hang");
    for socket in [&mut socket, &mut other] {
        let refused = socket.refused("storage_failed");
        assert!(refused.contains("the server ends"), "{refused}");
    }
    assert_eq!(server.wait(), Some(1));
    let log = server.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains("the store failed") && last.contains("a supervisor may restart it"), "{log}");

    faults.end("broken");
    server.restart();
    let stored = stored(&server, "t");
    assert!(stored.starts_with(&[json!(1)]), "{stored:?}");
    // Events that were answered with an error may be stored or not, each at most once.
    assert!(stored.len() <= 3, "{stored:?}");
    assert_eq!(server.socket().publish("t", &json!(4)), stored.len() as u64 + 1);
}

#[test]
fn a_sync_that_hangs_is_seen_and_everything_is_answered_when_it_returns() {
    let faults = Faults::new();
    let server = Server::with_log_and_env(&["--commit-stall-ms-max", "300"], &faults.env());
    let mut socket = server.socket();
    publish(&mut socket, 1);
    socket.expect("PUBLISHED");
    assert!(metric(&server, "commit_age_seconds") < 1.0);

    faults.begin("hang");
    publish(&mut socket, 2);
    faults.hangs();
    not_ready(&server, "the disk to write and sync it");
    eventually("the commit ages", || metric(&server, "commit_age_seconds") > 1.0);
    logged(&server, &["WARN", "a commit has not come through yet", "the disk to write and sync it"]);
    assert_eq!(server.get("/healthz").0, 200);
    let mut others: Vec<Socket> = (3..6).map(|_| server.socket()).collect();
    for (socket, n) in others.iter_mut().zip(3..) {
        publish(socket, n);
    }
    eventually("they wait, too", || metric(&server, "backlog_batches") > 3.0);

    faults.end("hang");
    assert_eq!(socket.expect("PUBLISHED")["rid"], 2);
    for (socket, n) in others.iter_mut().zip(3..) {
        assert_eq!(socket.expect("PUBLISHED")["rid"], n);
    }
    ready_again(&server);
    assert_eq!(stored(&server, "t").len(), 5);
    logged(&server, &["commits come through again"]);
}

#[test]
fn a_session_that_is_stopped_inside_its_turn_is_named_and_holds_up_nobody_for_good() {
    let server = Server::with_log_and_env(&["--commit-stall-ms-max", "300"], &[]);
    let faults = Faults::new();
    let neighbour = {
        let mut socket = server.socket();
        publish(&mut socket, 1);
        socket.expect("PUBLISHED");
        faults.begin("hang");
        Neighbour::start(&server.store_url(), &faults)
    };
    // The neighbour's sync hangs, so it holds the writer lock; then the whole process is stopped.
    faults.hangs();
    neighbour.stop();
    faults.end("hang");
    let mut socket = server.socket();
    publish(&mut socket, 2);
    let holder = format!("its turn to write, which process {} has", neighbour.pid());
    not_ready(&server, &holder);
    logged(&server, &["WARN", "a commit has not come through yet", &holder]);
    assert_eq!(server.get("/topics/t/offsets").0, 200, "what needs no commit is answered");

    neighbour.signal("CONT");
    assert_eq!(socket.expect("PUBLISHED")["rid"], 2);
    neighbour.ends_well();
    ready_again(&server);
    assert_eq!(stored(&server, "t").len(), 2);
    assert_eq!(stored(&server, neighbour::TOPIC), [json!({"text": "hello"})]);
}

#[test]
fn a_strangers_transaction_is_waited_out() {
    // Each attempt to commit takes longer than the time after which the server warns.
    let flags = ["--commit-stall-ms-max", "300", "--store-busy-timeout-ms", "1500"];
    let server = Server::with_log_and_env(&flags, &[]);
    let mut socket = server.socket();
    publish(&mut socket, 1);
    socket.expect("PUBLISHED");
    let stranger = rusqlite::Connection::open(server.folder().join("test.db")).expect("the store file");
    stranger.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    publish(&mut socket, 2);
    not_ready(&server, "another program has locked the store");
    // The first attempt has failed, and the age of the commit includes that attempt.
    assert!(metric(&server, "commit_age_seconds") >= 1.5);
    let (mut age, mut fell) = (0.0, false);
    eventually("the lock is tried for again", || {
        let now = metric(&server, "commit_age_seconds");
        fell |= now < age;
        age = now;
        metric(&server, "commits_retried_total") > 2.0
    });
    assert!(!fell && age >= 4.5, "the wait began with the first attempt and has not ended: {age}");
    logged(&server, &["WARN", "a commit has not come through yet"]);
    assert!(!server.log().contains("come through again"), "nothing came through: {}", server.log());
    assert!(metric(&server, "storage_failed") < 1.0 && metric(&server, "no_space") < 1.0);
    stranger.execute_batch("ROLLBACK").expect("the end of it");
    assert_eq!(socket.expect("PUBLISHED")["rid"], 2);
    ready_again(&server);
    logged(&server, &["commits come through again"]);
    assert_eq!(stored(&server, "t").len(), 2);
}

#[test]
fn a_reader_that_keeps_the_log_from_starting_over_is_told_of() {
    let server = Server::with_log_and_env(&["--store-wal-bytes", "65536"], &[]);
    let mut socket = server.socket();
    publish(&mut socket, 1);
    socket.expect("PUBLISHED");
    let reader = rusqlite::Connection::open(server.folder().join("test.db")).expect("the store file");
    reader.execute_batch("BEGIN; SELECT count(*) FROM events").expect("a snapshot");
    let large = json!("x".repeat(100_000));
    for _ in 0..20 {
        socket.publish("t", &large);
    }
    logged(&server, &["WARN", "cannot start over", "bytes="]);
    let told = server.log().lines().filter(|line| line.contains("cannot start over")).count();
    drop(reader);
    for _ in 0..20 {
        socket.publish("t", &large);
    }
    let wal = || std::fs::metadata(server.folder().join("test.db-wal")).expect("a log").len();
    eventually("the log has started over", || {
        socket.publish("t", &large);
        wal() < 1 << 20
    });
    let told_now = server.log().lines().filter(|line| line.contains("cannot start over")).count();
    assert!(told_now <= told + 2, "{}", server.log());
}

/// Returns the free bytes above the minimum, as measured at the server's last check.
fn room(server: &Server) -> f64 {
    metric(server, "disk_free_bytes") - metric(server, "disk_free_bytes_min")
}

#[test]
fn a_fast_publisher_does_not_run_through_the_mark_between_two_looks() {
    const MARGIN: u64 = 32 << 20;
    let probe = Server::start();
    eventually("the disk is looked at", || metric(&probe, "disk_free_bytes") > 0.0);
    // Other processes use the disk too: retry if the room is not about what was intended.
    let server = loop {
        eventually("the disk is looked at again", || metric(&probe, "disk_free_bytes") > 0.0);
        let mark = (metric(&probe, "disk_free_bytes") as u64 - MARGIN).to_string();
        let flags = ["--disk-free-bytes-min", &mark, "--disk-interval-ms", "3600000"];
        let server = Server::with_log_and_env(&flags, &[]);
        eventually("the disk is looked at", || metric(&server, "disk_free_bytes") > 0.0);
        if (4e6..100e6).contains(&room(&server)) {
            break server;
        }
    };
    let (room, payload) = (room(&server), "x".repeat(400_000));
    let mut confirmed = 0;
    while server.post("/topics/t/events", &json!({"payload": payload})).0 == 200 {
        confirmed += payload.len();
        assert!((confirmed as f64) < room + 4e6, "the mark was run through: {confirmed} bytes of {room}");
    }
    assert!(confirmed as f64 > room / 2.0, "{confirmed} bytes of {room}");
    logged(&server, &["WARN", "publishes are refused"]);
    assert_eq!(server.get("/readyz").0, 200);
}

#[test]
fn a_stop_that_cannot_write_ends_with_one_when_the_grace_is_over() {
    let mut server = Server::with_log_and_env(&["--grace-ms", "1500"], &[]);
    let mut socket = server.socket();
    publish(&mut socket, 1);
    socket.expect("PUBLISHED");
    let writer = std::fs::File::open(server.folder().join("test.db-locks/writer")).expect("a lock file");
    writer.lock().expect("the turn");
    publish(&mut socket, 2);
    eventually("it waits", || metric(&server, "backlog_batches") > 0.0);
    assert_eq!(server.terminate(), Some(1), "{}", server.log());
    let log = server.log();
    let last = log.lines().last().unwrap_or_default();
    // The two batches are the publish, and the row that a stop writes: the time that ages are counted from.
    assert!(last.contains("2 batches wait") && last.contains("nothing confirmed is lost"), "{log}");
    drop(writer);
    server.restart();
    assert!(stored(&server, "t").starts_with(&[json!(1)]));
}

#[test]
fn the_gauges_tell_how_large_the_store_and_its_log_are() {
    let server = Server::start();
    let mut socket = server.socket();
    for n in 1..=20 {
        publish(&mut socket, n);
        socket.expect("PUBLISHED");
    }
    let bytes = |name: &str| std::fs::metadata(server.folder().join(name)).expect("a file").len() as f64;
    assert!(bytes("test.db-wal") > 0.0);
    for (gauge, file) in [("store_wal_bytes", "test.db-wal"), ("store_bytes", "test.db")] {
        eventually("the gauge is right", || (metric(&server, gauge) - bytes(file)).abs() < 1.0);
    }
}
