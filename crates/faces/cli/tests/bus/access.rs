//! Tokens over the WebSocket: missing, wrong and right ones, by header and by frame; scopes and namespaces; secrets
//! that are never shown.

use std::process::Command;

use serde_json::{Value, json};
use tungstenite::protocol::frame::coding::CloseCode;

use crate::server::{Server, user_topics};
use crate::socket::Socket;

/// The token `hashed` is configured by the SHA-256 of `hashed-secret`.
pub const TOKENS: &str = r#"
[[auth.tokens]]
token = "root-secret"
agent = "root"
scopes = ["admin"]
namespaces = ["*"]

[[auth.tokens]]
token = "alice-secret"
agent = "alice"
roles = ["workers"]

[[auth.tokens]]
token = "eve-secret"
agent = "eve"

[[auth.tokens]]
token = "writer-secret"
agent = "writer"
scopes = ["publish"]

[[auth.tokens]]
token = "reader-secret"
agent = "reader"
scopes = ["subscribe"]

[[auth.tokens]]
token = "watcher-secret"
agent = "watcher"
scopes = ["metrics"]

[[auth.tokens]]
token = "tenant-secret"
agent = "tenant"
scopes = ["*"]
namespaces = ["eu"]

[[auth.tokens]]
sha256 = "4e598f5daafc2fda61641ddbb5956deb23fde6616366dc9dd5a7c9f47da4d787"
agent = "hashed"
"#;

pub fn server() -> Server {
    Server::with_config(TOKENS, &[])
}

/// Computed by the system's own tool, so that the test does not share our code.
fn sha256(text: &str) -> String {
    let output = Command::new("sh").args(["-c", &format!("printf %s {text} | sha256sum")]).output();
    let text = String::from_utf8(output.expect("sha256sum runs").stdout).expect("UTF-8");
    text.split(' ').next().expect("a digest").to_owned()
}

pub fn open(server: &Server, token: &str) -> Socket {
    Socket::open_as(&server.ws_url(), token).expect("the token is accepted")
}

fn publish() -> Value {
    json!({"type": "PUBLISH", "topic": "t", "payload": 1, "rid": 7})
}

#[test]
fn without_a_token_a_connection_may_only_ping_and_authenticate() {
    let server = server();
    let mut socket = server.socket();
    for frame in [
        publish(),
        json!({"type": "PUBLISH_BATCH", "topic": "t", "events": [{"payload": 1}], "rid": 7}),
        json!({"type": "SUBSCRIBE", "topic": "t", "group": "g", "rid": 7}),
        json!({"type": "UNSUBSCRIBE", "topic": "t", "group": "g", "rid": 7}),
        json!({"type": "ACK", "topic": "t", "partition": 0, "group": "g", "offset": 1, "rid": 7}),
        json!({"type": "NACK", "topic": "t", "partition": 0, "group": "g", "offset": 1, "rid": 7}),
        json!({"type": "FLOW", "credits": 1, "rid": 7}),
    ] {
        socket.send(&frame);
        let answer = socket.expect("ERROR");
        assert_eq!((&answer["code"], &answer["rid"]), (&json!("unauthorized"), &json!(7)), "{frame}");
    }
    socket.send(&json!({"type": "PING", "rid": 8}));
    assert_eq!(socket.expect("PONG")["rid"], 8);
    let (status, topics) = server.request_as("root-secret", "GET", "/topics", &json!(null));
    assert_eq!(status, 200);
    assert!(user_topics(&topics).is_empty(), "nothing was made on the way: {topics}");
}

#[test]
fn a_wrong_token_is_refused_in_the_upgrade_and_in_the_frame() {
    let server = server();
    for wrong in ["nope", "alice-secre", "alice-secret2", "ALICE-SECRET", &sha256("hashed-secret")] {
        assert_eq!(Socket::open_as(&server.ws_url(), wrong).err(), Some(401), "{wrong}");
        let mut socket = server.socket();
        socket.send(&json!({"type": "AUTH", "token": wrong, "rid": 1}));
        let answer = socket.expect("ERROR");
        assert_eq!((&answer["code"], &answer["rid"]), (&json!("unauthorized"), &json!(1)));
        assert!(!answer.to_string().contains(wrong), "{answer}");
        socket.send(&publish());
        socket.refused("unauthorized");
    }
}

#[test]
fn a_right_token_opens_by_header_and_by_frame_in_plain_and_hashed_form() {
    let server = server();
    for token in ["alice-secret", "hashed-secret"] {
        let mut socket = open(&server, token);
        socket.publish("t", &json!(1));
        let mut socket = server.socket();
        socket.send(&json!({"type": "AUTH", "token": token, "rid": "a"}));
        let ok = socket.expect("OK");
        assert_eq!((&ok["op"], &ok["rid"]), (&json!("AUTH"), &json!("a")));
        socket.publish("t", &json!(2));
        socket.subscribe("t", token, &json!({"from": {"kind": "earliest"}}));
        socket.message();
    }
}

#[test]
fn a_connection_keeps_its_agent_whatever_is_tried_later() {
    let server = server();
    let mut socket = open(&server, "reader-secret");
    for token in ["root-secret", "nope"] {
        socket.send(&json!({"type": "AUTH", "token": token}));
        socket.refused("unauthorized");
        socket.send(&publish());
        socket.refused("forbidden");
    }
    socket.send(&json!({"type": "AUTH", "token": "reader-secret"}));
    socket.expect("OK");
    socket.subscribe("t", "g", &json!({}));
}

