//! The loop and the bus: commands that become durable events, and who may send them.

use serde_json::json;

use crate::children::{self, Scripts};
use crate::client::{Client, serve};
use crate::server::{Server, eventually};
use crate::socket::Socket;

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

/// As elsewhere, the token limits the namespaces, and the message names the one it is for.
#[test]
fn a_token_publishes_to_the_namespaces_it_is_good_for() {
    let config = "[[auth.tokens]]\ntoken = \"boss-secret\"\nagent = \"boss\"\nscopes = [\"*\"]\nnamespaces = [\"*\"]\n\
                  [[auth.tokens]]\ntoken = \"bea-secret\"\nagent = \"bea\"\nscopes = [\"os\", \"publish\"]\n\
                  namespaces = [\"blue\", \"green\"]\n";
    let server = Server::with_config(config, &["--socket", "os.sock", "--require-auth"]);
    let event = |namespace: Option<&str>| json!({"topic": "t", "payload": 1, "namespace": namespace});
    let mut bea = Client::of(&server);
    bea.reply("command", "Syscall.Authenticate", &json!({"token": "bea-secret"}));
    for (namespace, offset) in [("blue", 1), ("blue", 2), ("green", 1)] {
        assert_eq!(bea.reply("command", "Bus.Publish", &event(Some(namespace)))["offset"], offset);
    }
    let refused = |name: &str| (403, format!("Forbidden: the token is not for namespace {name}"));
    for (namespace, name) in [(None, "default"), (Some("default"), "default"), (Some("red"), "red")] {
        assert_eq!(bea.refused("command", "Bus.Publish", &event(namespace)), refused(name));
        let template = json!({"kind": "command", "type": "Bus.Publish", "data": event(namespace)});
        let timer = json!({"delayMs": 0, "message": template});
        assert_eq!(bea.refused("command", "Timer.Set", &timer), refused(name), "nor by a timer");
    }
    let mut browser =
        Socket::open_as(&(server.ws_url() + "os?namespace=blue"), "bea-secret").expect("a socket");
    for (namespace, kind) in [("blue", "reply"), ("red", "error")] {
        let data = event(Some(namespace)).to_string();
        browser.send_text(&crate::client::message("command", "Bus.Publish", &data, namespace));
        let answer = browser.next();
        assert_eq!(answer["kind"], kind, "{answer}");
    }
    let mut boss = Client::of(&server);
    boss.reply("command", "Syscall.Authenticate", &json!({"token": "boss-secret"}));
    for namespace in [None, Some("red")] {
        assert_eq!(boss.reply("command", "Bus.Publish", &event(namespace))["offset"], 1);
    }
    for (namespace, next) in [("default", 2), ("blue", 4), ("green", 2), ("red", 2)] {
        let path = format!("/topics/t/offsets?namespace={namespace}");
        let (_, offsets) = server.request_as("boss-secret", "GET", &path, &json!(null));
        assert_eq!(offsets["partitions"][0]["next"], next, "{namespace}: {offsets}");
    }
}

#[test]
fn what_the_bus_cannot_hold_is_413() {
    let server = serve(&["--os-line-bytes-max", "33554432"]);
    let mut client = Client::of(&server);
    let large = json!({"topic": "t", "payload": "x".repeat(13 << 20)});
    let (code, text) = client.refused("command", "Bus.Publish", &large);
    assert_eq!(code, 413, "{text}");
    assert_eq!(client.reply("command", "Bus.Publish", &json!({"topic": "t", "payload": 1}))["offset"], 1);
    client.still_works();
}

/// A write fails with an unknown outcome: confirmed events are there, refused ones were never promised, and the server
/// ends, so that a supervisor restarts it.
#[test]
fn a_store_that_failed_is_503() {
    let mut server = Server::with_file_blocks_and(4 << 10, &["--socket", "os.sock"]);
    let mut client = Client::of(&server);
    let event = json!({"topic": "t", "payload": "x".repeat(12 << 10)});
    let mut confirmed = 0;
    let refused = loop {
        let answer = client.ask("command", "Bus.Publish", &event);
        match answer["kind"].as_str() {
            Some("reply") => confirmed = answer["data"]["offset"].as_u64().expect("an offset"),
            _ => break crate::client::fault(&answer),
        }
    };
    assert!(refused.0 == 503 && confirmed > 0, "{confirmed} confirmed, then {refused:?}");
    assert_eq!(server.wait(), Some(1));
    server.restart();
    let (_, page) = server.get(&format!("/topics/t/events?from={confirmed}&limit=1"));
    assert_eq!(page["events"][0]["offset"], confirmed);
}

