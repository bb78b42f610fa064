//! CloudEvents over HTTP, in and out, in every mode.

use serde_json::{Value, json};

use crate::server::Server;

const ONE: &str = "application/cloudevents+json";
const BATCH: &str = "application/cloudevents-batch+json";

fn post(server: &Server, headers: &[(&str, &str)], body: &[u8]) -> (u16, Value) {
    let headers: Vec<(&str, String)> =
        headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let mut response = server.send("POST", "/topics/t/events", &headers, body.to_vec());
    let text = response.body_mut().read_to_string().expect("a body");
    (response.status().as_u16(), serde_json::from_str(&text).expect("JSON"))
}

fn read(server: &Server, query: &str) -> Value {
    let headers = [("accept", format!("text/html;q=0.1, {BATCH}"))];
    let mut response = server.send("GET", &format!("/topics/t/events{query}"), &headers, Vec::new());
    assert_eq!(response.headers()["content-type"], BATCH);
    assert!(response.headers().contains_key("millrace-next"));
    serde_json::from_str(&response.body_mut().read_to_string().expect("a body")).expect("JSON")
}

#[test]
fn structured_batched_and_binary_events_come_back_as_they_were_also_after_a_crash() {
    let mut server = Server::start();
    let one = json!({"specversion": "1.0", "id": "1", "source": "/a", "type": "made", "subject": "s", "num": 7,
        "flag": true, "time": "2026-11-15T12:00:00.5+01:00", "dataschema": "https://x.example/s",
        "datacontenttype": "application/json", "partitionkey": "k", "data": {"a": 1}});
    let two = json!({"specversion": "1.0", "id": "1", "source": "/b", "type": "made", "data_base64": "/wA="});
    let three = json!({"specversion": "1.0", "id": "2", "source": "/b", "type": "made"});
    let (status, published) = post(
        &server,
        &[("content-type", "application/CloudEvents+JSON; charset=UTF-8")],
        one.to_string().as_bytes(),
    );
    assert_eq!((status, &published["offset"], &published["id"]), (200, &json!(1), &json!("/a 1")));
    let (status, published) =
        post(&server, &[("content-type", BATCH)], json!([two, three]).to_string().as_bytes());
    assert_eq!((status, &published["offsets"]), (200, &json!([[0, 2], [0, 3]])), "{published}");
    let binary = [
        ("ce-specversion", "1.0"),
        ("ce-id", "4"),
        ("ce-source", "/c"),
        ("ce-type", "made"),
        ("ce-subject", "%E2%82%AC"),
        ("content-type", "image/png"),
    ];
    assert_eq!(post(&server, &binary, b"\x89PNG").0, 200);
    server.kill_and_restart();
    let four = json!({"specversion": "1.0", "id": "4", "source": "/c", "type": "made", "subject": "€",
        "datacontenttype": "image/png", "data_base64": "iVBORw=="});
    assert_eq!(read(&server, ""), json!([one, two, three, four]));
    assert_eq!(read(&server, "?from=4"), json!([four]));
    assert_eq!(read(&server, "?from=5"), json!([]));
    let envelope = &server.get("/topics/t/events?limit=1").1["events"][0];
    assert_eq!((&envelope["key"], &envelope["payload"]), (&json!("k"), &json!({"a": 1})));
    assert_eq!(envelope["headers"]["ce-type"], "made");
}

#[test]
fn source_and_id_together_tell_duplicates() {
    let server = Server::start();
    let event =
        |source: &str| json!({"specversion": "1.0", "id": "1", "source": source, "type": "t"}).to_string();
    let publish =
        |source| post(&server, &[("content-type", ONE)], event(source).as_bytes()).1["offset"].clone();
    assert_eq!(
        (publish("/a"), publish("/b"), publish("/a"), publish("/b")),
        (json!(1), json!(2), json!(1), json!(2))
    );
}

#[test]
fn events_of_the_socket_are_cloud_events_and_cloud_events_are_delivered_there() {
    let server = Server::start();
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({}));
    socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": [1], "key": "k", "id": "e1", "headers": {"x": "y"}}));
    let _ = (socket.next(), socket.next());
    let page = read(&server, "");
    let expected = json!([{"specversion": "1.0", "id": "e1", "source": "/namespaces/default/topics/t", "type": "t",
        "time": page[0]["time"], "datacontenttype": "application/json", "partitionkey": "k", "partition": 0, "offset": "1",
        "millraceheaders": "{\"x\":\"y\"}", "data": [1]}]);
    assert_eq!(page, expected);
    assert!(page[0]["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{page}");
    let event =
        json!({"specversion": "1.0", "id": "2", "source": "/a", "type": "made", "data": "x"}).to_string();
    post(&server, &[("content-type", ONE)], event.as_bytes());
    let envelope = socket.expect("MESSAGE")["envelope"].clone();
    assert_eq!((&envelope["payload"], &envelope["headers"]["ce-source"]), (&json!("x"), &json!("/a")));
}

