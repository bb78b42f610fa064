//! The frame format: byte layout, partial and concatenated frames, wrong lengths, the queue of replies.
#![allow(clippy::unwrap_used)]

mod harness;

use millrace_reactor::zcl1::{
    BadErrorPayload, ERROR_TEXT_BYTES_MAX, ErrorPayload, FRAME_BYTES_MAX, FieldError, FieldReader,
    FieldWriter, Frame, FrameClass, FrameError, FrameQueue, FrameReader, HEADER_BYTES, Header, HeaderFault,
    NotAFrame, QueueFull,
};
use proptest::prelude::*;

fn frame(op: u16, rid: u32, payload: &[u8]) -> Vec<u8> {
    Frame::encode(Header::request(op, rid), payload).unwrap()
}

#[test]
fn a_header_is_24_bytes_little_endian() {
    let header = Header {
        version: 0x0102,
        op: 0x0304,
        rid: 0x0506_0708,
        status: 0x090a_0b0c,
        reserved: 0x0d0e_0f10,
        payload_bytes: 0x1112_1314,
    };
    let bytes = header.encode();
    let expected = b"ZCL1\x02\x01\x04\x03\x08\x07\x06\x05\x0c\x0b\x0a\x09\x10\x0f\x0e\x0d\x14\x13\x12\x11";
    assert_eq!(&bytes, expected);
    assert_eq!(Header::decode(&bytes), Some(header));
}

#[test]
fn the_fields_of_a_header_are_checked_in_their_order() {
    let good = Header::request(1, 1);
    assert_eq!(good.check_request(), Ok(()));
    let version = Header { version: 2, status: 7, reserved: 9, ..good };
    assert_eq!(version.check_request(), Err(HeaderFault::Version));
    let status = Header { status: 7, reserved: 9, ..good };
    assert_eq!(status.check_request(), Err(HeaderFault::RequestStatus));
    assert_eq!(status.check_reply(), Err(HeaderFault::ReplyStatus));
    assert_eq!(Header { reserved: 9, ..good }.check_request(), Err(HeaderFault::Reserved));
    assert_eq!(Header::ok(1, 1).check_reply(), Ok(()));
    assert_eq!(Header::ok(1, 1).check_request(), Err(HeaderFault::RequestStatus));
    assert_eq!(Header::error(1, 1).check_reply(), Ok(()));
}

#[test]
fn a_slice_is_exactly_one_frame_or_says_why_not() {
    let bytes = frame(9, 1, b"abc");
    assert_eq!(Frame::decode(&bytes).unwrap().payload, b"abc");
    for end in 0..bytes.len() {
        let missing = if end < HEADER_BYTES { HEADER_BYTES - end } else { bytes.len() - end };
        assert_eq!(Frame::decode(&bytes[..end]), Err(FrameError::Short { missing }));
    }
    let glued = [bytes.as_slice(), b"xy"].concat();
    assert_eq!(Frame::decode(&glued), Err(FrameError::Trailing { bytes: 2 }));
    assert_eq!(Frame::decode(&[0; 24]), Err(FrameError::BadMagic));
}

#[test]
fn the_largest_frame_is_65536_bytes() {
    let payload = vec![7; FRAME_BYTES_MAX - HEADER_BYTES];
    let largest = frame(1, 1, &payload);
    assert_eq!(Frame::decode(&largest).unwrap().payload, payload);
    let error = FrameError::TooLong { bytes: FRAME_BYTES_MAX + 1, max: FRAME_BYTES_MAX };
    assert_eq!(Frame::encode(Header::request(1, 1), &[payload.as_slice(), &[7]].concat()), Err(error));
}

#[test]
fn an_absurd_length_is_refused_as_soon_as_it_is_known_and_reserves_nothing() {
    let reader = FrameReader::new(FRAME_BYTES_MAX);
    for payload_bytes in [65_513, 0x10000, 0x7fff_ffff, u32::MAX] {
        let bytes = Header { payload_bytes, ..Header::request(1, 1) }.encode();
        assert_eq!(reader.header(&bytes[..23]), Ok(None));
        let Err(NotAFrame::TooLong { max, .. }) = reader.header(&bytes) else { panic!("accepted") };
        assert_eq!(max, FRAME_BYTES_MAX);
    }
}

