//! `millrace backup` and `millrace restore`: beside a server under load, without a server, and killed half-way.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::run::{command, run, run_in};
use crate::server::Server;
use crate::socket::Socket;

fn url(path: &Path) -> String {
    format!("sqlite:///{}", path.display())
}

fn all_events(server: &Server, topic: &str) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let from = events.len() + 1;
        let (status, page) = server.get(&format!("/topics/{topic}/events?from={from}&limit=10000"));
        assert_eq!(status, 200, "{page}");
        let found = page["events"].as_array().unwrap();
        if found.is_empty() {
            return events;
        }
        events.extend(found.iter().cloned());
    }
}

#[test]
fn a_backup_under_load_is_of_one_moment_and_comes_back_whole() {
    let mut server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup");
    let file = file.to_str().unwrap();
    let (stop, confirmed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let publishers: Vec<_> = (0..4)
        .map(|who| {
            let (ws, stop, confirmed) = (server.ws_url(), stop.clone(), confirmed.clone());
            thread::spawn(move || {
                let mut socket = Socket::open(&ws);
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    socket.publish("t", &json!(format!("{who}-{n}")));
                    confirmed.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    while confirmed.load(Ordering::SeqCst) < 500 {
        thread::yield_now();
    }
    run(&["sub", "t", "--group", "g", "--from", "earliest", "--count", "100", "--url", &server.ws_url()])
        .ok();
    let before = confirmed.load(Ordering::SeqCst);
    let said = run(&["backup", file, "--store", &server.store_url(), "--json"]).json();
    stop.store(true, Ordering::Relaxed);
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());

    let events = said["events"].as_u64().unwrap();
    let stored = all_events(&server, "t");
    assert!((before..=stored.len() as u64).contains(&events), "{before} {events} {}", stored.len());
    run(&["doctor", "--store", &url(Path::new(file))]).ok();
    let committed = server.committed("t", "g", 0);
    assert_eq!(committed, 100);

    // Restoring is refused while the store is served, and without `--force` while it exists. After that it replaces the
    // store.
    let store = server.store_url();
    let refused = run(&["restore", file, "--store", &store, "--force"]);
    let advice = format!("is already served by process {}: stop it first\n", server.pid());
    assert!(refused.stderr.ends_with(&advice) && !refused.stderr.contains("in use"), "{}", refused.stderr);
    refused.refused(1, &["millrace: "]);
    server.terminate();
    run(&["restore", file, "--store", &store]).refused(1, &["is there already", "--force"]);
    let said = run(&["restore", file, "--store", &store, "--force"]).ok();
    assert!(said.contains(&format!("is restored from {file}: {events} events")), "{said}");
    server.restart();
    let restored = all_events(&server, "t");
    assert_eq!(restored.len() as u64, events);
    assert_eq!(restored[..], stored[..events as usize], "byte for byte what was stored, up to one moment");
    assert_eq!(server.committed("t", "g", 0), committed);
    assert_eq!(server.socket().publish("t", &json!("on")), events + 1);
}

#[test]
fn a_killed_backup_leaves_nothing_under_its_name() {
    let mut server = Server::start();
    let mut socket = server.socket();
    let payload = json!("x".repeat(200 << 10));
    for _ in 0..150 {
        socket.publish("big", &payload);
    }
    server.terminate();
    let folder = tempfile::tempdir().unwrap();
    let (file, partial) = (folder.path().join("backup"), folder.path().join("backup.partial"));
    let args = ["backup", file.to_str().unwrap(), "--store", &server.store_url()];
    let mut caught = 0;
    for _ in 0..5 {
        let mut child = command(&args).stdout(Stdio::null()).spawn().unwrap();
        let growing = || partial.metadata().is_ok_and(|found| found.len() > 0);
        while !growing() && child.try_wait().unwrap().is_none() {
            thread::yield_now();
        }
        child.kill().unwrap();
        let finished = child.wait().unwrap().success();
        assert_eq!(file.exists(), finished);
        caught += u32::from(!finished);
        if finished {
            std::fs::remove_file(&file).unwrap();
        }
    }
    assert!(caught > 0, "no backup was slow enough to be killed");
    // The files that killed backups left are in nobody's way.
    run(&args).ok();
    assert!(!partial.exists());
    run(&["doctor", "--store", &url(&file)]).ok();
}

#[test]
fn a_damaged_backup_is_refused_before_anything_is_replaced() {
    let mut server = Server::start();
    run(&["pub", "t", "1", "--count", "20", "--url", &server.ws_url()]).ok();
    server.terminate();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup");
    let (name, store) = (file.to_str().unwrap().to_owned(), server.store_url());
    run(&["backup", &name, "--store", &store]).ok();
    run(&["backup", &name, "--store", &store]).refused(1, &["is there already", "--force"]);
    run(&["backup", &name, "--store", &store, "--force"]).ok();
    rusqlite::Connection::open(&file).unwrap().execute("DELETE FROM events WHERE offset = 7", []).unwrap();
    let restore = ["restore", &name, "--store", &store, "--force"];
    run(&restore).refused(1, &["is damaged", "offset 7", "in all: 1", "--allow-damaged"]);
    server.restart();
    assert_eq!(all_events(&server, "t").len(), 20);
    server.terminate();
    run(&[&restore[..], &["--allow-damaged"]].concat()).ok();
    run(&["doctor", "--store", &store, "--json"]).code.filter(|code| *code == 1).unwrap();
}

#[test]
fn no_store_is_ever_made() {
    let folder = tempfile::tempdir().unwrap();
    let here = |args: &[&str]| run_in(folder.path(), &[], args);
    here(&["backup", "copy"]).refused(3, &["there is no store at millrace.db"]);
    here(&["doctor"]).refused(3, &["there is no store"]);
    here(&["restore", "copy"]).refused(3, &["there is no store at copy"]);
    here(&["doctor", "--store", "memory:"]).refused(3, &["memory:"]);
    here(&["backup", "copy", "--store", "nonsense"]).refused(2, &["nonsense", "sqlite:///"]);
    here(&["backup"]).refused(2, &["FILE"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_backup_becomes_a_store_where_there_was_none() {
    let server = Server::start();
    run(&["pub", "t", "1", "--url", &server.ws_url()]).ok();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup");
    run(&["backup", file.to_str().unwrap(), "--store", &server.store_url()]).ok();
    let there = url(&folder.path().join("new/folder/store.db"));
    run(&["restore", file.to_str().unwrap(), "--store", &there]).ok();
    assert_eq!(run(&["doctor", "--store", &there, "--json"]).json()["events"], 1);
}
