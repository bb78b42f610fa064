//! Malformed input on the loop's handle: the guest gets an error frame or a negative code, and its next valid request
//! works.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Harness, READABLE, WRITABLE, answer, arm, cancel, poll, unwatch, watch};
use millrace_reactor::zcl1::{FRAME_BYTES_MAX, Frame, Header};
use millrace_reactor::{FirstDue, MS, PollTimeout, Request, ZabiError};
use proptest::prelude::*;

/// The rid of requests that are expected to work.
const GOOD: u32 = 0x600d;

/// A request of each op, with the variants that matter; all are valid for the loop of [`open`].
fn requests() -> Vec<Request> {
    vec![
        watch(2, 4, READABLE | WRITABLE),
        unwatch(1),
        arm(2, FirstDue::After(5 * MS), 0),
        arm(1, FirstDue::After(u64::MAX), u64::MAX),
        cancel(1),
        poll(8, PollTimeout::Ms(0)),
        poll(1, PollTimeout::Ms(20)),
    ]
}

/// A loop with watch 1 on handle 4 and timer 1, so that every request of [`requests`] works.
fn open() -> Harness {
    let mut harness = Harness::new();
    harness.polled(4, READABLE);
    harness.watch(1, 4, READABLE).unwrap();
    harness.arm(1, FirstDue::After(1000 * MS), 0).unwrap();
    harness
}

fn bad_frame(header: Header, payload: &[u8]) -> Vec<u8> {
    Frame::encode(header, payload).unwrap()
}

/// Reads all queued replies as (op, rid, message of the error or empty).
fn replies(harness: &mut Harness) -> Vec<(u16, u32, String)> {
    let frames = harness.read_all();
    let decoded = frames.iter().map(|bytes| Frame::decode(bytes).expect("every read is one frame"));
    decoded
        .map(|frame| (frame.header.op, frame.header.rid, answer(&frame).err().unwrap_or_default()))
        .collect()
}

/// Sends a valid request in a write of its own; returns whether it was answered without an error.
fn works(harness: &mut Harness) -> bool {
    let request = poll(8, PollTimeout::Ms(0));
    let written = harness.write(&request.frame(GOOD));
    let answered = replies(harness).last() == Some(&(request.op(), GOOD, String::new()));
    written == Ok(32) && answered
}

#[test]
fn every_split_of_every_request_works() {
    for request in requests() {
        let bytes = request.frame(GOOD);
        let expected = {
            let mut harness = open();
            assert_eq!(harness.write(&bytes), Ok(bytes.len()));
            harness.read_all()
        };
        for split in 0..=bytes.len() {
            let mut harness = open();
            let (front, back) = bytes.split_at(split);
            assert_eq!(harness.write(front), Ok(front.len()));
            if split < bytes.len() {
                assert_eq!(harness.read(), None, "a partial frame is not answered");
            }
            assert_eq!(harness.write(back), Ok(back.len()));
            assert_eq!(harness.read_all(), expected, "{request:?} split at {split}");
        }
        let mut harness = open();
        for byte in &bytes {
            assert_eq!(harness.write(&[*byte]), Ok(1));
        }
        assert_eq!(harness.read_all(), expected, "{request:?} byte by byte");
    }
}

#[test]
fn every_split_of_glued_requests_works() {
    let requests =
        [arm(7, FirstDue::After(MS), 0), watch(2, 4, WRITABLE), poll(1, PollTimeout::Ms(0)), cancel(7)];
    let stream: Vec<u8> = requests.iter().zip(1..).flat_map(|(request, rid)| request.frame(rid)).collect();
    for split in 0..=stream.len() {
        let mut harness = open();
        let (front, back) = stream.split_at(split);
        assert_eq!(harness.write(front), Ok(front.len()));
        assert_eq!(harness.write(back), Ok(back.len()));
        let expected: Vec<_> =
            requests.iter().zip(1..).map(|(request, rid)| (request.op(), rid, String::new())).collect();
        assert_eq!(replies(&mut harness), expected, "split at {split}");
    }
}

#[test]
fn after_every_truncation_of_every_request_every_request_works() {
    for truncated in requests() {
        let bytes = truncated.frame(5);
        for end in 1..bytes.len() {
            for good in requests() {
                let mut harness = open();
                assert_eq!(harness.write(&bytes[..end]), Ok(end));
                let good_bytes = good.frame(GOOD);
                assert_eq!(harness.write(&good_bytes), Ok(good_bytes.len()));
                let (op, rid) = if end >= 12 { (truncated.op(), 5) } else { (0, 0) };
                let expected = [(op, rid, "truncated frame".to_owned()), (good.op(), GOOD, String::new())];
                assert_eq!(replies(&mut harness), expected, "{truncated:?} cut at {end}, then {good:?}");
                assert!(works(&mut harness));
            }
        }
    }
}

