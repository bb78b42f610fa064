//! Scripts of the dispatcher: each capability opened and used, and the recorded sessions of `sys/loop`.

use millrace_reactor::zcl1::FieldWriter;

use super::Step;
use crate::dispatcher::{CAPABILITIES, Call, Kind, encode_script};

/// The first handle that a guest opens.
pub(super) const FIRST: u8 = 3;
const SECOND: u8 = FIRST + 1;
/// Where a script puts a path, a topic or data.
pub(super) const TEXT_AT: u16 = 64;
const REQUEST_BYTES_MAX: usize = 255;

pub(super) fn all(sessions: &[Vec<Step>]) -> Vec<Vec<u8>> {
    let mut scripts = vec![core_calls(), lists(), info(), bus(), futures(), files(), folders(), waiting()];
    scripts.extend(sessions.iter().map(|session| replayed(session)));
    scripts
}

/// The requests of a recorded session, each followed by a read.
fn replayed(session: &[Step]) -> Vec<u8> {
    let mut calls = vec![open(Kind::Loop)];
    for step in session.iter().filter(|step| (1..=REQUEST_BYTES_MAX).contains(&step.request.len())) {
        calls.extend([Call::Write { handle: FIRST, bytes: &step.request }, read(FIRST)]);
    }
    encode_script(&calls)
}

fn core_calls() -> Vec<u8> {
    let handle_op = fields(|to| {
        to.u32(1).u32(FIRST.into()).u32(1).u32(0);
    });
    encode_script(&[
        Call::CapabilityAt { index: 0, address: 128, length: 64 },
        Call::Control { op: 1, payload: &[] },
        open(Kind::Bus),
        Call::Control { op: 4, payload: &handle_op },
        Call::Flags { handle: FIRST },
        Call::Put { address: TEXT_AT, bytes: b"topic" },
        Call::Telemetry { topic: TEXT_AT.into(), topic_bytes: 5, message: TEXT_AT.into(), message_bytes: 5 },
        Call::Alloc { size: 100 },
        Call::Alloc { size: 20_000 },
        Call::Free { block: 0 },
        Call::Alloc { size: 16 },
        Call::Free { block: 1 },
        Call::FreeAt { address: 7 },
        Call::WriteAt { handle: 1, address: TEXT_AT.into(), length: 5 },
        Call::ReadAt { handle: 0, address: 0, length: 10 },
        Call::OpenAt { address: 0 },
        Call::ControlAt { request: 0, request_bytes: 24, reply: 1000, reply_bytes_max: 4096 },
        Call::End { handle: FIRST },
    ])
}

fn lists() -> Vec<u8> {
    let env = CAPABILITIES.iter().position(|(_, name, _)| *name == "env").unwrap_or_default();
    encode_script(&[
        open(Kind::List),
        Call::Read { handle: FIRST, length: 5 },
        read(FIRST),
        Call::Open { capability: env as u8, params: &[] },
        read(SECOND),
    ])
}

fn info() -> Vec<u8> {
    let mut calls = vec![open(Kind::Info)];
    for op in 1..=4 {
        calls.extend([request(op, &[]), read(FIRST)]);
    }
    encode_script(&calls)
}

fn bus() -> Vec<u8> {
    let subscribe = fields(|to| {
        to.prefixed(b"topic").u32(0);
    });
    let publish = fields(|to| {
        to.prefixed(b"topic").prefixed(b"data");
    });
    let first = [1, 0, 0, 0];
    encode_script(&[
        open(Kind::Bus),
        request(1, &subscribe),
        read(FIRST),
        request(3, &publish),
        Call::Read { handle: FIRST, length: 10 },
        read(FIRST),
        read(FIRST),
        request(2, &first),
        read(FIRST),
    ])
}

