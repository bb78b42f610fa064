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
    // A browser cannot send headers, so its first message authenticates it.
    let mut browser = Socket::open(&url(&server));
    browser.send_text(&message("command", "Syscall.Authenticate", r#"{"token":"worker-secret"}"#, "w"));
    assert_eq!(browser.next()["data"]["authenticated"], true);
    browser.send_text(&ping("b", "1"));
    assert_eq!(browser.next()["kind"], "reply");
    let mut stranger = Socket::open(&url(&server));
    stranger.send_text(&ping("s", "1"));
    assert_eq!(stranger.next()["data"]["code"], 401);
    assert_eq!(
        stranger.close_reason(),
        "the first message must be Syscall.Authenticate with a valid token",
        "it was not too slow, it said the wrong thing"
    );
    let mut boss = Socket::open_as(&url(&server), "boss-secret").expect("it may come in");
    boss.send_text(&message("command", "Syscall.Shutdown", "{}", "s"));
    assert_eq!(boss.next()["data"], json!({"message": "Shutdown acknowledged"}));
    assert_eq!(boss.next_or_close(), Err(Some(CloseCode::Away)));
    assert_eq!(server.wait(), Some(0));
}

/// A frame over the limit ends the connection: the error comes in the loop's own form, after all pending answers.
#[test]
fn a_frame_that_is_too_large_is_answered_like_a_line_and_ends_the_connection() {
    let tokens = "[[auth.tokens]]\ntoken = \"worker-secret\"\nagent = \"worker\"\nscopes = [\"os\"]\n";
    let (open, guarded) = (Server::start(), Server::with_config(tokens, &[]));
    let huge = format!("\"{}\"", "x".repeat(2 << 20));
    let mut socket = Socket::open(&url(&open));
    for n in 0..100 {
        socket.send_text(&ping(&n.to_string(), "1"));
    }
    // By now every answer is queued or written.
    crate::server::eventually("all are answered", || {
        crate::client::metric(&open, "os_outcomes_total{class=\"reply\"}") > 99.5
    });
    socket.send_text("nonsense");
    socket.send_text(&huge);
    for n in 0..100 {
        assert_eq!(
            socket.next()["metadata"]["causation"],
            n.to_string(),
            "nothing overtakes what was answered"
        );
    }
    assert_eq!(socket.next()["data"]["code"], 400);
    let too_long = json!({"code": 413, "message": "Message exceeds maximum line length of 16KB"});
    let last = socket.next();
    assert_eq!((&last["kind"], &last["data"]), (&json!("error"), &too_long));
    assert_eq!(socket.next_or_close(), Err(Some(CloseCode::Size)));
    crate::client::nothing_is_left(&open);
    // A client that has not authenticated gets the same error, with a smaller limit.
    let mut stranger = Socket::open(&url(&guarded));
    stranger.send_text(&huge);
    let too_long = json!({"code": 413, "message": "Message exceeds maximum line length of 4KB"});
    assert_eq!(stranger.next()["data"], too_long);
    assert_eq!(stranger.next_or_close(), Err(Some(CloseCode::Size)));
}

#[test]
fn a_token_that_is_shown_later_counts_from_then_on() {
    let config = "[[auth.tokens]]\ntoken = \"small-secret\"\nagent = \"ann\"\nscopes = [\"os\"]\n\
                  [[auth.tokens]]\ntoken = \"large-secret\"\nagent = \"ann\"\nscopes = [\"os\", \"publish\"]\n\
                  [[auth.tokens]]\ntoken = \"bob-secret\"\nagent = \"bob\"\nscopes = [\"os\"]\n\
                  [[auth.tokens]]\ntoken = \"bus-secret\"\nagent = \"ann\"\nscopes = [\"publish\"]\n";
    let server = Server::with_config(config, &[]);
    let mut socket = Socket::open_as(&url(&server), "small-secret").expect("it may come in");
    let publish = message("command", "Bus.Publish", r#"{"topic":"t","payload":1}"#, "p");
    let show =
        |token: &str| message("command", "Syscall.Authenticate", &json!({ "token": token }).to_string(), "a");
    let mut ask = |text: &str| {
        socket.send_text(text);
        socket.next()
    };
    assert_eq!(ask(&publish)["data"]["code"], 403);
    assert_eq!(ask(&show("guess"))["data"], json!({"code": 401, "message": "the token is not accepted"}));
    assert_eq!(
        ask(&show("bus-secret"))["data"],
        json!({"code": 403, "message": "Forbidden: the token of agent ann has no scope os"})
    );
    assert_eq!(
        ask(&show("bob-secret"))["data"],
        json!({"code": 403, "message": "Forbidden: this connection is of agent ann: open a new one for agent bob"})
    );
    assert_eq!(ask(&publish)["data"]["code"], 403, "it is what it was");
    assert_eq!(ask(&show("large-secret"))["data"], json!({"authenticated": true, "message": "You are ann"}));
    assert_eq!(ask(&publish)["data"]["offset"], 1);
    assert_eq!(ask(&show("small-secret"))["kind"], "reply");
    assert_eq!(ask(&publish)["data"]["code"], 403, "and back");
    let mut browser = Socket::open(&url(&server));
    browser.send_text(&show("bus-secret"));
    assert_eq!(
        browser.next()["data"],
        json!({"code": 403, "message": "Forbidden: the token of agent ann has no scope os"})
    );
    assert_eq!(browser.close_reason(), "the token has no scope os");
}
