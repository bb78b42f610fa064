//! `async/default`: futures that the host completes. The host offers three selectors to try them out.

use std::collections::BTreeSet;

use millrace_reactor::zcl1::{FieldError, FieldReader, FieldWriter, FrameClass, FrameQueue, Header};
use millrace_reactor::{Readiness, ZabiError};

use crate::handle::{HandleFlags, OpenHandle, WatchSource};
use crate::handles::Handles;
use crate::memory::GuestMemory;
use crate::requests::{UNKNOWN_OP, error_payload, header_fault, one_frame};
use crate::signals::ReadySignal;

const TRACE: &str = "async.default";
const OP_LIST: u16 = 1;
const OP_INVOKE: u16 = 2;
const OP_CANCEL: u16 = 3;
const EVENT_ACK: u16 = 100;
const EVENT_FAIL: u16 = 101;
const EVENT_FUTURE_OK: u16 = 102;
const EVENT_FUTURE_FAIL: u16 = 103;
const EVENT_FUTURE_CANCEL: u16 = 104;

const VERSION: u32 = 1;
/// The replies and events of one request; a request is accepted only if nothing is left unread.
const OUTPUT_BYTES_MAX: usize = 4096;

const KIND: &str = "async";
const NAME: &str = "default";
const SELECTORS: [(&str, Selector); 3] =
    [("fail.v1", Selector::Fail), ("hold.v1", Selector::Hold), ("ping.v1", Selector::Ping)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selector {
    /// Completes with `pong`.
    Ping,
    /// Fails.
    Fail,
    /// Stays open until CANCEL.
    Hold,
}

/// The code in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Ok = 0,
    NoEntry = 1,
    Invalid = 2,
    OutOfMemory = 3,
}

#[derive(Debug)]
pub(crate) struct AsyncHandle {
    output: FrameQueue,
    signal: ReadySignal,
    /// Futures that are open.
    futures: BTreeSet<u64>,
    futures_max: usize,
}

#[derive(Clone, Copy)]
struct Invoke {
    selector: Option<Selector>,
    future_id: u64,
}

impl AsyncHandle {
    pub(crate) fn new(futures_max: usize, signal: ReadySignal) -> AsyncHandle {
        let output = FrameQueue::new(OUTPUT_BYTES_MAX);
        AsyncHandle { output, signal, futures: BTreeSet::new(), futures_max }
    }

