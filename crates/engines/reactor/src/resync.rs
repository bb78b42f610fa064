//! Finds the next request after a frame that was never completed.
//!
//! A guest may write a frame in pieces, so missing bytes are not an error. But a guest that wrote a truncated frame, or
//! a length that is too large, would lose its next requests: their bytes would be taken for the missing ones. The
//! requests of `sys/loop` are so short and regular that the two cases can be told apart at the beginning of a write.

use crate::messages::Request;
use crate::zcl1::{Frame, FrameReader, HEADER_BYTES, Header, MAGIC};

/// Returns whether `input`, a new write, begins with a request of its own although the frame before it is incomplete.
///
/// The input does so if it begins with a whole, well-formed request. If the previous frame was refused already, nothing
/// else counts. Otherwise the input must also not be the rest of the previous frame: bytes that complete that frame and
/// end there, or go on with another frame. The rest of a well-formed request is never mistaken for a request: it is at
/// most 28 bytes of payload while the shortest request has 32, and a header that is continued by the magic is invalid.
pub(crate) fn starts_over(reader: &FrameReader, input: &[u8]) -> bool {
    if reader.discard_bytes() > 0 {
        return begins_with_request(input);
    }
    !reader.held().is_empty() && begins_with_request(input) && !completes_frame(reader, input)
}

/// Returns op and rid of the incomplete frame; zeros if they are not complete.
pub(crate) fn op_and_rid(held: &[u8]) -> (u16, u32) {
    let mut bytes = [0; HEADER_BYTES];
    // Op and rid end at byte 12; half of a field would be misleading.
    if held.len() >= 12 {
        bytes.iter_mut().zip(held).for_each(|(to, from)| *to = *from);
    }
    Header::decode(&bytes).map_or((0, 0), |header| (header.op, header.rid))
}

fn begins_with_request(input: &[u8]) -> bool {
    Frame::decode_first(input).is_ok_and(|(frame, _)| is_request(&frame.header))
}

fn completes_frame(reader: &FrameReader, input: &[u8]) -> bool {
    let end = match reader.header(input) {
        Ok(Some(header)) if header.check_request().is_ok() => reader.bytes_to_finish(&header),
        _ => return false,
    };
    let Some(rest) = input.get(end..) else { return false };
    rest.iter().zip(&MAGIC).all(|(byte, expected)| byte == expected)
}

fn is_request(header: &Header) -> bool {
    header.check_request().is_ok() && Request::check_length(header.op, header.payload_bytes).is_ok()
}