#[test]
fn a_wrong_magic_is_found_at_its_first_wrong_byte() {
    let reader = FrameReader::new(FRAME_BYTES_MAX);
    assert_eq!(reader.header(b"ZCL"), Ok(None));
    for wrong in [b"z".as_slice(), b"ZX", b"ZCl", b"ZCL2"] {
        assert_eq!(reader.header(wrong), Err(NotAFrame::BadMagic));
    }
    let mut reader = FrameReader::new(FRAME_BYTES_MAX);
    reader.hold(b"ZC");
    assert_eq!(reader.header(b"ZCL1"), Err(NotAFrame::BadMagic));
}

#[test]
fn a_refused_frame_is_dropped_to_its_end() {
    let mut reader = FrameReader::new(FRAME_BYTES_MAX);
    let bytes = frame(1, 1, b"abcdef");
    reader.hold(&bytes[..10]);
    let header = reader.header(&bytes[10..]).unwrap().unwrap();
    reader.refuse(&header);
    assert_eq!(reader.discard_bytes(), 20);
    assert_eq!(reader.discard(&bytes[10..15]), 5);
    assert_eq!(reader.discard(&[&bytes[15..], b"ZCL1"].concat()), 15, "and no byte further");
    assert_eq!((reader.discard_bytes(), reader.held()), (0, b"".as_slice()));
}

/// Gives a byte stream to the reader in pieces, and returns the frames in it.
fn read_in_pieces(pieces: &[&[u8]]) -> Vec<(u32, Vec<u8>)> {
    let mut reader = FrameReader::new(FRAME_BYTES_MAX);
    let mut frames = Vec::new();
    for piece in pieces {
        let mut input = *piece;
        while !input.is_empty() {
            match reader.header(input).unwrap() {
                Some(header) if reader.bytes_to_finish(&header) <= input.len() => {
                    let (end, rest) = input.split_at(reader.bytes_to_finish(&header));
                    frames.push((header.rid, reader.finish(end, <[u8]>::to_vec)));
                    input = rest;
                }
                _ => {
                    reader.hold(input);
                    input = &[];
                }
            }
        }
    }
    assert_eq!(reader.held(), b"");
    frames
}

#[test]
fn glued_frames_split_at_every_byte_are_the_same_frames() {
    let stream = [frame(1, 1, b"one"), frame(2, 2, b""), frame(3, 3, b"ZCL1 inside")].concat();
    let expected = [(1, b"one".to_vec()), (2, vec![]), (3, b"ZCL1 inside".to_vec())];
    for split in 0..=stream.len() {
        let (front, back) = stream.split_at(split);
        assert_eq!(read_in_pieces(&[front, back]), expected, "split at {split}");
    }
    let bytes: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(read_in_pieces(&bytes), expected, "byte by byte");
}

#[test]
fn fields_are_little_endian_and_never_read_beyond_the_payload() {
    let mut payload = Vec::new();
    FieldWriter::new(&mut payload).u16(0x0102).u32(0x0304_0506).u64(7).prefixed(b"ab");
    assert_eq!(payload, b"\x02\x01\x06\x05\x04\x03\x07\0\0\0\0\0\0\0\x02\0\0\0ab");
    let mut fields = FieldReader::new(&payload);
    assert_eq!((fields.u16(), fields.u32(), fields.u64()), (Ok(0x0102), Ok(0x0304_0506), Ok(7)));
    assert_eq!(fields.finish(), Err(FieldError::Trailing { bytes: 6 }));
    assert_eq!(fields.text(), Ok("ab"));
    assert_eq!(fields.finish(), Ok(()));
    assert_eq!(fields.u16(), Err(FieldError::Short));
    assert_eq!(FieldReader::new(b"\xff\xff\xff\xffab").prefixed(), Err(FieldError::Short));
    assert_eq!(FieldReader::new(b"\x01\0\0\0\xff").text(), Err(FieldError::NotText));
}

#[test]
fn an_error_payload_is_12_bytes_and_its_texts() {
    let error = ErrorPayload { trace: "sys.loop", message: "unknown op", detail: "é" };
    let mut payload = Vec::new();
    error.encode(&mut payload);
    assert_eq!(payload, "\u{8}\0\0\0sys.loop\u{a}\0\0\0unknown op\u{2}\0\0\0é".as_bytes());
    assert_eq!((payload.len(), error.encoded_bytes()), (12 + 8 + 10 + 2, payload.len()));
    assert_eq!(ErrorPayload::decode(&payload), Ok(error));
    for end in 0..payload.len() {
        let short = BadErrorPayload::Layout(FieldError::Short);
        assert_eq!(ErrorPayload::decode(&payload[..end]), Err(short), "cut at {end}");
    }
    payload.extend([0; 4]);
    let trailing = BadErrorPayload::Layout(FieldError::Trailing { bytes: 4 });
    assert_eq!(ErrorPayload::decode(&payload), Err(trailing), "the reference's four extra bytes");
}

