//! Requests of capabilities that speak ZCL1: the bytes that a guest writes, cut into frames and answered.
//!
//! `sys/info` and `file/aio` read a stream, where a frame may come in pieces and several in one write
//! ([`RequestStream`]). `event/bus`, `async/default` and `net/http` take exactly one frame per write ([`one_frame`]).
//! Both follow the rules of `sys/loop` for wrong input: an error frame where op and rid are readable, a negative code
//! otherwise, and the next good frame works.

use millrace_reactor::ZabiError;
use millrace_reactor::zcl1::{
    ErrorPayload, FRAME_BYTES_MAX, Frame, FrameError, FrameReader, HEADER_BYTES, Header, HeaderFault,
    NotAFrame,
};

/// Room that a request needs in the queue of replies before it is executed, unless its reply can be longer: the size of
/// the longest error frame of any capability.
pub(crate) const ANSWER_BYTES_MAX: usize = 256;

pub(crate) const UNKNOWN_OP: &str = "unknown op";
const TRUNCATED: &str = "truncated frame";

/// The capability's part in answering requests.
pub(crate) trait RequestHandler {
    /// Checks the header alone: the op, and whether its payload can have this length.
    fn check(&self, op: u16, payload_bytes: usize) -> Result<(), &'static str>;

    /// Whether the answer to a request can be queued.
    fn has_room(&self, op: u16) -> bool;

    /// Executes a request that has passed the check, and queues its answer.
    fn execute(&mut self, op: u16, rid: u32, payload: &[u8]);

    /// Queues an error reply.
    fn refuse(&mut self, op: u16, rid: u32, message: &str);
}

#[derive(Debug)]
pub(crate) struct RequestStream {
    reader: FrameReader,
}

/// The result of processing the next bytes of a write.
enum WriteStep {
    Consumed(usize),
    NoRoom,
    NotAFrame(ZabiError),
}

impl RequestStream {
    pub(crate) fn new() -> RequestStream {
        RequestStream { reader: FrameReader::new(FRAME_BYTES_MAX) }
    }

    /// Executes the requests in `input`. Returns how many bytes were consumed: fewer than given if there is no room for
    /// the answer to the next request.
    pub(crate) fn write(
        &mut self,
        input: &[u8],
        handler: &mut dyn RequestHandler,
    ) -> Result<usize, ZabiError> {
        if input.len() > FRAME_BYTES_MAX {
            return Err(ZabiError::Bounds);
        }
        if self.starts_over(input, handler) && !self.abandon_frame(handler) {
            return Err(ZabiError::Again);
        }
        let mut consumed = 0;
        while let Some(rest) = input.get(consumed..).filter(|rest| !rest.is_empty()) {
            match self.step(rest, handler) {
                WriteStep::Consumed(bytes) => consumed += bytes,
                WriteStep::NoRoom if consumed > 0 => break,
                WriteStep::NoRoom => return Err(ZabiError::Again),
                WriteStep::NotAFrame(code) => {
                    self.reader.clear();
                    return Err(code);
                }
            }
        }
        Ok(consumed)
    }

    fn step(&mut self, input: &[u8], handler: &mut dyn RequestHandler) -> WriteStep {
        if self.reader.discard_bytes() > 0 {
            return WriteStep::Consumed(self.reader.discard(input));
        }
        let header = match self.reader.header(input) {
            Ok(Some(header)) => header,
            Ok(None) => return self.hold(input),
            Err(NotAFrame::BadMagic) => return WriteStep::NotAFrame(ZabiError::Invalid),
            Err(NotAFrame::TooLong { .. }) => return WriteStep::NotAFrame(ZabiError::Bounds),
        };
        let checked = check(&header, handler);
        let end = self.reader.bytes_to_finish(&header);
        // An unknown op may have a payload of any length, so its end is awaited; other faults are answered as soon as
        // the header is known.
        if input.len() < end && matches!(checked, Ok(()) | Err(UNKNOWN_OP)) {
            return self.hold(input);
        }
        if !handler.has_room(header.op) {
            return WriteStep::NoRoom;
        }
        if let Err(message) = checked {
            self.reader.refuse(&header);
            handler.refuse(header.op, header.rid, message);
            return WriteStep::Consumed(self.reader.discard(input));
        }
        self.reader.finish(&input[..end], |payload| handler.execute(header.op, header.rid, payload));
        WriteStep::Consumed(end)
    }

    fn hold(&mut self, input: &[u8]) -> WriteStep {
        self.reader.hold(input);
        WriteStep::Consumed(input.len())
    }

    /// Whether a new write begins with a request of its own although the frame before it is incomplete: a guest that
    /// wrote a truncated frame does not lose its next request. The rest of a good frame is never mistaken for a
    /// request: if the magic continues a header, that header has a wrong field; and a payload begins with a file id or
    /// an address, which would have to be above 2^48 to look like magic, version and op.
    fn starts_over(&self, input: &[u8], handler: &dyn RequestHandler) -> bool {
        let is_incomplete = self.reader.discard_bytes() > 0 || !self.reader.held().is_empty();
        is_incomplete
            && Frame::decode_first(input).is_ok_and(|(frame, _)| check(&frame.header, handler).is_ok())
    }

    /// Drops a frame that will not be completed and answers it, unless it was answered when it was refused. Returns
    /// false if there is no room for the answer.
    fn abandon_frame(&mut self, handler: &mut dyn RequestHandler) -> bool {
        if self.reader.discard_bytes() == 0 {
            let (op, rid) = op_and_rid(self.reader.held());
            if !handler.has_room(op) {
                return false;
            }
            handler.refuse(op, rid, TRUNCATED);
        }
        self.reader.clear();
        true
    }
}

/// Reads a write that must be exactly one frame. Returns a header with a wrong field as it is.
///
/// # Errors
///
/// [`ZabiError::Bounds`] for a length above the limit, else [`ZabiError::Invalid`].
pub(crate) fn one_frame(input: &[u8]) -> Result<Frame<'_>, ZabiError> {
    Frame::decode(input).map_err(|error| match error {
        FrameError::TooLong { .. } => ZabiError::Bounds,
        _ => ZabiError::Invalid,
    })
}

/// Returns the message for a header with a wrong field.
pub(crate) fn header_fault(header: &Header) -> Option<&'static str> {
    match header.check_request() {
        Ok(()) => None,
        Err(HeaderFault::Version) => Some("version must be 1"),
        Err(HeaderFault::RequestStatus | HeaderFault::ReplyStatus) => Some("status must be 0"),
        Err(HeaderFault::Reserved) => Some("reserved must be 0"),
    }
}

/// Returns the payload of an error reply.
pub(crate) fn error_payload(trace: &str, message: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    ErrorPayload { trace, message, detail: "" }.encode(&mut payload);
    payload
}

fn check(header: &Header, handler: &dyn RequestHandler) -> Result<(), &'static str> {
    match header_fault(header) {
        Some(message) => Err(message),
        None => handler.check(header.op, header.payload_bytes as usize),
    }
}

/// Returns op and rid of an incomplete frame, if it has both.
fn op_and_rid(held: &[u8]) -> (u16, u32) {
    let mut bytes = [0; HEADER_BYTES];
    if held.len() >= 12 {
        bytes.iter_mut().zip(held).for_each(|(to, from)| *to = *from);
    }
    Header::decode(&bytes).map_or((0, 0), |header| (header.op, header.rid))
}
