//! Schemas of topics, checked at every way to publish.

use std::process::Command;

use serde_json::{Value, json};

use crate::server::{Server, eventually};

fn order() -> Value {
    json!({"type": "object", "required": ["total"], "properties": {"total": {"type": "number"}}})
}

fn with_orders() -> Server {
    let server = Server::with(&["--max-attempts", "1"]);
    let (status, made) = server.post("/topics", &json!({"topic": "orders", "schema": order()}));
    assert_eq!((status, &made["schemaVersion"], &made["schema"]), (201, &json!(1), &order()), "{made}");
    server
}

fn stored(server: &Server) -> Vec<Value> {
    let (_, page) = server.get("/topics/orders/events?limit=1000");
    page["events"].as_array().expect("events").iter().map(|event| event["payload"].clone()).collect()
}

fn patch(server: &Server, path: &str, schema: &Value) -> (u16, Value) {
    server.send_json("PATCH", path, &json!({ "schema": schema }))
}

#[test]
fn what_does_not_match_is_refused_on_every_way_in() {
    let server = with_orders();
    let mut socket = server.socket();
    assert_eq!(socket.publish("orders", &json!({"total": 1})), 1);
    socket.send(&json!({"type": "PUBLISH", "topic": "orders", "payload": {"total": "x"}, "rid": 7}));
    let refused = socket.expect("ERROR");
    let why = r#"the payload does not match version 1 of the schema of topic orders: at /total: "x" is not of type "number""#;
    assert_eq!((&refused["code"], &refused["rid"]), (&json!("schema_mismatch"), &json!(7)));
    assert_eq!((&refused["message"], &refused["topic"]), (&json!(why), &json!("orders")));
    let events = json!([{"payload": {"total": 2}}, {"payload": {"total": null}}]);
    socket.send(&json!({"type": "PUBLISH_BATCH", "topic": "orders", "events": events}));
    assert!(socket.refused("schema_mismatch").starts_with("the payload of events[1] does not match"));
    socket.send(&json!({"type": "PUBLISH", "topic": "orders", "payload": 5, "delay_ms": 1}));
    socket.refused("schema_mismatch");
    let (status, problem) = server.post("/topics/orders/events", &json!({"payload": {}}));
    assert_eq!((status, &problem["code"]), (422, &json!("schema_mismatch")), "{problem}");
    let (status, problem) = server.post("/topics/orders/events", &events);
    assert!(
        status == 422 && problem["detail"].as_str().is_some_and(|why| why.contains("events[1]")),
        "{problem}"
    );
    let cloud =
        json!({"specversion": "1.0", "id": "1", "source": "/a", "type": "made", "data": {"total": []}});
    let headers = [("content-type", "application/cloudevents+json".to_owned())];
    let response = server.send("POST", "/topics/orders/events", &headers, cloud.to_string().into_bytes());
    assert_eq!(response.status().as_u16(), 422);
    // A client that was refused can continue.
    assert_eq!(socket.publish("orders", &json!({"total": 3})), 2);
    assert_eq!(stored(&server), [json!({"total": 1}), json!({"total": 3})]);
    let (_, metrics) = server.request("GET", "/metrics", None);
    assert!(metrics.contains("millrace_refusals_total{code=\"schema_mismatch\"} 6\n"), "{metrics}");
}

