//! The scope `inspect`: everything is seen but payloads, keys, header values and what consumers wrote about them. The
//! test takes the endpoints from the server's own document, so a new one cannot be forgotten.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use millrace::{Config, Event, Handler, HandlerOutcome, HandlerSettings, Session};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::server::{Server, eventually};
use crate::socket::Socket;

const CANARY: &str = "canary-5e1f";
/// The same in a header that the server reads: the trace of a `traceparent`.
const CANARY_TRACE: &str = "5e1f5e1f5e1f5e1f5e1f5e1f5e1f5e1f";
const TOKENS: &str = r#"
[[auth.tokens]]
token = "root-secret"
agent = "root"
scopes = ["admin"]

[[auth.tokens]]
token = "inspector-secret"
agent = "inspector"
scopes = ["inspect"]
"#;

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    note: String,
}

/// A store with the canary in every place that may hold content.
fn server() -> Server {
    let server = Server::with_config(TOKENS, &["--max-attempts", "1", "--metrics-interval-ms", "50"]);
    let root = |method: &str, path: &str, body: Value| {
        let (status, answer) = server.request_as("root-secret", method, path, &body);
        assert!((200..300).contains(&status), "{method} {path}: {answer}");
        answer
    };
    root("POST", "/topics", json!({"topic": "t", "partitions": 2, "maxAttempts": 1}));
    root("POST", "/topics", json!({"topic": "held", "maxAttempts": 5}));
    let event = |id: &str| {
        json!({"id": id, "key": CANARY, "headers": {"x-what": CANARY, "ce-source": CANARY,
                "traceparent": format!("00-{CANARY_TRACE}-5e1f5e1f5e1f5e1f-01")},
            "payload": {"text": CANARY, "deep": [{"at": CANARY}]}})
    };
    root("POST", "/topics/t/events", event("i"));
    root("POST", "/topics/t/events", event("i2"));
    root("POST", "/topics/held/events", event("h"));
    let later = json!({"payload": CANARY, "key": CANARY, "delay_ms": 3_600_000});
    root("POST", "/topics/t/events", later);
    let subscribe = |socket: &mut Socket, topic: &str| {
        let filter = json!({"key": CANARY, "header": ["x-what", CANARY]});
        socket.subscribe(
            topic,
            "g",
            &json!({"from": {"kind": "earliest"}, "filter": filter, "ack_mode": "individual"}),
        );
    };
    let mut socket = Socket::open_as(&server.ws_url(), "root-secret").expect("a socket");
    subscribe(&mut socket, "t");
    for _ in 0..2 {
        let delivered = socket.expect("MESSAGE");
        socket.send(&json!({"type": "NACK", "topic": "t", "group": "g", "partition": delivered["partition"],
            "offset": delivered["offset"], "reason": format!("because of {CANARY}")}));
    }
    subscribe(&mut socket, "held");
    socket.expect("MESSAGE");
    let refusal = json!({"type": "NACK", "topic": "held", "group": "g", "partition": 0, "offset": 1,
        "reason": format!("not yet: {CANARY}"), "delay_ms": 3_600_000});
    socket.send(&refusal);
    eventually("both letters are stored", || {
        let reasons = server.request_as("root-secret", "GET", "/dead-letters/t/summary", &Value::Null).1;
        reasons["reasons"][0]["count"] == 2
    });
    eventually("the refused event waits", || {
        let held = server.request_as("root-secret", "GET", "/topics/held/groups/g/inflight", &Value::Null).1;
        held.to_string().contains(CANARY)
    });
    let filter = json!({"reason": format!("because of {CANARY}")});
    root("POST", "/jobs", json!({"kind": "replay", "topic": "t", "filter": filter}));
    give_up(&server);
    server
}

