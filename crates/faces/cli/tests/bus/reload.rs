//! SIGHUP reloads tokens and certificate without a restart, and mistakes in the files change nothing.

use serde_json::{Value, json};
use tungstenite::protocol::frame::coding::CloseCode;

use crate::access::open;
use crate::access_tls::{certificates, run, start};
use crate::server::{Server, eventually};
use crate::socket::Socket;

fn token(name: &str, scopes: &str) -> String {
    format!("[[auth.tokens]]\ntoken = \"{name}-secret\"\nagent = \"{name}\"\nscopes = [{scopes}]\n")
}

const BOTH: &str = "\"publish\", \"subscribe\"";

fn write(server: &Server, config: &str) {
    std::fs::write(server.folder().join("millrace.toml"), config).expect("a file");
    server.signal("HUP");
}

fn status(server: &Server, token: &str) -> u16 {
    server.request_as(token, "GET", "/topics", &Value::Null).0
}

#[test]
fn tokens_are_replaced_and_connections_of_those_that_are_gone_are_closed() {
    let server =
        Server::with_config(&(token("old", BOTH) + &token("kept", BOTH) + &token("less", BOTH)), &[]);
    let (mut by_upgrade, mut kept, mut less) =
        (open(&server, "old-secret"), open(&server, "kept-secret"), open(&server, "less-secret"));
    let mut by_frame = server.socket();
    by_frame.send(&json!({"type": "AUTH", "token": "old-secret", "rid": 1}));
    assert_eq!(by_frame.next()["type"], "OK");
    for socket in [&mut by_upgrade, &mut by_frame, &mut kept] {
        socket.subscribe("t", "g", &json!({}));
    }
    write(&server, &(token("new", BOTH) + &token("kept", BOTH) + &token("less", "\"subscribe\"")));
    eventually("the new token is accepted", || status(&server, "new-secret") == 200);
    assert_eq!((status(&server, "old-secret"), status(&server, "kept-secret")), (401, 200));
    assert_eq!(Socket::open_as(&server.ws_url(), "old-secret").err(), Some(401));
    // Connections that only listen are closed too, and those whose token has other rights now.
    for socket in [&mut by_upgrade, &mut by_frame, &mut less] {
        assert_eq!(socket.next_or_close(), Err(Some(CloseCode::Policy)));
    }
    // The connection whose token stays receives all events, without a reconnect.
    let mut new = open(&server, "new-secret");
    new.send(&json!({"type": "PUBLISH", "topic": "t", "payload": 1}));
    assert_eq!(new.next()["type"], "PUBLISHED");
    assert_eq!(kept.expect("MESSAGE")["envelope"]["payload"], 1);
    let mut less = open(&server, "less-secret");
    less.send(&json!({"type": "PUBLISH", "topic": "t", "payload": 1}));
    assert_eq!(less.next()["code"], "forbidden");
}

#[test]
fn a_bad_file_changes_nothing_and_says_so_once() {
    let mut server = Server::with_config(&token("old", BOTH), &[]);
    let mut socket = open(&server, "old-secret");
    let new = token("new", BOTH);
    for (config, why) in [
        (format!("{new}[[auth.tokens"), "not valid TOML"),
        (format!("{new}[[auth.tokens]]\nagent = \"x\"\n"), "give either token or sha256"),
        (format!("nonsense = 1\n{new}"), "is no setting"),
        (String::new(), "would open everything"),
        ("[auth]\ntokens = []\n".to_owned(), "auth.tokens is empty"),
        (format!("tls_cert = \"c.pem\"\ntls_key = \"k.pem\"\n{new}"), "TLS cannot be switched"),
    ] {
        let before = server.log().matches("not reloaded").count();
        write(&server, &config);
        eventually("the error is logged", || server.log().matches("not reloaded").count() == before + 1);
        let log = server.log();
        let last = log.lines().last().expect("a line");
        assert!(last.contains("ERROR") && last.contains(why) && !last.contains("secret"), "{why}: {last}");
        assert_eq!((status(&server, "old-secret"), status(&server, "new-secret")), (200, 401), "{why}");
    }
    socket.send(&json!({"type": "PING", "rid": 1}));
    assert_eq!(socket.next()["type"], "PONG");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn an_open_server_stays_open_and_does_not_end() {
    let server = Server::with_config("", &[]);
    write(&server, &token("new", BOTH));
    eventually("the error is logged", || server.log().contains("there were no tokens before"));
    assert_eq!(server.get("/topics").0, 200);
}

#[test]
fn a_new_certificate_is_shown_to_new_connections() {
    let (folder, next) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    certificates(folder.path());
    certificates(next.path());
    let server = start(folder.path());
    let url = server.ws_url();
    let client = ["pub", "t", "1", "--url", &url, "--token", "alice-secret", "--tls-ca", "ca.pem"];
    let trusts = |folder: &tempfile::TempDir| run(folder.path(), &client).status.code();
    assert_eq!((trusts(&folder), trusts(&next)), (Some(0), Some(3)));
    // A certificate without its key: the old pair stays.
    let copy = |name: &str| std::fs::copy(next.path().join(name), folder.path().join(name)).expect("a copy");
    copy("cert.pem");
    server.signal("HUP");
    eventually("the error is logged", || server.log().contains("not reloaded"));
    assert_eq!((trusts(&folder), trusts(&next)), (Some(0), Some(3)));
    copy("key.pem");
    server.signal("HUP");
    eventually("the new certificate is shown", || trusts(&next) == Some(0));
    assert_eq!(trusts(&folder), Some(3));
}
