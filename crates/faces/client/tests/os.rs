//! The client of the CQRS loop against a server that sends only what a test tells it to.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use millrace_client::{JsonText, OsClient, OsClientError, OsKind, OsOptions, OsRequest};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

struct Server {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

struct Place {
    listener: UnixListener,
    options: OsOptions,
    _folder: TempDir,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("os.sock");
    Place { listener: UnixListener::bind(&path).unwrap(), options: OsOptions::new(path), _folder: folder }
}

impl Place {
    async fn connect(&self, options: OsOptions) -> (OsClient, Server) {
        let (client, accepted) = tokio::join!(OsClient::connect(options), self.listener.accept());
        (client.unwrap(), Server::new(accepted.unwrap().0))
    }
}

impl Server {
    fn new(stream: UnixStream) -> Server {
        let (reader, writer) = stream.into_split();
        Server { reader: BufReader::new(reader), writer }
    }

    /// Returns `None` when the client has stopped writing.
    async fn read(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line).await.unwrap() {
            0 => None,
            _ => Some(serde_json::from_str(&line).unwrap()),
        }
    }

    async fn write(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn answer(&mut self, kind: &str, request: &Value, data: &str) {
        let id = &request["metadata"]["id"];
        let ty = &request["type"];
        self.write(&format!(
            r#"{{"kind":"{kind}","type":{ty},"data":{data},"metadata":{{"id":"r","timestamp":1,"causation":{id}}}}}"#
        ))
        .await;
    }
}

fn refused_with(result: Result<JsonText, OsClientError>) -> (u16, String) {
    match result.unwrap_err() {
        OsClientError::Refused(fault) => (fault.code, fault.message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn outcomes_find_their_requests_in_any_order() {
    let place = place();
    let (client, mut server) = place.connect(place.options.clone()).await;
    let serve = async {
        let requests =
            [server.read().await.unwrap(), server.read().await.unwrap(), server.read().await.unwrap()];
        for request in requests.iter().rev() {
            match &request["data"] {
                Value::String(text) if text == "bad" => {
                    server.answer("error", request, r#"{"code":404,"message":"no such"}"#).await;
                }
                data => server.answer("reply", request, &format!("{{ \"echo\":{data}, \"n\":1e400}}")).await,
            }
        }
        requests
    };
    let (one, two, bad, requests) = tokio::join!(
        client.query("A.B", &1),
        client.command("A.C", &"two"),
        client.query("A.D", &"bad"),
        serve
    );
    assert_eq!(one.unwrap().as_str(), r#"{ "echo":1, "n":1e400}"#);
    assert_eq!(two.unwrap().as_str(), r#"{ "echo":"two", "n":1e400}"#);
    assert_eq!(refused_with(bad), (404, "no such".into()));
    assert_eq!((&requests[0]["kind"], &requests[1]["kind"]), (&json!("query"), &json!("command")));
    assert_ne!(requests[0]["metadata"]["id"], requests[1]["metadata"]["id"]);
}

#[tokio::test]
async fn a_request_says_what_it_is_told_and_data_keeps_its_bytes() {
    let place = place();
    let (client, mut server) = place.connect(place.options.clone()).await;
    let data = JsonText::parse(r#"{"n":[1e400, -0],"s":"\ud800"}"#).unwrap();
    let request = OsRequest::new(OsKind::Query, "A.B", data)
        .unwrap()
        .correlation("c")
        .unwrap()
        .causation("before")
        .unwrap();
    let serve = async {
        let mut line = String::new();
        server.reader.read_line(&mut line).await.unwrap();
        assert!(line.contains(r#""data":{"n":[1e400, -0],"s":"\ud800"}"#), "{line}");
        assert!(line.contains(r#""correlation":"c","causation":"before""#), "{line}");
        let id = line.split("\"id\":").nth(1).unwrap().split(',').next().unwrap().to_owned();
        server
            .answer(
                "reply",
                &json!({ "type": "A.B", "metadata": { "id": serde_json::from_str::<Value>(&id).unwrap() } }),
                "null",
            )
            .await;
    };
    let (reply, ()) = tokio::join!(client.send(request), serve);
    assert_eq!(reply.unwrap().kind, OsKind::Reply);
}

#[tokio::test]
async fn a_late_outcome_reaches_nobody_and_the_connection_goes_on() {
    let place = place();
    let (client, mut server) = place.connect(place.options.clone()).await;
    let soon = Some(Duration::from_millis(20));
    let late = client.request(OsKind::Query, "A.B", JsonText::null(), soon).await;
    assert!(matches!(late, Err(OsClientError::Timeout(_))), "{late:?}");
    let serve = async {
        let (first, second) = (server.read().await.unwrap(), server.read().await.unwrap());
        server.answer("reply", &first, "1").await;
        server.answer("reply", &second, "2").await;
        server.answer("reply", &second, "3").await;
    };
    let (reply, ()) = tokio::join!(client.query("A.B", &()), serve);
    assert_eq!(reply.unwrap().as_str(), "2");
}

#[tokio::test]
async fn a_lost_connection_ends_everything_under_way_and_everything_later() {
    let place = place();
    let (client, mut server) = place.connect(place.options.clone()).await;
    let serve = async {
        server.read().await.unwrap();
        server.write(r#"{"kind":"error","type":"Validation.Failed","data":{"code":503,"message":"Kernel shutting down"},"metadata":{"id":"r","timestamp":1}}"#).await;
        drop(server);
    };
    let (under_way, ()) = tokio::join!(client.query("A.B", &()), serve);
    let error = under_way.unwrap_err().to_string();
    assert!(error.contains("Kernel shutting down (503)"), "{error}");
    assert!(matches!(client.query("A.B", &()).await, Err(OsClientError::Disconnected(_))));
    assert!(matches!(client.emit("A.B", &()).await, Err(OsClientError::Disconnected(_))));
    client.close().await;
}

#[tokio::test]
async fn at_the_bound_the_next_request_waits_for_room() {
    let place = place();
    let options = OsOptions { requests_inflight_max: 2, ..place.options.clone() };
    let (client, mut server) = place.connect(options).await;
    let serve = async {
        let (first, second) = (server.read().await.unwrap(), server.read().await.unwrap());
        // Everything that the client has sent so far came in one write.
        assert!(server.reader.buffer().is_empty(), "a third request was sent");
        server.answer("reply", &first, "1").await;
        let third = server.read().await.unwrap();
        server.answer("reply", &second, "2").await;
        server.answer("reply", &third, "3").await;
    };
    let ask = || client.query("A.B", &());
    let (one, two, three, ()) = tokio::join!(ask(), ask(), ask(), serve);
    let texts = [one, two, three].map(|reply| reply.unwrap().as_str().to_owned());
    assert_eq!(texts, ["1", "2", "3"]);
}

#[tokio::test]
async fn close_waits_for_what_was_asked() {
    let place = place();
    let (client, mut server) = place.connect(place.options.clone()).await;
    client.emit("User.Created", &json!({ "name": "duck" })).await.unwrap();
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.query("A.B", &()).await }
    });
    assert_eq!(server.read().await.unwrap()["kind"], "event");
    let request = server.read().await.unwrap();
    let serve = async {
        assert_eq!(server.read().await, None, "the client said that no more will come");
        server.answer("reply", &request, "5").await;
        drop(server);
    };
    tokio::join!(client.close(), serve);
    assert_eq!(asking.await.unwrap().unwrap().as_str(), "5");
    assert!(client.query("A.B", &()).await.is_err());
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_here() {
    let place = place();
    let (client, _server) = place.connect(place.options.clone()).await;
    assert!(matches!(client.query("echo", &()).await, Err(OsClientError::BadName(_))));
    let long = client.query("A.B", &"x".repeat(16_384)).await;
    assert!(matches!(long, Err(OsClientError::TooLarge { max: 16_384, .. })), "{long:?}");
    let reply = OsRequest::new(OsKind::Reply, "A.B", JsonText::null()).unwrap();
    assert!(matches!(client.send(reply).await, Err(OsClientError::BadKind(OsKind::Reply))));
    let nowhere = OsClient::connect(OsOptions::new("/nonexistent/os.sock")).await.unwrap_err();
    assert!(matches!(nowhere, OsClientError::Unreachable { .. }), "{nowhere:?}");
}