fn give_up(server: &Server) {
    let config = Config { event_max_attempts: 1, ..Config::default() };
    let session = Session::builder(&server.store_url()).config(config).open().expect("a session");
    let placed = OrderPlaced { note: CANARY.to_owned() };
    session.publish(placed.with_id("placed")).expect("a publish");
    let bill =
        Handler::from_fn::<OrderPlaced>("shop:bill", |ctx| Err(format!("no: {}", ctx.event.note).into()));
    let mail = Handler::from_fn::<OrderPlaced>("shop:mail", |ctx| {
        let why = format!("later: {}", ctx.event.note);
        Err(HandlerOutcome::retry_after(Duration::from_secs(3600), why).into())
    });
    let more = HandlerSettings { max_attempts: Some(5), ..HandlerSettings::default() };
    let running = session.spawn(vec![bill, mail.with_settings(more)], vec![]).expect("a run");
    eventually("one handler gives up, one waits", || {
        let list = server.request_as("root-secret", "GET", "/handlers", &Value::Null).1;
        (&list["handlers"][0]["deadLetters"], &list["handlers"][1]["waiting"]) == (&json!(1), &json!(1))
    });
    running.stop().expect("a stop");
}

/// The number of the only job.
fn job(server: &Server) -> String {
    let jobs = server.request_as("root-secret", "GET", "/jobs", &Value::Null).1;
    jobs["jobs"][0]["job"].as_str().expect("a job").to_owned()
}

/// The addresses of an endpoint with every choice that leads to other content.
fn addresses(template: &str, job: &str) -> Vec<String> {
    let mut found = vec![template.to_owned()];
    for (name, values) in [
        ("{topic}", &["t", "t.DLQ", "held", "order.placed"][..]),
        ("{group}", &["g"]),
        ("{id}", &["i", "h", "placed"]),
        ("{job}", &[job]),
        ("{handler}", &["shop:bill", "shop:mail"]),
        ("{connection}", &["ws-1"]),
    ] {
        found = found
            .iter()
            .flat_map(|path| match path.contains(name) {
                true => values.iter().map(|value| path.replace(name, value)).collect(),
                false => vec![path.clone()],
            })
            .collect();
    }
    let queries: &[&str] = match template {
        "/topics/{topic}/events" => &[
            "",
            "?partition=1",
            "?order=desc&partition=all&limit=100",
            "?order=asc&partition=all&lineage=true&limit=100",
            "?scan=1000&partition=all",
        ],
        "/trace" => &["", "?id=i", "?id=h", "?id=placed", "?correlation=i"],
        "/topics/{topic}/tail" => &["?from=ts:0&lineage=true"],
        "/dead-letters" => &["", "?topic=t", "?topic=t&partition=1", "?handler=shop:bill"],
        _ => &[""],
    };
    found.iter().flat_map(|path| queries.iter().map(move |query| format!("{path}{query}"))).collect()
}

/// The answer of an endpoint, its headers included; of a stream its first line.
fn answer(server: &Server, token: &str, path: &str, accept: &str) -> (u16, String) {
    let headers = [("authorization", format!("Bearer {token}")), ("accept", accept.to_owned())];
    let mut response = server.send("GET", path, &headers, Vec::new());
    let status = response.status().as_u16();
    let head = format!("{:?}", response.headers());
    let text = if path.contains("/tail") && status == 200 {
        let mut line = String::new();
        BufReader::new(response.body_mut().as_reader()).read_line(&mut line).expect("a line");
        line
    } else {
        response.body_mut().with_config().limit(64 << 20).read_to_string().expect("a body")
    };
    (status, format!("{head}\n{text}"))
}

fn tells(answer: &str) -> bool {
    answer.contains(CANARY) || answer.contains(CANARY_TRACE)
}

/// Endpoints without a plain answer, or without an answer of this server.
fn is_left_out(path: &str) -> bool {
    path.starts_with("/console") || matches!(path, "/" | "/ws" | "/os")
}

