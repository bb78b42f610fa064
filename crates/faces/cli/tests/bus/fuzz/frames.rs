//! Fuzzing the WebSocket: frames of every type with errors in them, text and binary, whole and in pieces.

use serde_json::{Value, json};

use super::mutate::{self, pick};
use super::raw::{self, CONTINUE, Opcode, TEXT};
use crate::crash::Dice;
use crate::server::Server;
use crate::socket::Socket;

#[derive(Default)]
pub struct Frames {
    pub sent: u64,
    /// Sockets that the server closed because of what was sent.
    pub closed: u64,
}

/// Returns a valid frame of a random type. The topics and groups that it names may or may not exist.
fn right(dice: &mut Dice) -> Value {
    let topic = pick(dice, &["fuzz.a", "fuzz.b", "fuzz.c", "fuzz.a.DLQ"]);
    let group = pick(dice, &["g", "h"]);
    let (partition, offset) = (dice.below(3), dice.below(60));
    let mut frame = match dice.below(12) {
        0..3 => json!({"type": "PUBLISH", "topic": topic, "payload": {"n": dice.below(9)}, "key": "k",
            "headers": {"a": "b"}, "id": format!("id-{}", dice.below(50)), "priority": dice.below(5)}),
        3 => json!({"type": "PUBLISH", "topic": topic, "payload": null, "delay_ms": dice.below(2000)}),
        4 => json!({"type": "PUBLISH_BATCH", "topic": topic,
            "events": [{"payload": 1}, {"payload": [2], "key": "x", "id": "twice"}, {"payload": {"three": 3}}]}),
        5 | 6 => {
            json!({"type": "SUBSCRIBE", "topic": topic, "group": group, "max_inflight": 1 + dice.below(64),
            "from": {"kind": pick(dice, &["earliest", "latest", "offset", "ts"]), "value": dice.below(9)},
            "ack_mode": pick(dice, &["individual", "cumulative"]), "filter": {"key": "k"}})
        }
        7 => json!({"type": "UNSUBSCRIBE", "topic": topic, "group": group}),
        8 => json!({"type": "ACK", "topic": topic, "group": group, "partition": partition, "offset": offset}),
        9 => json!({"type": "NACK", "topic": topic, "group": group, "partition": partition, "offset": offset,
            "delay_ms": dice.below(50)}),
        10 => json!({"type": "FLOW", "credits": dice.below(100)}),
        _ => json!({"type": pick(dice, &["PING", "AUTH"]), "token": "none"}),
    };
    if dice.one_in(3) {
        frame["rid"] = json!(dice.below(1000).to_string());
    }
    frame
}

impl Frames {
    /// Sends so many frames; a socket that the server closes is replaced.
    pub fn slice(&mut self, server: &Server, dice: &mut Dice, frames: u64) {
        let mut socket = server.socket();
        for _ in 0..frames {
            self.sent += 1;
            if !self.send(&mut socket, dice) {
                self.closed += 1;
                socket = server.socket();
            }
        }
        // Whatever the server answered, it must still answer, or have closed the socket.
        if !raw::answers_or_closes(&mut socket) {
            self.closed += 1;
        }
    }

    /// Sends one frame. Returns false if the connection is over.
    fn send(&mut self, socket: &mut Socket, dice: &mut Dice) -> bool {
        let mut frame = right(dice);
        for _ in 0..dice.below(3) {
            mutate::value(dice, &mut frame);
        }
        let mut bytes = frame.to_string().into_bytes();
        if dice.one_in(4) {
            mutate::bytes(dice, &mut bytes);
        }
        let stream = socket.stream();
        match dice.below(24) {
            0 => raw::frame(stream, raw::BINARY, true, &bytes),
            1 => raw::frame(stream, raw::BINARY, true, &mutate::noise(dice, 200)),
            2 => raw::text(stream, &mutate::noise(dice, 200)),
            // In pieces, with a ping between them.
            3 | 4 => {
                let (first, rest) = bytes.split_at(dice.below(bytes.len() as u64 + 1) as usize);
                raw::frame(stream, TEXT, false, first)
                    && raw::frame(stream, raw::PING, true, b"still there?")
                    && raw::frame(stream, CONTINUE, true, rest)
                    && std::str::from_utf8(&bytes).is_ok()
            }
            // Against the rules of WebSocket: the server closes with 1002, or does not answer.
            5 if dice.one_in(4) => {
                let opcode = Opcode(dice.below(16) as u8);
                raw::frame(stream, opcode, !dice.one_in(2), &bytes);
                false
            }
            6 if dice.one_in(4) => {
                raw::bytes(stream, &mutate::noise(dice, 300));
                false
            }
            // Announces a length that never comes.
            7 if dice.one_in(4) => {
                raw::bytes(stream, &[0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]);
                false
            }
            _ => raw::text(stream, &bytes),
        }
    }
}
