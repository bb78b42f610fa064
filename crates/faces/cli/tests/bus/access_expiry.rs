//! Tokens that expire: they are refused from then on, and their connections are closed.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::server::{Server, eventually};
use crate::socket::Socket;

const LATER: &str = "expires = \"2999-01-31\"";

fn config(expires: &str) -> String {
    format!(
        "[[auth.tokens]]\ntoken = \"root-secret\"\nagent = \"root\"\nscopes = [\"admin\"]\n{LATER}\n\
         [[auth.tokens]]\ntoken = \"brief-secret\"\nagent = \"brief\"\nscopes = [\"*\"]\n{expires}\n"
    )
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()
}

#[test]
fn an_expired_token_is_refused_at_every_door_with_the_reason() {
    let server = Server::with_config(&config("expires = 2020-01-01"), &[]);
    assert!(
        server.log().contains("agent=\"brief\"") && server.log().contains("has expired"),
        "{}",
        server.log()
    );
    let (status, problem) = server.request_as("brief-secret", "GET", "/topics", &json!(null));
    assert_eq!((status, &problem["detail"]), (401, &json!("the token has expired")), "{problem}");
    assert_eq!(Socket::open_as(&server.ws_url(), "brief-secret").err(), Some(401));
    let mut socket = server.socket();
    socket.send(&json!({"type": "AUTH", "token": "brief-secret"}));
    assert_eq!(socket.refused("unauthorized"), "the token has expired");
    let mut os = Socket::open(&format!("{}os", server.ws_url()));
    let message = json!({
        "kind": "command", "type": "Syscall.Authenticate", "data": {"token": "brief-secret"},
        "metadata": {"id": "1", "timestamp": 1},
    });
    os.send(&message);
    assert_eq!(os.next()["data"], json!({"code": 401, "message": "the token has expired"}));
    assert_eq!(
        server.request_as("root-secret", "GET", "/topics", &json!(null)).0,
        200,
        "one that is good is good"
    );
}

/// Opens three kinds of connections with the token; `None` if it expired before all were open.
fn open_all(server: &Server) -> Option<[Socket; 3]> {
    let mut by_header = Socket::open_as(&server.ws_url(), "brief-secret").ok()?;
    by_header.send(&json!({"type": "SUBSCRIBE", "topic": "t", "group": "g"}));
    by_header.next_or_close().ok().filter(|frame| frame["type"] == "OK")?;
    let mut by_frame = server.socket();
    by_frame.send(&json!({"type": "AUTH", "token": "brief-secret"}));
    by_frame.next_or_close().ok().filter(|frame| frame["type"] == "OK")?;
    let os = Socket::open_as(&format!("{}os", server.ws_url()), "brief-secret").ok()?;
    Some([by_header, by_frame, os])
}

#[test]
fn open_connections_end_when_their_token_expires() {
    // On a busy machine opening them may take too long: then the test retries with a token that lives longer.
    let lives_ms = (0..).map(|attempt| 2000u128 << attempt);
    let opened = lives_ms.map(|ms| {
        let server = Server::with_config(&config(&format!("expires = {}", now_ms() + ms)), &[]);
        open_all(&server).map(|sockets| (server, sockets))
    });
    let (server, mut sockets) = opened.flatten().next().expect("one attempt is in time");
    let mut stays = Socket::open_as(&server.ws_url(), "root-secret").expect("a token");
    for socket in &mut sockets {
        assert_eq!(socket.close_reason(), "the token has expired");
    }
    eventually("nobody is in the group any more", || {
        let groups = server.request_as("root-secret", "GET", "/topics/t/groups", &json!(null)).1;
        groups["groups"][0]["members"] == 0
    });
    assert_eq!(Socket::open_as(&server.ws_url(), "brief-secret").err(), Some(401));
    stays.publish("t", &json!(1));
}

#[test]
fn an_expiry_is_read_again_with_the_file_and_shown() {
    let server = Server::with_config(&config(LATER), &[]);
    let mut socket = Socket::open_as(&server.ws_url(), "brief-secret").expect("a token");
    let file = server.folder().join("millrace.toml");
    let print = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(["config", "print", "--config"]).arg(&file);
        let ran = command.output().expect("the binary runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
    };
    assert!(print().1.contains("expires=2999-01-31T00:00:00.000Z"), "{:?}", print());
    std::fs::write(&file, config("expires = \"tomorrow\"")).expect("a file");
    let (code, _, stderr) = print();
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("auth.tokens[1]: expires is \"tomorrow\""), "{stderr}");
    // A mistake in the file changes nothing; a changed token closes its connections.
    server.signal("HUP");
    eventually("the mistake is logged", || server.log().contains("not reloaded"));
    socket.publish("t", &json!(1));
    std::fs::write(&file, config("expires = 1000000000000")).expect("a file");
    server.signal("HUP");
    assert_eq!(socket.close_reason(), "the token is no longer accepted");
    assert_eq!(Socket::open_as(&server.ws_url(), "brief-secret").err(), Some(401));
}

#[test]
fn what_a_connection_held_whose_token_ended_has_had_no_attempt() {
    let server = Server::with_config(&config(LATER), &[]);
    let mut brief = Socket::open_as(&server.ws_url(), "brief-secret").expect("a token");
    let mut root = Socket::open_as(&server.ws_url(), "root-secret").expect("a token");
    root.publish("t", &json!(1));
    let earliest = json!({"from": {"kind": "earliest"}});
    brief.subscribe("t", "g", &earliest);
    assert_eq!(brief.expect("MESSAGE")["offset"], 1);
    std::fs::write(server.folder().join("millrace.toml"), config("expires = 1000000000000")).expect("a file");
    server.signal("HUP");
    assert_eq!(brief.close_reason(), "the token is no longer accepted");
    root.subscribe("t", "g", &earliest);
    let again = root.expect("MESSAGE");
    assert_eq!((&again["offset"], again["envelope"].get("attempts")), (&json!(1), None));
}
