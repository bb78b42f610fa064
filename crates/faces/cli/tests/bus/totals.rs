//! Products of limits are limited too: groups times partitions, partitions times topics, windows times subscriptions.

use serde_json::json;

use crate::access::{TOKENS, open};
use crate::server::Server;

#[test]
fn groups_times_partitions_end_at_a_bound_that_says_how_much_there_is() {
    let mut server = Server::with(&["--cursors-total-max", "8", "--partitions-total-max", "12"]);
    assert_eq!(server.post("/topics", &json!({"topic": "t", "partitions": 4})).0, 201);
    let mut socket = server.socket();
    socket.subscribe("t", "a", &json!({}));
    socket.subscribe("t", "b", &json!({}));
    let said = "this takes 4 more cursors (groups x partitions), and 8 of at most 8 are there";
    socket.send(&json!({"type": "SUBSCRIBE", "topic": "t", "group": "c"}));
    assert_eq!(socket.refused("limit_reached"), said);
    let (status, problem) = server.send_json("PATCH", "/topics/t", &json!({"partitions": 6}));
    assert_eq!((status, &problem["code"], &problem["detail"]), (429, &json!("limit_reached"), &json!(said)));
    let (status, problem) = server.post("/topics", &json!({"topic": "u", "partitions": 9}));
    assert_eq!((status, &problem["code"]), (429, &json!("limit_reached")), "{problem}");
    // A refusal changes nothing, and the count is that of the store.
    server.kill_and_restart();
    let mut socket = server.socket();
    socket.subscribe("t", "a", &json!({}));
    socket.send(&json!({"type": "SUBSCRIBE", "topic": "t", "group": "c"}));
    assert_eq!(socket.refused("limit_reached"), said);
    assert_eq!(server.request("DELETE", "/topics/t/groups/b", None).0, 204);
    socket.subscribe("t", "c", &json!({}));
}

#[test]
fn one_agent_cannot_take_all_windows() {
    let server = Server::with_config(TOKENS, &["--inflight-total-max", "100"]);
    let mut alice = open(&server, "alice-secret");
    alice.subscribe("t", "a", &json!({"max_inflight": 50}));
    alice.send(&json!({"type": "SUBSCRIBE", "topic": "t", "group": "b", "max_inflight": 1}));
    let why = alice.refused("limit_reached");
    assert!(why.contains("of one agent") && why.contains("50 of at most 50"), "{why}");
    open(&server, "eve-secret").subscribe("t", "c", &json!({"max_inflight": 50}));
}

#[test]
fn one_agent_cannot_take_all_cursors_or_topics_also_over_a_restart() {
    let mut server = Server::with_config(TOKENS, &["--cursors-total-max", "16", "--topics-max", "16"]);
    for topic in ["eves", "bobs"] {
        let body = json!({"topic": topic, "partitions": 4});
        assert_eq!(server.request_as("root-secret", "POST", "/topics", &body).0, 201);
    }
    let mut eve = open(&server, "eve-secret");
    for group in ["a", "b"] {
        eve.subscribe("eves", group, &json!({}));
        eve.send(&json!({"type": "UNSUBSCRIBE", "topic": "eves", "group": group, "rid": group}));
        assert_eq!(eve.next()["type"], "OK");
    }
    let takes_one_more = |socket: &mut crate::socket::Socket| {
        socket.send(&json!({"type": "SUBSCRIBE", "topic": "eves", "group": "c"}));
        socket.refused("limit_reached")
    };
    let said = "this takes 4 more cursors of groups made by one agent (groups x partitions), and 8 of at most 8 are there";
    assert_eq!(takes_one_more(&mut eve), said);
    server.kill_and_restart();
    let mut eve = open(&server, "eve-secret");
    assert_eq!(takes_one_more(&mut eve), said);
    let mut alice = open(&server, "alice-secret");
    alice.subscribe("bobs", "mine", &json!({}));
    // Topics created by publishing count in the same way. The server's own topics count against nobody.
    let mut made = 0;
    let refused = loop {
        alice.send(&json!({"type": "PUBLISH", "topic": format!("more.{made}"), "payload": 1}));
        let answer = alice.next();
        match answer["type"].as_str() {
            Some("PUBLISHED") => made += 1,
            _ => break answer,
        }
    };
    assert_eq!((&refused["code"], made), (&json!("limit_reached"), 8), "{refused}");
    eve.publish("eves.own", &json!(1));
    assert_eq!(server.request_as("root-secret", "DELETE", "/topics/eves/groups/a", &json!(null)).0, 204);
    eve.subscribe("eves", "c", &json!({}));
}

/// Memory and timers are durable: what one agent fills stays full after a restart.
#[test]
fn one_agent_cannot_take_all_timers_nor_one_namespace_all_of_memory() {
    let token = |name: &str| {
        format!(
            "[[auth.tokens]]\ntoken = \"{name}-secret\"\nagent = \"{name}\"\nscopes = [\"os\"]\nnamespaces = [\"{name}\"]\n"
        )
    };
    let config = [token("eu"), token("us")].concat();
    let flags = ["--memory-keys-max", "4", "--timers-max", "4"];
    let mut server = Server::with_config(&config, &flags);
    let connect = |server: &Server, name: &str| {
        let url = format!("{}os?namespace={name}", server.ws_url());
        crate::socket::Socket::open_as(&url, &format!("{name}-secret")).expect("a token")
    };
    // Returns `None` if the command succeeded, else the error message.
    let send = |socket: &mut crate::socket::Socket, ty: &str, data: serde_json::Value| {
        let metadata = json!({"id": data.to_string(), "timestamp": 1});
        socket.send(&json!({"kind": "command", "type": ty, "data": data, "metadata": metadata}));
        let answer = socket.next();
        let why = answer["data"]["message"].as_str().map(str::to_owned);
        why.filter(|_| answer["kind"] == "error")
    };
    let set = |socket: &mut crate::socket::Socket, n: u32| {
        send(socket, "Memory.Set", json!({"key": format!("/k{n}"), "value": 1}))
    };
    let timer = |socket: &mut crate::socket::Socket, n: u32| {
        let ping = json!({"kind": "query", "type": "Memory.Get", "data": {"key": "/k"}});
        send(socket, "Timer.Set", json!({"delayMs": 600_000 + n, "message": ping}))
    };
    let mut eu = connect(&server, "eu");
    for n in 0..2 {
        assert_eq!((set(&mut eu, n), timer(&mut eu, n)), (None, None));
    }
    for _ in 0..2 {
        let (memory, timers) = (set(&mut eu, 7).expect("full"), timer(&mut eu, 7).expect("full"));
        assert!(memory.contains("The share of namespace eu in Memory is full: it holds 2 paths"), "{memory}");
        assert!(timers.contains("This agent has set half of all timers that may be set"), "{timers}");
        server.kill_and_restart();
        eu = connect(&server, "eu");
    }
    let mut us = connect(&server, "us");
    for n in 0..2 {
        assert_eq!((set(&mut us, n), timer(&mut us, n)), (None, None));
    }
}
