//! Jobs over many dead letters, from outside: callers that go away, restarts, access lists, tokens that are removed.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::access::{TOKENS, open};
use crate::server::{Server, eventually};
use crate::socket::Socket;

/// Publishes events to `t` and gives up on each of them for the reason `r`.
fn give_up(socket: &mut Socket, payloads: impl IntoIterator<Item = Value>) {
    socket.subscribe("t", "g", &json!({"ack_mode": "individual"}));
    for payload in payloads {
        socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": payload}));
        // The confirmation of the publish and the delivery come in either order.
        let mut frame = socket.next();
        while frame["type"] != "MESSAGE" {
            frame = socket.next();
        }
        let offset = frame["offset"].as_u64().expect("an offset");
        socket.send_nack("t", "g", offset, &json!({"reason": "r"}));
    }
}

fn letters(server: &Server, token: &str) -> usize {
    let page = server.request_as(token, "GET", "/topics/t.DLQ/events", &Value::Null).1;
    page["events"].as_array().map_or(0, Vec::len)
}

fn with_letters(count: usize) -> Server {
    let server = Server::with(&["--max-attempts", "1"]);
    give_up(&mut server.socket(), (0..count).map(|n| json!(n)));
    eventually("all letters are stored", || letters(&server, "") == count);
    server
}

/// A server with tokens, where `alice` gave up on two events.
fn with_tokens(flags: &[&str]) -> Server {
    let server = Server::with_config(TOKENS, &[&["--max-attempts", "1"], flags].concat());
    give_up(&mut open(&server, "alice-secret"), [json!(1), json!(2)]);
    eventually("both letters are stored", || letters(&server, "alice-secret") == 2);
    server
}

fn slow(kind: &str) -> Value {
    json!({"kind": kind, "topic": "t", "filter": {"reason": "r"}, "ratePerSecond": 1})
}

#[track_caller]
fn begin(server: &Server, token: &str, job: &Value) -> String {
    let (status, begun) = server.request_as(token, "POST", "/jobs", job);
    assert_eq!(status, 202, "{begun}");
    begun["job"].as_str().expect("a job").to_owned()
}

fn show(server: &Server, token: &str, job: &str) -> Value {
    server.request_as(token, "GET", &format!("/jobs/{job}"), &Value::Null).1
}

#[track_caller]
fn ended(server: &Server, token: &str, job: &str) -> Value {
    eventually("the job has ended", || show(server, token, job)["endedAt"].is_u64());
    show(server, token, job)
}

/// Sends a request without waiting for the answer. The caller goes away when the connection is dropped.
fn send(server: &Server, method: &str, path: &str, body: &Value) -> TcpStream {
    let url = server.http_url();
    let address = url.trim_start_matches("http://");
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).expect("a connection");
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).expect("the request is sent");
    stream
}

#[test]
fn a_job_whose_caller_has_gone_runs_to_its_end() {
    let server = with_letters(1);
    let job = json!({"kind": "replay", "topic": "t", "filter": {"reason": "r"}});
    let jobs = || server.get("/jobs").1["jobs"].as_array().expect("jobs").clone();
    for round in 1..=40 {
        let caller = send(&server, "POST", "/jobs", &job);
        // The job has its place now; its row may not be stored yet.
        eventually("the job is there", || jobs().len() == round);
        drop(caller);
        eventually("no job runs", || jobs().iter().all(|job| job["state"] == "done"));
    }
    ended(&server, "", &begin(&server, "", &job));
}

#[test]
fn each_namespace_has_its_own_places_for_jobs() {
    let server = with_letters(2);
    for _ in 0..4 {
        begin(&server, "", &slow("replay"));
    }
    assert_eq!(server.post("/jobs", &slow("replay")).1["code"], "limit_reached");
    for topic in ["t", "t.DLQ"] {
        server.post("/topics?namespace=eu", &json!({ "topic": topic }));
    }
    let (status, begun) = server.post("/jobs?namespace=eu", &slow("replay"));
    assert_eq!(status, 202, "{begun}");
}

