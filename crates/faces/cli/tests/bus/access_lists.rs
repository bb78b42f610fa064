//! Access lists of topics at every entry point: publish, batch, subscribe, and all of HTTP.

use serde_json::{Value, json};

use crate::access::{open, server};
use crate::server::Server;

fn make(server: &Server, topic: &str, lists: &Value) {
    let mut config = json!({"topic": topic});
    for (name, list) in lists.as_object().expect("an object") {
        config[name] = list.clone();
    }
    let (status, shown) = server.request_as("root-secret", "POST", "/topics", &config);
    assert_eq!(status, 201, "{shown}");
    for (name, list) in lists.as_object().expect("an object") {
        assert_eq!(&shown[name], list, "lists are shown as they were given");
    }
}

/// Returns whether the agent may publish; all entry points must agree.
#[track_caller]
fn may_publish(server: &Server, token: &str, topic: &str) -> bool {
    let mut socket = open(server, token);
    socket.send(&json!({"type": "PUBLISH", "topic": topic, "payload": 1, "headers": {"agent_id": "alice"}}));
    socket.send(&json!({"type": "PUBLISH", "topic": topic, "payload": 1, "delay_ms": 60000}));
    socket.send(&json!({"type": "PUBLISH_BATCH", "topic": topic, "events": [{"payload": 1}]}));
    let mut doors: Vec<bool> = (0..3).map(|_| passed(&socket.next())).collect();
    let path = format!("/topics/{topic}/events");
    for body in [json!({"payload": 1}), json!([{"payload": 1}])] {
        let (status, answer) = server.request_as(token, "POST", &path, &body);
        doors.push(passed(&answer));
        assert_eq!(status == 200, passed(&answer), "{answer}");
    }
    assert!(doors.iter().all(|door| *door == doors[0]), "{doors:?}");
    doors[0]
}

#[track_caller]
fn may_read(server: &Server, token: &str, topic: &str) -> bool {
    let mut socket = open(server, token);
    socket.send(&json!({"type": "SUBSCRIBE", "topic": topic, "group": format!("g-{token}")}));
    let mut doors = vec![passed(&socket.next())];
    for path in ["/events", "/offsets", "/groups", ""] {
        let (status, answer) =
            server.request_as(token, "GET", &format!("/topics/{topic}{path}"), &json!(null));
        assert!(status == 200 || (status == 403 && answer["code"] == "forbidden"), "{answer}");
        doors.push(status == 200);
    }
    let (_, list) = server.request_as(token, "GET", "/topics", &json!(null));
    doors.push(list.to_string().contains(&format!("\"{topic}\"")));
    drop(socket);
    let seek = format!("/topics/{topic}/groups/g-{token}/seek");
    let (status, _) = server.request_as(token, "POST", &seek, &json!({"from": {"kind": "earliest"}}));
    doors.push(status != 403);
    assert!(doors.iter().all(|door| *door == doors[0]), "{doors:?}");
    doors[0]
}

fn passed(answer: &Value) -> bool {
    if answer["code"].is_string() {
        assert_eq!(answer["code"], "forbidden", "{answer}");
    }
    answer["code"].is_null()
}

#[test]
fn publish_lists_are_asked_at_every_door() {
    let server = server();
    for (topic, list, alice, eve) in [
        ("agent", json!(["alice"]), true, false),
        ("role", json!(["workers"]), true, false),
        ("deny", json!(["!eve"]), true, false),
        ("deny-wins", json!(["workers", "!alice", "eve"]), false, true),
        ("anyone", json!(["*"]), true, true),
        ("nobody", json!([]), false, false),
        ("open", Value::Null, true, true),
    ] {
        make(&server, topic, &json!({"publishACL": list}));
        let found = (may_publish(&server, "alice-secret", topic), may_publish(&server, "eve-secret", topic));
        assert_eq!(found, (alice, eve), "{topic}");
        assert!(may_read(&server, "eve-secret", topic), "the other list is another list");
    }
}

