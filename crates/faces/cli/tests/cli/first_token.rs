//! `--first-token FILE`: the token that lets an administrator into a new server.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::json;

use crate::run::run_in;
use crate::server::{Server, eventually};

/// An address that others can reach, which needs a token.
const ANYWHERE: [&str; 4] = ["--listen", "0.0.0.0:0", "--first-token", "admin-token"];

fn token(server: &Server) -> String {
    fs::read_to_string(server.folder().join("admin-token")).unwrap().trim_end().to_owned()
}

/// The server's address as a client on this machine reaches it.
fn url(server: &Server) -> String {
    server.http_url().replace("0.0.0.0", "127.0.0.1")
}

#[test]
fn the_first_start_makes_a_token_and_later_ones_use_it() {
    let mut server = Server::with_log_level("", &ANYWHERE, "info");
    let first = token(&server);
    assert_eq!(first.len(), 64, "32 bytes in hexadecimal digits");
    let mode = fs::metadata(server.folder().join("admin-token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let log = server.log();
    assert!(log.contains("written to admin-token") && !log.contains(&first), "{log}");

    let folder = tempfile::tempdir().unwrap();
    let pub_with = |server: &Server, env: &[(&str, &str)]| {
        run_in(folder.path(), env, &["pub", "t", "1", "--url", &url(server)])
    };
    pub_with(&server, &[]).refused(1, &["wants a token"]);
    pub_with(&server, &[("MILLRACE_TOKEN", &first)]).ok();
    let (status, me) = server.request_as(&first, "GET", "/whoami?namespace=any", &json!(null));
    assert_eq!((status, &me["agent"], &me["open"]), (200, &json!("admin"), &json!(false)), "{me}");
    let (status, _) = server.request_as(&first, "DELETE", "/topics/t", &json!(null));
    assert_eq!(status, 204, "an administrator may delete a topic");

    server.terminate();
    server.restart_with_log();
    assert_eq!(token(&server), first, "an existing file is not written to");
    assert!(!server.log().contains("was made"), "{}", server.log());
    pub_with(&server, &[("MILLRACE_TOKEN", &first)]).ok();
}

#[test]
fn a_file_that_holds_no_token_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("admin-token");
    let serve = || {
        run_in(
            folder.path(),
            &[],
            &[&["serve", "--store", "memory:", "--socket", "none"], &ANYWHERE[..]].concat(),
        )
    };
    for content in ["", "\n", "two words\n", "[[auth.tokens]]\ntoken = 'x'\n", &"x".repeat(5000)] {
        fs::write(&file, content).unwrap();
        serve().refused(
            1,
            &["first-token is \"admin-token\"", "holds no token", "not overwritten", "remove this one"],
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
    }
    fs::remove_file(&file).unwrap();
    symlink("/nowhere/else", &file).unwrap();
    serve().refused(1, &["first-token is \"admin-token\""]);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    serve().refused(1, &["first-token is \"admin-token\""]);
    fs::remove_dir(&file).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    // Reading it would wait for somebody who writes.
    serve().refused(1, &["first-token is \"admin-token\"", "no regular file"]);
}

#[test]
fn it_stands_beside_configured_tokens_and_survives_a_reload() {
    let config = "[[auth.tokens]]\ntoken = 'alice-secret'\nagent = 'alice'\n";
    let server = Server::with_log_level(config, &["--first-token", "admin-token"], "info");
    let agent = |token: &str| {
        let (status, me) = server.request_as(token, "GET", "/whoami", &json!(null));
        (status, me["agent"].as_str().map(str::to_owned))
    };
    let first = token(&server);
    assert_eq!(agent(&first), (200, Some("admin".to_owned())));
    assert_eq!(agent("alice-secret"), (200, Some("alice".to_owned())));

    // Another token in the file takes the place of the first one.
    fs::write(server.folder().join("admin-token"), "another-secret\n").unwrap();
    server.signal("HUP");
    eventually("the new token is accepted", || agent("another-secret").0 == 200);
    assert_eq!(agent(&first).0, 401);
    assert_eq!(agent("alice-secret").0, 200);

    // A reload makes no token.
    fs::remove_file(server.folder().join("admin-token")).unwrap();
    server.signal("HUP");
    eventually("the reload is refused", || server.log().contains("not reloaded"));
    assert_eq!((agent("another-secret").0, agent("alice-secret").0), (200, 200));
    assert!(!server.folder().join("admin-token").exists());
}

#[test]
fn an_entry_with_the_same_digest_decides_what_the_token_may_do() {
    // The digest of `hashed-secret`.
    let config = "[[auth.tokens]]\nsha256 = '4e598f5daafc2fda61641ddbb5956deb23fde6616366dc9dd5a7c9f47da4d787'\n\
                  agent = 'bob'\nscopes = ['subscribe']\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "hashed-secret\n").unwrap();
    let server = Server::with_config(config, &["--first-token", file.to_str().unwrap()]);
    let (status, me) = server.request_as("hashed-secret", "GET", "/whoami", &json!(null));
    assert_eq!((status, &me["agent"]), (200, &json!("bob")), "{me}");
    // Others can read the file: that is told.
    assert!(
        server.log().contains("a token that may do everything")
            == (fs::metadata(&file).unwrap().permissions().mode() & 0o004 != 0)
    );
}