#[test]
fn a_change_that_older_events_do_not_match_is_refused_unless_forced_and_versions_are_kept() {
    let mut server = with_orders();
    for total in 1..=3 {
        assert_eq!(server.post("/topics/orders/events", &json!({"payload": {"total": total}})).0, 200);
    }
    let strict = json!({"properties": {"total": {"maximum": 2}}});
    let (status, problem) = patch(&server, "/topics/orders", &strict);
    assert_eq!((status, &problem["code"]), (409, &json!("schema_mismatch")), "{problem}");
    assert_eq!((&problem["partition"], &problem["offset"]), (&json!(0), &json!(3)), "{problem}");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("at /total: value is greater than the maximum of 2"), "{detail}");
    let (status, problem) = server.post("/topics", &json!({"topic": "orders", "schema": strict}));
    assert_eq!(status, 409, "{problem}");
    let looser = json!({"properties": {"total": {"maximum": 3}}});
    let (status, changed) = patch(&server, "/topics/orders", &looser);
    assert_eq!((status, &changed["schemaVersion"]), (200, &json!(2)), "{changed}");
    assert_eq!(changed["schemaChecked"], json!([{"partition": 0, "from": 1, "through": 3}]));
    let (status, changed) = patch(&server, "/topics/orders?force=true", &strict);
    assert_eq!((status, &changed["schemaVersion"]), (200, &json!(3)), "{changed}");
    server.kill_and_restart();
    let (status, problem) = server.post("/topics/orders/events", &json!({"payload": {"total": 3}}));
    assert!(status == 422 && problem.to_string().contains("version 3"), "{problem}");
    let (_, list) = server.get("/topics/orders/schemas");
    assert_eq!(list["current"], 3);
    let versions = list["versions"].as_array().expect("versions").iter();
    let versions: Vec<_> =
        versions.map(|one| json!([one["version"], one["forced"], one["schema"]])).collect();
    assert_eq!(json!(versions), json!([[1, false, order()], [2, false, looser], [3, true, strict]]));
    assert_eq!(server.get("/topics/orders/schemas?version=2").1["versions"][0]["schema"], looser);
    assert_eq!(server.get("/topics/orders/schemas?version=9").0, 404);
    let (_, topics) = server.get("/topics");
    let listed = topics["topics"].as_array().expect("topics").iter().find(|one| one["topic"] == "orders");
    let listed = listed.expect("the topic");
    assert_eq!((&listed["schemaVersion"], listed.get("schema")), (&json!(3), None), "{listed}");
    assert_eq!(patch(&server, "/topics/orders", &Value::Null).0, 200);
    assert_eq!(server.post("/topics/orders/events", &json!({"payload": "anything"})).0, 200);
    assert_eq!(server.request("DELETE", "/topics/orders", None).0, 204);
    assert_eq!(server.post("/topics", &json!({"topic": "orders"})).0, 201);
    assert_eq!(server.get("/topics/orders/schemas").1["versions"], json!([]));
}

#[test]
fn what_is_no_schema_is_refused_with_its_place() {
    let server = Server::start();
    for (schema, place) in [
        (json!({"properties": {"a": {"type": "strnig"}}}), "/properties/a/type"),
        (json!({"items": {"$ref": "http://127.0.0.1:1/schema.json"}}), "/items/$ref"),
        (json!({"items": {"$ref": "#"}}), "/items/$ref"),
        (json!({"pattern": "(?=x)"}), "/pattern"),
    ] {
        let (status, problem) = server.post("/topics", &json!({"topic": "t", "schema": schema}));
        assert_eq!((status, &problem["code"]), (400, &json!("bad_frame")), "{problem}");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.starts_with(&format!("schema is refused at {place}: ")), "{detail}");
    }
    assert_eq!(server.post("/topics", &json!({"topic": "t", "schema": "a string"})).0, 400);
    assert_eq!(server.post("/topics", &json!({"topic": "t.DLQ", "schema": true})).0, 400);
    assert_eq!(server.get("/topics/t").0, 404, "nothing was made");
}

#[test]
fn a_dead_letter_that_does_not_match_by_now_is_named_and_those_before_it_are_replayed() {
    let server = Server::with(&["--max-attempts", "1"]);
    for payload in [json!({"total": 1}), json!({"total": 2}), json!("none"), json!({"total": 4})] {
        assert_eq!(server.post("/topics/orders/events", &json!({ "payload": payload })).0, 200);
    }
    let mut socket = server.socket();
    socket.subscribe("orders", "g", &json!({"from": {"kind": "earliest"}}));
    for _ in 1..=4 {
        let offset = socket.message();
        socket.send_nack("orders", "g", offset, &json!({}));
    }
    let letters = || server.get("/dead-letters?topic=orders").1["events"].as_array().map(Vec::len);
    eventually("four dead letters", || letters() == Some(4));
    assert_eq!(patch(&server, "/topics/orders?force=true", &order()).0, 200);
    let (status, problem) = server.post("/dead-letters/orders/replay", &json!({"limit": 10}));
    assert_eq!(
        (status, &problem["code"], &problem["offset"]),
        (422, &json!("schema_mismatch"), &json!(3)),
        "{problem}"
    );
    assert_eq!((&problem["replayed"], &problem["next"]), (&json!(2), &json!(3)), "{problem}");
    assert_eq!(stored(&server)[4..], [json!({"total": 1}), json!({"total": 2})]);
    let (status, replayed) = server.post("/dead-letters/orders/replay", &json!({"limit": 10, "offset": 4}));
    assert_eq!((status, &replayed["replayed"]), (200, &json!(1)), "{replayed}");
}

