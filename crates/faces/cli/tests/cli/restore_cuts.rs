//! An interrupted `millrace restore`: nothing confirmed is lost, whichever process opens the store in between.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use serde_json::json;

use crate::run::{command, finish, run};
use crate::server::Server;

/// Returns a killed server with confirmed events that are only in the log, and a backup with fewer events.
fn killed(events: usize) -> (Server, PathBuf) {
    let mut server = Server::start();
    let mut socket = server.socket();
    for n in 0..10 {
        socket.publish("t", &json!(n));
    }
    let backup = server.folder().join("backup");
    run(&["backup", backup.to_str().unwrap(), "--store", &server.store_url()]).ok();
    for n in 10..events {
        socket.publish("t", &json!(n));
    }
    server.kill();
    assert!(server.folder().join("test.db-wal").metadata().unwrap().len() > 0);
    (server, backup)
}

fn count(server: &Server) -> u64 {
    let (_, offsets) = server.get("/topics/t/offsets");
    offsets["partitions"][0]["next"].as_u64().unwrap() - 1
}

fn serve_args(store: &str) -> [&str; 7] {
    ["serve", "--listen", "127.0.0.1:0", "--socket", "none", "--store", store]
}

/// The state that an interrupted restore of an older version left: the store has another name, but its log has not.
#[test]
fn no_server_makes_a_new_store_where_a_restore_was_cut() {
    let (mut server, backup) = killed(100);
    let (store, at) = (server.store_url(), |name: &str| server.folder().join(name));
    std::fs::rename(at("test.db"), at("test.db-replaced")).unwrap();
    let log = std::fs::read(at("test.db-wal")).unwrap();
    let told = ["test.db-replaced", "a restore was cut short", "restore --force", "rename"];
    run(&serve_args(&store)).refused(3, &told);
    run(&["doctor", "--store", &store]).refused(3, &told);
    run(&["backup", "copy", "--store", &store]).refused(3, &told);
    run(&["events", "list-namespaces", "--store", &store]).refused(3, &told);
    run(&["restore", backup.to_str().unwrap(), "--store", &store])
        .refused(1, &["test.db-replaced", "--force"]);
    assert!(!at("test.db").exists());
    assert_eq!(std::fs::read(at("test.db-wal")).unwrap(), log, "the log is as it was");
    // Return to the old store, as the message says.
    std::fs::rename(at("test.db-replaced"), at("test.db")).unwrap();
    server.restart();
    assert_eq!(count(&server), 100);
    server.terminate();
    // Or finish the restore.
    let at = |name: &str| server.folder().join(name);
    std::fs::rename(at("test.db"), at("test.db-replaced")).unwrap();
    run(&["restore", backup.to_str().unwrap(), "--store", &store, "--force"]).ok();
    assert!(!at("test.db-replaced").exists());
    server.restart();
    assert_eq!(count(&server), 10);
}

#[test]
fn an_unfinished_copy_is_not_hidden_by_a_new_store() {
    let (mut server, backup) = killed(20);
    let (store, at) = (server.store_url(), |name: &str| server.folder().join(name));
    for name in ["test.db", "test.db-wal", "test.db-shm"] {
        std::fs::remove_file(at(name)).unwrap();
    }
    std::fs::write(at("test.db-restoring"), "half of it").unwrap();
    run(&serve_args(&store)).refused(3, &["test.db-restoring", "millrace restore", "remove that file"]);
    run(&["restore", backup.to_str().unwrap(), "--store", &store]).ok();
    server.restart();
    assert_eq!(count(&server), 10);
}

/// Once the store's file is put back, everything in its log is there again.
#[test]
fn a_restore_that_is_not_forced_keeps_a_log_whose_store_is_missing() {
    let (mut server, backup) = killed(20);
    let (store, at) = (server.store_url(), |name: &str| server.folder().join(name));
    std::fs::rename(at("test.db"), at("moved")).unwrap();
    let log = std::fs::read(at("test.db-wal")).unwrap();
    run(&["restore", backup.to_str().unwrap(), "--store", &store])
        .refused(1, &["test.db-wal", "put the store's file back", "--force deletes it"]);
    assert!(!at("test.db").exists());
    assert_eq!(std::fs::read(at("test.db-wal")).unwrap(), log, "the log is as it was");
    std::fs::rename(at("moved"), at("test.db")).unwrap();
    server.restart();
    assert_eq!(count(&server), 20);
    server.kill();
    // With `--force` the store contains the backup and nothing else.
    std::fs::remove_file(server.folder().join("test.db")).unwrap();
    run(&["restore", backup.to_str().unwrap(), "--store", &store, "--force"]).ok();
    server.restart();
    assert_eq!(count(&server), 10);
    assert!(!server.folder().join("test.db-replaced").exists());
}

