//! `OsClient` and `millrace send` against the real server.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use millrace_client::{JsonText, OsClient, OsClientError, OsKind, OsOptions, OsRequest};
use serde_json::{Value, json};

use crate::run::{command, finish, run, run_with_stdin};
use crate::server::Server;

fn server() -> (Server, PathBuf) {
    let server = Server::with(&["--socket", "os.sock"]);
    let path = server.folder().join("os.sock");
    (server, path)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn code_of<T: std::fmt::Debug>(result: Result<T, OsClientError>) -> u16 {
    match result.unwrap_err() {
        OsClientError::Refused(fault) => fault.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_asks_many_things_at_once() {
    let (_server, path) = server();
    block_on(async {
        let client = OsClient::connect(OsOptions::new(path)).await.unwrap();
        let asked = (0..2000).map(|n| {
            let client = client.clone();
            tokio::spawn(async move { client.query("Syscall.Ping", &json!({ "payload": n })).await })
        });
        for (n, reply) in asked.collect::<Vec<_>>().into_iter().enumerate() {
            let reply = reply.await.unwrap().unwrap();
            assert_eq!(serde_json::from_str::<Value>(reply.as_str()).unwrap(), json!({ "payload": n }));
        }
        let exact = JsonText::parse(r#"{"payload":[1e400, -0,"\ud800",12345678901234567890]}"#).unwrap();
        let request = OsRequest::new(OsKind::Query, "Syscall.Ping", exact).unwrap().correlation("c").unwrap();
        let reply = client.send(request).await.unwrap();
        assert_eq!(reply.data.as_str(), r#"{"payload":[1e400, -0,"\ud800",12345678901234567890]}"#);
        assert_eq!(reply.metadata.correlation.unwrap().as_str(), "c");
        assert_eq!(code_of(client.query("Duck.Count", &json!({})).await), 404);
        assert_eq!(code_of(client.command("Memory.Set", &json!({ "key": 5 })).await), 422);
        client.emit("Duck.Seen", &json!({})).await.unwrap();
        client.close().await;
    });
}

#[test]
fn what_was_set_outlives_a_kill_and_the_client_says_that_it_lost_the_server() {
    let (mut server, path) = server();
    block_on(async {
        let client = OsClient::connect(OsOptions::new(&path)).await.unwrap();
        client.command("Memory.Set", &json!({ "key": "/ducks", "value": 3 })).await.unwrap();
        server.kill();
        let lost = client.query("Syscall.Ping", &json!({ "payload": 1 })).await;
        assert!(matches!(lost, Err(OsClientError::Disconnected(_))), "{lost:?}");
        server.restart();
        let client = OsClient::connect(OsOptions::new(&path)).await.unwrap();
        let timeout = Some(Duration::from_secs(600));
        let key = JsonText::parse(r#"{"key":"/ducks"}"#).unwrap();
        assert_eq!(client.request(OsKind::Query, "Memory.Get", key, timeout).await.unwrap().as_str(), "3");
    });
}

#[test]
fn send_prints_what_the_server_says() {
    let (mut server, path) = server();
    let socket = path.to_str().unwrap();
    let ping = r#"{"kind":"query","type":"Syscall.Ping","data":{"payload":1.0}}"#;
    let printed = run(&["send", ping, "--socket", socket]).ok();
    assert!(
        printed.starts_with(r#"{"kind":"reply","type":"Syscall.Ping","data":{"payload":1.0},"#),
        "{printed}"
    );
    assert_eq!(printed.lines().count(), 1);

    let lines =
        format!("{ping}\n{{nonsense\n\r\n{{\"kind\":\"event\",\"type\":\"Duck.Seen\",\"data\":1}}\n{ping}");
    let ran = run_with_stdin(&["send", "--socket", socket], &lines);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("1 of 3 outcomes are errors"), "{}", ran.stderr);
    let outcomes: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: BTreeSet<&str> =
        outcomes.iter().filter_map(|outcome| outcome["metadata"]["id"].as_str()).collect();
    assert_eq!(ids.len(), 3, "every outcome has an id of its own: {ids:?}");
    let error = outcomes.iter().find(|outcome| outcome["kind"] == "error").unwrap();
    assert_eq!((&error["type"], &error["data"]["code"]), (&json!("Validation.Failed"), &json!(400)));
    assert!(error["metadata"].get("causation").is_none(), "{error}");

    let long = format!(r#"{{"kind":"query","type":"Syscall.Ping","data":"{}"}}"#, "x".repeat(20_000));
    let ran = run_with_stdin(&["send", "--socket", socket], &long);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains("Message exceeds maximum line length of 16KB"), "{}", ran.stdout);

    // The input is a file: a test that writes into a pipe without reading the output would block itself.
    let many = server.folder().join("many.ndjson");
    std::fs::write(&many, format!("{ping}\n").repeat(5000)).unwrap();
    let output =
        command(&["send", "-", "--socket", socket]).stdin(File::open(&many).unwrap()).output().unwrap();
    assert_eq!(finish(output).ok().lines().count(), 5000);

    server.terminate();
    run(&["send", ping, "--socket", socket]).refused(3, &["cannot reach"]);
}

#[test]
fn send_can_be_ended_while_nobody_reads_what_it_prints() {
    let (server, path) = server();
    let many = server.folder().join("many.ndjson");
    let ping = r#"{"kind":"query","type":"Syscall.Ping","data":{"payload":1}}"#;
    std::fs::write(&many, format!("{ping}\n").repeat(5000)).unwrap();
    let mut child = command(&["send", "--socket", path.to_str().unwrap()])
        .stdin(File::open(&many).unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The command prints; the pipe cannot hold all of it.
    let mut byte = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
