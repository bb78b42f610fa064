//! A fake server, which sends only what a test tells it to.

use futures_util::{FutureExt, SinkExt, StreamExt};
use millrace_client::ClientOptions;
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

pub(crate) struct Fake {
    pub(crate) listener: TcpListener,
    tls: Option<TlsAcceptor>,
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(crate) struct Conn {
    socket: WebSocketStream<Box<dyn Stream>>,
    /// The header `Authorization` of the upgrade.
    pub(crate) authorization: Option<String>,
}

impl Fake {
    pub(crate) async fn start() -> Fake {
        Fake { listener: TcpListener::bind("127.0.0.1:0").await.unwrap(), tls: None }
    }

    pub(crate) async fn with_tls(acceptor: TlsAcceptor) -> Fake {
        Fake { tls: Some(acceptor), ..Fake::start().await }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "wss" } else { "ws" };
        format!("{scheme}://{}/", self.listener.local_addr().unwrap())
    }

    /// Returns options with short delays, so that tests do not wait as long as production code does.
    pub(crate) fn options(&self) -> ClientOptions {
        options_for(&[self])
    }

    pub(crate) async fn accept(&self) -> Conn {
        let (stream, _) = self.listener.accept().await.unwrap();
        let stream: Box<dyn Stream> = match &self.tls {
            Some(acceptor) => Box::new(acceptor.accept(stream).await.unwrap()),
            None => Box::new(stream),
        };
        let mut authorization = None;
        #[allow(clippy::result_large_err, reason = "the callback's type is the library's")]
        let look = |request: &Request, response: Response| {
            let header = request.headers().get("authorization");
            authorization = header.map(|value| value.to_str().unwrap().to_owned());
            Ok(response)
        };
        let socket = accept_hdr_async(stream, look).await.unwrap();
        Conn { socket, authorization }
    }

    /// Accepts a connection and answers that another server leads, or that none does.
    pub(crate) async fn accept_and_move(&self, leader: Option<&str>) -> Conn {
        let mut conn = self.accept().await;
        conn.moved(leader).await;
        conn
    }

    /// Returns whether no client has tried to connect since the last `accept`.
    pub(crate) fn is_untouched(&self) -> bool {
        self.listener.accept().now_or_never().is_none()
    }
}

/// Returns options with the URLs of these servers, and with short delays.
pub(crate) fn options_for(fakes: &[&Fake]) -> ClientOptions {
    let urls: Vec<_> = fakes.iter().map(|fake| fake.url()).collect();
    let mut options = ClientOptions::new(urls.join(","));
    options.backoff_start = Duration::from_millis(1);
    options.backoff_max = Duration::from_millis(4);
    options
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

    /// Says that another server leads, or that none does, and closes the connection, as a server does that does not lead.
    pub(crate) async fn moved(&mut self, leader: Option<&str>) {
        let message = "this server does not lead its store";
        self.send(
            serde_json::json!({"type": "ERROR", "code": "moved", "message": message, "leader": leader}),
        )
        .await;
        self.close(1012, leader.unwrap_or_default()).await;
    }

    pub(crate) async fn close(&mut self, code: u16, reason: &str) {
        let close = CloseFrame { code: CloseCode::from(code), reason: reason.to_owned().into() };
        self.socket.close(Some(close)).await.ok();
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