/// A state that a power cut could leave: the log was renamed and its store was not.
#[test]
fn a_store_that_was_parted_from_its_log_is_not_served_without_it() {
    let (mut server, _) = killed(100);
    let (store, at) = (server.store_url(), |name: &str| server.folder().join(name));
    std::fs::rename(at("test.db-wal"), at("test.db-replaced-wal")).unwrap();
    let told = ["no log of its own", "test.db-replaced-wal", "restore --force", "rename that file"];
    run(&serve_args(&store)).refused(3, &told);
    run(&["doctor", "--store", &store]).refused(3, &told);
    run(&["backup", "copy", "--store", &store]).refused(3, &told);
    run(&["events", "list-namespaces", "--store", &store]).refused(3, &told);
    std::fs::rename(at("test.db-replaced-wal"), at("test.db-wal")).unwrap();
    server.restart();
    assert_eq!(count(&server), 100);
}

/// A full disk is no damage: the old store stays where it is, and is as good as before.
#[cfg(target_os = "linux")]
#[test]
fn a_store_that_cannot_be_made_whole_for_now_is_not_moved_aside() {
    let (mut server, backup) = killed(100);
    let (store, faults) = (server.store_url(), crate::faults::Faults::new());
    let restore = ["restore", backup.to_str().unwrap(), "--store", &store, "--force"];
    let log = std::fs::read(server.folder().join("test.db-wal")).unwrap();
    faults.begin("full-database");
    finish(command(&restore).envs(faults.env()).output().unwrap())
        .refused(1, &["test.db", "cannot be copied into it", "full", "stays as it is"]);
    assert_eq!(std::fs::read(server.folder().join("test.db-wal")).unwrap(), log, "the log is as it was");
    for name in ["test.db-replaced", "test.db-replaced-wal", "test.db-restoring"] {
        assert!(!server.folder().join(name).exists(), "{name}");
    }
    server.restart();
    assert_eq!(count(&server), 100);
    server.kill();
    faults.end("full-database");
    finish(command(&restore).envs(faults.env()).output().unwrap()).ok();
    server.restart();
    assert_eq!(count(&server), 10);
}

/// Killed at any moment, with a server started in between: the store has the old events or the new ones, never fewer.
#[test]
fn a_killed_restore_leaves_the_old_store_or_the_new_one() {
    let (mut server, backup) = killed(100);
    let store = server.store_url();
    let restore = ["restore", backup.to_str().unwrap(), "--store", &store, "--force"];
    let copy = server.folder().join("test.db-restoring");
    let is_there = |path: &Path| path.exists();
    let is_full = |path: &Path| path.metadata().is_ok_and(|found| found.len() > 40_000);
    let moments: [(&str, &dyn Fn() -> bool); 4] = [
        ("the copy has begun", &|| is_there(&copy)),
        ("the copy is almost whole", &|| is_full(&copy)),
        ("its journal is there", &|| is_there(&server.folder().join("test.db-restoring-journal"))),
        ("the log is gone", &|| is_full(&copy) && !is_there(&server.folder().join("test.db-wal"))),
    ];
    let mut left = 100;
    let mut found = Vec::new();
    for (moment, has_come) in moments {
        let mut child = command(&restore).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while !has_come() && child.try_wait().unwrap().is_none() {
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        run(&["doctor", "--store", &store]).ok();
        let seen = run(&["doctor", "--store", &store, "--json"]).json()["events"].as_u64().unwrap();
        assert!(seen == left || seen == 10, "{moment}: {seen}");
        left = seen;
        found.push(seen);
    }
    server.restart();
    assert_eq!(count(&server), left, "{found:?}");
    server.terminate();
    run(&restore).ok();
    server.restart();
    assert_eq!(count(&server), 10);
    assert!(!copy.exists());
}