#[test]
fn the_bounds_of_feeds_are_settings() {
    let scripts = Scripts::new();
    let holds = scripts.write("Holds", &json!({"bus": [{"topic": "t", "from": "earliest"}]}), "pass");
    let body = "if message['kind'] == 'query':\n    \
                    asker, got = message, []\n    \
                    for topic in 'ab': say({'kind': 'command', 'type': 'Bus.Subscribe', 'data': {'topic': topic}, 'metadata': {'id': topic}})\n    \
                    continue\n\
                got.append(message['data'].get('code'))\n\
                message = asker\n\
                if len(got) == 2: answer('reply', got)";
    let fails = "with open(SEEN, 'a') as seen: print(message['data'].get('attempts', 1), file=seen)\nanswer('error', {'code': 500, 'message': 'no'})"
        .replace("SEEN", &format!("{:?}", scripts.path("seen")));
    let config = holds
        + &scripts.write("Asks", &json!({}), body)
        + &scripts.write("Fails", &json!({"bus": [{"topic": "u", "from": "earliest"}]}), &fails);
    let flags =
        ["--feed-window", "3", "--feed-topics-max", "1", "--feed-retry-ms", "1", "--feed-retry-ms-max", "2"];
    let server = children::serve(&config, &flags);
    let mut client = Client::of(&server);
    for n in 0..5 {
        client.reply("command", "Bus.Publish", &json!({"topic": "t", "payload": n}));
    }
    let inflight =
        || server.get("/topics/t/offsets").1["partitions"][0]["groups"]["os.Holds"]["inflight"].clone();
    eventually("the window is full", || inflight() == 3);
    let codes = client.reply("query", "Asks.Do", &json!(1));
    assert!([json!([null, 429]), json!([429, null])].contains(&codes), "one of the two: {codes}");
    // With the usual pauses between attempts this would take 15 s.
    client.reply("command", "Bus.Publish", &json!({"topic": "u", "payload": 1}));
    eventually("it is a dead letter", || server.committed("u", "os.Fails", 0) == 1);
    assert_eq!(std::fs::read_to_string(scripts.path("seen")).expect("a file"), "1\n2\n3\n4\n5\n");
    assert_eq!(inflight(), 3);
}

/// Each event has a single attempt: an attempt counted for an event that the capability never saw would be its last.
#[test]
fn events_that_a_capability_never_saw_keep_their_attempts() {
    let scripts = Scripts::new();
    let bus = json!({"bus": [{"topic": "t", "from": "earliest"}]});
    let mortal = scripts.write("Mortal", &bus, "os._exit(1)") + "restart = false\n";
    let server = children::serve(&mortal, &["--max-attempts", "1"]);
    let mut client = Client::of(&server);
    let members = || server.get("/topics/t/groups").1["groups"][0]["members"].clone();
    eventually("it is fed", || members() == 1);
    eventually("it is unhealthy", || client.refused("query", "Mortal.Do", &json!(1)).0 == 503);
    for n in 0..3 {
        client.reply("command", "Bus.Publish", &json!({"topic": "t", "payload": n}));
    }
    eventually("it is not fed any more", || members() == 0);
    assert_eq!(server.committed("t", "os.Mortal", 0), 0, "nothing was given up");
    scripts.write("Mortal", &bus, "answer('reply', None)");
    client.reply("command", "Syscall.Reload", &json!({}));
    eventually("it has had them all", || server.committed("t", "os.Mortal", 0) == 3);
    assert_eq!(server.get("/topics/t.DLQ").0, 404, "there are no dead letters");
}

#[test]
fn a_publish_that_does_not_match_the_schema_of_its_topic_is_refused() {
    let server = serve(&[]);
    assert_eq!(server.post("/topics", &json!({"topic": "orders", "schema": {"type": "integer"}})).0, 201);
    let mut client = Client::of(&server);
    let (code, why) = client.refused("command", "Bus.Publish", &json!({"topic": "orders", "payload": "x"}));
    assert!(
        code == 422 && why.contains("does not match version 1 of the schema of topic orders"),
        "{code} {why}"
    );
    assert_eq!(
        client.reply("command", "Bus.Publish", &json!({"topic": "orders", "payload": 1}))["offset"],
        1
    );
}
