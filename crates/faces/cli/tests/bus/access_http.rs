//! Every endpoint without a token, with a wrong one, without the needed scope, and outside the namespace.

use serde_json::json;

use crate::access::{open, server};

/// Every endpoint, with a token that has every scope but the one it needs.
const WAYS: &[(&str, &str, &str)] = &[
    ("POST", "/topics", "alice-secret"),
    ("GET", "/topics", "writer-secret"),
    ("GET", "/topics/t", "writer-secret"),
    ("PATCH", "/topics/t", "alice-secret"),
    ("DELETE", "/topics/t", "alice-secret"),
    ("GET", "/topics/t/offsets", "writer-secret"),
    ("POST", "/topics/t/events", "reader-secret"),
    ("GET", "/topics/t/events", "writer-secret"),
    ("GET", "/topics/t/groups", "writer-secret"),
    ("GET", "/topics?contains=t&sort=lag", "writer-secret"),
    ("GET", "/topics/t/events?order=desc&partition=all", "writer-secret"),
    ("GET", "/topics/t/tail", "writer-secret"),
    ("GET", "/events/e", "writer-secret"),
    ("GET", "/trace?id=e", "writer-secret"),
    ("GET", "/topics/t/groups/g", "writer-secret"),
    ("GET", "/topics/t/groups/g/inflight", "writer-secret"),
    ("POST", "/topics/t/groups/g/pause", "writer-secret"),
    ("POST", "/topics/t/groups/g/resume", "writer-secret"),
    ("DELETE", "/topics/t/groups/g", "alice-secret"),
    ("POST", "/topics/t/groups/g/seek", "writer-secret"),
    ("GET", "/dead-letters", "writer-secret"),
    ("GET", "/dead-letters?topic=t", "writer-secret"),
    ("POST", "/dead-letters/t/replay", "reader-secret"),
    ("POST", "/dead-letters/t/replay", "writer-secret"),
    ("GET", "/dead-letters/t/summary", "writer-secret"),
    ("POST", "/dead-letters/t/delete", "alice-secret"),
    ("GET", "/jobs", "writer-secret"),
    ("POST", "/jobs", "reader-secret"),
    ("POST", "/jobs", "writer-secret"),
    ("GET", "/jobs/1", "writer-secret"),
    ("DELETE", "/jobs/1", "reader-secret"),
    ("GET", "/handlers", "writer-secret"),
    ("GET", "/handlers/h/claims", "writer-secret"),
    ("DELETE", "/handlers/h", "alice-secret"),
    ("POST", "/handlers/h/dead-letters/replay", "reader-secret"),
    ("POST", "/handlers/h/dead-letters/replay", "writer-secret"),
    ("POST", "/handlers/h/dead-letters/delete", "alice-secret"),
    ("GET", "/sessions", "writer-secret"),
    ("GET", "/schedules", "writer-secret"),
    ("POST", "/schedules/s/run", "alice-secret"),
    ("POST", "/schedules/s/pause", "alice-secret"),
    ("POST", "/schedules/s/resume", "alice-secret"),
    ("GET", "/delayed", "writer-secret"),
    ("POST", "/delayed/0-0-0/now", "alice-secret"),
    ("DELETE", "/delayed/0-0-0", "alice-secret"),
    ("GET", "/timers", "reader-secret"),
    ("DELETE", "/timers/t", "alice-secret"),
    ("GET", "/stats", "alice-secret"),
    ("GET", "/stats/history", "alice-secret"),
    ("GET", "/metrics", "alice-secret"),
    ("GET", "/capabilities", "alice-secret"),
    ("POST", "/os/messages", "alice-secret"),
    ("GET", "/connections", "alice-secret"),
    ("DELETE", "/connections/ws-1", "alice-secret"),
    ("GET", "/settings", "alice-secret"),
    ("GET", "/log", "alice-secret"),
];

#[test]
fn no_endpoint_answers_without_a_token_or_with_a_wrong_one() {
    let server = server();
    let nowhere = [("GET", "/nowhere", ""), ("PUT", "/topics", "")];
    for (method, path, _) in WAYS.iter().chain(&nowhere) {
        let mut response = server.send(method, path, &[], Vec::new());
        assert_eq!(response.status().as_u16(), 401, "{method} {path}");
        assert_eq!(response.headers()["www-authenticate"], "Bearer realm=\"millrace\"");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let text = response.body_mut().read_to_string().expect("a body");
        assert!(text.contains("\"code\":\"unauthorized\""), "{text}");
        for (header, value) in [
            ("authorization", "Bearer nope"),
            ("authorization", "Bearer "),
            ("authorization", "Basic cm9vdC1zZWNyZXQ="),
            ("authorization", "root-secret"),
            ("x-agent-id", "root"),
            ("cookie", "token=root-secret"),
        ] {
            let response = server.send(method, path, &[(header, value.to_owned())], Vec::new());
            assert_eq!(response.status().as_u16(), 401, "{method} {path} with {value}");
        }
    }
    assert_eq!(server.get("/topics?token=root-secret").0, 401, "not in the address, where logs keep it");
}

#[test]
fn probes_need_no_token() {
    let server = server();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.get(path).0, 200, "{path}");
    }
}

#[test]
fn every_endpoint_needs_its_scope() {
    let server = server();
    for (method, path, token) in WAYS {
        let (status, problem) = server.request_as(token, method, path, &json!({}));
        assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{method} {path}: {problem}");
    }
}