    /// Executes a request. The error is the message of an error frame.
    fn execute(&mut self, op: u16, rid: u32, payload: &[u8]) -> Result<(), &'static str> {
        match op {
            OP_LIST if payload.is_empty() => self.list(rid),
            OP_LIST => return Err("bad LIST payload"),
            OP_INVOKE => {
                let invoke = decode_invoke(payload).map_err(|_| "bad INVOKE payload")?;
                self.invoke(rid, invoke);
            }
            OP_CANCEL => {
                let future_id = decode_id(payload).map_err(|_| "bad CANCEL payload")?;
                self.cancel(rid, future_id);
            }
            _ => return Err(UNKNOWN_OP),
        }
        Ok(())
    }

    fn list(&mut self, rid: u32) {
        let mut payload = Vec::new();
        let mut fields = FieldWriter::new(&mut payload);
        fields.u32(VERSION).u32(u32::try_from(SELECTORS.len()).unwrap_or(u32::MAX));
        for (selector, _) in SELECTORS {
            fields.prefixed(KIND.as_bytes()).prefixed(NAME.as_bytes()).prefixed(selector.as_bytes());
        }
        self.push(FrameClass::Reply, Header::ok(OP_LIST, rid), &payload);
    }

    fn invoke(&mut self, rid: u32, invoke: Invoke) {
        let Invoke { selector, future_id } = invoke;
        let Some(selector) = selector else {
            self.reply(OP_INVOKE, rid, Code::NoEntry);
            return self.event(EVENT_FAIL, rid, future_id, &[b"noent", b"unknown selector"]);
        };
        if future_id == 0 || self.futures.contains(&future_id) {
            return self.reply(OP_INVOKE, rid, Code::Invalid);
        }
        if self.futures.len() >= self.futures_max {
            return self.reply(OP_INVOKE, rid, Code::OutOfMemory);
        }
        self.reply(OP_INVOKE, rid, Code::Ok);
        self.event(EVENT_ACK, rid, future_id, &[]);
        match selector {
            Selector::Ping => self.event(EVENT_FUTURE_OK, rid, future_id, &[b"pong"]),
            Selector::Fail => self.event(EVENT_FUTURE_FAIL, rid, future_id, &[b"failed", b"fail.v1 fails"]),
            Selector::Hold => {
                self.futures.insert(future_id);
            }
        }
    }

    fn cancel(&mut self, rid: u32, future_id: u64) {
        if !self.futures.remove(&future_id) {
            return self.reply(OP_CANCEL, rid, Code::NoEntry);
        }
        self.reply(OP_CANCEL, rid, Code::Ok);
        self.event(EVENT_FUTURE_CANCEL, rid, future_id, &[]);
    }

    fn reply(&mut self, op: u16, rid: u32, code: Code) {
        self.push(FrameClass::Reply, Header::ok(op, rid), &(code as u32).to_le_bytes());
    }

    fn event(&mut self, op: u16, rid: u32, future_id: u64, texts: &[&[u8]]) {
        let mut payload = Vec::new();
        let mut fields = FieldWriter::new(&mut payload);
        fields.u64(future_id);
        texts.iter().for_each(|text| {
            fields.prefixed(text);
        });
        self.push(FrameClass::Event, Header::ok(op, rid), &payload);
    }

    fn push(&mut self, class: FrameClass, header: Header, payload: &[u8]) {
        let queued = self.output.push(class, header, payload);
        debug_assert!(queued.is_ok(), "the queue was empty: {queued:?}");
    }
}

impl OpenHandle for AsyncHandle {
    fn flags(&self) -> HandleFlags {
        HandleFlags::READ_WRITE
    }

    fn read(&mut self, to: &mut [u8], _handles: &mut Handles) -> Result<usize, ZabiError> {
        self.output.read(to).ok_or(ZabiError::Again)
    }

    fn write(
        &mut self,
        from: &[u8],
        _memory: &dyn GuestMemory,
        _handles: &mut Handles,
    ) -> Result<usize, ZabiError> {
        if !self.output.is_empty() {
            return Err(ZabiError::Again);
        }
        let frame = one_frame(from)?;
        let Header { op, rid, .. } = frame.header;
        let done = match header_fault(&frame.header) {
            Some(message) => Err(message),
            None => self.execute(op, rid, frame.payload),
        };
        if let Err(message) = done {
            self.push(FrameClass::Reply, Header::error(op, rid), &error_payload(TRACE, message));
        }
        Ok(from.len())
    }

    fn watch_source(&self) -> Option<WatchSource> {
        let state = if self.output.is_empty() { Readiness::WRITABLE } else { Readiness::READABLE };
        Some(WatchSource::Computed { signal: self.signal.id(), state })
    }
}

fn decode_invoke(payload: &[u8]) -> Result<Invoke, FieldError> {
    let mut fields = FieldReader::new(payload);
    let (kind, name, selector) = (fields.prefixed()?, fields.prefixed()?, fields.prefixed()?);
    let future_id = fields.u64()?;
    // The three selectors ignore their parameters.
    fields.prefixed()?;
    fields.finish()?;
    let is_here = kind == KIND.as_bytes() && name == NAME.as_bytes();
    let found = SELECTORS.iter().find(|(name, _)| is_here && name.as_bytes() == selector);
    Ok(Invoke { selector: found.map(|(_, selector)| *selector), future_id })
}

fn decode_id(payload: &[u8]) -> Result<u64, FieldError> {
    let mut fields = FieldReader::new(payload);
    let id = fields.u64()?;
    fields.finish().map(|()| id)
}
