//! An open handle as the guest sees it: the frames that it returns, and the requests that it still owes an answer.

use millrace_reactor::PollReply;
use millrace_reactor::zcl1::{ErrorPayload, Frame, FrameError, Header, STATUS_OK};

use super::polls::WrittenTail;
use super::surroundings::Kind;

const OP_LOOP_POLL: u16 = 5;
pub(super) const OP_AIO_DONE: u16 = 100;
const REFUSALS: [&str; 5] =
    ["unknown op", "truncated frame", "version must be 1", "status must be 0", "reserved must be 0"];

#[derive(Debug)]
pub(super) struct OpenHandle {
    /// `None` if the script opened the handle with a request of its own.
    pub(super) kind: Option<Kind>,
    pub(super) written: WrittenTail,
    /// A frame of which a part was read.
    unfinished: Vec<u8>,
    /// Requests of `file/aio` that were acknowledged and are not completed.
    pub(super) owed: usize,
}

impl OpenHandle {
    pub(super) fn new(kind: Option<Kind>) -> OpenHandle {
        OpenHandle { kind, written: WrittenTail::default(), unfinished: Vec::new(), owed: 0 }
    }

    pub(super) fn has_frames(&self) -> bool {
        !matches!(self.kind, None | Some(Kind::List | Kind::Refused))
    }

    /// Checks bytes that were read: those of one frame, and no more. Returns the frame's header once the frame is whole.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Option<Header> {
        assert!(self.has_frames() && !bytes.is_empty());
        self.unfinished.extend_from_slice(bytes);
        match Frame::decode(&self.unfinished) {
            Err(FrameError::Short { .. }) => None,
            Err(error) => panic!("{:?} returned {:?}: {error}", self.kind, self.unfinished),
            Ok(frame) => {
                check_reply(&frame);
                let (header, is_ok) = (frame.header, frame.header.status == STATUS_OK);
                match self.kind {
                    Some(Kind::Loop) if is_ok && header.op == OP_LOOP_POLL => {
                        PollReply::decode(frame.payload).expect("a reply of POLL is well-formed");
                    }
                    Some(Kind::Aio) if header.op == OP_AIO_DONE && !is_refusal(&frame) => {
                        self.owed = self.owed.checked_sub(1).expect("a completion belongs to a request");
                    }
                    Some(Kind::Aio) if is_ok => self.owed += 1,
                    _ => {}
                }
                self.unfinished.clear();
                Some(header)
            }
        }
    }
}

/// Whether a frame refuses a request for its op or header. Its op is that of the request, which may be any number, even
/// that of a completion.
fn is_refusal(frame: &Frame<'_>) -> bool {
    let is_error = frame.header.status != STATUS_OK;
    is_error && ErrorPayload::decode(frame.payload).is_ok_and(|error| REFUSALS.contains(&error.message))
}

/// Checks the fields of a reply or event; an error has three texts.
pub(super) fn check_reply(frame: &Frame<'_>) {
    frame.header.check_reply().expect("the fields of a reply are right");
    if frame.header.status != STATUS_OK {
        ErrorPayload::decode(frame.payload).expect("an error has three texts");
    }
}