#[test]
fn bad_cloud_events_get_one_clear_problem_and_store_nothing() {
    let server = Server::start();
    server.post("/topics", &json!({"topic": "t"}));
    let good = r#"{"specversion":"1.0","id":"1","source":"/a","type":"t"}"#;
    let huge = format!(
        r#"{{"specversion":"1.0","id":"1","source":"/a","type":"t","data":"{}"}}"#,
        "x".repeat(2 << 20)
    );
    // Fits as bytes, but not as base64.
    let bytes = vec![0xff; (1 << 20) - 1000];
    let binary = |more: &[(&'static str, &'static str)]| {
        [&[("ce-id", "1"), ("ce-source", "/a"), ("ce-type", "t"), ("content-type", "a/b")], more].concat()
    };
    for (headers, body, status, code, detail) in [
        (vec![("content-type", ONE)], &b"{}"[..], 400, "bad_frame", "specversion is missing"),
        (vec![("content-type", ONE)], b"\xff", 400, "bad_json", "not valid JSON: the body is not UTF-8"),
        (vec![("content-type", ONE)], b"[]", 400, "bad_frame", "a CloudEvent is a JSON object"),
        (
            vec![("content-type", BATCH)],
            good.as_bytes(),
            400,
            "bad_frame",
            "a batch of CloudEvents is a JSON array",
        ),
        (vec![("content-type", BATCH)], b"[]", 400, "bad_frame", ""),
        (
            vec![("content-type", BATCH)],
            b"[5]",
            400,
            "bad_frame",
            "events[0] is no object: it must be a CloudEvent",
        ),
        (
            vec![("content-type", "application/cloudevents+xml")],
            b"<x/>",
            415,
            "bad_frame",
            "application/cloudevents+xml is",
        ),
        (vec![("content-type", ONE)], huge.as_bytes(), 413, "too_large", "the body is too large"),
        (binary(&[]), b"", 400, "bad_frame", "specversion is missing"),
        (binary(&[("ce-specversion", "2.0")]), b"", 400, "bad_frame", "specversion is \"2.0\""),
        (
            binary(&[("ce-specversion", "1.0"), ("ce-bad_name", "x")]),
            b"",
            400,
            "bad_frame",
            "attribute \"bad_name\"",
        ),
        (binary(&[("ce-specversion", "1.0")]), &bytes, 413, "too_large", "the event is too large"),
    ] {
        let (found, problem) = post(&server, &headers, body);
        assert_eq!((found, &problem["code"]), (status, &json!(code)), "{headers:?}: {problem}");
        assert!(problem["detail"].as_str().is_some_and(|text| text.starts_with(detail)), "{problem}");
    }
    assert_eq!(read(&server, ""), json!([]));
}

#[test]
fn a_page_of_an_allowed_origin_may_send_a_binary_event() {
    let server = Server::with(&["--allow-origin", "https://app.example"]);
    let origin = ("origin", "https://app.example".to_owned());
    let preflight = [
        origin.clone(),
        ("access-control-request-method", "POST".to_owned()),
        (
            "access-control-request-headers",
            "ce-id,ce-myext,ce-source,ce-specversion,ce-type,content-type,x-other".to_owned(),
        ),
    ];
    let answer = server.send("OPTIONS", "/topics/t/events", &preflight, Vec::new());
    assert_eq!(answer.status().as_u16(), 204);
    let header = |name: &str| answer.headers()[name].to_str().expect("text").to_owned();
    assert_eq!(header("access-control-allow-origin"), "https://app.example");
    let allowed = header("access-control-allow-headers");
    let allowed: Vec<&str> = allowed.split(", ").collect();
    for name in
        ["ce-id", "ce-myext", "ce-source", "ce-specversion", "ce-type", "content-type", "authorization"]
    {
        assert!(allowed.contains(&name), "{name} is not in {allowed:?}");
    }
    assert!(!allowed.contains(&"x-other"));
    let event = [
        ("ce-specversion", "1.0"),
        ("ce-id", "1"),
        ("ce-source", "/page"),
        ("ce-type", "made"),
        ("ce-myext", "x"),
    ];
    let headers: Vec<(&str, String)> =
        event.iter().map(|(name, value)| (*name, (*value).to_owned())).chain([origin]).collect();
    let answer = server.send("POST", "/topics/t/events", &headers, b"{}".to_vec());
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(answer.headers()["access-control-allow-origin"], "https://app.example");
    assert_eq!(read(&server, "")[0]["myext"], "x");
    // Other origins are still refused.
    let stranger =
        [("origin", "https://evil.example".to_owned()), ("access-control-request-method", "POST".to_owned())];
    assert_eq!(server.send("OPTIONS", "/topics/t/events", &stranger, Vec::new()).status().as_u16(), 403);
}

#[test]
fn accept_is_weighed_by_its_qualities() {
    let server = Server::start();
    server.socket().publish("t", &json!(1));
    for (accept, kind) in [
        ("application/cloudevents+json;q=0, application/json", "application/json"),
        ("application/json;q=0.1, application/cloudevents-batch+json", BATCH),
        ("application/x-ndjson;q=0.5, application/json;q=0.4", "application/x-ndjson"),
        ("application/x-ndjson, application/json", "application/x-ndjson"),
        ("application/json, application/x-ndjson", "application/json"),
        ("*/*, application/x-ndjson;q=0.1", "application/x-ndjson"),
        ("application/json;q=0, */*", "application/x-ndjson"),
        ("text/html, */*;q=0.8", "application/json"),
        ("text/html", "application/json"),
    ] {
        let response = server.send("GET", "/topics/t/events", &[("accept", accept.to_owned())], Vec::new());
        assert_eq!(response.headers()["content-type"], kind, "{accept}");
    }
}
