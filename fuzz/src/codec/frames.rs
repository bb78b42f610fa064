//! `Frame` and `Header`: decoding is the inverse of encoding, and an error says what is really wrong.

use millrace_reactor::zcl1::{FRAME_BYTES_MAX, Frame, FrameError, HEADER_BYTES, MAGIC};

/// Decodes frames until the bytes end or are wrong, and checks each of them.
pub(super) fn decode_all(stream: &[u8]) -> Vec<Frame<'_>> {
    let (mut frames, mut rest) = (Vec::new(), stream);
    loop {
        match Frame::decode_first(rest) {
            Ok((frame, behind)) => {
                check_frame(&frame, &rest[..rest.len() - behind.len()]);
                if !behind.is_empty() {
                    assert_eq!(Frame::decode(rest), Err(FrameError::Trailing { bytes: behind.len() }));
                }
                frames.push(frame);
                rest = behind;
            }
            Err(error) => {
                check_error(error, rest);
                return frames;
            }
        }
    }
}

/// `bytes` are those that the frame was decoded from.
fn check_frame(frame: &Frame<'_>, bytes: &[u8]) {
    assert_eq!(frame.header.frame_bytes(), bytes.len());
    assert_eq!(Frame::decode(bytes).as_ref(), Ok(frame));
    assert_eq!(Frame::encode(frame.header, frame.payload).as_deref(), Ok(bytes));
    if frame.header.check_request().is_ok() {
        assert_eq!(frame.header.check_reply(), Ok(()), "a request and an error reply have the same fields");
    }
}

fn check_error(error: FrameError, bytes: &[u8]) {
    match error {
        FrameError::Short { missing } if bytes.len() < HEADER_BYTES => {
            assert_eq!(bytes.len() + missing, HEADER_BYTES);
        }
        FrameError::Short { missing } => {
            let mut whole = bytes.to_vec();
            whole.resize(bytes.len() + missing - 1, 0);
            assert_eq!(Frame::decode(&whole), Err(FrameError::Short { missing: 1 }));
            whole.push(0);
            assert!(Frame::decode(&whole).is_ok(), "the bytes that were missing complete the frame");
        }
        FrameError::BadMagic => assert!(!bytes.starts_with(&MAGIC)),
        FrameError::TooLong { bytes: announced, max } => {
            assert!(bytes.starts_with(&MAGIC) && announced > max && max == FRAME_BYTES_MAX);
        }
        FrameError::Trailing { .. } => panic!("the first frame may be followed by others"),
    }
}
