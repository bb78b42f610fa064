//! The server's answers match its own OpenAPI document.

use serde_json::{Value, json};

use crate::server::Server;

/// A running server and its document, made strict: an undocumented field fails too.
struct Described {
    server: Server,
    document: Value,
}

impl Described {
    fn with(config: &str) -> Described {
        let server = Server::with_config(config, &[]);
        let (status, mut document) = server.get("/openapi.json");
        assert_eq!(status, 200, "nobody needs a token to read the document");
        close_objects(&mut document["components"]["schemas"]);
        Described { server, document }
    }

    /// Sends a request to a path of the document with its names filled in, and checks the answer against the document.
    #[track_caller]
    fn check(
        &self,
        request: (&str, &str, &str),
        headers: &[(&str, &str)],
        body: &str,
        expected: u16,
    ) -> Value {
        let (method, template, query) = request;
        let path = template
            .replace("{topic}", "t")
            .replace("{group}", "g")
            .replace("{id}", "i")
            .replace("{job}", "1")
            .replace("{handler}", "h")
            .replace("{schedule}", "s")
            .replace("{entry}", "0-0-0")
            .replace("{timer}", "x")
            .replace("{connection}", "ws-99")
            + query;
        let headers: Vec<(&str, String)> =
            headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let mut response = self.server.send(method, &path, &headers, body.into());
        let kind = response.headers().get("content-type").map(|kind| kind.to_str().expect("text").to_owned());
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().expect("a body");
        assert_eq!(status, expected, "{method} {path}: {text}");
        let described =
            &self.document["paths"][template][method.to_lowercase()]["responses"][status.to_string()];
        let described = match described["$ref"].as_str() {
            Some(reference) => self.document.pointer(&reference[1..]).expect("a response"),
            None => described,
        };
        assert!(described.is_object(), "{method} {template} does not describe {status}: {text}");
        let Some(contents) = described.get("content") else {
            assert_eq!(text, "", "{method} {path}: no content is described");
            return Value::Null;
        };
        let kind = kind.expect("a content type");
        let kind = kind.split(';').next().unwrap_or_default();
        assert!(contents[kind].is_object(), "{method} {template} {status} does not describe {kind}");
        if !kind.ends_with("json") || kind.ends_with("ndjson") {
            return Value::String(text);
        }
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        let mut schema = contents[kind]["schema"].clone();
        schema["components"] = self.document["components"].clone();
        let schema = jsonschema::draft202012::new(&schema).expect("a schema");
        let errors: Vec<String> =
            schema.iter_errors(&answer).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{method} {path} {status}: {errors:#?}\n{answer:#}");
        answer
    }
}

/// Forbids undocumented properties wherever properties are listed.
fn close_objects(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(close_objects);
            if members.get("properties").is_some_and(Value::is_object)
                && members.get("type") == Some(&json!("object"))
            {
                members.insert("unevaluatedProperties".to_owned(), Value::Bool(false));
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(close_objects),
        _ => {}
    }
}

#[test]
fn the_answers_of_a_running_server_are_as_described() {
    let d = Described::with("");
    let topic = "/topics/{topic}";
    let events = "/topics/{topic}/events";
    let seek = "/topics/{topic}/groups/{group}/seek";
    let settings = r#"{"topic":"t","partitions":2,"retentionMs":99999999,"retentionBytes":999999,"maxAttempts":1,
        "ackTimeoutMs":30000,"dedupeWindowMs":1000,"durability":"os"}"#;
    d.check(("POST", "/topics", ""), &[], settings, 201);
    d.check(("POST", "/topics", ""), &[], settings, 200);
    d.check(("POST", "/topics", ""), &[], r#"{"topic":"t","partitions":1}"#, 409);
    d.check(("POST", "/topics", ""), &[], "{", 400);
    d.check(
        ("PATCH", topic, ""),
        &[],
        r#"{"partitions":3,"durability":null,"retentionBytes":null,"compact":true}"#,
        200,
    );
    d.check(("GET", topic, ""), &[], "", 200);
    d.check(("GET", topic, "?namespace=other"), &[], "", 404);
    let one = r#"{"payload":{"a":1},"key":"k","headers":{"x":"y"},"id":"i","priority":1}"#;
    d.check(("POST", events, ""), &[], one, 200);
    d.check(("POST", events, ""), &[], r#"{"payload":1,"delay_ms":60000}"#, 200);
    d.check(("POST", events, ""), &[], r#"[{"payload":null},{"payload":[1]}]"#, 200);
    d.check(("POST", events, ""), &[], r#"{"key":5}"#, 400);
    let mut socket = d.server.socket();
    socket.subscribe(
        "t",
        "g",
        &json!({"from": {"kind": "earliest"}, "filter": {"key": "k", "header": ["x", "y"]}}),
    );
    let delivered = socket.expect("MESSAGE");
    for partition in 0..3 {
        d.check(("GET", events, &format!("?partition={partition}&limit=2")), &[], "", 200);
    }
    d.check(("GET", events, ""), &[("accept", "application/x-ndjson")], "", 200);
    d.check(("GET", events, "?limit=0"), &[], "", 400);
    for kind in ["application/cloudevents+json", "application/cloudevents-batch+json"] {
        let page = d.check(
            ("GET", events, &format!("?partition={}", delivered["partition"])),
            &[("accept", kind)],
            "",
            200,
        );
        assert_eq!(page[0]["specversion"], "1.0", "{page}");
    }
    let cloud = r#"{"specversion":"1.0","id":"1","source":"/s","type":"t"}"#;
    d.check(("POST", events, ""), &[("content-type", "application/cloudevents+json")], cloud, 200);
    d.check(("POST", events, ""), &[("content-type", "application/cloudevents+avro")], cloud, 415);
    d.check(("GET", "/topics/{topic}/offsets", ""), &[], "", 200);
    let groups = d.check(("GET", "/topics/{topic}/groups", ""), &[], "", 200);
    assert_eq!(groups["groups"][0]["filter"]["header"], json!(["x", "y"]));
    d.check(("POST", seek, ""), &[], r#"{"from":{"kind":"earliest"}}"#, 409);
    d.check(("POST", seek, ""), &[], r#"{"from":{"kind":"earliest"},"dryRun":true}"#, 200);
    let group = "/topics/{topic}/groups/{group}";
    let shown = d.check(("GET", group, ""), &[], "", 200);
    assert_eq!((&shown["members"][0]["inflight"], &shown["paused"]), (&json!(1), &json!(false)), "{shown}");
    d.check(("GET", group, "?namespace=other"), &[], "", 404);
    let held = d.check(("GET", "/topics/{topic}/groups/{group}/inflight", ""), &[], "", 200);
    assert_eq!(held["inflight"][0]["state"], "leased", "{held}");
    d.check(("POST", "/topics/{topic}/groups/{group}/pause", ""), &[], "", 200);
    d.check(("POST", "/topics/{topic}/groups/{group}/resume", ""), &[], "", 200);
    d.check(("POST", "/topics/{topic}/groups/{group}/pause", "?namespace=other"), &[], "", 404);
    let found = d.check(("GET", events, "?order=desc&partition=all&lineage=true&limit=2"), &[], "", 200);
    assert!(found["events"][0]["lineage"].is_object() && found["more"] == json!(true), "{found}");
    d.check(("GET", events, "?order=sideways"), &[], "", 400);
    d.check(("GET", events, "?contains=a&scan=1"), &[("accept", "application/x-ndjson")], "", 200);
    d.check(("GET", "/stats/history", ""), &[], "", 200);
    d.check(("GET", "/stats/history", "?series=nonsense"), &[], "", 400);
    for path in ["/handlers", "/sessions", "/schedules", "/timers"] {
        d.check(("GET", path, ""), &[], "", 200);
        d.check(("GET", path, "?limit=0"), &[], "", 400);
    }
    let waits = d.check(("GET", "/delayed", ""), &[], "", 200);
    assert_eq!(waits["delayed"][0]["topic"], "t", "{waits}");
    for (method, path) in [
        ("GET", "/handlers/{handler}/claims"),
        ("DELETE", "/handlers/{handler}"),
        ("POST", "/schedules/{schedule}/run"),
        ("POST", "/schedules/{schedule}/pause"),
        ("POST", "/schedules/{schedule}/resume"),
        ("POST", "/delayed/{entry}/now"),
        ("DELETE", "/delayed/{entry}"),
        ("DELETE", "/timers/{timer}"),
    ] {
        d.check((method, path, ""), &[], "", 404);
    }
    for path in ["/handlers/{handler}/dead-letters/replay", "/handlers/{handler}/dead-letters/delete"] {
        d.check(("POST", path, ""), &[], "{}", 404);
        d.check(("POST", path, ""), &[], r#"{"limit":0}"#, 400);
    }
    let connected = d.check(("GET", "/connections", ""), &[], "", 200);
    assert_eq!(connected["connections"][0]["inflight"], 1, "{connected}");
    d.check(("GET", "/connections", "?after=ws-0&limit=1"), &[], "", 200);
    d.check(("GET", "/connections", "?after=x"), &[], "", 400);
    d.check(("DELETE", "/connections/{connection}", ""), &[], "", 404);
    let ping = r#"{"kind":"query","type":"Syscall.Ping","data":1,"metadata":{"id":"p","timestamp":1}}"#;
    d.check(("POST", "/os/messages", ""), &[], ping, 200);
    let event = ping.replace("query", "event").replace("Syscall.Ping", "User.Created");
    d.check(("POST", "/os/messages", ""), &[], &event, 202);
    d.check(("POST", "/os/messages", ""), &[], "{}", 400);
    d.check(("GET", "/log", "?level=all"), &[], "", 400);
    for path in ["/whoami", "/namespaces", "/console/", "/capabilities", "/settings", "/log"] {
        d.check(("GET", path, ""), &[], "", 200);
    }
    d.check(("GET", "/topics", "?contains=T&sort=lag"), &[], "", 200);
    d.check(("GET", "/topics", "?sort=size"), &[], "", 400);
    let mut letters = d.server.socket();
    letters.subscribe("t.DLQ", "watch", &json!({"from": {"kind": "earliest"}}));
    socket.send(&json!({"type": "NACK", "topic": "t", "group": "g", "partition": delivered["partition"],
        "offset": delivered["offset"]}));
    let letter = letters.expect("MESSAGE");
    let story = d.check(("GET", "/events/{id}", "?topic=t"), &[], "", 200);
    assert_eq!(story["groups"][0]["state"], "deadLettered", "{story}");
    assert_eq!(story["letters"][0]["offset"], letter["offset"], "{story}");
    d.check(("GET", "/events/{id}", "?namespace=other"), &[], "", 404);
    let trace = d.check(("GET", "/trace", "?id=i"), &[], "", 200);
    assert!(trace["nodes"].as_array().is_some_and(|nodes| nodes.len() >= 3), "{trace}");
    d.check(("GET", "/trace", "?correlation=nothing"), &[], "", 404);
    d.check(("GET", "/trace", ""), &[], "", 400);
    let listed = d.check(("GET", "/dead-letters", ""), &[], "", 200);
    assert_eq!(listed["deadLetters"][0]["count"], 1, "{listed}");
    let partition = letter["partition"].as_u64().expect("a number");
    d.check(("GET", "/dead-letters", &format!("?topic=t&partition={partition}")), &[], "", 200);
    let replay = format!(r#"{{"partition":{partition},"limit":1}}"#);
    d.check(("POST", "/dead-letters/{topic}/replay", ""), &[], &replay, 200);
    let reasons = d.check(("GET", "/dead-letters/{topic}/summary", ""), &[], "", 200);
    assert_eq!(reasons["reasons"][0]["count"], 1, "{reasons}");
    let job = r#"{"kind":"replay","topic":"t","filter":{"group":"g"},"ratePerSecond":1000}"#;
    let preview = job.replace("\"ratePerSecond\":1000", "\"dryRun\":true");
    assert_eq!(d.check(("POST", "/jobs", ""), &[], &preview, 200)["total"], 1);
    d.check(("POST", "/jobs", ""), &[], job, 202);
    d.check(("POST", "/jobs", ""), &[], r#"{"kind":"replay","topic":"t"}"#, 400);
    let jobs = d.check(("GET", "/jobs", ""), &[], "", 200);
    let id = jobs["jobs"][0]["job"].as_str().expect("a number").to_owned();
    crate::server::eventually("the job is done", || {
        d.server.get(&format!("/jobs/{id}")).1["state"] == "done"
    });
    d.check(("GET", "/jobs/{job}", ""), &[], "", 404);
    d.check(("DELETE", "/jobs/{job}", ""), &[], "", 404);
    let named = format!("[[{partition},{}]]", letter["offset"]);
    let edit =
        format!(r#"{{"edited":[{{"partition":{partition},"offset":{},"payload":7}}]}}"#, letter["offset"]);
    d.check(("POST", "/dead-letters/{topic}/replay", ""), &[], &edit, 200);
    d.check(("POST", "/dead-letters/{topic}/replay", ""), &[], &format!(r#"{{"letters":{named}}}"#), 200);
    d.check(("POST", "/dead-letters/{topic}/delete", ""), &[], &format!(r#"{{"letters":{named}}}"#), 200);
    d.check(("POST", "/dead-letters/{topic}/delete", ""), &[], "{}", 400);
    d.check(("DELETE", "/topics/{topic}/groups/{group}", ""), &[], "", 409);
    drop(socket);
    crate::server::eventually("the group has no members", || {
        d.server.get("/topics/t/groups").1["groups"][0]["members"] == 0
    });
    d.check(("POST", seek, ""), &[], r#"{"from":{"kind":"offset","value":1},"partition":0}"#, 200);
    d.check(("POST", seek, "?namespace=other"), &[], r#"{"from":{"kind":"earliest"}}"#, 404);
    d.check(("DELETE", "/topics/{topic}/groups/{group}", ""), &[], "", 204);
    let page = d.check(("GET", "/topics", "?limit=1"), &[], "", 200);
    assert_eq!(page["next"], "system.bus.audit", "{page}");
    d.check(("GET", "/topics", "?after=t"), &[], "", 200);
    d.check(("GET", "/topics", "?after=a..b"), &[], "", 400);
    for path in ["/stats", "/metrics", "/healthz", "/readyz", "/openapi.json", "/asyncapi.json", "/"] {
        d.check(("GET", path, ""), &[], "", 200);
    }
    d.check(("GET", "/ws", ""), &[], "", 426);
    d.check(("GET", "/os", ""), &[], "", 426);
    d.check(("GET", "/healthz", ""), &[("origin", "http://evil.example")], "", 403);
    d.check(("DELETE", topic, ""), &[], "", 204);
    d.check(("DELETE", topic, ""), &[], "", 404);
    let huge = format!("\"{}\"", "x".repeat(2 << 20));
    d.check(("POST", "/topics", ""), &[], &huge, 413);
}

#[test]
fn the_answers_to_strangers_and_scopes_are_as_described() {
    let d = Described::with(
        "[[auth.tokens]]\ntoken = \"reader\"\nagent = \"r\"\nscopes = [\"subscribe\"]\n\
         [[auth.tokens]]\ntoken = \"root\"\nagent = \"a\"\nscopes = [\"admin\"]\nrate = 1\nburst = 2\n",
    );
    let bearer = |token: &str| [("authorization", format!("Bearer {token}"))];
    let document = d.document.clone();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let needed = &operation["security"];
            let method = method.to_uppercase();
            let request = (method.as_str(), path.as_str(), "");
            let scopes = needed[0]["token"].as_array();
            match scopes {
                // No token is needed, or it may come later, in a frame.
                None => assert!(needed == &json!([]) || needed[0] == json!({}), "{method} {path}"),
                Some(scopes) => {
                    d.check(request, &[], "{}", 401);
                    let [(name, value)] = bearer("wrong");
                    d.check(request, &[(name, &value)], "{}", 401);
                    if scopes.iter().any(|scope| scope != "subscribe") {
                        let [(name, value)] = bearer("reader");
                        d.check(request, &[(name, &value)], "{}", 403);
                    }
                }
            }
        }
    }
    let [(name, value)] = bearer("root");
    let settings = r#"{"topic":"t","publishACL":["a","!b"],"subscribeACL":[]}"#;
    d.check(("POST", "/topics", ""), &[(name, &value)], settings, 201);
    d.check(("GET", "/topics", ""), &[(name, &value)], "", 200);
    d.check(("GET", "/topics", ""), &[(name, &value)], "", 429);
}
