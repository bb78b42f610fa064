//! Hand-made WebSocket frames: no library sends frames that break the rules.

use std::io::Write;
use std::net::TcpStream;

use serde::de::IgnoredAny;
use serde_json::json;

use crate::socket::Socket;

#[derive(Clone, Copy)]
pub struct Opcode(pub u8);

pub const CONTINUE: Opcode = Opcode(0);
pub const TEXT: Opcode = Opcode(1);
pub const BINARY: Opcode = Opcode(2);
pub const PING: Opcode = Opcode(9);

const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
const KEY: [u8; 4] = [0x11, 0x22, 0x33, 0x44];

/// Sends a frame. Returns false if the server has closed the connection.
pub fn frame(stream: &mut TcpStream, opcode: Opcode, is_final: bool, payload: &[u8]) -> bool {
    let mut out = vec![opcode.0 | if is_final { FINAL } else { 0 }];
    match payload.len() {
        short @ 0..=125 => out.push(MASKED | short as u8),
        medium @ 126..=0xffff => {
            out.push(MASKED | 126);
            out.extend((medium as u16).to_be_bytes());
        }
        long => {
            out.push(MASKED | 127);
            out.extend((long as u64).to_be_bytes());
        }
    }
    out.extend(KEY);
    out.extend(payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes(stream, &out)
}

/// Sends a text frame. Returns false if the connection is over, which it also is after text that is no UTF-8.
pub fn text(stream: &mut TcpStream, payload: &[u8]) -> bool {
    frame(stream, TEXT, true, payload) && std::str::from_utf8(payload).is_ok()
}

pub fn bytes(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).and_then(|()| stream.flush()).is_ok()
}

/// Reads answers until our marker comes back (returns true) or the connection ends (returns false).
pub fn answers_or_closes(socket: &mut Socket) -> bool {
    let mark = json!({"type": "PING", "rid": "the end of the slice"});
    if !frame(socket.stream(), TEXT, true, mark.to_string().as_bytes()) {
        return false;
    }
    loop {
        match socket.text_or_close() {
            // No fuzzed frame contains this text.
            Ok(text) if text.contains("the end of the slice") => return true,
            Ok(text) => {
                let grammar = serde_json::from_str::<IgnoredAny>(&text);
                assert!(grammar.is_ok(), "the server sends JSON: {grammar:?} in {text}");
            }
            Err(_) => return false,
        }
    }
}