#[test]
fn subscribe_lists_are_asked_at_every_door() {
    let server = server();
    for (topic, list, alice, eve) in [
        ("agent", json!(["alice"]), true, false),
        ("role", json!(["workers", "!bob"]), true, false),
        ("deny", json!(["!eve"]), true, false),
        ("nobody", json!([]), false, false),
        ("open", Value::Null, true, true),
    ] {
        make(&server, topic, &json!({"subscribeACL": list}));
        let found = (may_read(&server, "alice-secret", topic), may_read(&server, "eve-secret", topic));
        assert_eq!(found, (alice, eve), "{topic}");
        assert!(may_publish(&server, "eve-secret", topic), "the other list is another list");
    }
}

#[test]
fn administrators_see_every_topic_and_its_events_only_if_the_list_says_so() {
    let server = server();
    make(&server, "t", &json!({"subscribeACL": [], "publishACL": []}));
    let ask = |method, path| server.request_as("root-secret", method, path, &json!({"payload": 1})).0;
    assert_eq!((ask("GET", "/topics/t"), ask("GET", "/topics/t/offsets")), (200, 200));
    assert_eq!((ask("GET", "/topics/t/events"), ask("POST", "/topics/t/events")), (403, 403));
    make(&server, "u", &json!({"subscribeACL": ["admin"]}));
    assert_eq!(ask("GET", "/topics/u/events"), 200, "a scope may stand in a list like a role");
}

#[test]
fn a_list_that_is_set_later_sends_members_away_and_survives_a_restart() {
    let mut server = server();
    let mut eve = open(&server, "eve-secret");
    eve.subscribe("t", "g", &json!({}));
    let mut alice = open(&server, "alice-secret");
    alice.publish("t", &json!(1));
    eve.message();
    let patch = json!({"subscribeACL": ["alice"]});
    assert_eq!(server.request_as("root-secret", "PATCH", "/topics/t", &patch).0, 200);
    let notice = eve.expect("ERROR");
    assert_eq!((&notice["code"], &notice["topic"]), (&json!("forbidden"), &json!("t")));
    alice.publish("t", &json!(2));
    eve.send(&json!({"type": "PING"}));
    eve.expect("PONG");
    server.kill_and_restart();
    assert!(!may_read(&server, "eve-secret", "t") && may_read(&server, "alice-secret", "t"));
    assert_eq!(server.request_as("root-secret", "PATCH", "/topics/t", &json!({"subscribeACL": null})).0, 200);
    assert!(may_read(&server, "eve-secret", "t"), "null opens it again");
}

#[test]
fn dead_letters_are_as_private_as_their_topic() {
    let server = server();
    make(&server, "t", &json!({"subscribeACL": ["alice"], "publishACL": ["alice"], "maxAttempts": 1}));
    let mut alice = open(&server, "alice-secret");
    alice.publish("t", &json!("private"));
    alice.subscribe("t", "g", &json!({"from": {"kind": "earliest"}}));
    alice.message();
    let letters = |token: &str, path: &str| server.request_as(token, "GET", path, &json!(null));
    assert_eq!(letters("eve-secret", "/dead-letters?topic=t").0, 404, "also before there are any");
    alice.send_nack("t", "g", 1, &json!({}));
    while letters("alice-secret", "/dead-letters?topic=t").1["events"] == json!([]) {}
    assert!(letters("alice-secret", "/dead-letters").1.to_string().contains("t.DLQ"));
    assert!(!letters("eve-secret", "/dead-letters").1.to_string().contains("t.DLQ"));
    for deleted in [false, true] {
        if deleted {
            let (status, _) = server.request_as("root-secret", "DELETE", "/topics/t", &json!(null));
            assert_eq!(status / 100, 2);
        }
        for path in ["/dead-letters?topic=t", "/topics/t.DLQ/events", "/topics/t.DLQ"] {
            assert_eq!(letters("eve-secret", path).0, 404, "as if there were none: {path}");
            assert_eq!(letters("alice-secret", path).0, 200, "{path}");
        }
        let replay = server.request_as("eve-secret", "POST", "/dead-letters/t/replay", &json!({})).0;
        assert_eq!(replay, 404);
        let mut eve = open(&server, "eve-secret");
        eve.send(&json!({"type": "SUBSCRIBE", "topic": "t.DLQ", "group": "spy"}));
        eve.refused("forbidden");
    }
}

