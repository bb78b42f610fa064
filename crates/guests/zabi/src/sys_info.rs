//! `sys/info`: facts about the machine that the guest may know, its clocks, and a seed of random bytes.

mod machine;

use millrace_reactor::ZabiError;
use millrace_reactor::zcl1::{FRAME_BYTES_MAX, FieldWriter, FrameClass, FrameQueue, Header};
use rand::TryRngCore;
use rand::rngs::OsRng;

use crate::clock::{mono_now, realtime_ns};
use crate::handle::{HandleFlags, OpenHandle};
use crate::handles::Handles;
use crate::memory::GuestMemory;
use crate::requests::{RequestHandler, RequestStream, UNKNOWN_OP, error_payload};

const TRACE: &str = "sys.info";
const OP_INFO: u16 = 1;
const OP_STATS: u16 = 2;
const OP_TIME_NOW: u16 = 3;
const OP_RANDOM_SEED: u16 = 4;

const VERSION: u32 = 1;
const SEED_BYTES: usize = 32;
/// Length to which each of the four texts of INFO, the longest reply, is cut.
const TEXT_BYTES_MAX: usize = 256;
const REPLY_BYTES_MAX: usize = 2048;

#[derive(Debug)]
pub(crate) struct InfoHandle {
    requests: RequestStream,
    replies: Replies,
}

#[derive(Debug)]
struct Replies(FrameQueue);

impl InfoHandle {
    pub(crate) fn new() -> InfoHandle {
        InfoHandle { requests: RequestStream::new(), replies: Replies(FrameQueue::new(FRAME_BYTES_MAX)) }
    }
}

impl OpenHandle for InfoHandle {
    fn flags(&self) -> HandleFlags {
        HandleFlags::READ_WRITE
    }

    fn read(&mut self, to: &mut [u8], _handles: &mut Handles) -> Result<usize, ZabiError> {
        self.replies.0.read(to).ok_or(ZabiError::Again)
    }

    fn write(
        &mut self,
        from: &[u8],
        _memory: &dyn GuestMemory,
        _handles: &mut Handles,
    ) -> Result<usize, ZabiError> {
        self.requests.write(from, &mut self.replies)
    }
}

impl RequestHandler for Replies {
    fn check(&self, op: u16, payload_bytes: usize) -> Result<(), &'static str> {
        match op {
            OP_INFO | OP_STATS | OP_TIME_NOW | OP_RANDOM_SEED if payload_bytes == 0 => Ok(()),
            OP_INFO | OP_STATS | OP_TIME_NOW | OP_RANDOM_SEED => Err("payload must be empty"),
            _ => Err(UNKNOWN_OP),
        }
    }

    fn has_room(&self, _op: u16) -> bool {
        self.0.room() >= REPLY_BYTES_MAX
    }

    fn execute(&mut self, op: u16, rid: u32, _payload: &[u8]) {
        let reply = match op {
            OP_INFO => Ok(info()),
            OP_STATS => Ok(stats()),
            OP_TIME_NOW => Ok(time_now()),
            _ => random_seed(),
        };
        match reply {
            Ok(payload) => self.push(Header::ok(op, rid), &payload),
            Err(message) => self.refuse(op, rid, message),
        }
    }

    fn refuse(&mut self, op: u16, rid: u32, message: &str) {
        self.push(Header::error(op, rid), &error_payload(TRACE, message));
    }
}

impl Replies {
    fn push(&mut self, header: Header, payload: &[u8]) {
        let queued = self.0.push(FrameClass::Reply, header, payload);
        debug_assert!(queued.is_ok(), "the room was checked before: {queued:?}");
    }
}

/// The payload of INFO: `u32 1, u32 flags, u32 cpus, u32 page size, os, arch, model, hostname`; an unknown text is
/// empty and its bit of the flags is 0.
fn info() -> Vec<u8> {
    let texts = [machine::os(), machine::architecture(), machine::model(), machine::hostname()];
    let flags = texts.iter().enumerate().filter(|(_, text)| text.is_some());
    let flags = flags.fold(0, |flags, (bit, _)| flags | 1 << bit);
    let mut payload = Vec::new();
    let mut fields = FieldWriter::new(&mut payload);
    fields.u32(VERSION).u32(flags).u32(machine::cpus()).u32(machine::page_bytes());
    for text in texts {
        let text = text.unwrap_or_default();
        fields.prefixed(&text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES_MAX)]);
    }
    payload
}

/// The payload of STATS: `u32 1, u32 flags, u64 realtime_ns`; flag 1: three load averages in thousandths; flag 2: `u64
/// total, u64 available, u32 pressure`, the used part in thousandths.
fn stats() -> Vec<u8> {
    let (load, memory) = (machine::load(), machine::memory());
    let flags = u32::from(load.is_some()) | u32::from(memory.is_some()) << 1;
    let mut payload = Vec::new();
    let mut fields = FieldWriter::new(&mut payload);
    fields.u32(VERSION).u32(flags).u64(realtime_ns());
    for thousandths in load.into_iter().flatten() {
        fields.u32(thousandths);
    }
    if let Some(memory) = memory {
        fields.u64(memory.total_bytes).u64(memory.available_bytes).u32(memory.used_thousandths());
    }
    payload
}

fn time_now() -> Vec<u8> {
    let mut payload = Vec::new();
    FieldWriter::new(&mut payload).u32(VERSION).u64(realtime_ns()).u64(mono_now().0);
    payload
}

fn random_seed() -> Result<Vec<u8>, &'static str> {
    let mut seed = [0; SEED_BYTES];
    OsRng.try_fill_bytes(&mut seed).map_err(|_| "entropy unavailable")?;
    let mut payload = Vec::new();
    FieldWriter::new(&mut payload).u32(VERSION).prefixed(&seed);
    Ok(payload)
}
