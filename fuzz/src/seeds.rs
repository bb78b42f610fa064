//! The first inputs of each target: recordings of the reference host, and one good use of every capability and frame.

mod limits;
mod scripts;

use millrace_reactor::zcl1::{ERROR_TEXT_BYTES_MAX, FRAME_BYTES_MAX, FieldWriter, Frame, Header};
use serde_json::Value;

use crate::codec::SHAPE_BYTES;

/// The recorded sessions that the tests of `millrace-reactor` and `millrace-zabi` replay.
const RECORDINGS: &str = include_str!("../../crates/engines/reactor/tests/vectors/zcl1.json");

/// Texts that `millrace-wire` understands, one per line.
const TEXTS: &str = include_str!("seeds/texts.jsonl");

/// Returns the seeds of a target; `None` if there is no such target.
pub fn of(target: &str) -> Option<Vec<Vec<u8>>> {
    match target {
        "zcl1_codec" => Some(streams()),
        "zabi_dispatcher" => Some([scripts::all(&sessions()), limits::all()].concat()),
        "wire_text" => Some(TEXTS.lines().map(|line| line.as_bytes().to_vec()).collect()),
        _ => None,
    }
}

/// Every recorded request and response, and those of each session in one stream.
fn streams() -> Vec<Vec<u8>> {
    let mut streams = Vec::new();
    for session in sessions() {
        let mut whole = Vec::new();
        for step in &session {
            whole.extend_from_slice(&step.request);
            streams.extend([step.request.clone(), step.response.clone()]);
        }
        streams.push(whole);
    }
    streams.push(long_error());
    streams.retain(|stream| !stream.is_empty() && stream.len() <= FRAME_BYTES_MAX);
    let shapes: [[u8; SHAPE_BYTES]; 3] = [[0, 1, 2, 3], [31, 31, 31, 31], [255, 9, 170, 4]];
    shapes
        .iter()
        .flat_map(|shape| streams.iter().map(move |stream| [shape, stream.as_slice()].concat()))
        .collect()
}

/// An error whose message is cut when it is encoded again, at the end of a character.
fn long_error() -> Vec<u8> {
    let mut payload = Vec::new();
    let message = format!("m{}", "\u{e9}".repeat(ERROR_TEXT_BYTES_MAX));
    FieldWriter::new(&mut payload).prefixed(b"trace").prefixed(message.as_bytes()).prefixed(b"");
    Frame::encode(Header::error(1, 1), &payload).expect("the error fits a frame")
}

/// A step of a recorded session: what the guest wrote, and what it read then.
struct Step {
    request: Vec<u8>,
    response: Vec<u8>,
}

fn sessions() -> Vec<Vec<Step>> {
    let file: Value = serde_json::from_str(RECORDINGS).expect("the recordings are JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let step =
        |step: &Value| Step { request: hex(&step["request_hex"]), response: hex(&step["response_hex"]) };
    list(&file["sessions"]).iter().map(|session| list(&session["steps"]).iter().map(step).collect()).collect()
}

/// Returns no bytes for steps that have none, or describe them in words.
fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap_or_default();
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let bytes =
        |digits: Vec<u32>| digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
    digits.map(bytes).unwrap_or_default()
}