#[test]
fn a_truncated_frame_and_a_good_one_in_one_write_end_in_an_error() {
    for request in requests() {
        let bytes = request.frame(5);
        for end in 1..bytes.len() {
            let mut harness = open();
            let glued = [&bytes[..end], poll(8, PollTimeout::Ms(0)).frame(6).as_slice()].concat();
            let written = harness.try_write(&glued);
            if written.is_none() {
                harness.sys_loop.interrupt();
                harness.sys_loop.resume(harness.now, &glued, &mut harness.poller);
            }
            let has_error = replies(&mut harness).iter().any(|(_, _, message)| !message.is_empty());
            assert!(has_error || written.is_none_or(|written| written.is_err()), "{request:?} cut at {end}");
            assert!(works(&mut harness), "{request:?} cut at {end}");
        }
    }
}

#[test]
fn after_every_corrupted_byte_of_every_request_the_next_request_works() {
    for request in requests() {
        let bytes = request.frame(5);
        for index in 0..bytes.len() {
            for flip in 1..=255 {
                let mut corrupted = bytes.clone();
                corrupted[index] ^= flip;
                let mut harness = open();
                let written = harness.try_write(&corrupted);
                if written.is_none() {
                    // The corruption turned the timeout into «for ever».
                    harness.sys_loop.interrupt();
                    harness.sys_loop.resume(harness.now, &corrupted, &mut harness.poller);
                }
                let answers = replies(&mut harness);
                let is_error = written.is_some_and(|written| written.is_err())
                    || answers.iter().any(|(_, _, message)| !message.is_empty());
                let (frame, is_whole) = match Frame::decode(&corrupted) {
                    Ok(frame) => (Some(frame), true),
                    Err(_) => (None, false),
                };
                let is_good = frame.is_some_and(|frame| {
                    frame.header.check_request().is_ok()
                        && Request::decode(frame.header.op, frame.payload).is_ok()
                });
                let place = format!("{request:?}, byte {index} ^ {flip:#x}");
                assert!(is_error || is_good, "{place}: whole: {is_whole}, {written:?}, {answers:?}");
                assert!(works(&mut harness), "{place}: the next request");
            }
        }
    }
}

