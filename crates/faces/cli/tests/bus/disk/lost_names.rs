//! Files of a store are moved or removed while a server has them open: the server stops at once, says what to do, and
//! loses nothing that it confirmed.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::disk::{logged, not_ready, stored};
use crate::server::Server;

const CONFIRMED: usize = 20;
/// The limit is no judgement of speed: the test fails instead of waiting for ever.
const STOPS_WITHIN: Duration = Duration::from_secs(30);

fn millrace(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(args).current_dir(folder).env("RUST_LOG", "warn").output().expect("the binary runs")
}

/// Starts a server, checks that the start is refused, and returns its message.
#[track_caller]
fn refused(server: &Server) -> String {
    let args = ["serve", "--listen", "127.0.0.1:0", "--socket", "none", "--store", "sqlite:///test.db"];
    let ran = millrace(server.folder(), &args);
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && ran.stdout.is_empty(), "{said}");
    said
}

fn with_events() -> Server {
    let server = Server::with_log_and_env(&[], &[]);
    let mut socket = server.socket();
    for n in 1..=CONFIRMED {
        socket.publish("t", &json!(n));
    }
    server
}

/// Returns how many publishes were confirmed until the server stopped accepting them. Checks that it ended with exit
/// code 1 and logged all of `words`.
#[track_caller]
fn ends(server: &mut Server, words: &[&str]) -> usize {
    let body = json!({"payload": "late"}).to_string();
    let post = || ureq::post(format!("{}/topics/t/events", server.http_url())).send(&body);
    let begun = Instant::now();
    let confirmed = std::iter::from_fn(|| post().ok()).take_while(|_| begun.elapsed() < STOPS_WITHIN).count();
    assert!(begun.elapsed() < STOPS_WITHIN, "it goes on confirming");
    assert_eq!(server.wait(), Some(1), "{}", server.log());
    let log = server.log();
    let last = log.lines().last().unwrap_or_default();
    for word in words.iter().chain(&["have lost their names"]) {
        assert!(last.contains(word), "{word:?} is not in: {log}");
    }
    confirmed
}

fn path(server: &Server, name: &str) -> std::path::PathBuf {
    server.folder().join(name)
}

#[test]
fn a_store_that_is_moved_stops_its_server_and_is_whole_under_the_new_name() {
    let mut server = with_events();
    fs::rename(path(&server, "test.db"), path(&server, "moved.db")).expect("a file");
    let late = ends(&mut server, &["moved.db", "give it its name back"]);
    // A supervisor restarts the server: it must not begin with an empty store.
    let said = refused(&server);
    assert!(said.contains("moved.db") && said.contains("Put the file back"), "{said}");
    assert!(!path(&server, "test.db").exists());
    fs::create_dir(path(&server, "alone")).expect("a folder");
    fs::copy(path(&server, "moved.db"), path(&server, "alone/test.db")).expect("a file");
    let doctor = millrace(server.folder(), &["doctor", "--json", "--store", "sqlite:///alone/test.db"]);
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).expect("a report");
    assert!(report["events"].as_u64() >= Some((CONFIRMED + late) as u64), "{report}");
    fs::rename(path(&server, "moved.db"), path(&server, "test.db")).expect("a file");
    server.restart();
    assert_eq!(stored(&server, "t").len(), (CONFIRMED + late).min(100));
    server.socket().publish("t", &json!("on"));
}

#[test]
fn a_store_that_is_removed_is_saved_before_its_server_ends() {
    let mut server = with_events();
    fs::remove_file(path(&server, "test.db")).expect("a file");
    let late = ends(&mut server, &["was saved to", "test.db-rescued", "millrace restore"]);
    let said = refused(&server);
    assert!(said.contains("test.db-rescued") && said.contains("millrace restore"), "{said}");
    let restore = ["restore", "test.db-rescued", "--force", "--store", "sqlite:///test.db"];
    let ran = millrace(server.folder(), &restore);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    server.restart();
    assert_eq!(stored(&server, "t").len(), (CONFIRMED + late).min(100));
    server.socket().publish("t", &json!("on"));
}

/// The server is asked to stop before it has noticed.
#[test]
fn a_stop_saves_a_store_that_was_removed() {
    let mut server = Server::with_log_and_env(&["--disk-interval-ms", "3600000"], &[]);
    let mut socket = server.socket();
    for n in 1..=CONFIRMED {
        socket.publish("t", &json!(n));
    }
    fs::remove_file(path(&server, "test.db")).expect("a file");
    assert_eq!(server.terminate(), Some(1), "{}", server.log());
    let restore = ["restore", "test.db-rescued", "--force", "--store", "sqlite:///test.db"];
    let ran = millrace(server.folder(), &restore);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    server.restart();
    assert_eq!(stored(&server, "t").len(), CONFIRMED);
}

#[test]
fn a_log_that_is_removed_is_written_into_the_store_before_its_server_ends() {
    for name in ["test.db-wal", "test.db-shm"] {
        let mut server = with_events();
        fs::remove_file(path(&server, name)).expect("a file");
        let late = ends(&mut server, &[name, "start the server again"]);
        server.restart();
        assert_eq!(stored(&server, "t").len(), (CONFIRMED + late).min(100), "{name}");
    }
}

#[test]
fn a_lock_that_is_removed_stops_its_server() {
    for name in ["", "serve", "writer"] {
        let mut server = with_events();
        match path(&server, "test.db-locks").join(name) {
            folder if name.is_empty() => fs::remove_dir_all(folder).expect("a folder"),
            file => fs::remove_file(file).expect("a file"),
        }
        let late = ends(&mut server, &["test.db-locks", "start the server again"]);
        server.restart();
        assert_eq!(stored(&server, "t").len(), (CONFIRMED + late).min(100), "{name}");
    }
}

/// The first server does not check its file names during this test: the lock on the database file itself must refuse
/// the second one.
#[test]
fn a_server_whose_lock_was_removed_keeps_a_second_one_out() {
    let server = Server::with_log_and_env(&["--disk-interval-ms", "3600000"], &[]);
    server.socket().publish("t", &json!(1));
    fs::remove_file(path(&server, "test.db-locks/serve")).expect("a file");
    let said = refused(&server);
    assert!(said.contains(&format!("already served in process {}", server.pid())), "{said}");
    server.socket().publish("t", &json!(2));
    assert_eq!(stored(&server, "t").len(), 2);
}

/// A copy of the store cannot be written in its folder: the server keeps the store open instead of giving it up.
#[test]
fn what_cannot_be_saved_is_kept_open_and_the_server_is_not_ready() {
    let server = with_events();
    // A folder of another owner is in the way where the copy would be written.
    fs::create_dir(path(&server, "test.db-rescued.partial")).expect("a folder");
    fs::remove_file(path(&server, "test.db")).expect("a file");
    not_ready(&server, "lost its place");
    logged(&server, &["ERROR", "cannot be saved", "do not end process"]);
    fs::remove_dir(path(&server, "test.db-rescued.partial")).expect("a folder");
    let mut server = server;
    assert_eq!(server.wait(), Some(1), "{}", server.log());
    let rescued = path(&server, "test.db-rescued");
    let store = format!("sqlite:///{}", rescued.display());
    let doctor = millrace(server.folder(), &["doctor", "--json", "--store", &store]);
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).expect("a report");
    assert!(report["events"].as_u64() >= Some(CONFIRMED as u64), "{report}");
}
