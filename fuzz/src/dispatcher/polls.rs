//! POLL that never waits: the timeouts in the bytes that a script writes are set to 0.

use millrace_reactor::zcl1::{HEADER_BYTES, Header};

const OP_POLL: u16 = 5;
const PAYLOAD_BYTES: u32 = 8;
const TIMEOUT_AT: usize = 28;
const REQUEST_BYTES: usize = 32;

/// The last bytes that were written to one handle: a request of POLL may come in pieces.
#[derive(Debug, Default)]
pub(super) struct WrittenTail(Vec<u8>);

impl WrittenTail {
    /// Sets the timeout of every POLL in `bytes` to 0, also of one that began in an earlier write. Bytes that look like
    /// a POLL count, whether the host takes them for a request or not.
    pub(super) fn without_timeouts(&self, bytes: &mut [u8]) {
        let before = self.0.len();
        let mut all = [self.0.as_slice(), bytes].concat();
        for start in 0..all.len() {
            if begins_with_poll(&all[start..]) {
                let end = (start + REQUEST_BYTES).min(all.len());
                all.get_mut(start + TIMEOUT_AT..end).unwrap_or_default().fill(0);
            }
        }
        bytes.copy_from_slice(&all[before..]);
    }

    /// The host has taken these bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let surplus = self.0.len().saturating_sub(REQUEST_BYTES - 1);
        self.0.drain(..surplus);
    }
}

fn begins_with_poll(bytes: &[u8]) -> bool {
    let header = bytes.first_chunk::<HEADER_BYTES>().and_then(Header::decode);
    header.is_some_and(|header| {
        header.check_request().is_ok() && (header.op, header.payload_bytes) == (OP_POLL, PAYLOAD_BYTES)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_timeout_is_left_wherever_a_poll_is_split() {
        let poll = |timeout_ms: u32| {
            let timeout = millrace_reactor::PollTimeout::Ms(timeout_ms);
            let max_events = 2.try_into().expect("2 is not 0");
            millrace_reactor::Request::Poll { max_events, timeout }.frame(7)
        };
        let (poll, quiet) = (poll(1000), poll(0));
        let (stream, expected) = ([&b"x"[..], &poll, &poll].concat(), [&b"x"[..], &quiet, &quiet].concat());
        for first in 0..stream.len() {
            for second in first..stream.len() {
                let (mut tail, mut written) = (WrittenTail::default(), Vec::new());
                for piece in [&stream[..first], &stream[first..second], &stream[second..]] {
                    let mut piece = piece.to_vec();
                    tail.without_timeouts(&mut piece);
                    tail.push(&piece);
                    written.extend(piece);
                }
                assert_eq!(written, expected, "split at {first} and {second}");
            }
        }
    }
}
