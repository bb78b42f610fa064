//! The loop's handle as a byte stream: `zi_write` brings requests, `zi_read` takes replies.

use crate::error_code::ZabiError;
use crate::messages::{Request, RequestError};
use crate::poller::Poller;
use crate::resync;
use crate::sys_loop::SysLoop;
use crate::time::MonoNs;
use crate::zcl1::{Header, NotAFrame};

/// Room that a request needs in the queue of replies before it is executed: at least that of the longest error frame,
/// and of a reply of POLL with one event.
pub const ANSWER_BYTES_MAX: usize = 96;

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The result of `zi_write`: the number of bytes consumed, or the error. Fewer bytes than were given mean that
    /// there is no room for the answer of the next request.
    Returned(Result<usize, ZabiError>),
    /// A POLL waits. The shell asks the operating system's poller, but not beyond [`SysLoop::next_deadline`], reports
    /// what is ready, and calls [`SysLoop::resume`].
    Waiting,
}

/// The result of parsing the next bytes of a write.
enum ParseStep {
    Consumed(usize),
    NoRoom,
    NotAFrame(ZabiError),
}

impl SysLoop {
    /// The guest writes to the handle. Requests are executed in order, each as soon as its last byte has arrived.
    ///
    /// Bytes that are not a frame make the loop drop its buffered input: [`ZabiError::Invalid`] for a wrong magic,
    /// [`ZabiError::Bounds`] for a length above the limit. Requests before them have been executed.
    /// [`ZabiError::Again`]: there is no room for the answer of the first request, or a POLL is waiting; nothing is
    /// consumed. Read, then write again.
    pub fn write(&mut self, now: MonoNs, input: &[u8], poller: &mut impl Poller) -> Written {
        self.see(now);
        if self.open_poll.is_some() {
            return Written::Returned(Err(ZabiError::Again));
        }
        if input.len() > self.limits.write_bytes_max {
            return Written::Returned(Err(ZabiError::Bounds));
        }
        self.consumed = 0;
        if resync::starts_over(&self.reader, input) && !self.abandon_frame() {
            return Written::Returned(Err(ZabiError::Again));
        }
        self.consume(input, poller)
    }

    /// Continues a write that is [`Written::Waiting`]; `input` is the input of that write.
    pub fn resume(&mut self, now: MonoNs, input: &[u8], poller: &mut impl Poller) -> Written {
        self.see(now);
        match self.try_answer_poll() {
            true => self.consume(input, poller),
            false => Written::Waiting,
        }
    }

    /// The guest reads from the handle: copies bytes of at most one reply and returns their number.
    ///
    /// # Errors
    ///
    /// [`ZabiError::Again`] if no reply waits.
    pub fn read(&mut self, to: &mut [u8]) -> Result<usize, ZabiError> {
        if to.is_empty() {
            return Ok(0);
        }
        self.output.read(to).ok_or(ZabiError::Again)
    }

    /// Whether a read would return a reply.
    pub fn is_readable(&self) -> bool {
        !self.output.is_empty()
    }

    fn consume(&mut self, input: &[u8], poller: &mut impl Poller) -> Written {
        loop {
            let rest = input.get(self.consumed..).unwrap_or_default();
            if rest.is_empty() {
                return Written::Returned(Ok(self.consumed));
            }
            match self.step(rest, poller) {
                ParseStep::Consumed(bytes) => self.consumed += bytes,
                ParseStep::NoRoom if self.consumed > 0 => return Written::Returned(Ok(self.consumed)),
                ParseStep::NoRoom => return Written::Returned(Err(ZabiError::Again)),
                ParseStep::NotAFrame(code) => {
                    self.reader.clear();
                    return Written::Returned(Err(code));
                }
            }
            if self.open_poll.is_some() && !self.answer_poll_at_once() {
                return Written::Waiting;
            }
        }
    }

    /// Answers a POLL without a round of the poller, if there are no polled handles. With polled handles, even a POLL
    /// with pending events needs a round first: it must not report a state that is outdated.
    fn answer_poll_at_once(&mut self) -> bool {
        self.watches.polled == 0 && self.try_answer_poll()
    }

    /// Consumes bytes up to the end of the next frame, and answers that frame. `input` is not empty.
    fn step(&mut self, input: &[u8], poller: &mut impl Poller) -> ParseStep {
        if self.reader.discard_bytes() > 0 {
            return ParseStep::Consumed(self.reader.discard(input));
        }
        let header = match self.reader.header(input) {
            Ok(Some(header)) => header,
            Ok(None) => return self.hold(input),
            Err(NotAFrame::BadMagic) => return ParseStep::NotAFrame(ZabiError::Invalid),
            Err(NotAFrame::TooLong { .. }) => return ParseStep::NotAFrame(ZabiError::Bounds),
        };
        let checked = check(&header);
        let end = self.reader.bytes_to_finish(&header);
        // An unknown op may have a payload of any length; other wrong frames are refused as soon as their header is
        // complete.
        if input.len() < end && matches!(checked, Ok(()) | Err(RequestError::UnknownOp)) {
            return self.hold(input);
        }
        if self.output.room() < ANSWER_BYTES_MAX {
            return ParseStep::NoRoom;
        }
        if let Err(error) = checked {
            self.reader.refuse(&header);
            self.reply_error(header.op, header.rid, error);
            return ParseStep::Consumed(self.reader.discard(input));
        }
        let request = self.reader.finish(&input[..end], |payload| Request::decode(header.op, payload));
        match request {
            Ok(request) => self.execute(header.rid, request, poller),
            Err(error) => self.reply_error(header.op, header.rid, error),
        }
        ParseStep::Consumed(end)
    }

    fn hold(&mut self, input: &[u8]) -> ParseStep {
        self.reader.hold(input);
        ParseStep::Consumed(input.len())
    }

    /// Drops a frame that will not be completed, and answers it with an error unless it was already refused. Returns
    /// false if there is no room for the answer.
    fn abandon_frame(&mut self) -> bool {
        if self.reader.discard_bytes() == 0 {
            if self.output.room() < ANSWER_BYTES_MAX {
                return false;
            }
            let (op, rid) = resync::op_and_rid(self.reader.held());
            self.reply_error(op, rid, RequestError::Truncated);
        }
        self.reader.clear();
        true
    }

    /// Callers read their clocks at different moments; the engine uses the latest time.
    fn see(&mut self, now: MonoNs) {
        self.now = self.now.max(now);
    }
}

/// Checks as much of a request as its header tells.
fn check(header: &Header) -> Result<(), RequestError> {
    header.check_request()?;
    Request::check_length(header.op, header.payload_bytes)
}