/// A schema is changed while others publish events that it would refuse, later than those that match it.
#[test]
fn no_event_slips_past_a_change_that_is_accepted() {
    let server = Server::start();
    let url = server.ws_url();
    for round in 0..20 {
        let topic = format!("t{round}");
        server.post(&format!("/topics/{topic}/events"), &json!({"payload": 0}));
        let publishers: Vec<_> = (0..2)
            .map(|_| {
                let (mut socket, topic) = (crate::socket::Socket::open(&url), topic.clone());
                std::thread::spawn(move || {
                    for n in 0..40 {
                        socket.send(&json!({"type": "PUBLISH", "topic": topic, "payload": n}));
                        socket.next();
                    }
                })
            })
            .collect();
        let next = || server.get(&format!("/topics/{topic}/offsets")).1["partitions"][0]["next"].as_u64();
        while next() < Some(round) {}
        let (status, answer) = patch(&server, &format!("/topics/{topic}"), &json!({"maximum": 9}));
        publishers.into_iter().for_each(|publisher| publisher.join().expect("a publisher"));
        let (_, page) = server.get(&format!("/topics/{topic}/events?limit=1000"));
        let stored = page["events"].as_array().expect("events");
        let broken = stored.iter().any(|event| event["payload"].as_u64() > Some(9));
        match status {
            200 => assert!(!broken, "{answer} {page}"),
            _ => assert!(status == 409 && broken, "{status} {answer}"),
        }
    }
}

#[test]
fn the_command_line_sets_shows_and_forces_schemas() {
    let server = Server::start();
    let file = server.folder().join("order.json");
    std::fs::write(&file, order().to_string()).expect("a file");
    let strict = server.folder().join("strict.json");
    std::fs::write(&strict, r#"{"type":"string"}"#).expect("a file");
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.arg("topics").args(args).env("BUS_URL", server.ws_url()).env_remove("MILLRACE_TOKEN");
        let output = command.output().expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).expect("text"))
    };
    let (file, strict) = (file.to_str().expect("a path"), strict.to_str().expect("a path"));
    assert_eq!(run(&["create", "orders", "--schema", file]).0, Some(0));
    assert_eq!(server.post("/topics/orders/events", &json!({"payload": {"total": 1}})).0, 200);
    let (code, text) = run(&["set", "orders", "--schema", strict]);
    assert!(code == Some(1) && text.contains("partition 0, offset 1"), "{text}");
    let (code, text) = run(&["set", "orders", "--schema", strict, "--force"]);
    assert!(code == Some(0) && text.contains("schema version 2\n"), "{text}");
    let (_, text) = run(&["schema", "orders"]);
    assert!(
        text.starts_with("topic orders: version 2 of its schema is in force\nversion 1 was set at 2"),
        "{text}"
    );
    assert!(text.contains(", forced\n{\n  \"type\": \"string\"\n}\n"), "{text}");
    let (_, text) = run(&["schema", "orders", "--version", "1"]);
    assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), order());
    assert_eq!(run(&["set", "orders", "--unset", "schema"]).0, Some(0));
    let (_, text) = run(&["show", "orders"]);
    assert!(text.contains("schema none (default)\n"), "{text}");
    let (code, text) = run(&["set", "orders", "--schema", "no-such-file"]);
    assert!(code == Some(2) && text.contains("--schema no-such-file cannot be read"), "{text}");
    assert_eq!(run(&["set", "orders", "--force"]).0, Some(2));
}

#[test]
fn a_resend_is_answered_like_the_first_although_the_schema_has_changed() {
    let server = with_orders();
    let mut socket = server.socket();
    let one = json!({"payload": {"total": 1}, "id": "i1"});
    let (status, first) = server.post("/topics/orders/events", &one);
    assert_eq!(status, 200, "{first}");
    let late = json!({"payload": {"total": 2}, "id": "i2", "delay_ms": 3_600_000});
    let (_, waits) = server.post("/topics/orders/events", &late);
    assert_eq!(patch(&server, "/topics/orders?force=true", &json!({"type": "string"})).0, 200);
    assert_eq!(server.post("/topics/orders/events", &one), (200, first.clone()));
    assert_eq!(server.post("/topics/orders/events", &late), (200, waits.clone()));
    assert_eq!(server.post("/topics/orders/events", &json!([one])).1["offsets"], json!([[0, 1]]));
    socket.send(&json!({"type": "PUBLISH", "topic": "orders", "payload": {"total": 1}, "id": "i1"}));
    assert_eq!(socket.expect("PUBLISHED"), first);
    let new = json!({"payload": {"total": 3}, "id": "i3"});
    assert_eq!(server.post("/topics/orders/events", &new).0, 422);
    let (status, problem) = server.post("/topics/orders/events", &json!([one, new]));
    assert!(status == 422 && problem.to_string().contains("events[1]"), "{problem}");
    assert_eq!(stored(&server), [json!({"total": 1})]);
}