#[test]
fn scopes_say_which_frames_are_taken() {
    let server = server();
    let mut writer = open(&server, "writer-secret");
    writer.publish("t", &json!(1));
    writer.send(&json!({"type": "SUBSCRIBE", "topic": "t", "group": "g"}));
    assert!(writer.refused("forbidden").contains("no scope subscribe"));
    let mut reader = open(&server, "reader-secret");
    reader.subscribe("t", "g", &json!({"from": {"kind": "earliest"}}));
    reader.message();
    for frame in
        [publish(), json!({"type": "PUBLISH_BATCH", "topic": "t", "events": [{"payload": 1}], "rid": 1})]
    {
        reader.send(&frame);
        assert!(reader.refused("forbidden").contains("no scope publish"));
    }
    let mut watcher = open(&server, "watcher-secret");
    watcher.send(&publish());
    watcher.refused("forbidden");
}

#[test]
fn a_token_is_good_in_its_namespaces_only() {
    let server = server();
    let at = |namespace: &str| format!("{}?namespace={namespace}", server.ws_url());
    assert_eq!(Socket::open_as(&at("eu"), "alice-secret").err(), Some(403), "absent means `default`");
    assert_eq!(Socket::open_as(&server.ws_url(), "tenant-secret").err(), Some(403));
    Socket::open_as(&at("eu"), "tenant-secret").expect("let in").publish("t", &json!(1));
    Socket::open_as(&at("us"), "root-secret").expect("let in").publish("t", &json!(1));
    let mut socket = Socket::open(&at("us"));
    socket.send(&json!({"type": "AUTH", "token": "tenant-secret"}));
    socket.expect("OK");
    socket.send(&publish());
    assert!(socket.refused("forbidden").contains("not for namespace us"));
}

#[test]
fn a_stranger_that_says_nothing_is_sent_away_and_others_stay() {
    let server = Server::with_config(TOKENS, &["--auth-ms-max", "200"]);
    let mut known = open(&server, "alice-secret");
    let mut stranger = server.socket();
    assert_eq!(stranger.next_or_close(), Err(Some(CloseCode::Policy)));
    known.publish("t", &json!(1));
}

#[test]
fn refusals_are_written_down_within_bounds_and_without_secrets() {
    let server = server();
    let mut socket = server.socket();
    for _ in 0..1000 {
        socket.send(&json!({"type": "AUTH", "token": "guess-me-not"}));
    }
    for _ in 0..1000 {
        socket.refused("unauthorized");
    }
    server.request_as("reader-secret", "POST", "/topics/t/events", &json!({"payload": 1}));
    let log = server.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("millrace::audit")).collect();
    assert!((50..=200).contains(&lines.len()), "{} lines", lines.len());
    assert!(lines[0].contains("unauthorized") && lines[0].contains("AUTH"), "{}", lines[0]);
    assert!(!log.contains("guess-me-not") && !log.contains("-secret"), "{log}");
}

#[test]
fn no_secret_is_ever_shown_by_the_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("millrace.toml");
    let run = |config: &str, args: &[&str]| {
        std::fs::write(&path, config).expect("a file");
        let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(args)
            .arg("--config")
            .arg(&path)
            .output()
            .expect("the binary runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).expect("UTF-8"))
    };
    for args in [&["config", "print"][..], &["config", "print", "--json"]] {
        let (code, text) = run("[[auth.tokens]]\ntoken = 'hush'\nagent = 'alice'\n", args);
        assert!(code == Some(0) && text.contains("alice") && !text.contains("hush"), "{text}");
        assert!(!text.contains(&sha256("hush")));
    }
    for config in [
        "[[auth.tokens]]\ntoken = 'hush\nagent = 'alice'\n",
        "[[auth.token]]\ntoken = 'hush'\n",
        "[[tokens]]\ntoken = 'hush'\n",
        "auth_token = 'hush'\n",
        "[[auth.tokens]]\ntoken = 'hush'\n",
        "[[auth.tokens]]\nsha256 = 'hush'\nagent = 'a'\n",
    ] {
        let (code, text) = run(config, &["config", "print"]);
        assert!(code == Some(2) && !text.contains("hush"), "{config}: {text}");
    }
}

#[test]
fn tokens_open_an_address_that_others_reach_and_nothing_else_does() {
    let serve = |config: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("millrace.toml"), config).expect("a file");
        let args = [
            "serve",
            "--config",
            "millrace.toml",
            "--listen",
            "0.0.0.0:0",
            "--store",
            "memory:",
            "--socket",
            "none",
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        (
            command.args(args).current_dir(folder.path()).output().expect("the binary runs").status.code(),
            folder,
        )
    };
    assert_eq!(serve("").0, Some(2));
    assert_eq!(serve("[auth]\ntokens = []\n").0, Some(2));
    let server = Server::with_config(TOKENS, &["--listen", "0.0.0.0:0"]);
    let port = server.http_url().rsplit(':').next().expect("a port").to_owned();
    let mut socket =
        Socket::open_as(&format!("ws://127.0.0.1:{port}/"), "alice-secret").expect("the token is accepted");
    socket.publish("t", &json!(1));
    assert!(server.log().contains("plain text"), "it warns that there is no TLS");
}