#[test]
fn without_tokens_everything_is_open_and_a_list_would_be_a_lie() {
    let server = Server::start();
    for list in [json!({"topic": "t", "publishACL": []}), json!({"topic": "t", "subscribeACL": ["alice"]})] {
        let (status, problem) = server.post("/topics", &list);
        assert_eq!((status, &problem["code"]), (400, &json!("bad_frame")));
        assert!(problem["detail"].to_string().contains("no tokens configured"), "{problem}");
    }
    // Access lists set while there were tokens stop counting when there are none, and the log says so.
    let mut server = crate::access::server();
    make(&server, "t", &json!({"publishACL": []}));
    std::fs::write(server.folder().join("millrace.toml"), "").expect("a file");
    server.kill();
    server.restart_with_log();
    assert!(server.log().contains("everything is open"), "{}", server.log());
    let mut socket = server.socket();
    socket.send(&json!({"type": "AUTH", "token": "anything", "rid": 1}));
    socket.expect("OK");
    socket.publish("t", &json!(1));
}

#[test]
fn the_mirror_of_dead_letters_does_not_show_what_a_list_keeps() {
    let server = server();
    make(&server, "t", &json!({"subscribeACL": ["alice"], "maxAttempts": 1}));
    make(&server, "open", &json!({"maxAttempts": 1}));
    let mut alice = open(&server, "alice-secret");
    for topic in ["t", "open"] {
        let headers = json!({"customer": "secret-customer"});
        alice.send(&json!({"type": "PUBLISH", "topic": topic, "key": "secret-key", "payload": "secret", "headers": headers}));
        alice.expect("PUBLISHED");
        alice.subscribe(topic, "g", &json!({"from": {"kind": "earliest"}}));
        alice.message();
        alice.send_nack(topic, "g", 1, &json!({}));
    }
    let mut events = Vec::new();
    crate::server::eventually("both are mirrored", || {
        let page = server.request_as("root-secret", "GET", "/topics/system.bus.dlq/events", &json!(null)).1;
        events = page["events"].as_array().cloned().unwrap_or_default();
        events.len() == 2
    });
    let of = |topic: &str| {
        let found = events.iter().find(|event| event["headers"]["x-dlq-topic"] == topic);
        found.unwrap_or_else(|| panic!("none of {topic} in {events:?}"))
    };
    let (private, open) = (of("t"), of("open"));
    assert!(!private.to_string().contains("secret"), "{private}");
    assert_eq!((&private["payload"], &private["headers"]["x-dlq-offset"]), (&Value::Null, &json!("1")));
    let why = private["headers"]["x-dlq-payload"].as_str().expect("a pointer");
    assert!(why.contains("t.DLQ"), "{why}");
    assert_eq!((&open["payload"], &open["key"]), (&json!("secret"), &json!("secret-key")), "{open}");
    let letter = server.request_as("alice-secret", "GET", "/topics/t.DLQ/events", &json!(null)).1;
    assert_eq!(letter["events"][0]["payload"], "secret", "those it is for find it there");
}

/// Returns the answers to all requests about a topic, with its name removed.
fn told(server: &Server, token: &str, topic: &str) -> Vec<String> {
    let ways = ["", "/events", "/offsets", "/groups"].map(|path| ("GET", format!("/topics/{topic}{path}")));
    let more = [
        ("GET", format!("/dead-letters?topic={topic}")),
        ("GET", format!("/topics/{topic}.DLQ")),
        ("GET", format!("/topics/{topic}.DLQ/events")),
        ("POST", format!("/topics/{topic}/groups/g/seek")),
    ];
    let ask = |(method, path): (&str, String)| {
        let body = json!({"from": {"kind": "earliest"}});
        let (status, problem) = server.request_as(token, method, &path, &body);
        format!("{status} {problem}").replace(topic, "NAME")
    };
    ways.into_iter().chain(more).map(ask).collect()
}

