//! The requests of `file/aio`: decoded, checked, acknowledged, and handed to the workers.

use std::sync::Arc;

use millrace_reactor::zcl1::{FieldError, FieldReader};

use super::job::AioJob;
use super::shared::{QueuedJob, SharedHandle};
use super::workers::WorkerPool;
use crate::memory::GuestMemory;
use crate::requests::{RequestHandler, UNKNOWN_OP};

const OP_OPEN: u16 = 1;
const OP_CLOSE: u16 = 2;
const OP_READ: u16 = 3;
const OP_WRITE: u16 = 4;
const OP_MKDIR: u16 = 5;
const OP_RMDIR: u16 = 6;
const OP_UNLINK: u16 = 7;
const OP_STAT: u16 = 8;
const OP_READDIR: u16 = 9;

const OPEN_BYTES_MIN: usize = 20;
/// The most that a read returns, so that its frame stays below the limit of 65,536 bytes.
pub(super) const READ_BYTES_MAX: u32 = 60_000;
pub(super) const WRITE_BYTES_MAX: u32 = 1 << 20;

/// The requests of one `zi_write`.
pub(super) struct Submission<'a> {
    pub(super) memory: &'a dyn GuestMemory,
    pub(super) shared: &'a Arc<SharedHandle>,
    pub(super) workers: &'a Arc<WorkerPool>,
}

impl RequestHandler for Submission<'_> {
    fn check(&self, op: u16, payload_bytes: usize) -> Result<(), &'static str> {
        let (expected, message) = match op {
            OP_OPEN if payload_bytes >= OPEN_BYTES_MIN => return Ok(()),
            OP_OPEN => (OPEN_BYTES_MIN, "bad OPEN payload"),
            OP_CLOSE => (8, "bad CLOSE payload"),
            OP_READ => (24, "bad READ payload"),
            OP_WRITE => (32, "bad WRITE payload"),
            OP_MKDIR => (20, "bad MKDIR payload"),
            OP_RMDIR => (16, "bad RMDIR payload"),
            OP_UNLINK => (16, "bad UNLINK payload"),
            OP_STAT => (16, "bad STAT payload"),
            OP_READDIR => (20, "bad READDIR payload"),
            _ => return Err(UNKNOWN_OP),
        };
        if payload_bytes == expected { Ok(()) } else { Err(message) }
    }

    fn has_room(&self, _op: u16) -> bool {
        self.shared.state().has_room_for_ack()
    }

    fn execute(&mut self, op: u16, rid: u32, payload: &[u8]) {
        let error = self.submit(op, rid, payload).err();
        self.shared.state().acknowledge(op, rid, error);
    }

    fn refuse(&mut self, op: u16, rid: u32, message: &str) {
        self.shared.state().acknowledge(op, rid, Some(message));
    }
}

impl Submission<'_> {
    fn submit(&self, op: u16, rid: u32, payload: &[u8]) -> Result<(), &'static str> {
        // The header's check has covered the payload's length.
        let job = self.decode(op, payload).map_err(|_: FieldError| "bad payload")??;
        let queued = QueuedJob { op, rid, job };
        let is_new = self.shared.state().accept(queued, &self.shared.limits).ok_or("queue full")?;
        if is_new && !self.workers.schedule(self.shared) {
            self.shared.state().withdraw_last();
            return Err("oom");
        }
        Ok(())
    }

    /// Decodes a request. The inner error is about the value of a field.
    fn decode(&self, op: u16, payload: &[u8]) -> Result<Result<AioJob, &'static str>, FieldError> {
        let mut fields = FieldReader::new(payload);
        let job = match op {
            OP_OPEN => {
                let (path, flags, mode) = ((fields.u64()?, fields.u32()?), fields.u32()?, fields.u32()?);
                self.path(path).map(|path| AioJob::Open { path, flags, mode })
            }
            OP_CLOSE => Ok(AioJob::Close { file_id: fields.u64()? }),
            OP_READ => {
                let (file_id, offset, max) = (fields.u64()?, fields.u64()?, fields.u32()?);
                let bytes_max = max.min(READ_BYTES_MAX) as usize;
                no_flags(fields.u32()?).map(|()| AioJob::Read { file_id, offset, bytes_max })
            }
            OP_WRITE => {
                let (file_id, offset) = (fields.u64()?, fields.u64()?);
                let (data, flags) = ((fields.u64()?, fields.u32()?), fields.u32()?);
                let data = no_flags(flags).and_then(|()| self.data(data));
                data.map(|data| AioJob::Write { file_id, offset, data })
            }
            OP_MKDIR => {
                let (path, mode, flags) = ((fields.u64()?, fields.u32()?), fields.u32()?, fields.u32()?);
                let path = no_flags(flags).and_then(|()| self.path(path));
                path.map(|path| AioJob::MakeDir { path, mode })
            }
            OP_READDIR => {
                let (path, max, flags) = ((fields.u64()?, fields.u32()?), fields.u32()?, fields.u32()?);
                let bytes_max = if max == 0 { READ_BYTES_MAX } else { max.min(READ_BYTES_MAX) } as usize;
                let path = no_flags(flags).and_then(|()| self.path(path));
                path.map(|path| AioJob::ReadDir { path, bytes_max })
            }
            _ => {
                let (path, flags) = ((fields.u64()?, fields.u32()?), fields.u32()?);
                let path = no_flags(flags).and_then(|()| self.path(path));
                path.map(|path| match op {
                    OP_RMDIR => AioJob::RemoveDir { path },
                    OP_UNLINK => AioJob::Unlink { path },
                    _ => AioJob::Stat { path },
                })
            }
        };
        Ok(job)
    }

    fn path(&self, (address, length): (u64, u32)) -> Result<Vec<u8>, &'static str> {
        if length == 0 {
            return Err("empty path");
        }
        if length > self.shared.limits.path_bytes_max {
            return Err("path out of bounds");
        }
        let path = self.memory.bytes(address, length).map_err(|_| "path out of bounds")?;
        if path.contains(&0) { Err("path contains NUL") } else { Ok(path.to_vec()) }
    }

    fn data(&self, (address, length): (u64, u32)) -> Result<Vec<u8>, &'static str> {
        if length > WRITE_BYTES_MAX {
            return Err("write too large");
        }
        self.memory.bytes(address, length).map(<[u8]>::to_vec).map_err(|_| "src out of bounds")
    }
}

fn no_flags(flags: u32) -> Result<(), &'static str> {
    if flags == 0 { Ok(()) } else { Err("flags must be 0") }
}
