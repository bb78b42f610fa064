//! Writing a message as one line.

use std::io::Write;

use millrace_model::{OsId, OsMessage};

use crate::text::each_piece;

/// Appends `{"kind","type","data","metadata":{"id","timestamp","correlation"?,"causation"?, others}}` and an LF.
/// Written by hand, for speed, because every message passes here. By its alphabet a type needs no escaping.
pub fn encode(message: &OsMessage, out: &mut Vec<u8>) {
    let metadata = &message.metadata;
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(message.kind.as_str().as_bytes());
    out.extend_from_slice(b"\",\"type\":\"");
    out.extend_from_slice(message.ty.as_str().as_bytes());
    out.extend_from_slice(b"\",\"data\":");
    out.extend_from_slice(message.data.bytes());
    out.extend_from_slice(b",\"metadata\":{\"id\":");
    push_id(out, &metadata.id);
    out.extend_from_slice(b",\"timestamp\":");
    // Writing into a `Vec` cannot fail.
    let _ = write!(out, "{}", metadata.timestamp.0);
    if let Some(correlation) = &metadata.correlation {
        out.extend_from_slice(b",\"correlation\":");
        push_id(out, correlation);
    }
    if let Some(causation) = &metadata.causation {
        out.extend_from_slice(b",\"causation\":");
        push_id(out, causation);
    }
    if let Some(other) = metadata.other.as_deref().filter(|other| !other.is_empty()) {
        out.push(b',');
        out.extend_from_slice(other.as_bytes());
    }
    out.extend_from_slice(b"}}\n");
}

fn push_id(out: &mut Vec<u8>, id: &OsId) {
    out.push(b'"');
    each_piece(id.as_str(), |piece| out.extend_from_slice(piece.as_bytes()));
    out.push(b'"');
}