#[test]
fn no_endpoint_shows_content_to_a_token_that_only_inspects() {
    let server = server();
    let job = job(&server);
    let document = server.get("/openapi.json").1;
    let paths = document["paths"].as_object().expect("paths");
    let (mut seen, mut hidden) = (0, Vec::new());
    let gets = paths.iter().filter(|(path, item)| item["get"].is_object() && !is_left_out(path));
    for (template, item) in gets {
        for path in addresses(template, &job) {
            for accept in ["*/*", "application/x-ndjson", "application/cloudevents-batch+json"] {
                let (status, told) = answer(&server, "inspector-secret", &path, accept);
                assert!(!tells(&told), "{path} ({accept}) tells: {told}");
                assert!([200, 400, 403, 404].contains(&status), "{path}: {told}");
                let (whole_status, whole) = answer(&server, "root-secret", &path, accept);
                if tells(&whole) && status == 200 {
                    assert!(
                        told.contains("\"withheld\":true"),
                        "{path} does not say what it leaves out: {told}"
                    );
                    hidden.push(template.as_str());
                }
                let inspects = item["get"]["security"].to_string().contains("inspect");
                assert!(
                    !inspects || status == whole_status,
                    "{path}: {status}, and {whole_status} with all scopes"
                );
                seen += usize::from(status == 200);
            }
        }
    }
    hidden.dedup();
    assert!(seen > 50, "{seen}");
    for template in [
        "/dead-letters",
        "/dead-letters/{topic}/summary",
        "/delayed",
        "/events/{id}",
        "/handlers/{handler}/claims",
        "/jobs",
        "/jobs/{job}",
        "/topics/{topic}/events",
        "/topics/{topic}/groups",
        "/topics/{topic}/groups/{group}",
        "/topics/{topic}/groups/{group}/inflight",
        "/topics/{topic}/tail",
        "/trace",
    ] {
        assert!(hidden.contains(&template), "the canary was not in {template}: {hidden:?}");
    }
}

#[test]
fn a_trace_shows_what_failed_and_not_why() {
    let server = server();
    // The job publishes letters again.
    eventually("the job has ended", || {
        server.request_as("root-secret", "GET", "/jobs", &Value::Null).1["jobs"][0]["state"] != "running"
    });
    let kinds = |id: &str| {
        let path = format!("/trace?id={id}");
        let (status, whole) = server.request_as("root-secret", "GET", &path, &Value::Null);
        assert_eq!((status, &whole["withheld"]), (200, &Value::Null), "{whole}");
        let (status, told) = server.request_as("inspector-secret", "GET", &path, &Value::Null);
        assert_eq!((status, &told["withheld"]), (200, &json!(true)), "{told}");
        let of = |trace: &Value, name: &str| -> Vec<Value> {
            trace["nodes"].as_array().expect("nodes").iter().map(|node| node[name].clone()).collect()
        };
        for name in ["id", "what", "parent", "place"] {
            assert_eq!(of(&told, name), of(&whole, name), "{name} is no content");
        }
        assert!(of(&whole, "error").iter().any(Value::is_string), "{whole}");
        of(&told, "what")
    };
    let letter = kinds("i");
    assert!(letter.contains(&json!("letter")) && letter.contains(&json!("delivery")), "{letter:?}");
    assert!(kinds("placed").contains(&json!("claim")));
}

#[test]
fn a_search_does_not_tell_whether_withheld_content_is_there() {
    let server = server();
    for (name, value) in [
        ("key", CANARY.to_owned()),
        ("header", format!("x-what:{CANARY}")),
        ("contains", CANARY.to_owned()),
        ("path", format!("$.text:{CANARY}")),
        ("payload_sha256", "true".to_owned()),
    ] {
        for place in [
            "/topics/t/events?partition=all&",
            "/topics/t/tail?",
            "/dead-letters?topic=t&",
            "/topics/t/events?",
        ] {
            for asked in [value.as_str(), "true", "x:y", "$.a:b"] {
                let path = format!("{place}{name}={asked}");
                let (status, problem) = server.request_as("inspector-secret", "GET", &path, &Value::Null);
                assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{path}: {problem}");
                let detail = problem["detail"].as_str().expect("a detail");
                assert!(detail.contains("withheld") && detail.contains("inspect"), "{detail}");
            }
        }
    }
    assert_eq!(server.request_as("inspector-secret", "GET", "/topics?contains=hel", &Value::Null).0, 200);
}

