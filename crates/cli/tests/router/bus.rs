//! The loop and the bus: commands that become durable events, and who may.

use serde_json::json;

use crate::client::{Client, serve};
use crate::server::Server;

#[test]
fn a_command_reaches_a_subscriber_of_the_websocket_and_survives_sigkill() {
    let mut server = serve(&[]);
    let mut subscriber = server.socket();
    subscriber.subscribe("orders", "g", &json!({"from": {"kind": "earliest"}}));
    let mut client = Client::of(&server);
    let published = client.reply(
        "command",
        "Bus.Publish",
        &json!({"topic": "orders", "payload": {"n": 1}, "key": "k", "headers": {"h": "v"}, "id": "o-1", "priority": 7}),
    );
    let expected =
        json!({"topic": "orders", "partition": 0, "offset": 1, "id": "o-1", "durability": "fsync"});
    assert_eq!(published, expected);
    let envelope = subscriber.expect("MESSAGE")["envelope"].clone();
    assert_eq!((&envelope["id"], &envelope["key"]), (&json!("o-1"), &json!("k")));
    assert_eq!((&envelope["headers"], &envelope["payload"]), (&json!({"h": "v"}), &json!({"n": 1})));
    server.kill_and_restart();
    let (_, page) = server.get("/topics/orders/events");
    assert_eq!(page["events"][0]["payload"], json!({"n": 1}));
    // The id is remembered, too.
    let again = Client::of(&server).reply(
        "command",
        "Bus.Publish",
        &json!({"topic": "orders", "payload": {"n": 1}, "id": "o-1"}),
    );
    assert_eq!(again["offset"], 1);
}

#[test]
fn refusals_of_the_bus_have_the_codes_of_messages() {
    let server = serve(&["--no-auto-create"]);
    let mut client = Client::of(&server);
    let missing = client.refused("command", "Bus.Publish", &json!({"topic": "t", "payload": 1}));
    assert_eq!(missing.0, 404, "{}", missing.1);
    assert_eq!(client.refused("command", "Bus.Publish", &json!({"topic": "", "payload": 1})).0, 422);
    assert_eq!(client.refused("command", "Bus.Publish", &json!({"topic": "t"})).0, 422);
    let late = json!({"topic": "t", "payload": 1, "delay_ms": 9_007_199_254_740_991_u64});
    assert_eq!(client.refused("command", "Bus.Publish", &late).0, 422);
    let (code, text) = client.refused("command", "Bus.Subscribe", &json!({"topic": "t"}));
    assert!(code == 403 && text.starts_with("Bus.Subscribe is for capabilities"), "{text}");
    client.still_works();
}

#[test]
fn a_limit_of_the_bus_is_429() {
    // The server's own topics count.
    let server = serve(&["--topics-max", "4"]);
    let mut client = Client::of(&server);
    let codes: Vec<u64> = (0..6)
        .filter_map(|n| {
            let answer =
                client.ask("command", "Bus.Publish", &json!({"topic": format!("t{n}"), "payload": 1}));
            answer["data"]["code"].as_u64()
        })
        .collect();
    assert!(!codes.is_empty() && codes.iter().all(|code| *code == 429), "{codes:?}");
}

#[test]
fn access_lists_are_asked_about_whoever_sent_the_command() {
    let config = "[[auth.tokens]]\ntoken = \"boss-secret\"\nagent = \"boss\"\nscopes = [\"*\"]\n\
                  [[auth.tokens]]\ntoken = \"ann-secret\"\nagent = \"ann\"\nscopes = [\"os\", \"publish\"]\n";
    let server = Server::with_config(config, &["--socket", "os.sock", "--require-auth"]);
    let list = json!({"topic": "t", "publishACL": ["boss"]});
    assert_eq!(server.request_as("boss-secret", "POST", "/topics", &list).0, 201);
    let event = json!({"topic": "t", "payload": 1});
    let mut ann = Client::of(&server);
    ann.reply("command", "Syscall.Authenticate", &json!({"token": "ann-secret"}));
    let (code, text) = ann.refused("command", "Bus.Publish", &event);
    assert_eq!(
        (code, text.as_str()),
        (403, "agent ann may not publish to topic t: its access list does not let it")
    );
    let elsewhere = json!({"topic": "t", "payload": 1, "namespace": "blue"});
    assert_eq!(ann.refused("command", "Bus.Publish", &elsewhere).0, 403);
    let mut boss = Client::of(&server);
    boss.reply("command", "Syscall.Authenticate", &json!({"token": "boss-secret"}));
    assert_eq!(boss.reply("command", "Bus.Publish", &event)["offset"], 1);
}