#[test]
fn error_texts_are_cut_at_nul_and_at_their_bound() {
    let long = "é".repeat(ERROR_TEXT_BYTES_MAX);
    let error = ErrorPayload { trace: "a\0b", message: &long, detail: "" };
    let mut payload = Vec::new();
    error.encode(&mut payload);
    let decoded = ErrorPayload::decode(&payload).unwrap();
    assert_eq!((decoded.trace, decoded.message.len()), ("a", ERROR_TEXT_BYTES_MAX));
    assert_eq!(payload.len(), error.encoded_bytes());
    assert_eq!(ErrorPayload::decode(b"\x01\0\0\0\0\0\0\0\0\0\0\0\0"), Err(BadErrorPayload::Nul));
}

fn read(queue: &mut FrameQueue, bytes_max: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; bytes_max];
    let count = queue.read(&mut bytes)?;
    bytes.truncate(count);
    Some(bytes)
}

#[test]
fn a_read_returns_at_most_one_frame_and_a_part_if_there_is_no_room() {
    let mut queue = FrameQueue::new(1000);
    queue.push(FrameClass::Reply, Header::ok(1, 1), b"one").unwrap();
    queue.push(FrameClass::Reply, Header::ok(1, 2), b"").unwrap();
    let first = read(&mut queue, 10).unwrap();
    assert_eq!(first.len(), 10);
    let rest = read(&mut queue, 1000).unwrap();
    assert_eq!(Frame::decode(&[first, rest].concat()).unwrap().payload, b"one");
    assert_eq!(Frame::decode(&read(&mut queue, 1000).unwrap()).unwrap().header.rid, 2);
    assert_eq!(read(&mut queue, 1000), None);
}

#[test]
fn replies_overtake_events_but_not_a_frame_that_is_being_read() {
    let mut queue = FrameQueue::new(1000);
    queue.push(FrameClass::Event, Header::ok(100, 1), b"event 1").unwrap();
    queue.push(FrameClass::Event, Header::ok(100, 2), b"event 2").unwrap();
    let first = read(&mut queue, 5).unwrap();
    queue.push(FrameClass::Reply, Header::ok(3, 3), b"reply").unwrap();
    let rest = read(&mut queue, 1000).unwrap();
    assert_eq!(Frame::decode(&[first, rest].concat()).unwrap().payload, b"event 1");
    assert_eq!(Frame::decode(&read(&mut queue, 1000).unwrap()).unwrap().payload, b"reply");
    assert_eq!(Frame::decode(&read(&mut queue, 1000).unwrap()).unwrap().payload, b"event 2");
}

#[test]
fn a_full_queue_takes_no_frame_and_loses_none() {
    let mut queue = FrameQueue::new(50);
    queue.push(FrameClass::Reply, Header::ok(1, 1), b"").unwrap();
    let full = QueueFull { bytes: 27, room: 26 };
    assert_eq!(queue.push(FrameClass::Event, Header::ok(1, 2), b"abc"), Err(full));
    queue.push(FrameClass::Reply, Header::ok(1, 3), b"ab").unwrap();
    assert_eq!(queue.room(), 0);
    read(&mut queue, 10).unwrap();
    assert_eq!(queue.room(), 10, "bytes that were read make room");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_decode_to_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Frame::decode(&bytes);
        let _ = ErrorPayload::decode(&bytes);
        let _ = millrace_reactor::PollReply::decode(&bytes);
        let _ = FrameReader::new(100).header(&bytes);
        for op in 0..7 {
            let _ = millrace_reactor::Request::decode(op, &bytes);
        }
    }

    #[test]
    fn frames_in_any_pieces_are_the_same_frames(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..6),
        cuts in proptest::collection::vec(1_usize..80, 1..20),
    ) {
        let numbered = payloads.iter().enumerate();
        let stream: Vec<u8> = numbered.flat_map(|(rid, payload)| frame(7, rid as u32, payload)).collect();
        let mut pieces = Vec::new();
        let mut rest = stream.as_slice();
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let read: Vec<Vec<u8>> = read_in_pieces(&pieces).into_iter().map(|(_, payload)| payload).collect();
        prop_assert_eq!(read, payloads);
    }
}
