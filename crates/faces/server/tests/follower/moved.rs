//! Every edge answers requests that only the leader can serve with the leader's address, in its own form.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use millrace_server::{ServerSettings, SocketFile};
use serde_json::{Value, json};

use crate::fake::{Fake, LEADER, LEADER_WS, follow};
use crate::support::{Answer, Client, http, http_with};

fn check_moved(answer: &Answer) {
    assert_eq!((answer.status, answer.code().as_str()), (503, "moved"), "{answer:?}");
    assert_eq!(answer.json()["leader"], LEADER);
    assert_eq!(answer.header("x-millrace-leader"), Some(LEADER));
    assert_eq!(answer.header("retry-after"), Some("1"));
}

/// Every request of the HTTP interface that the copy cannot answer.
pub(crate) const MOVED: &[(&str, &str, &str)] = &[
    ("POST", "/topics", r#"{"topic":"t"}"#),
    ("PATCH", "/topics/t", "{}"),
    ("DELETE", "/topics/t", ""),
    ("GET", "/topics/t/offsets", ""),
    ("POST", "/topics/t/events", r#"{"payload":1}"#),
    ("GET", "/topics/t/groups", ""),
    ("DELETE", "/topics/t/groups/g", ""),
    ("POST", "/topics/t/groups/g/seek", r#"{"from":{"kind":"earliest"}}"#),
    ("POST", "/dead-letters/t/replay", "{}"),
    ("GET", "/stats", ""),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_leader_can_do_names_the_leader() {
    let fake = Fake::empty();
    let follower = follow(ServerSettings::default(), &fake).await;
    for (method, path, body) in MOVED {
        check_moved(&http(follower.addr(), method, path, body).await);
    }
    *fake.leader.lock() = None;
    let nobody = http(follower.addr(), "POST", "/topics/t/events", r#"{"payload":1}"#).await;
    assert_eq!((nobody.status, nobody.code().as_str()), (503, "moved"));
    assert_eq!(nobody.json().get("leader"), Some(&Value::Null));
    assert_eq!((nobody.header("x-millrace-leader"), nobody.header("retry-after")), (None, Some("1")));
    // Mistakes are told as by a leader.
    assert_eq!(http(follower.addr(), "GET", "/nowhere", "").await.status, 404);
    assert_eq!(http(follower.addr(), "PUT", "/topics", "").await.status, 405);
    follower.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_with_a_large_body_gets_to_read_the_answer() {
    let follower = follow(ServerSettings::default(), &Fake::empty()).await;
    let events: Vec<_> = (0..10).map(|_| json!({"payload": "x".repeat(800 << 10)})).collect();
    let body = serde_json::to_vec(&events).unwrap();
    check_moved(&http_with(follower.addr(), "POST", "/topics/t/events", &[], &body).await);
    follower.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_is_told_where_to_connect_and_closed() {
    let fake = Fake::empty();
    let follower = follow(ServerSettings::default(), &fake).await;
    for path in ["/", "/ws", "/ws?namespace=other"] {
        let mut client = Client::connect_to(&format!("ws://{}{path}", follower.addr())).await;
        let error = client.recv().await;
        assert_eq!((&error["type"], &error["code"]), (&json!("ERROR"), &json!("moved")));
        assert_eq!(error["leader"], LEADER_WS);
        assert_eq!(client.closed().await, (1012, LEADER_WS.to_owned()));
    }
    let mut client = Client::connect_to(&format!("ws://{}/os", follower.addr())).await;
    let error = client.recv().await;
    check_os(&error);
    assert_eq!(client.closed().await, (1012, LEADER_WS.to_owned()));

    *fake.leader.lock() = Some(format!("https://{}.example", "x".repeat(120)));
    let mut client = Client::connect(follower.addr()).await;
    assert!(client.recv().await["leader"].as_str().unwrap().starts_with("wss://xxx"));
    assert_eq!(client.closed().await, (1012, String::new()), "the URL does not fit");

    *fake.leader.lock() = None;
    let mut client = Client::connect(follower.addr()).await;
    assert_eq!(client.recv().await.get("leader"), Some(&Value::Null));
    assert_eq!(client.closed().await, (1012, String::new()));
    follower.stop().await;
}

fn check_os(error: &Value) {
    assert_eq!((&error["kind"], &error["type"]), (&json!("error"), &json!("Sys.Moved")), "{error}");
    assert_eq!((&error["data"]["code"], &error["data"]["error"]), (&json!(503), &json!("moved")), "{error}");
    assert_eq!(error["data"]["leader"], LEADER_WS);
    assert!(error["metadata"]["id"].is_string() && error["metadata"]["timestamp"].is_number(), "{error}");
}

/// The line that a client of the Unix socket gets, and that nothing comes after it.
async fn line_of(path: std::path::PathBuf) -> Value {
    tokio::task::spawn_blocking(move || {
        let mut stream = UnixStream::connect(path).unwrap();
        // The peer may be gone by now, which changes nothing.
        let _ = stream.write_all(b"{\"kind\":\"query\",\"type\":\"Syscall.Ping\",\"data\":{}}\n");
        let (mut reader, mut line, mut rest) = (BufReader::new(stream), String::new(), Vec::new());
        reader.read_line(&mut line).unwrap();
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
        serde_json::from_str(&line).unwrap()
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_unix_socket_of_the_loop_answers_with_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("os.sock");
    let fake = Fake::empty();
    let mut follower = follow(ServerSettings::default(), &fake).await;
    let (place, listener) = SocketFile::bind(&path).unwrap();
    follower.listen_socket(place, listener).unwrap();
    for _ in 0..2 {
        check_os(&line_of(path.clone()).await);
    }
    // The name outlives the part that this server plays.
    let place = follower.stop().await;
    assert!(path.exists());
    drop(place);
    assert!(!path.exists());

    let mut settings = ServerSettings::default();
    settings.kernel.require_auth = true;
    let mut follower = follow(settings, &fake).await;
    let (place, listener) = SocketFile::bind(&path).unwrap();
    follower.listen_socket(place, listener).unwrap();
    let line = line_of(path).await;
    assert_eq!((&line["data"]["error"], &line["data"]["leader"]), (&json!("moved"), &Value::Null));
    follower.stop().await;
}
