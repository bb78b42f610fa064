//! Files and sockets are accessible to their owner only, from the first moment, and secrets that others can read cause
//! a warning.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::run::{run, run_in};
use crate::server::Server;

/// Returns every file in `folder` (which others can enter) that group or others have any right on, with its mode. Also
/// returns a socket that does not have its final name yet, because it may be open to everybody for a moment. The sockets
/// of the lock folder have their final names at once: nobody else can enter that folder.
fn open_to_others(folder: &Path) -> Vec<String> {
    let mut open = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return open };
    for path in entries.flatten().map(|entry| entry.path()) {
        // A file that is gone already was not exposed.
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        let is_news = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"news-");
        let is_named = path.ends_with("os.sock") || path.file_name().is_some_and(is_news);
        let is_unnamed_socket = found.file_type().is_socket() && !is_named;
        if found.mode() & 0o077 != 0 || is_unnamed_socket {
            open.push(format!("{} {:o}", path.display(), found.mode()));
        }
    }
    open
}

/// Runs the real binary under a umask of 000, and checks the folder again and again until the server is ready.
fn serve_watched(folder: &Path) -> Vec<String> {
    let script =
        "umask 000; exec \"$0\" serve --listen 127.0.0.1:0 --store sqlite:///store.db --socket os.sock";
    let mut child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_millrace")])
        .current_dir(folder)
        .env("RUST_LOG", "error")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let ready = BufReader::new(child.stdout.take().unwrap());
    let ready = thread::spawn(move || ready.lines().next().unwrap().unwrap());
    let mut open = Vec::new();
    while !ready.is_finished() {
        open.extend(open_to_others(folder));
    }
    assert!(ready.join().unwrap().contains("\"ready\":true"));
    for file in
        ["store.db", "store.db-wal", "store.db-shm", "store.db-locks/serve", "os.sock", "os.sock.lock"]
    {
        assert!(folder.join(file).exists(), "{file}");
    }
    open.extend(open_to_others(folder));
    assert_eq!(fs::metadata(folder.join("store.db-locks")).unwrap().mode() & 0o777, 0o700);
    open.extend(open_to_others(&folder.join("store.db-locks")));
    let script = "umask 000; exec \"$0\" backup copy --store sqlite:///store.db";
    let ran = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_millrace")])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    open.extend(open_to_others(folder));
    child.kill().unwrap();
    child.wait().unwrap();
    open
}

#[test]
fn whatever_the_umask_nobody_else_can_open_anything_at_any_moment() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        set_mode(folder.path(), 0o755);
        let open = serve_watched(folder.path());
        assert!(open.is_empty(), "{open:#?}");
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_lock_folder_that_others_can_write_to_is_refused() {
    let mut server = Server::start();
    server.terminate();
    let locks = server.folder().join("test.db-locks");
    set_mode(&locks, 0o777);
    let store = server.store_url();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--socket", "none", "--store", &store];
    run(&serve).refused(3, &["test.db-locks", "mode 0777", "chmod 700"]);
    let copy = server.folder().join("copy");
    run(&["backup", copy.to_str().unwrap(), "--store", &store]).ok();
    run(&["restore", copy.to_str().unwrap(), "--store", &store, "--force"]).refused(1, &["chmod 700"]);
    set_mode(&locks, 0o755);
    server.restart();
    assert_eq!(
        fs::metadata(&locks).unwrap().mode() & 0o777,
        0o700,
        "one that others could only read is closed"
    );
}

#[test]
fn an_empty_store_that_lies_there_is_closed_or_if_it_is_anothers_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("test.db");
    let url = format!("sqlite:///{}", store.display());
    fs::write(&store, "").unwrap();
    set_mode(&store, 0o666);
    let is_root = fs::metadata(&store).unwrap().uid() == 0;
    if is_root {
        // Only root can change the owner of a file.
        for name in ["test.db", "test.db-wal"] {
            let foreign = folder.path().join(name);
            fs::write(&foreign, "").unwrap();
            set_mode(&foreign, 0o666);
            std::os::unix::fs::chown(&foreign, Some(12345), Some(12345)).unwrap();
            let serve = ["serve", "--listen", "127.0.0.1:0", "--socket", "none", "--store", &url];
            run(&serve).refused(3, &[name, "belongs to user 12345"]);
            assert_eq!(fs::metadata(&foreign).unwrap().len(), 0);
            fs::remove_file(&foreign).unwrap();
        }
    }
    let server = Server::on_store(|path| {
        fs::write(path, "").unwrap();
        set_mode(path, 0o666);
    });
    server.socket().publish("t", &serde_json::json!("secret"));
    let open = open_to_others(server.folder());
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_store_and_secrets_that_others_can_read_are_told_and_left() {
    let secret = "[[auth.tokens]]\ntoken = 's3cret'\nagent = 'a'\nscopes = ['*']\n";
    let mut server = Server::with_config(secret, &[]);
    let config = server.folder().join("millrace.toml");
    set_mode(&config, 0o600);
    server.terminate();
    server.restart_with_log();
    assert!(!server.log().contains("others on this machine"), "{}", server.log());
    server.terminate();
    let store = server.folder().join("test.db");
    set_mode(&config, 0o644);
    set_mode(&store, 0o644);
    server.restart_with_log();
    let log = server.log();
    assert!(log.contains("millrace.toml (mode 0644), which holds tokens: `chmod 600"), "{log}");
    assert!(log.contains("test.db (mode 0644), which holds every event"), "{log}");
    assert!(!log.contains("s3cret"));
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&config), mode(&store)), (0o644, 0o644), "the files are the user's");
    let noted = run(&["doctor", "--store", &server.store_url()]).ok();
    assert!(noted.contains("note: ") && noted.contains("mode 0644"), "{noted}");

    let folder = server.folder();
    let print = |args: &[&str]| run_in(folder, &[], &[&["config", "print", "--json"], args].concat());
    let told = print(&["--config", "millrace.toml"]);
    assert!(told.stderr.contains("which holds tokens"), "{}", told.stderr);
    told.json();
    // A digest is no secret; a key is.
    let digest = format!("[[auth.tokens]]\nsha256 = '{}'\nagent = 'a'\n", "ab".repeat(32));
    fs::write(folder.join("digest.toml"), digest).unwrap();
    fs::write(folder.join("key.pem"), "").unwrap();
    set_mode(&folder.join("digest.toml"), 0o644);
    set_mode(&folder.join("key.pem"), 0o640);
    let quiet = print(&["--config", "digest.toml", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    assert_eq!(quiet.stderr, "");
    set_mode(&folder.join("key.pem"), 0o644);
    let told = print(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    assert!(told.stderr.contains("key.pem (mode 0644), which holds the private key"), "{}", told.stderr);
}
