//! Pages for administrators: connections, settings, the log, capabilities; and messages of the loop over HTTP.

use serde_json::{Value, json};

use tungstenite::protocol::frame::coding::CloseCode;

use crate::access::{open, server};
use crate::server::{Server, eventually};

const ROOT: &str = "[[auth.tokens]]\ntoken = \"root-secret\"\nagent = \"root\"\nscopes = [\"admin\"]\n";

fn as_root(server: &Server, method: &str, path: &str) -> (u16, Value) {
    server.request_as("root-secret", method, path, &Value::Null)
}

fn connections(server: &Server) -> Vec<Value> {
    let (status, list) = as_root(server, "GET", "/connections");
    assert_eq!(status, 200, "{list}");
    list["connections"].as_array().expect("a list").clone()
}

#[test]
fn connections_are_listed_with_what_they_hold_and_closed_on_demand() {
    let server = server();
    let create = json!({"topic": "t"});
    assert_eq!(server.request_as("root-secret", "POST", "/topics", &create).0, 201);
    for at in 0..3 {
        let event = json!({ "payload": at });
        assert_eq!(server.request_as("writer-secret", "POST", "/topics/t/events", &event).0, 200);
    }
    let mut reader = open(&server, "reader-secret");
    reader.subscribe("t", "g", &json!({"from": {"kind": "earliest"}, "max_inflight": 2}));
    reader.message();
    reader.message();
    let found = connections(&server);
    let [one] = &found[..] else { panic!("one connection: {found:?}") };
    assert_eq!((&one["door"], &one["namespace"]), (&json!("ws"), &json!("default")));
    assert_eq!((&one["subscriptions"], &one["inflight"]), (&json!(1), &json!(2)), "{one}");
    assert_eq!((&one["congested"], one["agent"].is_string()), (&json!(false), true), "{one}");
    assert!(one["peer"].as_str().expect("a peer").starts_with("127.0.0.1:"), "{one}");
    let id = one["id"].as_str().expect("an id").to_owned();
    let group = as_root(&server, "GET", "/topics/t/groups/g").1;
    assert_eq!(format!("ws-{}", group["members"][0]["connection"]), id, "the number that groups show");

    assert_eq!(
        server.request_as("reader-secret", "DELETE", &format!("/connections/{id}"), &Value::Null).0,
        403
    );
    assert_eq!(as_root(&server, "DELETE", &format!("/connections/{id}")).0, 204);
    let end = loop {
        if let Err(end) = reader.next_or_close() {
            break end;
        }
    };
    assert_eq!(end, Some(CloseCode::Again));
    eventually("the connection is gone", || connections(&server).is_empty());
    assert_eq!(as_root(&server, "DELETE", &format!("/connections/{id}")).0, 404);
    for id in ["ws-0x1", "ws", "http-1"] {
        assert_eq!(as_root(&server, "DELETE", &format!("/connections/{id}")).0, 400, "{id}");
    }
    // The events that it held were given back without counting an attempt.
    let held = as_root(&server, "GET", "/topics/t/groups/g/inflight").1;
    assert!(
        held["inflight"].as_array().expect("a list").iter().all(|one| one["state"] != "leased"),
        "{held}"
    );
}

#[test]
fn a_page_of_connections_says_where_to_go_on() {
    let server = Server::start();
    let sockets: Vec<_> = (0..3).map(|_| server.socket()).collect();
    let page = |path: &str| {
        let (status, list) = server.get(path);
        assert_eq!(status, 200, "{list}");
        let ids = list["connections"].as_array().expect("a list").iter().map(|one| one["id"].clone());
        (ids.collect::<Vec<Value>>(), list["next"].as_str().map(str::to_owned))
    };
    eventually("all are listed", || page("/connections").0.len() == 3);
    let (first, next) = page("/connections?limit=2");
    assert_eq!(first.len(), 2);
    let (rest, end) = page(&format!("/connections?limit=2&after={}", next.expect("more")));
    assert_eq!((rest.len(), end), (1, None));
    assert!(!first.contains(&rest[0]));
    assert_eq!(page("/connections?namespace=other").0.len(), 0);
    drop(sockets);
}