#[test]
fn a_cancelled_job_does_not_go_on_after_a_restart() {
    for kill in [true, false] {
        let mut server = with_letters(6);
        let job = begin(&server, "", &slow("delete"));
        let (status, told) = server.send_json("DELETE", &format!("/jobs/{job}"), &Value::Null);
        assert_eq!(status, 202, "{told}");
        if kill {
            server.kill();
        } else {
            server.terminate();
        }
        server.restart();
        let told = ended(&server, "", &job);
        assert_eq!(told["state"], "cancelled", "{told}");
        assert!(letters(&server, "") >= 4, "{told}");
    }
}

#[test]
fn a_request_with_unknown_fields_begins_nothing() {
    let server = with_letters(2);
    for job in [
        json!({"kind": "delete", "topic": "t", "filter": {"reason": "r"}, "dry_run": true}),
        json!({"kind": "delete", "topic": "t", "filter": {"group": "g", "reasons": ["none"]}}),
    ] {
        let (status, problem) = server.post("/jobs", &job);
        assert_eq!((status, &problem["code"]), (400, &json!("bad_frame")), "{job}");
    }
    assert_eq!((server.get("/jobs").1, letters(&server, "")), (json!({"jobs": []}), 2));
}

#[test]
fn jobs_over_letters_that_an_agent_may_not_read_are_hidden_from_it() {
    let server = with_tokens(&[]);
    let job = begin(&server, "alice-secret", &slow("replay"));
    let lists = json!({"subscribeACL": ["alice"]});
    assert_eq!(server.request_as("root-secret", "PATCH", "/topics/t", &lists).0, 200);
    let path = format!("/jobs/{job}");
    let ask = |token, method, path: &str| server.request_as(token, method, path, &Value::Null);
    assert_eq!(ask("alice-secret", "GET", "/jobs").1["jobs"][0]["filter"]["reason"], "r");
    assert_eq!(ask("eve-secret", "GET", "/jobs").1, json!({"jobs": []}));
    for method in ["GET", "DELETE"] {
        assert_eq!(ask("eve-secret", method, &path).0, 404, "{method}");
    }
    let seen = ask("root-secret", "GET", &path).1;
    assert_eq!((&seen["filter"], &seen["withheld"]), (&json!({}), &json!(true)), "{seen}");
    assert_eq!(ask("root-secret", "DELETE", &path).0, 202, "who looks after the server may end it");
}

#[test]
fn the_audit_names_the_agent_of_a_job() {
    let server = with_tokens(&["--audit", "admin,publish"]);
    let replay = json!({"kind": "replay", "topic": "t", "filter": {"reason": "r"}});
    ended(&server, "alice-secret", &begin(&server, "alice-secret", &replay));
    let delete = begin(&server, "root-secret", &slow("delete"));
    assert_eq!(server.request_as("root-secret", "DELETE", &format!("/jobs/{delete}"), &Value::Null).0, 202);
    let mut told = Vec::new();
    let find = |told: &[Value], kind: &str, agent: &str| {
        told.iter().any(|record| record["kind"] == kind && record["agent"] == agent)
    };
    eventually("all acts are recorded", || {
        told = audited(&server, "root-secret");
        [
            ("job_begun", "alice"),
            ("job_begun", "root"),
            ("letters_deleted", "root"),
            ("job_cancelled", "root"),
        ]
        .iter()
        .all(|(kind, agent)| find(&told, kind, agent))
    });
    let nameless: Vec<_> = told.iter().filter(|record| record["agent"].is_null()).collect();
    assert!(nameless.is_empty(), "{nameless:?}");
}