#[test]
fn a_topic_one_may_not_see_answers_like_one_that_is_not_there() {
    let server = server();
    make(&server, "hidden", &json!({"subscribeACL": ["alice"], "publishACL": ["alice"]}));
    make(&server, "unread", &json!({"subscribeACL": ["alice"]}));
    for (token, topic) in [("eve-secret", "hidden"), ("reader-secret", "unread")] {
        let absent = told(&server, token, "absent");
        assert!(absent.iter().all(|answer| answer.starts_with("404 ")), "{absent:?}");
        assert_eq!(told(&server, token, topic), absent, "{token}");
    }
    // An agent that may publish to the topic, or administers it, is told the reason.
    let ask = |token: &str, path: &str| server.request_as(token, "GET", path, &json!(null));
    for (token, topic) in [("eve-secret", "unread"), ("root-secret", "hidden")] {
        let (status, problem) = ask(token, &format!("/topics/{topic}/events"));
        assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{problem}");
    }
    // A topic that does not exist answers 404, whatever its main topic answers.
    assert_eq!(ask("eve-secret", "/topics/unread.DLQ").0, 404);
    // The log contains the true reason.
    let log = server.log();
    assert!(log.contains("agent eve may not read topic hidden: its access list does not let it"), "{log}");
}

#[test]
fn without_automatic_topics_nothing_tells_hidden_ones() {
    let server = Server::with_config(crate::access::TOKENS, &["--no-auto-create"]);
    make(&server, "hidden", &json!({"subscribeACL": ["alice"], "publishACL": ["alice"]}));
    let mut eve = open(&server, "eve-secret");
    let mut answers = |topic: &str| {
        eve.send(&json!({"type": "SUBSCRIBE", "topic": topic, "group": "g"}));
        eve.send(&json!({"type": "PUBLISH", "topic": topic, "payload": 1}));
        let frames = [eve.expect("ERROR").to_string(), eve.expect("ERROR").to_string()];
        let path = format!("/topics/{topic}/events");
        let (status, problem) = server.request_as("eve-secret", "POST", &path, &json!({"payload": 1}));
        [&frames[..], &[format!("{status} {problem}")]].concat().join("\n").replace(topic, "NAME")
    };
    assert_eq!(answers("hidden"), answers("absent"));
}

/// Returns whether the agent may use the group: join it, move it by a seek, move it by a reset. All entry points must
/// agree.
#[track_caller]
fn may_use(server: &Server, token: &str, topic: &str, group: &str) -> bool {
    let mut socket = open(server, token);
    let from = json!({"kind": "earliest"});
    let reset = json!({"kind": "earliest", "reset": true});
    socket.send(&json!({"type": "SUBSCRIBE", "topic": topic, "group": group, "from": from}));
    socket.send(&json!({"type": "SUBSCRIBE", "topic": topic, "group": group, "from": reset}));
    let mut doors: Vec<bool> = (0..2).map(|_| passed(&socket.next())).collect();
    let seek = format!("/topics/{topic}/groups/{group}/seek");
    let (status, answer) = server.request_as(token, "POST", &seek, &json!({"from": from}));
    assert!(status == 200 || (status == 403 && answer["code"] == "forbidden"), "{answer}");
    doors.push(status == 200);
    assert!(doors.iter().all(|door| *door == doors[0]), "{doors:?}");
    doors[0]
}

