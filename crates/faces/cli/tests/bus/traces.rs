//! Traces: `traceparent` is stored as written, passed on, and logged.

use serde_json::{Value, json};

use crate::server::{Server, eventually};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER_TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const OTHER_PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/// Starts a server whose log is JSON, at level `debug`.
fn talkative() -> Server {
    Server::with_log_level("", &["--log-format", "json", "--max-attempts", "1"], "debug")
}

/// Returns the lines of the log so far. The last line may be incomplete.
fn lines(server: &Server) -> Vec<Value> {
    server.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[track_caller]
fn line(server: &Server, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let mut found = None;
    eventually(what, || {
        found = lines(server).into_iter().find(|line| is_it(line));
        found.is_some()
    });
    found.expect("a line")
}

fn is(line: &Value, message: &str) -> bool {
    line["fields"]["message"] == message
}

#[test]
fn a_trace_is_kept_delivered_and_logged_from_publish_to_dead_letter() {
    let server = talkative();
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    // Written in an unusual way on purpose: the bytes must come back unchanged.
    let headers = format!(r#"{{"z":"1", "traceparent":"{PARENT}","a":"\u0062"}}"#);
    socket.send_text(&format!(r#"{{"type":"PUBLISH","topic":"t","payload":1,"headers":{headers}}}"#));
    let frames = [socket.next(), socket.next()];
    let message = frames.iter().find(|frame| frame["type"] == "MESSAGE").expect("a message");
    assert_eq!(message["envelope"]["headers"]["traceparent"], PARENT);
    let (_, text) = server.request("GET", "/topics/t/events", None);
    assert!(text.contains(&headers), "byte for byte: {text}");
    let published = line(&server, "the line of the publish", |line| is(line, "published"));
    assert_eq!((&published["level"], &published["fields"]["trace_id"]), (&json!("DEBUG"), &json!(TRACE)));
    assert_eq!((&published["fields"]["topic"], &published["fields"]["offset"]), (&json!("t"), &json!(1)));
    socket.send_nack("t", "g", 1, &json!({"reason": "boom"}));
    let dead = line(&server, "the line of the dead letter", |line| is(line, "dead-lettered"));
    assert_eq!((&dead["level"], &dead["fields"]["trace_id"]), (&json!("WARN"), &json!(TRACE)));
    assert_eq!((&dead["fields"]["group"], &dead["fields"]["reason"]), (&json!("g"), &json!("boom")));
    for topic in ["t.DLQ", "system.bus.dlq"] {
        let (_, page) = server.get(&format!("/topics/{topic}/events"));
        assert_eq!(page["events"][0]["headers"]["traceparent"], PARENT, "{topic}");
    }
}

#[test]
fn the_trace_of_a_request_is_given_to_events_that_have_none() {
    let server = talkative();
    let traced = [("traceparent", PARENT.to_owned()), ("tracestate", "a=1,b=2".to_owned())];
    let events = json!([{"payload": 1}, {"payload": 2, "headers": {"traceparent": OTHER_PARENT, "x": "y"}}, {"payload": 3, "headers": {"x": "y"}}]);
    let response = server.send("POST", "/topics/t/events", &traced, events.to_string().into_bytes());
    assert_eq!(response.status().as_u16(), 200);
    let (_, page) = server.get("/topics/t/events");
    let headers: Vec<_> =
        page["events"].as_array().expect("events").iter().map(|event| event["headers"].clone()).collect();
    assert_eq!(headers[0], json!({"traceparent": PARENT, "tracestate": "a=1,b=2"}));
    assert_eq!(headers[1], json!({"traceparent": OTHER_PARENT, "x": "y"}), "its own stays");
    assert_eq!(headers[2], json!({"traceparent": PARENT, "tracestate": "a=1,b=2", "x": "y"}));
    let one = json!({"payload": 4, "headers": {"traceparent": OTHER_PARENT}}).to_string().into_bytes();
    server.send("POST", "/topics/t/events", &traced, one);
    line(&server, "the event's own trace", |line| {
        is(line, "published") && line["fields"]["trace_id"] == OTHER_TRACE
    });
    let request = line(&server, "the line of the request", |line| is(line, "request"));
    assert_eq!((&request["fields"]["trace_id"], &request["fields"]["status"]), (&json!(TRACE), &json!(200)));
    server.post("/topics/t/events", &json!({"payload": 5}));
    let (_, page) = server.get("/topics/t/events?from=5");
    assert_eq!(page["events"][0].get("headers"), None, "no trace, no header");
}

#[test]
fn refusals_tell_the_trace_they_belong_to() {
    let server = talkative();
    let traced = [("traceparent", PARENT.to_owned())];
    assert_eq!(server.send("POST", "/topics/a..b/events", &traced, b"{}".to_vec()).status().as_u16(), 400);
    let refused = |line: &Value, code: &str| is(line, "refused") && line["fields"]["code"] == code;
    let http = line(&server, "the refusal over HTTP", |line| refused(line, "bad_topic"));
    assert_eq!((&http["fields"]["trace_id"], &http["level"]), (&json!(TRACE), &json!("INFO")));
    let mut socket = server.socket();
    let late = json!({"type": "PUBLISH", "topic": "t", "payload": 1, "delay_ms": 1u64 << 50, "headers": {"traceparent": OTHER_PARENT}});
    socket.send(&late);
    socket.refused("bad_frame");
    let frame = line(&server, "the refusal of a frame", |line| refused(line, "bad_frame"));
    assert_eq!(frame["fields"]["trace_id"], OTHER_TRACE, "{frame}");
}

#[test]
fn what_is_no_traceparent_is_a_header_like_any_other() {
    let server = talkative();
    let wrong = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
    let mut socket = server.socket();
    let publish = json!({"type": "PUBLISH", "topic": "t", "payload": 1, "headers": {"traceparent": wrong}});
    socket.send(&publish);
    socket.expect("PUBLISHED");
    let (_, page) = server.get("/topics/t/events");
    assert_eq!(page["events"][0]["headers"], json!({"traceparent": wrong}));
    let published = line(&server, "the line of the publish", |line| is(line, "published"));
    assert_eq!(published["fields"].get("trace_id"), None, "{published}");
    server.send("GET", "/topics", &[("traceparent", "nonsense".to_owned())], Vec::new());
    let request =
        line(&server, "the request", |line| is(line, "request") && line["fields"]["path"] == "/topics");
    assert_eq!(request["fields"].get("trace_id"), None, "{request}");
}
