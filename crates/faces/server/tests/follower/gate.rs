//! A follower asks for the same tokens, hosts, origins and certificates as a leader, before it says where the leader is.

use futures_util::StreamExt;
use millrace_model::Actor;
use millrace_server::{NamespaceRule, Proof, Reload, Scope, ServerSettings, TokenDigest, TokenSettings};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;

use crate::fake::{Fake, LEADER, LEADER_WS, follow};
use crate::moved::MOVED;
use crate::support::tls_identity::TlsIdentity;
use crate::support::{Client, PATIENCE, http, http_with};

fn token(secret: &str, scopes: &[Scope]) -> TokenSettings {
    TokenSettings {
        proof: Proof::Token(TokenDigest::of(secret)),
        agent: Actor::new("a").unwrap(),
        roles: Vec::new(),
        scopes: scopes.to_vec(),
        namespaces: NamespaceRule::All,
        rate: None,
        expires: None,
    }
}

fn with_tokens(tokens: Vec<TokenSettings>) -> ServerSettings {
    ServerSettings { tokens, ..ServerSettings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_is_named_only_to_callers_that_it_would_serve() {
    let tokens = vec![token("all", Scope::ALL), token("reader", &[Scope::Subscribe])];
    let follower = follow(with_tokens(tokens), &Fake::empty()).await;
    let reads = [("GET", "/topics", ""), ("GET", "/topics/t/events", ""), ("GET", "/metrics", "")];
    for (method, path, body) in MOVED.iter().copied().chain(reads) {
        for headers in [&[][..], &[("authorization", "Bearer wrong")]] {
            let answer = http_with(follower.addr(), method, path, headers, body.as_bytes()).await;
            assert_eq!((answer.status, answer.code().as_str()), (401, "unauthorized"), "{method} {path}");
            assert!(answer.head.contains("www-authenticate"), "{answer:?}");
            assert!(!answer.head.contains("10.1.2.3") && !answer.body.contains("10.1.2.3"), "{answer:?}");
        }
    }
    for (method, path, body) in MOVED {
        let headers = [("authorization", "Bearer all")];
        let answer = http_with(follower.addr(), method, path, &headers, body.as_bytes()).await;
        assert_eq!(
            (answer.status, answer.header("x-millrace-leader")),
            (503, Some(LEADER)),
            "{method} {path}"
        );
    }
    let headers = [("authorization", "Bearer reader")];
    let forbidden =
        http_with(follower.addr(), "POST", "/topics/t/events", &headers, br#"{"payload":1}"#).await;
    assert_eq!((forbidden.status, forbidden.code().as_str()), (403, "forbidden"));
    // A probe shows no token.
    let ready = http(follower.addr(), "GET", "/readyz", "").await;
    assert_eq!((ready.status, ready.json().get("leader")), (200, None));
    follower.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_authenticates_before_it_is_sent_away() {
    let follower = follow(with_tokens(vec![token("all", Scope::ALL)]), &Fake::empty()).await;
    let mut client = Client::connect(follower.addr()).await;
    let pong = client.ask(r#"{"type":"PING","rid":1}"#).await;
    assert_eq!(pong, json!({"type": "PONG", "rid": 1}));
    let refused = client.ask(r#"{"type":"PUBLISH","topic":"t","payload":1,"rid":2}"#).await;
    assert_eq!((&refused["code"], refused.get("leader")), (&json!("unauthorized"), None));
    let refused = client.ask(r#"{"type":"AUTH","token":"wrong","rid":3}"#).await;
    assert_eq!(refused["code"], "unauthorized");
    let ok = client.ask(r#"{"type":"AUTH","token":"all","rid":4}"#).await;
    assert_eq!(ok, json!({"type": "OK", "op": "AUTH", "rid": 4}));
    let error = client.recv().await;
    assert_eq!((&error["code"], &error["leader"]), (&json!("moved"), &json!(LEADER_WS)));
    assert_eq!(client.closed().await, (1012, LEADER_WS.to_owned()));

    let mut client = Client::connect_to(&format!("ws://{}/os", follower.addr())).await;
    let message = |token: &str| {
        json!({
            "kind": "command", "type": "Syscall.Authenticate", "data": {"token": token},
            "metadata": {"id": "1", "timestamp": 1},
        })
        .to_string()
    };
    let refused = client.ask(&message("wrong")).await;
    assert_eq!((&refused["data"]["code"], refused["data"].get("leader")), (&json!(401), None), "{refused}");
    assert_eq!(client.closed().await.0, 1008);
    let mut client = Client::connect_to(&format!("ws://{}/os", follower.addr())).await;
    assert_eq!(client.ask(&message("all")).await["data"]["leader"], LEADER_WS);
    assert_eq!(client.closed().await.0, 1012);
    follower.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_replaced_while_a_server_follows() {
    let follower = follow(with_tokens(vec![token("old", Scope::ALL)]), &Fake::empty()).await;
    let status = async |secret: &str| {
        let bearer = format!("Bearer {secret}");
        let headers = [("authorization", bearer.as_str())];
        http_with(follower.addr(), "GET", "/topics", &headers, b"").await.status
    };
    assert_eq!((status("old").await, status("new").await), (200, 401));
    let reload = |tokens| Reload { tokens, tls: None, capabilities: Vec::new(), described: Vec::new() };
    let reloader = follower.reloader();
    assert_eq!(reloader.reloaded(), None);
    let reloaded = reloader.reload(reload(vec![token("new", Scope::ALL)])).await.unwrap();
    assert_eq!((reloaded.tokens, reloaded.revoked), (1, 1));
    assert_eq!((status("old").await, status("new").await), (401, 200));
    // The next part that this process plays begins with the new tokens.
    assert!(reloader.reload(reload(Vec::new())).await.is_err(), "it would open everything");
    assert_eq!(follower.reloader().reloaded(), Some(reload(vec![token("new", Scope::ALL)])));
    follower.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_hosts_and_origins_are_refused() {
    let settings = ServerSettings { allow_origins: vec!["https://app.example".into()], ..Default::default() };
    let follower = follow(settings, &Fake::empty()).await;
    let foreign =
        http_with(follower.addr(), "GET", "/stats", &[("origin", "https://evil.example")], b"").await;
    assert_eq!((foreign.status, foreign.code().as_str()), (403, "forbidden"));
    let allowed =
        http_with(follower.addr(), "GET", "/stats", &[("origin", "https://app.example")], b"").await;
    assert_eq!((allowed.status, allowed.code().as_str()), (503, "moved"));
    let exposed = allowed.header("access-control-expose-headers").unwrap();
    for name in ["x-millrace-leader", "x-millrace-position", "retry-after"] {
        assert!(exposed.contains(name), "{exposed}");
    }
    follower.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_holds_over_tls() {
    let identity = TlsIdentity::new();
    let fake = Fake::empty();
    *fake.leader.lock() = Some("https://leader.example".to_owned());
    let settings = ServerSettings { tls: Some(identity.files()), ..ServerSettings::default() };
    let follower = follow(settings, &fake).await;
    let mut stream = identity.connect(follower.addr(), None).await;
    let request = "POST /topics/t/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 13\r\nconnection: close\r\n\r\n";
    stream.write_all(format!("{request}{{\"payload\":1}}").as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("\"code\":\"moved\""), "{answer}");
    assert!(answer.contains("x-millrace-leader: https://leader.example\r\n"), "{answer}");

    let stream = identity.connect(follower.addr(), None).await;
    let (mut socket, _) = client_async("wss://localhost/", stream).await.unwrap();
    let Message::Text(text) = timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap() else {
        panic!("no text");
    };
    let error: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&error["code"], &error["leader"]), (&json!("moved"), &json!("wss://leader.example/")));
    let last = timeout(PATIENCE, socket.next()).await.unwrap();
    let Some(Ok(Message::Close(Some(frame)))) = last else { panic!("{last:?}") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1012, "wss://leader.example/"));
    drop(socket);
    follower.stop().await;
}