#[test]
fn a_delayed_event_is_compared_with_a_new_schema() {
    let mut server = with_orders();
    let late = json!({"payload": {"total": 2}, "delay_ms": 3_600_000});
    assert_eq!(server.post("/topics/orders/events", &late).0, 200);
    let (status, problem) = patch(&server, "/topics/orders", &json!({"type": "integer"}));
    assert_eq!((status, &problem["code"]), (409, &json!("schema_mismatch")), "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|why| why.contains("a delayed event")), "{problem}");
    server.kill_and_restart();
    assert_eq!(patch(&server, "/topics/orders", &json!({"type": "integer"})).0, 409);
    let (status, changed) = patch(&server, "/topics/orders", &json!({"type": "object"}));
    assert_eq!((status, &changed["schemaCheckedDelayed"]), (200, &json!(1)), "{changed}");
    assert_eq!(patch(&server, "/topics/orders?force=true", &json!({"type": "integer"})).0, 200);
}

#[test]
fn a_batch_that_is_too_much_to_check_is_refused_at_once() {
    let server = Server::with(&["--schema-batch-work-max", "100000"]);
    assert_eq!(server.post("/topics", &json!({"topic": "orders", "schema": order()})).0, 201);
    let events: Vec<Value> = (0..2_000).map(|n| json!({"payload": {"total": n}})).collect();
    assert_eq!(server.post("/topics/orders/events", &json!(events[..10])).0, 200);
    let (status, problem) = server.post("/topics/orders/events", &json!(events));
    assert_eq!((status, &problem["code"]), (429, &json!("limit_reached")), "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|why| why.contains("send at most ")), "{problem}");
    assert_eq!(stored(&server).len(), 10);
}

#[test]
fn creating_a_topic_that_exists_takes_neither_its_schema_nor_anything_else() {
    let server = with_orders();
    assert_eq!(
        server.send_json("PATCH", "/topics/orders", &json!({"sticky": true, "maxAttempts": 7})).0,
        200
    );
    let again =
        json!({"topic": "orders", "partitions": 2, "schema": null, "compact": null, "retentionMs": 60_000});
    let (status, shown) = server.post("/topics", &again);
    assert_eq!((status, &shown["partitions"], &shown["schema"]), (200, &json!(2), &order()), "{shown}");
    assert_eq!(
        (&shown["sticky"], &shown["maxAttempts"], &shown["retentionMs"]),
        (&json!(true), &json!(7), &json!(60_000)),
        "{shown}"
    );
    let (_, shown) = server.post("/topics", &json!({"topic": "orders", "sticky": false}));
    assert_eq!((shown.get("sticky"), &shown["schema"]), (None, &order()), "{shown}");
    assert_eq!(server.post("/topics/orders/events", &json!({"payload": "x"})).0, 422);
}

/// The limit on the comparison must not let a change pass that was not compared with the older events.
#[test]
fn a_change_that_was_not_compared_with_every_event_must_be_forced() {
    let server = Server::with(&["--schema-check-events-max", "2"]);
    for payload in [json!({"a": 1}), json!({"b": 1}), json!({"b": 2})] {
        assert_eq!(server.post("/topics/t/events", &json!({"payload": payload})).0, 200);
    }
    let patch = json!({"schema": {"required": ["b"]}});
    let (status, problem) = server.send_json("PATCH", "/topics/t", &patch);
    assert_eq!((status, &problem["code"]), (409, &json!("schema_mismatch")), "{problem}");
    let why = problem["detail"].as_str().expect("a reason");
    assert!(why.contains("events below offset 2 of partition 0 were not compared"), "{why}");
    assert_eq!(server.send_json("PATCH", "/topics/t?force=true", &patch).0, 200);
}
