//! The same messages over WebSocket, at `/os`.

use serde_json::{Value, json};
use tungstenite::protocol::frame::coding::CloseCode;

use crate::client::{message, ping};
use crate::server::Server;
use crate::socket::Socket;

fn url(server: &Server) -> String {
    server.ws_url() + "os"
}

fn text(line: &str) -> Value {
    serde_json::from_str(line).expect("JSON")
}

#[test]
fn one_message_in_each_frame_by_the_rules_of_the_socket() {
    let server = Server::start();
    let mut socket = Socket::open(&url(&server));
    socket.send(&text(&ping("a", "1")));
    let answer = socket.next();
    assert_eq!((&answer["kind"], &answer["metadata"]["causation"]), (&json!("reply"), &json!("a")));
    socket.send_text("nonsense");
    assert_eq!(socket.next()["data"]["code"], 400);
    socket.send_text("{}");
    assert_eq!(socket.next()["data"]["code"], 422);
    socket.send_binary(b"{}");
    assert_eq!(socket.next()["data"]["code"], 400);
    socket.send_text("  \n ");
    socket.send_text(&ping("long", &format!("\"{}\"", "x".repeat(20_000))));
    let answer = socket.next();
    assert_eq!(
        answer["data"],
        json!({"code": 413, "message": "Message exceeds maximum line length of 16KB"})
    );
    socket.send_text(&message("command", "No.One", "null", "n"));
    assert_eq!(socket.next()["data"]["code"], 404);
    for n in 0..3000 {
        socket.send_text(&ping(&n.to_string(), "1"));
        if n % 500 == 499 {
            for answer in n - 499..=n {
                assert_eq!(socket.next()["metadata"]["causation"], answer.to_string());
            }
        }
    }
    drop(socket);
    crate::client::nothing_is_left(&server);
}

#[test]
fn tokens_and_their_scopes_count() {
    let config = "[[auth.tokens]]\ntoken = \"worker-secret\"\nagent = \"worker\"\nscopes = [\"os\"]\n\
                  [[auth.tokens]]\ntoken = \"bus-secret\"\nagent = \"bus\"\nscopes = [\"publish\"]\n\
                  [[auth.tokens]]\ntoken = \"boss-secret\"\nagent = \"boss\"\nscopes = [\"admin\"]\n";
    let mut server = Server::with_config(config, &[]);
    assert_eq!(Socket::open_as(&url(&server), "guess").err(), Some(401));
    assert_eq!(Socket::open_as(&url(&server), "bus-secret").err(), Some(403));
    let mut worker = Socket::open_as(&url(&server), "worker-secret").expect("it may come in");
    worker.send_text(&ping("a", "1"));
    assert_eq!(worker.next()["kind"], "reply");
    for ty in ["Syscall.Shutdown", "Syscall.Reload"] {
        worker.send_text(&message("command", ty, "{}", "s"));
        assert_eq!(worker.next()["data"]["code"], 403);
    }
    // A browser cannot send headers: its first message says who it is.
    let mut browser = Socket::open(&url(&server));
    browser.send_text(&message("command", "Syscall.Authenticate", r#"{"token":"worker-secret"}"#, "w"));
    assert_eq!(browser.next()["data"]["authenticated"], true);
    browser.send_text(&ping("b", "1"));
    assert_eq!(browser.next()["kind"], "reply");
    let mut stranger = Socket::open(&url(&server));
    stranger.send_text(&ping("s", "1"));
    assert_eq!(stranger.next()["data"]["code"], 401);
    assert_eq!(stranger.next_or_close(), Err(Some(CloseCode::Policy)));
    let mut boss = Socket::open_as(&url(&server), "boss-secret").expect("it may come in");
    boss.send_text(&message("command", "Syscall.Shutdown", "{}", "s"));
    assert_eq!(boss.next()["data"], json!({"message": "Shutdown acknowledged"}));
    assert_eq!(boss.next_or_close(), Err(Some(CloseCode::Away)));
    assert_eq!(server.wait(), Some(0));
}