#[test]
fn inspecting_changes_nothing_and_subscribes_to_nothing() {
    let server = server();
    let job = job(&server);
    let document = server.get("/openapi.json").1;
    for (path, item) in document["paths"].as_object().expect("paths") {
        let methods = item.as_object().expect("methods").keys().filter(|method| *method != "get");
        for method in methods {
            let method = method.to_uppercase();
            for path in addresses(path, &job) {
                let (status, problem) = server.request_as("inspector-secret", &method, &path, &json!({}));
                assert_eq!(status, 403, "{method} {path}: {problem}");
            }
        }
    }
    let mut socket = Socket::open_as(&server.ws_url(), "inspector-secret").expect("a socket");
    socket.send(&json!({"type": "SUBSCRIBE", "topic": "t", "group": "x", "rid": 1}));
    assert_eq!(socket.expect("ERROR")["code"], "forbidden");
    let more = ["/handlers", "/sessions", "/schedules", "/delayed"];
    for path in ["/metrics", "/stats", "/stats/history", "/capabilities"].iter().chain(&more) {
        assert_eq!(server.request_as("inspector-secret", "GET", path, &Value::Null).0, 200, "{path}");
    }
    for path in ["/settings", "/log", "/connections"] {
        assert_eq!(server.request_as("inspector-secret", "GET", path, &Value::Null).0, 403, "{path}");
    }
}

#[test]
fn who_looked_at_content_is_audited_once_per_request() {
    let server = Server::with_config(TOKENS, &["--audit", "read"]);
    let ask = |token: &str, path: &str| server.request_as(token, "GET", path, &Value::Null).0;
    for at in 0..3 {
        let event = json!({"id": format!("e{at}"), "payload": at});
        assert_eq!(server.request_as("root-secret", "POST", "/topics/t/events", &event).0, 200);
    }
    server.request_as("root-secret", "POST", "/topics", &json!({"topic": "empty"}));
    for path in ["/topics/empty/events", "/topics/t", "/topics/t/groups", "/topics/t/events?from=99"] {
        assert_eq!(ask("root-secret", path), 200, "{path}: shows no content");
    }
    for path in ["/topics/t/events", "/events/e1", "/topics/t/events?order=desc"] {
        assert_eq!(ask("inspector-secret", path), 200, "{path}: content is withheld");
        assert_eq!(ask("root-secret", path), 200, "{path}");
    }
    answer(&server, "root-secret", "/topics/t/tail?from=ts:0", "*/*");
    let mut told = Vec::new();
    eventually("the tail is written down", || {
        let path = "/topics/system.bus.audit/events?limit=1000";
        let page = server.request_as("root-secret", "GET", path, &Value::Null).1;
        let records = page["events"].as_array().expect("events").iter().map(|event| event["payload"].clone());
        told = records.collect();
        told.iter().any(|record| record["what"] == "tail")
    });
    let short =
        |one: &Value| json!([one["kind"], one["agent"], one["what"], one["topic"], one["events"], one["id"]]);
    let short: Vec<Value> = told.iter().map(short).collect();
    assert_eq!(
        short,
        [
            json!(["read", "root", "events", "t", 3, null]),
            json!(["read", "root", "event", "t", 1, "e1"]),
            json!(["read", "root", "events", "t", 3, null]),
            json!(["read", "root", "tail", "t", null, null]),
        ]
    );
}
