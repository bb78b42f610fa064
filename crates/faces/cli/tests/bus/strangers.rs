//! WebSockets that have not authenticated ("strangers"): however many there are, a client with a valid token finds a
//! place, and strangers cost little memory.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use serde_json::json;
use tungstenite::protocol::frame::coding::CloseCode;

use crate::access::{TOKENS, open};
use crate::metrics::value_as;
use crate::server::{Server, eventually};
use crate::socket::Socket;

/// No place becomes free by itself: the time to authenticate is far beyond the duration of a test.
const CROWDED: [&str; 4] = ["--connections-max", "8", "--auth-ms-max", "3600000"];

const PATHS: [&str; 2] = ["", "os"];

fn url(server: &Server, path: &str) -> String {
    server.ws_url() + path
}

/// Authenticates a connection at that path by a frame, and checks the answer.
fn introduce(socket: &mut Socket, path: &str, token: &str) {
    if path == "os" {
        socket.send(&json!({"kind": "command", "type": "Syscall.Authenticate", "data": {"token": token},
            "metadata": {"id": "a", "timestamp": 1}}));
        assert_eq!(socket.next()["data"]["authenticated"], true);
    } else {
        socket.send(&json!({"type": "AUTH", "token": token}));
        socket.expect("OK");
    }
}

#[test]
fn strangers_do_not_take_the_places_of_those_who_have_a_token() {
    for path in PATHS {
        let server = Server::with_config(TOKENS, &CROWDED);
        let mut strangers: Vec<_> = (0..100).map(|_| Socket::open(&url(&server, path))).collect();
        let mut alice = open(&server, "alice-secret");
        alice.publish("t", &json!(1));
        // A browser, which cannot send headers, finds a place too.
        let mut browser = Socket::open(&url(&server, path));
        introduce(&mut browser, path, "root-secret");
        // The connection that waited longest lost its place, and was told.
        assert_eq!(strangers[0].next_or_close(), Err(Some(CloseCode::Again)));
        let evicted =
            || value_as(&server, "watcher-secret", "connections_evicted_total{reason=\"unauthenticated\"}");
        eventually("the evictions are counted", || evicted() >= 37.0);
        assert!(server.log().contains("unauthenticated"), "{}", server.log());
        // The remaining connections are served as before.
        introduce(strangers.last_mut().expect("one"), path, "root-secret");
        drop(strangers);
    }
}

/// Returns the resident memory of the server.
fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Opens a WebSocket that sends only the beginning of one large text frame.
fn partial_frame(server: &Server, path: &str) -> TcpStream {
    let mut socket = Socket::open(&url(server, path));
    let stream = socket.stream().try_clone().expect("a second handle");
    let mut frame = vec![0x81, 0xff];
    frame.extend_from_slice(&(1_u64 << 20).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.resize(900 << 10, b'x');
    // A write error is fine: the server may have closed the connection.
    let _ = (&stream).write_all(&frame);
    std::mem::forget(socket);
    stream
}

#[test]
fn strangers_that_send_parts_of_large_frames_cost_little_memory() {
    for path in PATHS {
        let server = Server::with_config(TOKENS, &["--auth-ms-max", "3600000"]);
        let before = resident_bytes(&server);
        let crowd: Vec<_> = (0..200).map(|_| partial_frame(&server, path)).collect();
        // The server answers this only after it has handled everything that was sent before.
        open(&server, "alice-secret").publish("t", &json!(1));
        let grown = resident_bytes(&server).saturating_sub(before);
        assert!(grown < 64 << 20, "{} MiB more for 200 strangers", grown >> 20);
        for stream in crowd {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A server without tokens accounts everybody by address.
#[test]
fn those_who_may_send_large_frames_cost_little_memory_by_sending_half_of_them() {
    for path in PATHS {
        let server = Server::with(&["--frames-bytes-max", "8388608"]);
        let mut whole = server.socket();
        let before = resident_bytes(&server);
        let crowd: Vec<_> = (0..100).map(|_| partial_frame(&server, path)).collect();
        let evicted = || value_as(&server, "none", "connections_evicted_total{reason=\"incomplete_frame\"}");
        eventually("most of them have to go", || evicted() >= 90.0);
        whole.publish("t", &json!("x".repeat(900_000)));
        let grown = resident_bytes(&server).saturating_sub(before);
        assert!(grown < 64 << 20, "{} MiB more for 100 half frames", grown >> 20);
        for stream in crowd {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_frame_too_large_for_a_stranger_is_answered() {
    let server = Server::with_config(TOKENS, &CROWDED);
    let mut socket = server.socket();
    socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": "x".repeat(8000)}));
    assert!(socket.refused("too_large").contains("4096"));
    assert_eq!(socket.next_or_close(), Err(Some(CloseCode::Size)));
    // Frames sent after AUTH without waiting for its answer are accepted, whatever their size.
    let mut socket = server.socket();
    socket.send(&json!({"type": "PING", "rid": 1}));
    socket.send(&json!({"type": "AUTH", "token": "alice-secret", "rid": 2}));
    for n in 0..3 {
        socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": "x".repeat(300_000), "rid": n}));
    }
    socket.expect("PONG");
    socket.expect("OK");
    for _ in 0..3 {
        socket.expect("PUBLISHED");
    }
}

#[test]
fn an_agent_that_holds_all_places_loses_one_to_another_agent() {
    let server = Server::with_config(TOKENS, &CROWDED);
    let mut of_alice: Vec<_> = (0..8).map(|_| open(&server, "alice-secret")).collect();
    // The agent that holds most places gets no more.
    assert_eq!(Socket::open_as(&server.ws_url(), "alice-secret").err(), Some(503));
    let mut eve = open(&server, "eve-secret");
    eve.publish("t", &json!(1));
    // With an AUTH frame the result is the same.
    let mut browser = server.socket();
    introduce(&mut browser, "", "writer-secret");
    browser.publish("t", &json!(1));
    // Alice's newest connections were closed to make room, and were told.
    for _ in 0..2 {
        assert_eq!(of_alice.pop().expect("one").next_or_close(), Err(Some(CloseCode::Again)));
    }
    for socket in &mut of_alice {
        socket.publish("t", &json!(1));
    }
    assert_eq!(value_as(&server, "watcher-secret", "connections_evicted_total{reason=\"share\"}"), 2.0);
}
