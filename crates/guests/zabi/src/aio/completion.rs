//! The frame DONE: the result of a job.

use millrace_reactor::zcl1::{FieldWriter, Header};

use super::shared::TRACE;
use crate::requests::error_payload;

/// The op of the frame.
const OP_DONE: u16 = 100;

#[derive(Debug)]
pub(super) struct Completion {
    /// The op of the request.
    pub(super) op: u16,
    pub(super) rid: u32,
    pub(super) result: Result<JobDone, JobError>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct JobDone {
    /// A count of bytes or entries; 0 for jobs that count nothing.
    pub(super) count: u32,
    pub(super) extra: Vec<u8>,
}

/// An error completion; the text is its message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JobError(pub(super) String);

impl JobDone {
    pub(super) fn nothing() -> JobDone {
        JobDone { count: 0, extra: Vec::new() }
    }

    /// Makes a result with a count, which is capped to fit its field.
    pub(super) fn counted(count: usize, extra: Vec<u8>) -> JobDone {
        JobDone { count: u32::try_from(count).unwrap_or(u32::MAX), extra }
    }
}

impl From<&str> for JobError {
    fn from(message: &str) -> JobError {
        JobError(message.to_owned())
    }
}

impl Completion {
    pub(super) fn encode(&self) -> (Header, Vec<u8>) {
        match &self.result {
            Err(JobError(message)) => (Header::error(OP_DONE, self.rid), error_payload(TRACE, message)),
            Ok(done) => {
                let mut payload = Vec::with_capacity(8 + done.extra.len());
                FieldWriter::new(&mut payload).u16(self.op).u16(0).u32(done.count);
                payload.extend_from_slice(&done.extra);
                (Header::ok(OP_DONE, self.rid), payload)
            }
        }
    }
}
