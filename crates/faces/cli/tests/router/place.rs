//! The path of the socket, and who may reach it.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::client::{Client, path, serve};
use crate::server::Server;

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o777
}

fn second(server: &Server, socket: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--socket", socket])
        .current_dir(server.folder())
        .output()
        .expect("the binary runs")
}

#[test]
fn the_folder_and_the_socket_are_for_their_owner_only() {
    let server = Server::with(&["--socket", "a/b/os.sock"]);
    let folder = server.folder().join("a/b");
    assert_eq!((mode(&folder), mode(&folder.join("os.sock"))), (0o700, 0o600));
    assert!(std::fs::symlink_metadata(folder.join("os.sock")).expect("there").file_type().is_socket());
    let names: Vec<_> =
        std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("one").file_name()).collect();
    assert_eq!(names.len(), 2, "the socket and its lock: {names:?}");
}

#[test]
fn the_ready_line_says_where_it_is() {
    let server = serve(&[]);
    let shown = server.ready()["socket"].as_str().expect("a path").to_owned();
    assert!(Path::new(&shown).is_absolute());
    let same = |path: &Path| std::fs::canonicalize(path).expect("it is there");
    assert_eq!(same(Path::new(&shown)), same(&path(&server)));
    assert_eq!(Server::start().ready()["socket"], Value::Null);
}

#[test]
fn a_living_servers_socket_is_refused_and_a_dead_ones_replaced() {
    let mut server = serve(&[]);
    let refused = second(&server, "os.sock");
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("os.sock") && said.contains("another process"), "{said}");
    Client::of(&server).still_works();
    server.kill();
    assert!(path(&server).exists(), "a killed server leaves its socket");
    server.restart();
    Client::of(&server).still_works();
}

#[test]
fn somebody_elses_socket_or_file_is_left_alone() {
    let server = Server::start();
    let _listener = UnixListener::bind(server.folder().join("other.sock")).expect("a socket");
    std::fs::write(server.folder().join("file"), "precious").expect("a file");
    for socket in ["other.sock", "file"] {
        assert_eq!(second(&server, socket).status.code(), Some(1), "{socket}");
    }
    assert_eq!(std::fs::read_to_string(server.folder().join("file")).expect("the file"), "precious");
}

#[test]
fn the_usual_place_is_in_the_runtime_directory() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = Server::with_env(&["--socket", "default"], &[("XDG_RUNTIME_DIR", folder.path())]);
    let socket = folder.path().join("millrace/millrace.sock");
    assert_eq!(first.ready()["socket"], socket.display().to_string());
    assert_eq!((mode(&folder.path().join("millrace")), mode(&socket)), (0o700, 0o600));
    // The default path is in use and was not asked for explicitly: the server runs without a socket.
    let beside = Server::with_env(&["--socket", "default"], &[("XDG_RUNTIME_DIR", folder.path())]);
    assert_eq!(beside.ready()["socket"], Value::Null);
}
