//! A store with two names: a second server is refused whatever name it uses, and no command replaces a link.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use millrace::{Event, Session};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::run::run;
use crate::server::Server;

#[derive(Event, Serialize, Deserialize)]
struct Ticked {
    n: u32,
}

/// Returns a server, and a link to its store in another folder.
fn linked() -> (Server, tempfile::TempDir, PathBuf, String) {
    let server = Server::start();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link.db");
    symlink(server.folder().join("test.db"), &link).unwrap();
    let url = format!("sqlite:///{}", link.display());
    (server, elsewhere, link, url)
}

fn serve(store: &str) -> crate::run::Ran {
    run(&["serve", "--listen", "127.0.0.1:0", "--socket", "none", "--store", store])
}

#[test]
fn a_second_server_under_another_name_is_told_who_serves() {
    let (server, elsewhere, link, url) = linked();
    let who = format!("already served by process {}", server.pid());
    serve(&url).refused(1, &[&who]);
    let folder = elsewhere.path().join("folder");
    symlink(server.folder(), &folder).unwrap();
    serve(&format!("sqlite:///{}/test.db", folder.display())).refused(1, &[&who]);
    serve(&format!("sqlite:///{}/../{}/test.db", server.folder().display(), {
        server.folder().file_name().unwrap().to_str().unwrap()
    }))
    .refused(1, &[&who]);
    let left: Vec<_> =
        std::fs::read_dir(elsewhere.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "nothing lies beside the links: {left:?}");
    assert!(link.symlink_metadata().unwrap().is_symlink());
}

/// Returns the files whose names begin with `name`.
fn beside(server: &Server, name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(server.folder()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|found| found.starts_with(name));
    names.sort();
    names
}

#[test]
fn a_second_hard_link_is_refused_and_the_name_to_keep_told() {
    let mut server = Server::start();
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("copy");
    let copy = copy.to_str().unwrap();
    for n in 1..=50 {
        server.socket().publish("t", &json!(n));
    }
    run(&["backup", copy, "--store", &server.store_url()]).ok();
    let other = server.folder().join("other.db");
    std::fs::hard_link(server.folder().join("test.db"), &other).unwrap();
    let url = format!("sqlite:///{}", other.display());
    let keep = format!("keep {}: its log", server.folder().join("test.db").display());
    let told = ["2 names (hard links)", &keep, "remove the other names"];
    serve(&url).refused(3, &told);
    let second = elsewhere.path().join("second");
    run(&["backup", second.to_str().unwrap(), "--store", &url]).refused(3, &told);
    run(&["doctor", "--store", &url]).refused(3, &told);
    run(&["info", "--store", &url]).refused(3, &told);
    run(&["events", "list-namespaces", "--store", &url]).refused(3, &told);
    run(&["restore", copy, "--force", "--store", &url]).refused(1, &told);
    let new = format!("sqlite:///{}", elsewhere.path().join("new.db").display());
    run(&["restore", other.to_str().unwrap(), "--store", &new]).refused(3, &told);
    assert_eq!(beside(&server, "other"), ["other.db"], "nothing was put beside the other name");
    server.kill();
    serve(&server.store_url()).refused(3, &told);
    serve(&url).refused(3, &told);
    // After following the advice in the message, nothing is lost.
    std::fs::remove_file(other).unwrap();
    server.restart();
    assert_eq!(server.socket().publish("t", &json!("on")), 51);
}

/// Returns a server that does not check its file names during these tests, so that only the locks on the file itself
/// refuse others.
fn blind() -> Server {
    Server::with(&["--disk-interval-ms", "3600000"])
}

#[test]
fn a_store_that_was_moved_is_not_opened_a_second_time() {
    let mut server = blind();
    let mut socket = server.socket();
    for n in 0..20 {
        socket.publish("ticked", &json!({"n": n}));
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("copy");
    let copy = copy.to_str().unwrap();
    run(&["backup", copy, "--store", &server.store_url()]).ok();
    let (name, moved) = (server.folder().join("test.db"), server.folder().join("moved.db"));
    std::fs::rename(&name, &moved).unwrap();
    let url = format!("sqlite:///{}", moved.display());
    let who = format!("is open in process {} under another name", server.pid());
    serve(&url).refused(1, &[&who, "Stop that process first"]);
    run(&["doctor", "--store", &url]).refused(3, &[&who]);
    run(&["backup", elsewhere.path().join("b").to_str().unwrap(), "--store", &url]).refused(3, &[&who]);
    run(&["restore", copy, "--force", "--store", &url]).refused(1, &[&who]);
    let refused = Session::open(&url).unwrap_err().to_string();
    assert!(refused.contains(&who), "{refused}");
    assert_eq!(beside(&server, "moved.db-wal"), [""; 0]);
    // Another file under the name is not the file that the server has open.
    std::fs::copy(copy, &name).unwrap();
    let refused = Session::open(&server.store_url()).unwrap_err().to_string();
    assert!(refused.contains("not the file that other processes have open"), "{refused}");
    std::fs::rename(&moved, &name).unwrap();
    assert_eq!(socket.publish("ticked", &json!({"n": 20})), 21);
    Session::open(&server.store_url()).unwrap().publish(Ticked { n: 21 }).unwrap();
    assert_eq!(server.terminate(), Some(0));
    server.restart();
    assert_eq!(server.socket().publish("ticked", &json!({"n": 22})), 23);
}

#[test]
fn a_lock_folder_that_was_removed_lets_no_second_server_in() {
    let mut server = blind();
    server.socket().publish("t", &json!(1));
    std::fs::remove_dir_all(server.folder().join("test.db-locks")).unwrap();
    let who = format!("is open in process {}", server.pid());
    serve(&server.store_url()).refused(1, &[&who, "its lock folder was removed"]);
    // A stop checks the names once more.
    assert_eq!(server.terminate(), Some(1));
    server.restart();
    assert_eq!(server.socket().publish("t", &json!(2)), 2);
}

#[test]
fn commands_and_sessions_through_a_link_share_the_servers_store() {
    let (mut server, elsewhere, link, url) = linked();
    let mut socket = server.socket();
    for n in 0..100 {
        socket.publish("ticked", &json!({"n": n}));
    }
    run(&[
        "sub",
        "ticked",
        "--group",
        "g",
        "--from",
        "earliest",
        "--count",
        "100",
        "--url",
        &server.ws_url(),
    ])
    .ok();
    // The events of the server and of the session are in one stream.
    let session = Session::open(&url).unwrap();
    session.publish(Ticked { n: 101 }).unwrap();
    assert_eq!(socket.publish("ticked", &json!({"n": 102})), 102);
    drop(session);
    assert_eq!(server.committed("ticked", "g", 0), 100);
    let copy = elsewhere.path().join("copy");
    let copy = copy.to_str().unwrap();
    assert_eq!(run(&["backup", copy, "--store", &url, "--json"]).json()["events"], 102);
    assert_eq!(run(&["doctor", "--store", &url, "--json"]).json()["events"], 102);
    let listed = run(&["events", "list-namespaces", "--store", &url]).ok();
    assert!(listed.contains("default"), "{listed}");
    run(&["restore", copy, "--store", &url, "--force"]).refused(1, &["already served by process"]);
    socket.publish("ticked", &json!("not in the backup"));
    server.terminate();
    run(&["restore", copy, "--store", &url, "--force"]).ok();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    server.restart();
    assert_eq!(server.socket().publish("ticked", &json!("on")), 103);
}