#[test]
fn the_unix_socket_is_listed_and_closed_too() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("os.sock");
    let server = Server::with(&["--socket", path.to_str().expect("text")]);
    let mut client = UnixStream::connect(&path).expect("a connection");
    let ping = r#"{"kind":"query","type":"Syscall.Ping","data":1,"metadata":{"id":"a","timestamp":1}}"#;
    writeln!(client, "{ping}").expect("a line");
    let mut lines = BufReader::new(client.try_clone().expect("a handle"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("an answer");
    let list = server.get("/connections").1;
    let one = &list["connections"][0];
    assert_eq!((&one["door"], &one["inflight"]), (&json!("socket"), &json!(0)), "{list}");
    let id = one["id"].as_str().expect("an id");
    assert_eq!(server.request("DELETE", &format!("/connections/{id}"), None).0, 204);
    line.clear();
    assert_eq!(lines.read_line(&mut line).expect("the end"), 0, "{line}");
    eventually("it is gone", || server.get("/connections").1["connections"] == json!([]));
}

#[test]
fn settings_name_their_source_and_no_secret() {
    let config = format!("token = \"client-secret\"\nlist_max = 77\n{ROOT}");
    let server = Server::with_config(&config, &["--frame-bytes-max", "500000"]);
    let (status, doc) = as_root(&server, "GET", "/settings");
    assert_eq!(status, 200, "{doc}");
    let all = doc["settings"].as_array().expect("a list");
    let setting = |name: &str| all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}"));
    let frame = setting("frame-bytes-max");
    assert_eq!((&frame["value"], &frame["from"]), (&json!(500_000), &json!("flag")), "{frame}");
    assert_eq!((&frame["bound"], &frame["changes"]), (&json!(true), &json!("restart")), "{frame}");
    assert!(frame["accepts"].as_str().expect("text").starts_with("a whole number from"), "{frame}");
    let list_max = setting("list-max");
    assert_eq!((&list_max["value"], &list_max["from"]), (&json!(77), &json!("file millrace.toml")));
    assert_eq!(setting("tls-cert")["changes"], "SIGHUP");
    assert!(!all.iter().any(|one| one["name"] == "url"), "settings of clients are not the server's");
    let tokens = doc["tokens"].as_array().expect("a list");
    assert_eq!((&tokens[0]["agent"], &tokens[0]["scopes"]), (&json!("root"), &json!(["admin"])), "{doc}");
    let text = doc.to_string();
    assert!(!text.contains("secret\"") && !text.contains("root-secret"), "{text}");
    // A reload brings other tokens.
    let more = "[[auth.tokens]]\ntoken = \"other-secret\"\nagent = \"new\"\nscopes = [\"inspect\"]\n";
    std::fs::write(server.folder().join("millrace.toml"), format!("{config}\n{more}")).expect("a file");
    server.signal("HUP");
    eventually("the new token is listed", || {
        let tokens = as_root(&server, "GET", "/settings").1["tokens"].clone();
        tokens.as_array().expect("a list").iter().any(|token| token["agent"] == "new")
    });
}

#[test]
fn the_log_is_kept_by_level_and_for_administrators() {
    let server = Server::with_log_level(ROOT, &[], "info");
    for _ in 0..3 {
        assert_eq!(server.request_as("nobodys-secret", "GET", "/topics", &Value::Null).0, 401);
    }
    let log = |query: &str| {
        let (status, doc) = as_root(&server, "GET", &format!("/log{query}"));
        assert_eq!(status, 200, "{doc}");
        doc["lines"].as_array().expect("a list").clone()
    };
    let warnings = log("?level=warn");
    let refused = warnings.iter().find(|line| line["target"] == "millrace::audit").expect("a refusal");
    assert_eq!(
        (&refused["message"], &refused["fields"]["code"]),
        (&json!("refused"), &json!("unauthorized"))
    );
    assert!(warnings.iter().all(|line| line["level"] != "info"), "{warnings:?}");
    let (all, one) = (log(""), log("?limit=1"));
    assert!(
        all.len() >= warnings.len()
            && one.len() == 1
            && all[0]["ts"].as_u64() >= all[all.len() - 1]["ts"].as_u64()
    );
    assert!(!format!("{all:?}").contains("nobodys-secret"), "{all:?}");
    assert_eq!(as_root(&server, "GET", "/log?level=debug").0, 400);
}

