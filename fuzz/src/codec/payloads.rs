//! Payloads: whatever a decoder accepts, its encoder writes with the same bytes.

use millrace_reactor::zcl1::{
    ERROR_TEXT_BYTES_MAX, ErrorPayload, FieldError, FieldReader, FieldWriter, Frame, Header,
};
use millrace_reactor::{PollReply, Request};

use super::SHAPE_BYTES;

pub(super) fn check(shape: &[u8; SHAPE_BYTES], frame: &Frame<'_>) {
    fields(shape, frame.payload);
    error_payload(frame.payload);
    if let Ok(request) = Request::decode(frame.header.op, frame.payload) {
        let header = Header::request(frame.header.op, frame.header.rid);
        assert_eq!(Frame::encode(header, frame.payload).ok(), Some(request.frame(frame.header.rid)));
    }
    if let Ok(reply) = PollReply::decode(frame.payload) {
        let mut payload = Vec::new();
        reply.encode(&mut payload);
        assert_eq!(payload, frame.payload);
    }
}

/// Reads the fields that the shape asks for, in turn, until one is missing.
fn fields(shape: &[u8; SHAPE_BYTES], payload: &[u8]) {
    let (mut reader, mut written) = (FieldReader::new(payload), Vec::new());
    for kind in shape.iter().cycle() {
        let mut writer = FieldWriter::new(&mut written);
        let read = match kind % 5 {
            0 => reader.u16().map(|value| writer.u16(value)),
            1 => reader.u32().map(|value| writer.u32(value)),
            2 => reader.u64().map(|value| writer.u64(value)),
            3 => reader.prefixed().map(|bytes| writer.prefixed(bytes)),
            _ => reader.text().map(|text| writer.prefixed(text.as_bytes())),
        };
        match read {
            Ok(_) => assert_eq!(written, payload[..written.len()]),
            Err(FieldError::Trailing { .. }) => panic!("only `finish` looks for bytes behind the fields"),
            Err(FieldError::Short | FieldError::NotText) => return,
        }
        let finished = match payload.len() - written.len() {
            0 => Ok(()),
            bytes => Err(FieldError::Trailing { bytes }),
        };
        assert_eq!(reader.finish(), finished);
    }
}

/// Texts that are longer than the limit are cut when they are encoded, so only shorter ones come back whole.
fn error_payload(payload: &[u8]) {
    let Ok(error) = ErrorPayload::decode(payload) else { return };
    let mut encoded = Vec::new();
    error.encode(&mut encoded);
    assert_eq!(encoded.len(), error.encoded_bytes());
    let texts = [error.trace, error.message, error.detail];
    if texts.iter().all(|text| text.len() <= ERROR_TEXT_BYTES_MAX) {
        assert_eq!(encoded, payload);
    }
    let again = ErrorPayload::decode(&encoded).expect("an encoded error is decoded");
    for (text, cut) in texts.iter().zip([again.trace, again.message, again.detail]) {
        assert!(text.starts_with(cut) && cut.len() <= ERROR_TEXT_BYTES_MAX);
    }
}
