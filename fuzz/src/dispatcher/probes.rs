//! The end of a script: whatever was written before, good requests are answered.

use std::time::{Duration, Instant};

use millrace_reactor::zcl1::{Header, MAGIC, STATUS_OK};
use millrace_zabi::ZabiError;

use super::guest::Guest;
use super::handle::OP_AIO_DONE;
use super::surroundings::{CAPABILITIES, Kind, RESPONSE};

const RID: u32 = 0x600D;
const READ_BYTES_MAX: u32 = 65_536;
/// Far more than a worker thread needs for the few small jobs of a script.
const COMPLETION_MAX: Duration = Duration::from_secs(8);

impl Guest {
    /// Asks every handle that is open, ends all of them, and asks a fresh loop. Returns whether there may be files in the
    /// folder.
    pub(super) fn finish(mut self) -> bool {
        for handle in self.handles() {
            if let Some(kind) = self.open[&handle].kind.filter(|kind| good_request(*kind).is_some()) {
                self.still_answers(handle, kind);
            }
        }
        for handle in self.handles() {
            assert_eq!(self.end(handle), 0);
        }
        assert_eq!(self.process.open_handles(), 0);
        let fresh = CAPABILITIES.iter().position(|(.., kind)| *kind == Kind::Loop);
        let handle = self.open(fresh.expect("sys/loop is in the list"), &[]);
        assert!(self.answers(handle, Kind::Loop), "a fresh loop answers a good request");
        self.may_use_files()
    }

    /// A frame that was never completed may take the first good request for its missing bytes, if they are exactly as
    /// many as are missing (`docs/formats/zcl1.md`, truncated frames). The second request is always answered.
    fn still_answers(&mut self, handle: i32, kind: Kind) {
        self.read_completions(handle);
        let may_be_swallowed = kind == Kind::Loop;
        let is_answered = self.answers(handle, kind) || may_be_swallowed && self.answers(handle, kind);
        assert!(is_answered, "{kind:?} does not answer a good request");
        self.read_completions(handle);
        self.drops_what_is_no_frame(handle, kind);
        self.read_completions(handle);
    }

    /// The first wrong byte of a magic is refused, and nothing of the bytes before it is left: the next request has one
    /// reply, its own.
    fn drops_what_is_no_frame(&mut self, handle: i32, kind: Kind) {
        let (right, wrong) = MAGIC.split_at(2);
        self.write(handle, right);
        let wrong = wrong.iter().map(|byte| byte ^ 1).collect::<Vec<u8>>();
        assert_eq!(self.write(handle, &wrong), ZabiError::Invalid.code(), "{kind:?}");
        let replies = self.replies_to_good_request(handle, kind);
        let replies = replies.iter().filter(|header| kind != Kind::Aio || header.op != OP_AIO_DONE);
        assert_eq!(replies.count(), 1, "{kind:?} has one reply");
    }

    /// Reads every frame that is there, and those that `file/aio` still owes.
    fn read_completions(&mut self, handle: i32) {
        self.read_all(handle);
        let begun = Instant::now();
        while self.open[&handle].owed > 0 {
            assert!(begun.elapsed() < COMPLETION_MAX, "a request of file/aio was not completed");
            std::thread::yield_now();
            self.read_all(handle);
        }
    }

    /// Writes a good request. Returns whether it is among the requests that were answered with OK.
    fn answers(&mut self, handle: i32, kind: Kind) -> bool {
        let replies = self.replies_to_good_request(handle, kind);
        let expected = good_request(kind).map(|(op, _)| (op, RID, STATUS_OK));
        replies.iter().any(|header| Some((header.op, header.rid, header.status)) == expected)
    }

    /// Writes a good request, and reads every frame that is there then.
    fn replies_to_good_request(&mut self, handle: i32, kind: Kind) -> Vec<Header> {
        let (op, payload) = good_request(kind).expect("the capability takes requests");
        let code = self.request(handle, Header::request(op, RID), payload);
        assert!(code > 0, "{kind:?} does not take a good request: {code}");
        self.read_all(handle)
    }

    /// Reads every frame that is there.
    fn read_all(&mut self, handle: i32) -> Vec<Header> {
        let mut headers = Vec::new();
        loop {
            match self.read_at(handle, RESPONSE, READ_BYTES_MAX) {
                Ok(header) => headers.extend(header),
                Err(ZabiError::Again) => return headers,
                Err(error) => panic!("the handle {handle} cannot be read: {error}"),
            }
        }
    }
}

/// Returns op and payload of a request that any state of the handle allows.
fn good_request(kind: Kind) -> Option<(u16, &'static [u8])> {
    match kind {
        // POLL for one event, without waiting.
        Kind::Loop => Some((5, &[1, 0, 0, 0, 0, 0, 0, 0])),
        // TIME_NOW.
        Kind::Info => Some((3, &[])),
        // UNSUBSCRIBE and CLOSE, of ids that do not exist.
        Kind::Bus => Some((2, &[0xEE; 4])),
        Kind::Aio => Some((2, &[0xEE; 8])),
        // LIST.
        Kind::Async => Some((1, &[])),
        Kind::List | Kind::Refused => None,
    }
}