fn audited(server: &Server, token: &str) -> Vec<Value> {
    let path = "/topics/system.bus.audit/events?limit=1000";
    let page = server.request_as(token, "GET", path, &Value::Null).1;
    page["events"].as_array().expect("events").iter().map(|event| event["payload"].clone()).collect()
}

#[test]
fn a_job_ends_with_the_last_token_of_its_agent() {
    let server = with_tokens(&[]);
    give_up(&mut open(&server, "alice-secret"), (3..40).map(|n| json!(n)));
    let job = begin(&server, "alice-secret", &slow("replay"));
    let without = TOKENS.replace("agent = \"alice\"", "agent = \"nobody\"");
    std::fs::write(server.folder().join("millrace.toml"), without).expect("a file");
    server.signal("HUP");
    let told = ended(&server, "root-secret", &job);
    assert_eq!(told["state"], "failed", "{told}");
    assert!(told["error"].as_str().is_some_and(|why| why.contains("no token of agent alice")), "{told}");
}

#[test]
fn a_letter_that_does_not_match_the_schema_holds_up_no_other() {
    let server = with_letters(0);
    give_up(&mut server.socket(), [json!(1), json!("two"), json!(3), json!("four"), json!(5)]);
    eventually("all letters are stored", || letters(&server, "") == 5);
    let schema = json!({"schema": {"type": "number"}});
    let (status, told) = server.send_json("PATCH", "/topics/t?force=true", &schema);
    assert_eq!(status, 200, "{told}");
    let job = json!({"kind": "replay", "topic": "t", "filter": {"reason": "r"}});
    let told = ended(&server, "", &begin(&server, "", &job));
    let counts = ["state", "done", "replayed", "failed"].map(|name| told[name].clone());
    assert_eq!(counts, [json!("done"), json!(5), json!(3), json!(2)], "{told}");
    let places =
        [0, 1].map(|at| (told["failures"][at]["partition"].clone(), told["failures"][at]["offset"].clone()));
    assert_eq!(places, [(json!(0), json!(2)), (json!(0), json!(4))], "{told}");
    let page = server.get("/topics/t/events?from=6").1;
    let stored: Vec<_> =
        page["events"].as_array().expect("events").iter().map(|one| one["payload"].clone()).collect();
    assert_eq!(stored, [json!(1), json!(3), json!(5)]);
}

#[test]
fn two_different_edits_of_a_letter_are_two_events() {
    let server = with_letters(1);
    for edit in [
        json!({"payload": 1, "key": "2"}),
        json!({"payload": 12, "key": null}),
        json!({"payload": 12, "key": ""}),
    ] {
        let mut edited = json!({"partition": 0, "offset": 1});
        edited.as_object_mut().expect("an object").extend(edit.as_object().expect("an object").clone());
        for (replayed, duplicates) in [(1, 0), (0, 1)] {
            let told = server.post("/dead-letters/t/replay", &json!({"edited": [edited]})).1;
            assert_eq!(
                (&told["replayed"], &told["duplicates"]),
                (&json!(replayed), &json!(duplicates)),
                "{edit} {told}"
            );
        }
    }
}

#[test]
fn what_was_done_is_recorded_although_the_caller_has_gone() {
    let server = Server::with(&["--audit", "admin,publish"]);
    for n in 0..40 {
        drop(send(&server, "POST", "/topics", &json!({"topic": format!("made-{n}")})));
        drop(send(&server, "POST", "/topics/t/events", &json!({"payload": n})));
    }
    server.post("/topics", &json!({"topic": "last"}));
    eventually("every topic and every event has its record", || {
        let told = audited(&server, "");
        let of = |kind: &str| told.iter().filter(|record| record["kind"] == kind).count();
        let topics =
            server.topics().iter().filter(|topic| topic.starts_with("made-") || *topic == "last").count();
        let events = server.get("/topics/t/events?limit=1000").1["events"].as_array().map_or(0, Vec::len);
        topics > 1 && topics == of("topic_created") && events == of("published")
    });
}
