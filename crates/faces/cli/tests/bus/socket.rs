//! A raw WebSocket to the server: frames are sent and received exactly as a test says.

use std::collections::VecDeque;
use std::net::TcpStream;

use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

pub struct Socket {
    inner: WebSocket<MaybeTlsStream<TcpStream>>,
    /// Frames that arrived while waiting for an answer.
    early: VecDeque<Value>,
}

impl Socket {
    pub fn open(url: &str) -> Socket {
        let (inner, _) = tungstenite::connect(url).expect("the server accepts");
        Socket { inner, early: VecDeque::new() }
    }

    /// Opens a socket with a token in the upgrade. Returns the status if it was refused.
    pub fn open_as(url: &str, token: &str) -> Result<Socket, u16> {
        let mut request = url.into_client_request().expect("a URL");
        let value = format!("Bearer {token}").parse().expect("a header");
        request.headers_mut().insert("authorization", value);
        match tungstenite::connect(request) {
            Ok((inner, _)) => Ok(Socket { inner, early: VecDeque::new() }),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    pub fn send(&mut self, frame: &Value) {
        self.send_text(&frame.to_string());
    }

    pub fn send_text(&mut self, text: &str) {
        self.inner.send(Message::text(text)).expect("the socket takes a frame");
    }

    pub fn send_binary(&mut self, bytes: &[u8]) {
        self.inner.send(Message::binary(bytes.to_vec())).expect("the socket takes a frame");
    }

    /// Returns the stream below the WebSocket, for bytes that no library would send.
    pub fn stream(&mut self) -> &mut TcpStream {
        match self.inner.get_mut() {
            MaybeTlsStream::Plain(stream) => stream,
            _ => panic!("not a plain socket"),
        }
    }

    /// Returns the next frame, or the code the server closed with.
    pub fn next_or_close(&mut self) -> Result<Value, Option<CloseCode>> {
        self.text_or_close().map(|text| serde_json::from_str(&text).expect("the server sends JSON"))
    }

    /// Returns the reason in the close frame; everything before it is dropped.
    pub fn close_reason(&mut self) -> String {
        loop {
            match self.inner.read() {
                Ok(Message::Close(Some(frame))) => return frame.reason.as_str().to_owned(),
                Ok(Message::Close(None)) => return String::new(),
                Ok(_) => {}
                Err(error) => panic!("a close was expected, not {error}"),
            }
        }
    }

    /// Returns the text as it came: payloads are returned as they were written, also those that a Rust string cannot
    /// hold.
    pub fn text_or_close(&mut self) -> Result<String, Option<CloseCode>> {
        loop {
            match self.inner.read() {
                Ok(Message::Text(text)) => return Ok(text.as_str().to_owned()),
                Ok(Message::Close(frame)) => return Err(frame.map(|frame| frame.code)),
                Ok(_) => {}
                Err(_) => return Err(None),
            }
        }
    }

    pub fn next(&mut self) -> Value {
        if let Some(frame) = self.early.pop_front() {
            return frame;
        }
        self.next_or_close().expect("a frame, not a close")
    }

    #[track_caller]
    pub fn expect(&mut self, kind: &str) -> Value {
        let frame = self.next();
        assert_eq!(frame["type"], kind, "{frame}");
        frame
    }

    /// Returns all frames that the server sent before answering two markers. There are two, because frames have two
    /// sources, each with its own order: the edge answers PING itself, and the engine refuses an UNSUBSCRIBE from a
    /// group we are not in.
    pub fn drained(&mut self) -> Vec<Value> {
        self.send(&json!({"type": "PING", "rid": "mark"}));
        self.send(&json!({"type": "UNSUBSCRIBE", "topic": "mark", "group": "mark", "rid": "mark"}));
        let mut frames = Vec::new();
        let mut marks = 0;
        while marks < 2 {
            match self.next() {
                mark if mark["rid"] == "mark" => marks += 1,
                frame => frames.push(frame),
            }
        }
        frames
    }

    #[track_caller]
    pub fn expect_nothing(&mut self) {
        let frames = self.drained();
        assert!(frames.is_empty(), "{frames:?}");
    }

    #[track_caller]
    pub fn publish(&mut self, topic: &str, payload: &Value) -> u64 {
        self.send(&json!({"type": "PUBLISH", "topic": topic, "payload": payload}));
        self.expect("PUBLISHED")["offset"].as_u64().expect("an offset")
    }

    #[track_caller]
    pub fn subscribe(&mut self, topic: &str, group: &str, more: &Value) -> Value {
        let mut frame = json!({"type": "SUBSCRIBE", "topic": topic, "group": group});
        for (name, value) in more.as_object().expect("an object") {
            frame[name] = value.clone();
        }
        self.send(&frame);
        self.expect("OK")
    }

    /// Returns the offset of the next MESSAGE.
    #[track_caller]
    pub fn message(&mut self) -> u64 {
        self.expect("MESSAGE")["offset"].as_u64().expect("an offset")
    }

    /// Acknowledges and waits for the answer, so that the ack has taken effect when this returns.
    #[track_caller]
    pub fn ack(&mut self, topic: &str, group: &str, offset: u64) {
        self.send(&json!({"type": "ACK", "topic": topic, "partition": 0, "group": group, "offset": offset, "rid": "a"}));
        loop {
            let frame = self.next_or_close().expect("a frame, not a close");
            if frame["type"] != "MESSAGE" && frame["type"] != "MESSAGES" {
                assert_eq!(frame["type"], "OK", "{frame}");
                return;
            }
            self.early.push_back(frame);
        }
    }

    pub fn send_ack(&mut self, topic: &str, group: &str, partition: u64, offset: u64) {
        self.send(
            &json!({"type": "ACK", "topic": topic, "partition": partition, "group": group, "offset": offset}),
        );
    }

    pub fn send_nack(&mut self, topic: &str, group: &str, offset: u64, more: &Value) {
        let mut frame =
            json!({"type": "NACK", "topic": topic, "partition": 0, "group": group, "offset": offset});
        for (name, value) in more.as_object().expect("an object") {
            frame[name] = value.clone();
        }
        self.send(&frame);
    }

    #[track_caller]
    pub fn refused(&mut self, code: &str) -> String {
        let frame = self.expect("ERROR");
        assert_eq!(frame["code"], code, "{frame}");
        frame["message"].as_str().expect("a message").to_owned()
    }
}
