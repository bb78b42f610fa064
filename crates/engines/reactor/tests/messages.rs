//! The byte layout of the messages of `sys/loop`.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{READABLE, WRITABLE, arm, cancel, poll, ready, timer, unwatch, watch};
use millrace_reactor::messages::{EVENT_BYTES, POLL_REPLY_HEAD_BYTES};
use millrace_reactor::zcl1::{Frame, HEADER_BYTES, HeaderFault};
use millrace_reactor::{
    ANSWER_BYTES_MAX, FirstDue, MonoNs, OsReadiness, PollReply, PollTimeout, Readiness, Request,
    RequestError, ZabiError,
};

fn check(request: Request, op: u16, payload: &[u8]) {
    let bytes = request.frame(77);
    let frame = Frame::decode(&bytes).unwrap();
    assert_eq!((frame.header.op, frame.header.rid, frame.payload), (op, 77, payload));
    assert_eq!(frame.header.check_request(), Ok(()));
    assert_eq!(Request::decode(op, payload), Ok(request));
}

#[test]
fn every_request_has_its_documented_payload() {
    check(
        watch(0x0807_0605_0403_0201, 0x14, READABLE | WRITABLE),
        1,
        b"\x14\0\0\0\x03\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0",
    );
    check(unwatch(9), 2, b"\x09\0\0\0\0\0\0\0");
    check(
        arm(1, FirstDue::At(MonoNs(2)), 3),
        3,
        b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0",
    );
    check(
        arm(1, FirstDue::After(2), 0),
        3,
        b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0",
    );
    check(cancel(9), 4, b"\x09\0\0\0\0\0\0\0");
    check(poll(8, PollTimeout::Ms(5)), 5, b"\x08\0\0\0\x05\0\0\0");
    check(poll(8, PollTimeout::Forever), 5, b"\x08\0\0\0\xff\xff\xff\xff");
}

#[test]
fn a_reply_of_poll_has_its_documented_payload() {
    let events = vec![ready(0x0a0b, 5, READABLE | WRITABLE), timer(6, MonoNs(7))];
    let reply = PollReply { more: true, events };
    let mut payload = Vec::new();
    reply.encode(&mut payload);
    let expected = [
        b"\x01\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0".as_slice(),
        b"\x01\0\0\0\x03\0\0\0\x05\0\0\0\0\0\0\0\x0b\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0",
    ];
    assert_eq!(payload, expected.concat());
    assert_eq!(payload.len(), POLL_REPLY_HEAD_BYTES + 2 * EVENT_BYTES);
    assert_eq!(PollReply::decode(&payload), Ok(reply));
}

#[test]
fn a_reply_of_poll_is_read_strictly() {
    let reply = PollReply { more: false, events: vec![ready(1, 5, READABLE), timer(6, MonoNs(7))] };
    let mut payload = Vec::new();
    reply.encode(&mut payload);
    for end in 0..payload.len() {
        assert!(PollReply::decode(&payload[..end]).is_err(), "cut at {end}");
    }
    // The offsets of: version, flags, count, reserved; kind, events, reserved and data of READY; kind, events, handle
    // and reserved of TIMER.
    for offset in [0, 5, 8, 12, 16, 21, 28, 40, 48, 52, 56, 60] {
        let mut wrong = payload.clone();
        wrong[offset] ^= 0x40;
        assert!(PollReply::decode(&wrong).is_err(), "byte {offset}");
    }
    let absurd_count = b"\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\0\0\0\0";
    assert!(PollReply::decode(absurd_count).is_err());
}

#[test]
fn every_op_demands_its_exact_length() {
    for (op, length) in [(1, 20), (2, 8), (3, 28), (4, 8), (5, 8)] {
        for bytes in (0..40).filter(|bytes| *bytes != length) {
            let error = Request::decode(op, &vec![1; bytes]).unwrap_err();
            assert!(error.message().starts_with("bad ") && error.message().ends_with(" payload"), "{error}");
        }
    }
}