fn futures() -> Vec<u8> {
    let invoke = |selector: &[u8]| {
        fields(|to| {
            to.prefixed(b"async").prefixed(b"default").prefixed(selector).u64(9).prefixed(b"");
        })
    };
    let [ping, fail, hold] = [b"ping.v1", b"fail.v1", b"hold.v1"].map(|selector| invoke(selector));
    let cancel = 9u64.to_le_bytes();
    let mut calls = vec![open(Kind::Async)];
    for (op, payload) in [(1, &[][..]), (2, &ping), (2, &fail), (2, &hold), (3, &cancel)] {
        calls.extend([request(op, payload), read(FIRST), read(FIRST), read(FIRST)]);
    }
    encode_script(&calls)
}

/// The payload of a request of `file/aio` for the path at [`TEXT_AT`].
pub(super) fn path(bytes: u32, words: &[u32]) -> Vec<u8> {
    fields(|to| {
        to.u64(TEXT_AT.into()).u32(bytes);
        words.iter().for_each(|word| {
            to.u32(*word);
        });
    })
}

fn files() -> Vec<u8> {
    let (read_write_create, all) = (7, 0o644);
    let open_file = path(5, &[read_write_create, all]);
    let write = fields(|to| {
        to.u64(1).u64(0).u64(TEXT_AT.into()).u32(5).u32(0);
    });
    let read_back = fields(|to| {
        to.u64(1).u64(1).u32(100).u32(0);
    });
    let close = 1u64.to_le_bytes();
    let by_path = path(5, &[0]);
    encode_script(&[
        open(Kind::Aio),
        Call::Put { address: TEXT_AT, bytes: b"/file" },
        request(1, &open_file),
        request(4, &write),
        read(FIRST),
        request(3, &read_back),
        request(2, &close),
        request(8, &by_path),
        read(FIRST),
        read(FIRST),
        request(7, &by_path),
        read(FIRST),
    ])
}

fn folders() -> Vec<u8> {
    let make = path(2, &[0o755, 0]);
    let list = path(1, &[0, 0]);
    let remove = path(2, &[0]);
    encode_script(&[
        open(Kind::Aio),
        Call::Put { address: TEXT_AT, bytes: b"/d" },
        request(5, &make),
        request(9, &list),
        read(FIRST),
        read(FIRST),
        request(6, &remove),
        read(FIRST),
    ])
}

/// A loop that watches a bus, with a timer.
fn waiting() -> Vec<u8> {
    let watch = fields(|to| {
        to.u32(SECOND.into()).u32(3).u64(1).u32(0);
    });
    let arm = fields(|to| {
        to.u64(1).u64(0).u64(1000).u32(1);
    });
    let poll = fields(|to| {
        to.u32(8).u32(0);
    });
    let id = 1u64.to_le_bytes();
    let subscribe = fields(|to| {
        to.prefixed(b"t").u32(0);
    });
    let second = Call::Request { handle: SECOND, op: 1, rid: 1, payload: &subscribe };
    let mut calls = vec![open(Kind::Loop), open(Kind::Bus), Call::InterruptPoll];
    for (op, payload) in [(1, watch.as_slice()), (3, &arm), (5, &poll)] {
        calls.extend([request(op, payload), read(FIRST)]);
    }
    calls.extend([second, request(5, &poll), Call::End { handle: SECOND }, request(5, &poll)]);
    calls.extend([request(2, &id), request(4, &id), read(FIRST), read(FIRST), read(FIRST)]);
    encode_script(&calls)
}

pub(super) fn open(kind: Kind) -> Call<'static> {
    let index = CAPABILITIES.iter().position(|(.., other)| *other == kind);
    Call::Open { capability: index.unwrap_or_default() as u8, params: &[] }
}

pub(super) fn request(op: u8, payload: &[u8]) -> Call<'_> {
    Call::Request { handle: FIRST, op, rid: 1, payload }
}

pub(super) fn read(handle: u8) -> Call<'static> {
    Call::Read { handle, length: u16::MAX }
}

pub(super) fn fields(build: impl FnOnce(&mut FieldWriter<'_>)) -> Vec<u8> {
    let mut payload = Vec::new();
    build(&mut FieldWriter::new(&mut payload));
    payload
}