#[test]
fn group_lists_are_asked_at_every_door_and_survive_a_restart() {
    let mut server = server();
    let lists = json!({
        "billing": ["alice"], "workers": ["workers", "!alice"], "closed": [], "open": ["*"], "*": ["eve"],
    });
    make(&server, "t", &json!({"groupACL": lists}));
    make(&server, "u", &json!({"groupACL": {"billing": ["alice"]}}));
    // The agent that may use the group comes first: a group that does not exist cannot be moved.
    for (topic, group, first, then, may) in [
        ("t", "billing", "alice", "eve", false),
        ("t", "open", "alice", "eve", true),
        ("t", "any", "eve", "alice", false),
        ("u", "billing", "alice", "eve", false),
        ("u", "any", "alice", "eve", true),
    ] {
        let found = |agent: &str| may_use(&server, &format!("{agent}-secret"), topic, group);
        assert_eq!((found(first), found(then)), (true, may), "{topic} {group}");
    }
    let mut alice = open(&server, "alice-secret");
    for group in ["closed", "workers"] {
        alice.send(&json!({"type": "SUBSCRIBE", "topic": "t", "group": group}));
        let why = alice.refused("forbidden");
        assert!(why.contains(&format!("may not use group {group} of topic t")), "{why}");
    }
    // Deleting takes the scope admin and an entry in the list, so nobody can delete the group while root is not in the
    // list.
    let path = "/topics/t/groups/billing";
    let delete = |server: &Server, token: &str| server.request_as(token, "DELETE", path, &json!(null));
    assert_eq!((delete(&server, "alice-secret").0, delete(&server, "root-secret").0), (403, 403));
    server.kill_and_restart();
    assert!(
        may_use(&server, "alice-secret", "t", "billing") && !may_use(&server, "eve-secret", "t", "billing")
    );
    // Creating the topic again removes no list.
    let again = json!({"topic": "t", "partitions": 1, "groupACL": {"more": ["eve"]}});
    let (status, shown) = server.request_as("root-secret", "POST", "/topics", &again);
    assert_eq!((status, &shown["groupACL"]["billing"]), (200, &json!(["alice"])), "{shown}");
    assert_eq!(shown["groupACL"]["more"], json!(["eve"]), "{shown}");
    let patch = |body: &Value| server.request_as("root-secret", "PATCH", "/topics/t", body);
    let (status, shown) = patch(&json!({"groupACL": {"billing": ["root"], "*": null}}));
    assert_eq!(status, 200, "{shown}");
    assert_eq!(shown["groupACL"]["billing"], json!(["root"]), "{shown}");
    assert_eq!(
        (&shown["groupACL"]["closed"], &shown["groupACL"]["*"]),
        (&json!([]), &Value::Null),
        "{shown}"
    );
    assert_eq!(delete(&server, "root-secret").0, 204);
    assert!(patch(&json!({"groupACL": null})).1["groupACL"].is_null());
}

#[test]
fn a_group_list_that_is_set_later_sends_members_away() {
    let server = server();
    let mut eve = open(&server, "eve-secret");
    eve.subscribe("t", "billing", &json!({}));
    eve.subscribe("t", "other", &json!({}));
    let lists = json!({"groupACL": {"billing": ["alice"]}});
    assert_eq!(server.request_as("root-secret", "PATCH", "/topics/t", &lists).0, 200);
    let notice = eve.expect("ERROR");
    assert_eq!(
        (&notice["code"], &notice["topic"], &notice["group"]),
        (&json!("forbidden"), &json!("t"), &json!("billing"))
    );
    open(&server, "alice-secret").publish("t", &json!(1));
    assert_eq!(eve.expect("MESSAGE")["group"], "other", "the group without a list goes on");
    eve.expect_nothing();
}

#[test]
fn group_lists_that_say_nothing_are_refused_with_the_reason() {
    let server = server();
    for (lists, why) in [
        (json!(["alice"]), "groupACL"),
        (json!({"a b": []}), "a b"),
        (json!({"g": "alice"}), "groupACL"),
        (json!({"g": ["a b"]}), "the list of group g"),
    ] {
        let body = json!({"topic": "t", "groupACL": lists});
        let (status, problem) = server.request_as("root-secret", "POST", "/topics", &body);
        assert_eq!((status, &problem["code"]), (400, &json!("bad_frame")), "{problem}");
        assert!(problem["detail"].as_str().expect("a text").contains(why), "{problem}");
    }
}
