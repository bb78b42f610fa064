//! Tokens on the socket.

use serde_json::json;

use crate::client::{Client, fault, ping};
use crate::server::Server;

const TOKENS: &str = "[[auth.tokens]]\ntoken = \"worker-secret\"\nagent = \"worker\"\nscopes = [\"os\"]\n\
                      [[auth.tokens]]\ntoken = \"boss-secret\"\nagent = \"boss\"\nscopes = [\"admin\"]\n\
                      [[auth.tokens]]\ntoken = \"bus-secret\"\nagent = \"bus\"\nscopes = [\"publish\"]\n";

fn strict(flags: &[&str]) -> Server {
    Server::with_config(TOKENS, &[&["--socket", "os.sock", "--require-auth"], flags].concat())
}

#[test]
fn whoever_does_not_begin_with_a_valid_token_is_sent_away() {
    let server = strict(&[]);
    let wrong = [
        ping("first", "1"),
        crate::client::message("command", "Syscall.Authenticate", "{}", "first"),
        crate::client::message("command", "Syscall.Authenticate", r#"{"token":"guess"}"#, "first"),
        crate::client::message("command", "Syscall.Authenticate", r#"{"token":"bus-secret"}"#, "first"),
    ];
    for line in wrong {
        let mut client = Client::of(&server);
        client.write(line + "\n");
        let answer = client.next();
        let (code, said) = fault(&answer);
        assert_eq!((code, &answer["metadata"]["causation"]), (401, &json!("first")));
        assert!(
            said.starts_with("Authentication required: First message must be Syscall.Authenticate"),
            "{said}"
        );
        client.ends();
    }
}

#[test]
fn with_a_token_the_connection_is_its_agents_and_only_admins_stop_the_server() {
    let mut server = strict(&[]);
    let mut worker = Client::of(&server);
    let reply = worker.reply("command", "Syscall.Authenticate", &json!({"token": "worker-secret"}));
    assert_eq!(reply, json!({"authenticated": true, "message": "You are worker"}));
    worker.still_works();
    assert_eq!(worker.refused("command", "Syscall.Shutdown", &json!({})).0, 403);
    assert_eq!(worker.refused("command", "Syscall.Reload", &json!({})).0, 403);
    assert_eq!(worker.refused("command", "Syscall.Authenticate", &json!({"token": "guess"})).0, 401);
    worker.still_works();
    let mut boss = Client::of(&server);
    boss.reply("command", "Syscall.Authenticate", &json!({"token": "boss-secret"}));
    boss.reply("command", "Syscall.Shutdown", &json!({}));
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn whoever_says_nothing_is_not_waited_for_for_ever() {
    let server = strict(&["--os-auth-ms-max", "50"]);
    Client::of(&server).ends();
}

#[test]
fn without_require_auth_the_file_mode_is_the_lock() {
    let server = Server::with_config(TOKENS, &["--socket", "os.sock"]);
    Client::of(&server).still_works();
}
