//! The calls of zABI, after `c_calls.rs` has wrapped the caller's addresses as a memory: decides which calls go to the
//! process, and which need no turn at it.

use std::io::{self, Write};

use millrace_zabi::{GuestMemory, Limits, ZabiError};
use serde_json::json;

use crate::host;
use crate::standard::StandardHandle;

/// The address and the length of a range.
type Range = (u64, u32);

pub(crate) fn ctl(memory: &mut dyn GuestMemory, request: Range, reply: Range) -> i32 {
    host::call(|process| process.zi_ctl(memory, request.0, request.1, reply.0, reply.1))
}

pub(crate) fn read(memory: &mut dyn GuestMemory, handle: i32, to: u64, bytes_max: u32) -> i32 {
    match StandardHandle::of(handle) {
        Some(stream) => returned(standard_read(memory, stream, (to, bytes_max))),
        None => host::call(|process| process.zi_read(memory, handle, to, bytes_max)),
    }
}

pub(crate) fn write(memory: &mut dyn GuestMemory, handle: i32, from: u64, bytes: u32) -> i32 {
    match StandardHandle::of(handle) {
        Some(stream) => returned(standard_write(memory, stream, (from, bytes))),
        None => host::call(|process| process.zi_write(memory, handle, from, bytes)),
    }
}

pub(crate) fn end(handle: i32) -> i32 {
    host::call(|process| process.zi_end(handle))
}

/// Writes one line of JSON to standard error, as the reference does. Long texts are cut.
pub(crate) fn telemetry(memory: &dyn GuestMemory, topic: Range, message: Range) -> i32 {
    let bytes_max = Limits::default().telemetry_bytes_max;
    let text = |(address, length): Range| -> Result<String, ZabiError> {
        let bytes = memory.bytes(address, length.min(bytes_max))?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    };
    let line = text(topic)
        .and_then(|topic| Ok(format!("{}\n", json!({ "topic": topic, "message": text(message)? }))));
    returned(line.map(|line| {
        // The guest must not fail because nobody reads its log.
        let _ = io::stderr().write_all(line.as_bytes());
        0
    }))
}

pub(crate) fn cap_count() -> i32 {
    host::call(|process| process.zi_cap_count())
}

pub(crate) fn cap_get_size(index: i32) -> i32 {
    host::call(|process| process.zi_cap_get_size(index))
}

pub(crate) fn cap_get(memory: &mut dyn GuestMemory, index: i32, to: u64, bytes_max: u32) -> i32 {
    host::call(|process| process.zi_cap_get(memory, index, to, bytes_max))
}

pub(crate) fn cap_open(memory: &mut dyn GuestMemory, request: u64) -> i32 {
    host::call(|process| process.zi_cap_open(memory, request))
}

pub(crate) fn handle_hflags(handle: i32) -> u32 {
    host::call(|process| process.zi_handle_hflags(handle))
}

fn standard_read(
    memory: &mut dyn GuestMemory,
    stream: StandardHandle,
    to: Range,
) -> Result<usize, ZabiError> {
    stream.read(memory.bytes_mut(to.0, transfer_bytes(to.1))?)
}

fn standard_write(memory: &dyn GuestMemory, stream: StandardHandle, from: Range) -> Result<usize, ZabiError> {
    stream.write(memory.bytes(from.0, transfer_bytes(from.1))?)
}

/// The bytes of one transfer over a standard stream: a longer one becomes a short read or write.
fn transfer_bytes(bytes: u32) -> u32 {
    bytes.min(Limits::default().transfer_bytes_max)
}

fn returned(result: Result<usize, ZabiError>) -> i32 {
    match result {
        Ok(count) => i32::try_from(count).unwrap_or(i32::MAX),
        Err(error) => error.code(),
    }
}
