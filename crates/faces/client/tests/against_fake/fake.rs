//! A fake server, which sends only what a test tells it to.

use futures_util::{SinkExt, StreamExt};
use millrace_client::ClientOptions;
use serde_json::Value;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async};

pub(crate) struct Fake {
    pub(crate) listener: TcpListener,
}

pub(crate) struct Conn {
    socket: WebSocketStream<TcpStream>,
}

impl Fake {
    pub(crate) async fn start() -> Fake {
        Fake { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    /// Returns options with short delays, so that tests do not wait as long as production code does.
    pub(crate) fn options(&self) -> ClientOptions {
        let mut options = ClientOptions::new(format!("ws://{}/", self.listener.local_addr().unwrap()));
        options.backoff_start = Duration::from_millis(1);
        options.backoff_max = Duration::from_millis(4);
        options
    }

    pub(crate) async fn accept(&self) -> Conn {
        let (stream, _) = self.listener.accept().await.unwrap();
        Conn { socket: accept_async(stream).await.unwrap() }
    }
}

impl Conn {
    /// Returns the next frame of the client; `None` when the client has closed the WebSocket or is gone.
    pub(crate) async fn read(&mut self) -> Option<Value> {
        loop {
            match self.socket.next().await? {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(_)) => {
                    // Reading the close frame has queued the answer to it.
                    self.socket.flush().await.ok();
                    return None;
                }
                Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    pub(crate) async fn expect(&mut self, kind: &str) -> Value {
        let frame = self.read().await.unwrap_or_else(|| panic!("{kind} expected, the client is gone"));
        assert_eq!(frame["type"], kind, "{frame}");
        frame
    }

    /// Sends a frame. If the client is gone, the next read notices it.
    pub(crate) async fn send(&mut self, frame: Value) {
        self.socket.send(Message::text(frame.to_string())).await.ok();
    }

    pub(crate) async fn confirm(&mut self, publish: &Value, offset: u64) {
        self.send(serde_json::json!({
            "type": "PUBLISHED", "topic": publish["topic"], "partition": 0, "offset": offset,
            "id": publish.get("id").unwrap_or(&Value::from("made")), "durability": "fsync", "rid": publish["rid"],
        }))
        .await;
    }

    pub(crate) async fn ok(&mut self, request: &Value) {
        let mut ok = serde_json::json!({"type": "OK", "op": request["type"], "rid": request["rid"]});
        if request["type"] == "SUBSCRIBE" {
            ok["topic"] = request["topic"].clone();
            ok["group"] = request["group"].clone();
            ok["partitions"] = serde_json::json!([{"partition": 0, "next": 1}]);
        }
        self.send(ok).await;
    }

    pub(crate) async fn refuse(&mut self, request: &Value, code: &str) {
        self.send(serde_json::json!({"type": "ERROR", "code": code, "message": "no", "rid": request["rid"]}))
            .await;
    }

    pub(crate) async fn deliver(&mut self, topic: &str, group: &str, offset: u64) {
        self.send(serde_json::json!({
            "type": "MESSAGE", "topic": topic, "partition": 0, "group": group, "offset": offset,
            "envelope": {"id": "i", "ts": 1, "topic": topic, "partition": 0, "offset": offset, "payload": offset},
        }))
        .await;
    }
}
