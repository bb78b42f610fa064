//! Scripts of the dispatcher that come to a limit of the process (`dispatcher/surroundings.rs`): full queues, numbers of
//! handles that are used again.

use millrace_reactor::zcl1::{FieldWriter, Frame, HEADER_BYTES, Header};

use super::scripts::{FIRST, TEXT_AT, fields, open, path, read, request};
use crate::dispatcher::{Call, Kind, encode_script};

/// Where a script puts the beginning of a frame that is longer than a script.
const FRAME_AT: u16 = 1024;
/// Requests that nobody reads the replies of: more than fit a queue of replies.
const UNREAD: usize = 50;
/// Handles that are opened and ended: more than there are numbers.
const OPENED: usize = 45;

pub(super) fn all() -> Vec<Vec<u8>> {
    let kinds = [(Kind::Loop, 2), (Kind::Info, 1), (Kind::Bus, 2), (Kind::Async, 1), (Kind::Aio, 2)];
    let mut scripts: Vec<Vec<u8>> = kinds.into_iter().map(|(kind, op)| unread(kind, op)).collect();
    scripts.extend([invoked(), full_bus(), large_file(), many_handles()]);
    scripts
}

fn unread(kind: Kind, op: u8) -> Vec<u8> {
    let payload: &[u8] = match kind {
        Kind::Loop | Kind::Aio => &[1; 8],
        Kind::Bus => &[1; 4],
        _ => &[],
    };
    let mut calls = vec![open(kind)];
    calls.extend([request(op, payload); UNREAD]);
    encode_script(&calls)
}

/// Each request of `async/default` has a reply and two events.
fn invoked() -> Vec<u8> {
    let ping = fields(|to| {
        to.prefixed(b"async").prefixed(b"default").prefixed(b"ping.v1").u64(9).prefixed(b"");
    });
    let mut calls = vec![open(Kind::Async)];
    calls.extend([request(2, &ping); UNREAD]);
    encode_script(&calls)
}

/// Two events leave room for one reply in the queue of a subscriber, and more requests follow.
fn full_bus() -> Vec<u8> {
    let subscribe = fields(|to| {
        to.prefixed(b"t").u32(0);
    });
    let (first, second) = (publish_head(34_963), publish_head(34_935));
    let write = |head: &[u8], data: u32| Call::WriteAt {
        handle: FIRST,
        address: FRAME_AT.into(),
        length: u32::try_from(head.len()).unwrap_or_default() + data,
    };
    let mut calls = vec![open(Kind::Bus), request(1, &subscribe), read(FIRST)];
    calls.extend([Call::Put { address: FRAME_AT, bytes: &first }, write(&first, 34_963)]);
    calls.extend([Call::Put { address: FRAME_AT, bytes: &second }, write(&second, 34_935)]);
    calls.extend([request(2, &[9; 4]); 12]);
    encode_script(&calls)
}

/// Returns a frame of PUBLISH without its data.
fn publish_head(data_bytes: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    FieldWriter::new(&mut payload).prefixed(b"t").u32(data_bytes);
    let whole_bytes = payload.len() + data_bytes as usize;
    let mut whole = payload;
    whole.resize(whole_bytes, 0);
    let mut frame = Frame::encode(Header::request(3, 1), &whole).expect("the event fits a frame");
    frame.truncate(HEADER_BYTES + whole_bytes - data_bytes as usize);
    frame
}

/// A file is read so often that its completions would not fit the queue.
fn large_file() -> Vec<u8> {
    let open_file = path(5, &[7, 0o644]);
    let write = fields(|to| {
        to.u64(1).u64(0).u64(TEXT_AT.into()).u32(60_000).u32(0);
    });
    let read_back = fields(|to| {
        to.u64(1).u64(0).u32(60_000).u32(0);
    });
    let mut calls = vec![open(Kind::Aio), Call::Put { address: TEXT_AT, bytes: b"/file" }];
    calls.extend([request(1, &open_file), request(4, &write)]);
    calls.extend([request(3, &read_back); 4]);
    encode_script(&calls)
}

fn many_handles() -> Vec<u8> {
    let mut calls = vec![open(Kind::Bus)];
    for number in (FIRST + 1..).take(OPENED) {
        calls.extend([open(Kind::List), Call::End { handle: number }]);
    }
    // The handles behind the last number begin again with the first one that is free.
    calls.extend([open(Kind::List), open(Kind::Loop), Call::Flags { handle: FIRST + 1 }]);
    encode_script(&calls)
}