#[test]
fn fields_that_are_wrong_by_themselves_are_refused() {
    let with = |op: u16, payload: &[u8]| Request::decode(op, payload).unwrap_err();
    let watch = |events: u8, id: u8, flags: u8| {
        let mut payload = [0; 20];
        (payload[0], payload[4], payload[8], payload[16]) = (4, events, id, flags);
        payload
    };
    assert_eq!(with(1, &watch(1, 1, 1)), RequestError::WatchFlags);
    assert_eq!(with(1, &watch(0, 0, 1)), RequestError::WatchFlags, "the flags come first");
    assert_eq!(with(1, &watch(0, 1, 0)), RequestError::NoInterest);
    assert_eq!(with(1, &watch(0x11, 1, 0)), RequestError::UnknownInterest);
    assert_eq!(with(1, &watch(1, 0, 0)), RequestError::WatchIdZero);
    let mut high_bit = watch(1, 1, 0);
    high_bit[5] = 1;
    assert_eq!(with(1, &high_bit), RequestError::UnknownInterest, "0x101");
    assert_eq!(with(2, &[0; 8]), RequestError::UnknownWatch);
    assert_eq!(with(3, &[0; 28]), RequestError::TimerIdZero);
    let mut flags = [0; 28];
    (flags[0], flags[24]) = (1, 2);
    assert_eq!(with(3, &flags), RequestError::TimerFlags);
    assert_eq!(with(4, &[0; 8]), RequestError::UnknownTimer);
    assert_eq!(with(5, &[0; 8]), RequestError::MaxEventsZero);
    for op in [0, 6, 100, 999, 1000, u16::MAX] {
        assert_eq!(with(op, &[]), RequestError::UnknownOp);
    }
}

#[test]
fn every_answer_but_a_long_poll_fits_the_room_that_is_reserved() {
    let errors = [
        RequestError::Header(HeaderFault::Version),
        RequestError::Header(HeaderFault::RequestStatus),
        RequestError::Header(HeaderFault::ReplyStatus),
        RequestError::Header(HeaderFault::Reserved),
        RequestError::Truncated,
        RequestError::UnknownOp,
        RequestError::WatchPayload,
        RequestError::UnwatchPayload,
        RequestError::TimerArmPayload,
        RequestError::TimerCancelPayload,
        RequestError::PollPayload,
        RequestError::WatchFlags,
        RequestError::WatchIdZero,
        RequestError::UnknownWatch,
        RequestError::TimerIdZero,
        RequestError::UnknownTimer,
        RequestError::MaxEventsZero,
    ];
    for error in errors {
        let payload = error.payload();
        assert!(HEADER_BYTES + payload.encoded_bytes() <= ANSWER_BYTES_MAX, "{error}");
        assert_eq!((payload.trace, payload.detail), ("sys.loop", ""));
        assert!(error.to_string().len() >= payload.message.len(), "the reason says no less: {error}");
    }
    let one_event = HEADER_BYTES + POLL_REPLY_HEAD_BYTES + EVENT_BYTES;
    assert!(one_event <= ANSWER_BYTES_MAX);
}

#[test]
fn the_error_codes_are_those_of_the_abi() {
    let codes: Vec<i32> = ZabiError::ALL.iter().map(|error| error.code()).collect();
    assert_eq!(codes, (-10..=-1).rev().collect::<Vec<i32>>());
    for error in ZabiError::ALL {
        assert_eq!(ZabiError::from_code(error.code()), Some(error));
    }
    assert_eq!([0, 1, -11].map(ZabiError::from_code), [None; 3]);
}

#[test]
fn hup_means_that_both_directions_are_closed() {
    let state = |read_closed, write_closed| {
        Readiness::from(OsReadiness { read_closed, write_closed, ..OsReadiness::default() })
    };
    assert_eq!(state(true, false), Readiness::READABLE, "FIN: a read returns 0");
    assert_eq!(state(false, true), Readiness::NONE);
    assert_eq!(state(true, true), Readiness::READABLE | Readiness::HUP);
    let all =
        OsReadiness { readable: true, writable: true, read_closed: true, write_closed: true, error: true };
    assert_eq!(Readiness::from(all), Readiness::ALL, "RST, and a refused connection");
    assert_eq!(Readiness::from(OsReadiness::default()), Readiness::NONE);
}