const ECHO: &str = r#"import json, sys
print(json.dumps({"name": "Echo", "description": "Says it again", "inbound": [
    {"kind": "query", "type": "Echo.Say", "data": {"type": "object"}}]}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["data"].get("end"):
        sys.exit(3)
    if message["data"].get("silent"):
        continue
    print(json.dumps({"kind": "reply", "type": message["type"], "data": message["data"], "metadata": {
        "id": message["metadata"]["id"] + "-reply", "timestamp": 1, "causation": message["metadata"]["id"]}}), flush=True)
"#;

fn message(ty: &str, data: &Value) -> Value {
    json!({"kind": "query", "type": ty, "data": data, "metadata": {"id": "one", "timestamp": 1}})
}

#[test]
fn capabilities_are_listed_with_their_process_and_what_they_take() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = folder.path().join("echo.py");
    std::fs::write(&script, ECHO).expect("a file");
    let config = format!(
        "[[capability]]\nname = \"Echo\"\ncommand = [\"python3\", {script:?}]\nenv = {{ KEY = \"hidden\" }}\n"
    );
    let server = Server::with_config(&config, &["--capability-restart-pause-ms", "10"]);
    let capability = |name: &str| {
        let (status, doc) = server.get("/capabilities");
        assert_eq!(status, 200, "{doc}");
        let all = doc["capabilities"].as_array().expect("a list");
        all.iter().find(|one| one["name"] == name).cloned().unwrap_or_else(|| panic!("{name}: {doc}"))
    };
    for name in ["Timer", "Sys", "Syscall", "Memory", "Bus"] {
        let one = capability(name);
        assert_eq!(
            (&one["kind"], &one["health"], &one["pid"]),
            (&json!("built-in"), &json!("healthy"), &Value::Null)
        );
        assert!(one["since"].as_u64() > Some(1_600_000_000_000), "{one}");
    }
    let echo = capability("Echo");
    assert_eq!(
        (&echo["kind"], &echo["restarts"], &echo["description"]),
        (&json!("child"), &json!(0), &json!("Says it again"))
    );
    assert_eq!(
        (&echo["handles"][0]["type"], &echo["handles"][0]["input"]["type"]),
        (&json!("Echo.Say"), &json!("object"))
    );
    let first = echo["pid"].as_u64().expect("a process");
    let (status, outcome) = server.post("/os/messages", &message("Echo.Say", &json!({"a": 1})));
    assert_eq!(
        (status, &outcome["kind"], &outcome["data"]),
        (200, &json!("reply"), &json!({"a": 1})),
        "{outcome}"
    );
    let (status, outcome) = server.post("/os/messages", &message("Echo.Say", &json!({"end": true})));
    assert_eq!(
        (status, &outcome["kind"], &outcome["data"]["code"]),
        (200, &json!("error"), &json!(500)),
        "{outcome}"
    );
    eventually("it runs again", || {
        let echo = capability("Echo");
        echo["restarts"] == 1 && echo["pid"].as_u64().is_some_and(|pid| pid != first)
    });
    let settings = server.get("/settings").1["capabilities"].clone();
    assert_eq!(settings[0]["env"], json!(["KEY"]), "{settings}");
    assert!(!settings.to_string().contains("hidden"));
    // A request without an outcome in time is a problem; the capability may still answer.
    let path = "/os/messages?timeoutMs=1";
    let (status, problem) = server.post(path, &message("Echo.Say", &json!({"silent": true})));
    assert_eq!(status, 504, "{problem}");
}

#[test]
fn a_message_over_http_has_the_rights_of_its_token() {
    let server = server();
    let ask = |token: &str, body: &Value| server.request_as(token, "POST", "/os/messages", body);
    let ping = message("Syscall.Ping", &json!({"payload": 1}));
    assert_eq!(ask("reader-secret", &ping).0, 403);
    let (status, outcome) = ask("root-secret", &ping);
    assert_eq!((status, &outcome["data"]), (200, &json!({"payload": 1})), "{outcome}");
    assert_eq!(outcome["metadata"]["causation"], "one");
    let unknown = ask("root-secret", &message("Nobody.Home", &json!({})));
    assert_eq!((unknown.0, &unknown.1["data"]["code"]), (200, &json!(404)), "{}", unknown.1);
    let mut event = message("User.Created", &json!({}));
    event["kind"] = json!("event");
    assert_eq!(ask("root-secret", &event), (202, json!({"accepted": true})));
    event["kind"] = json!("reply");
    assert_eq!(ask("root-secret", &event).0, 400);
    assert_eq!(ask("root-secret", &json!({"kind": "query"})).0, 400);
    let long = message("Syscall.Ping", &json!("x".repeat(20_000)));
    assert_eq!(ask("root-secret", &long).0, 413);
}