#[test]
fn header_fields_that_are_wrong_get_an_error_frame_with_their_op_and_rid() {
    let good = Header::request(5, 9);
    let cases = [
        (Header { version: 0, ..good }, "version must be 1"),
        (Header { version: 2, ..good }, "version must be 1"),
        (Header { status: 1, ..good }, "status must be 0"),
        (Header { status: 7, reserved: 9, ..good }, "status must be 0"),
        (Header { reserved: 1, ..good }, "reserved must be 0"),
    ];
    for (header, message) in cases {
        let mut harness = open();
        let bytes = bad_frame(header, &[1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(harness.write(&bytes), Ok(bytes.len()));
        assert_eq!(replies(&mut harness), [(5, 9, message.to_owned())]);
        assert!(works(&mut harness));
        let glued = [bytes.as_slice(), &poll(1, PollTimeout::Ms(0)).frame(GOOD)].concat();
        assert_eq!(harness.write(&glued), Ok(glued.len()), "its payload is passed over");
        assert_eq!(replies(&mut harness), [(5, 9, message.to_owned()), (5, GOOD, String::new())]);
    }
}

#[test]
fn a_wrong_magic_is_invalid_and_empties_the_input() {
    let garbage: [&[u8]; 6] = [b"ZCL2", b"x", &[0; 64], &[0xff; 64], b"ZC\0\0", b"CL1\x01\0\x05\0"];
    for garbage in garbage {
        let mut harness = open();
        assert_eq!(harness.write(garbage), Err(ZabiError::Invalid));
        assert_eq!(harness.sys_loop.gauges().input_bytes, 0);
        assert!(works(&mut harness));
        let good = poll(1, PollTimeout::Ms(0)).frame(7);
        assert_eq!(harness.write(&[good.as_slice(), garbage].concat()), Err(ZabiError::Invalid));
        assert_eq!(replies(&mut harness), [(5, 7, String::new())], "requests before it were executed");
        assert!(works(&mut harness));
    }
}

#[test]
fn a_magic_that_turns_out_wrong_in_a_later_write_is_forgotten_too() {
    let mut harness = open();
    assert_eq!(harness.write(b"ZC"), Ok(2));
    assert_eq!(harness.write(b"xx"), Err(ZabiError::Invalid));
    assert_eq!(harness.sys_loop.gauges().input_bytes, 0);
    assert_eq!(harness.write(&poll(1, PollTimeout::Ms(0)).frame(7)), Ok(32));
    assert_eq!(replies(&mut harness), [(5, 7, String::new())]);
}

#[test]
fn a_payload_that_looks_like_a_request_is_still_a_payload() {
    // The payload of this timer is the header of a POLL, and its flags are the 1 of `max_events`; the magic of the next
    // request would be the timeout.
    let poll_header = poll(1, PollTimeout::Ms(0)).frame(0)[..24].to_vec();
    let payload = [poll_header.as_slice(), &[1, 0, 0, 0]].concat();
    let header = Frame::encode(Header::request(3, 8), &payload).unwrap()[..24].to_vec();
    let next = poll(1, PollTimeout::Ms(0)).frame(9);
    let mut harness = open();
    assert_eq!(harness.write(&header), Ok(24));
    assert_eq!(harness.write(&[payload.as_slice(), &next].concat()), Ok(60));
    assert_eq!(replies(&mut harness), [(3, 8, String::new()), (5, 9, String::new())]);

    // The whole payload of this unknown op is a valid request.
    let inner = cancel(1).frame(10);
    let outer = bad_frame(Header::request(6, 11), &inner);
    assert_eq!(harness.write(&outer[..24]), Ok(24));
    assert_eq!(harness.write(&outer[24..]), Ok(32));
    assert_eq!(replies(&mut harness), [(6, 11, "unknown op".to_owned())]);
    assert_eq!(harness.cancel(1), Ok(()), "the request inside was not executed");
}

#[test]
fn an_absurd_length_is_out_of_bounds_and_empties_the_input() {
    for payload_bytes in [65_513, 0x10000, 0x7fff_ffff, u32::MAX] {
        for op in [1, 5, 6] {
            let mut harness = open();
            let header = Header { payload_bytes, ..Header::request(op, 1) }.encode();
            assert_eq!(harness.write(&header), Err(ZabiError::Bounds));
            assert_eq!(harness.sys_loop.gauges().input_bytes, 0);
            assert!(works(&mut harness));
        }
    }
}

#[test]
fn a_length_that_lies_does_not_swallow_the_next_request() {
    for payload_bytes in [9, 32, 40, 255, 5000, 65_512] {
        let mut harness = open();
        let mut bytes = poll(1, PollTimeout::Ms(0)).frame(5);
        bytes[20..24].copy_from_slice(&u32::to_le_bytes(payload_bytes));
        assert_eq!(harness.write(&bytes), Ok(bytes.len()));
        assert_eq!(replies(&mut harness), [(5, 5, "bad POLL payload".to_owned())], "{payload_bytes}");
        assert!(works(&mut harness), "{payload_bytes}");
    }
}

#[test]
fn the_largest_frame_of_an_unknown_op_is_answered_and_passed_over() {
    let mut harness = open();
    let bytes = bad_frame(Header::request(77, 3), &vec![b'Z'; FRAME_BYTES_MAX - 24]);
    for piece in bytes.chunks(10_000) {
        assert_eq!(harness.write(piece), Ok(piece.len()));
    }
    assert_eq!(replies(&mut harness), [(77, 3, "unknown op".to_owned())]);
    assert!(works(&mut harness));
}

/// Pieces that resemble frames more or less.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let header = (0_u16..3, 0_u16..8, 0_u32..2, 0_u32..2, prop_oneof![0_u32..70, any::<u32>()]);
    let header = header.prop_map(|(version, op, status, reserved, payload_bytes)| {
        Header { version, op, rid: 3, status, reserved, payload_bytes }.encode().to_vec()
    });
    let request = (0..requests().len()).prop_map(|index| requests()[index].frame(4));
    let truncated = (0..requests().len(), 1_usize..52).prop_map(|(index, end)| {
        let bytes = requests()[index].frame(4);
        bytes[..end.min(bytes.len())].to_vec()
    });
    let noise = proptest::collection::vec(any::<u8>(), 0..80);
    prop_oneof![header, request, truncated, noise, Just(b"ZCL1".to_vec())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_any_garbage_the_second_good_request_works_at_the_latest(
        writes in proptest::collection::vec(proptest::collection::vec(piece(), 1..4), 1..12),
    ) {
        let mut harness = open();
        for write in writes {
            let bytes = write.concat();
            if harness.try_write(&bytes).is_none() {
                harness.sys_loop.interrupt();
                while harness.sys_loop.resume(harness.now, &bytes, &mut harness.poller)
                    == millrace_reactor::Written::Waiting
                {
                    harness.sys_loop.interrupt();
                }
            }
            harness.sys_loop.check_invariants().unwrap();
            replies(&mut harness);
        }
        // The first request may be the very bytes that a frame of an unknown op was waiting for.
        let first = works(&mut harness);
        prop_assert!(first || works(&mut harness));
    }
}