#[test]
fn every_endpoint_asks_for_the_namespace() {
    let server = server();
    for (method, path, _) in WAYS {
        let mark = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{mark}namespace=us");
        let (status, problem) = server.request_as("tenant-secret", method, &path, &json!({}));
        assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{method} {path}: {problem}");
    }
}

#[test]
fn with_its_scope_every_endpoint_does_its_work() {
    let server = server();
    let ask = |token, method, path, body| server.request_as(token, method, path, &body).0;
    assert_eq!(ask("root-secret", "POST", "/topics", json!({"topic": "t"})), 201);
    assert_eq!(ask("root-secret", "PATCH", "/topics/t", json!({"maxAttempts": 1})), 200);
    assert_eq!(ask("writer-secret", "POST", "/topics/t/events", json!({"payload": 1})), 200);
    assert_eq!(ask("writer-secret", "POST", "/topics/t/events", json!([{"payload": 2}])), 200);
    let mut reader = open(&server, "reader-secret");
    reader.subscribe("t", "g", &json!({"from": {"kind": "earliest"}, "max_inflight": 1}));
    reader.message();
    reader.send_nack("t", "g", 1, &json!({"rid": 1}));
    while reader.next()["type"] != "OK" {}
    drop(reader);
    // The dead letter has a commit of its own, after the answer to the NACK.
    while ask("reader-secret", "GET", "/topics/t.DLQ", json!(null)) == 404 {}
    for path in ["/topics", "/topics/t", "/topics/t/offsets", "/topics/t/events", "/dead-letters?topic=t"] {
        assert_eq!(ask("reader-secret", "GET", path, json!(null)), 200, "{path}");
    }
    let seek =
        || ask("reader-secret", "POST", "/topics/t/groups/g/seek", json!({"from": {"kind": "earliest"}}));
    while seek() == 409 {}
    assert_eq!(seek(), 200);
    assert_eq!(ask("alice-secret", "POST", "/dead-letters/t/replay", json!({})), 200);
    for token in ["watcher-secret", "root-secret"] {
        assert_eq!(ask(token, "GET", "/stats", json!(null)), 200);
        assert_eq!(ask(token, "GET", "/metrics", json!(null)), 200);
    }
    assert_eq!(ask("root-secret", "DELETE", "/topics/t", json!(null)) / 100, 2);
}

#[test]
fn metrics_name_only_topics_of_the_tokens_namespaces() {
    let server = server();
    for namespace in ["eu", "us"] {
        let path = format!("/topics/secret-{namespace}/events?namespace={namespace}");
        assert_eq!(server.request_as("root-secret", "POST", &path, &json!({"payload": 1})).0, 200);
    }
    let (status, text) = server.request_as("tenant-secret", "GET", "/metrics?namespace=eu", &json!(null));
    let text = text.to_string();
    assert!(status == 200 && text.contains("secret-eu") && !text.contains("secret-us"), "{text}");
}

#[test]
fn a_token_of_another_namespace_looks_at_the_server_without_naming_it() {
    let config = "[[auth.tokens]]\ntoken = 'blue-secret'\nagent = 'blue'\nscopes = ['publish', 'metrics']\n\
        namespaces = ['blue', 'green']\n[[auth.tokens]]\ntoken = 'root-secret'\nagent = 'root'\nscopes = ['admin']\n\
        namespaces = ['*']\n";
    let server = crate::server::Server::with_config(config, &[]);
    for namespace in ["blue", "green", "default"] {
        let path = format!("/topics/of-{namespace}/events?namespace={namespace}");
        assert_eq!(server.request_as("root-secret", "POST", &path, &json!({"payload": 1})).0, 200);
    }
    let get = |path: &str| server.request_as("blue-secret", "GET", path, &json!(null));
    let (status, metrics) = get("/metrics");
    let metrics = metrics.to_string();
    assert_eq!(status, 200, "{metrics}");
    assert!(metrics.contains("of-blue") && metrics.contains("of-green") && !metrics.contains("of-default"));
    let (status, stats) = get("/stats");
    assert_eq!(status, 200, "{stats}");
    let stats = stats.to_string();
    assert!(stats.contains("of-blue") && !stats.contains("of-default"), "{stats}");
    assert!(get("/stats?namespace=green").1.to_string().contains("of-green"));
    for path in ["/stats?namespace=default", "/metrics?namespace=default", "/stats?namespace=red"] {
        assert_eq!(get(path).0, 403, "{path}");
    }
}

#[test]
fn any_token_learns_what_it_may_do_and_where() {
    let server = server();
    for path in ["/whoami", "/namespaces"] {
        assert_eq!(server.get(path).0, 401, "{path}");
        assert_eq!(server.request_as("nope", "GET", path, &json!(null)).0, 401, "{path}");
    }
    let (status, me) = server.request_as("tenant-secret", "GET", "/whoami", &json!(null));
    assert_eq!((status, &me["agent"], &me["open"]), (200, &json!("tenant"), &json!(false)), "{me}");
    assert_eq!(me["namespaces"], json!(["eu"]));
    let (status, list) = server.request_as("tenant-secret", "GET", "/namespaces", &json!(null));
    let names: Vec<_> =
        list["namespaces"].as_array().expect("a list").iter().map(|one| &one["namespace"]).collect();
    assert!(status == 200 && !names.contains(&&json!("default")), "{list}");
}

#[test]
fn the_files_of_the_console_need_no_token_and_nothing_else_is_given_away() {
    let server = server();
    let (status, page) = server.request("GET", "/console/", None);
    assert_eq!(status, 200);
    assert!(page.contains("<title>Millrace</title>") && !page.contains("secret"), "{page}");
}
