//! Replays the recorded bytes of the zABI reference host against the engine.
//!
//! `tests/vectors/zcl1.json` holds every recording. Sessions about frames and `sys/loop` are replayed here; steps that
//! need the host (memory of the guest, `zi_ctl`, opening capabilities) are listed in [`HOST_STEPS`]. Where the engine
//! differs from the reference on purpose, [`deviation`] gives its answer.
#![allow(clippy::unwrap_used)]

mod harness;

use std::collections::BTreeSet;

use harness::{Harness, READABLE, arm, watch};
use millrace_reactor::zcl1::{ErrorPayload, Frame, Header, STATUS_ERROR};
use millrace_reactor::{FirstDue, LoopLimits, MonoNs, Readiness, ZabiError};
use serde_json::Value;

/// Steps of the replayed sessions that are about the guest's memory, the handle table or other capabilities.
const HOST_STEPS: [&str; 20] = [
    "v062", "v064", "v066", "v067", "v068", "v069", "v070", "v071", "v072", "v144", "v145", "v146", "v147",
    "v148", "v149", "v150", "v151", "v152", "v153", "v156",
];

fn sessions() -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("vectors/zcl1.json")).expect("vectors parse");
    file["sessions"].as_array().expect("sessions").clone()
}

fn session(name: &str) -> Vec<Value> {
    let sessions = sessions();
    let session = sessions.iter().find(|session| session["name"] == name).expect("the session");
    session["steps"].as_array().expect("steps").clone()
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex").as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hex digit") as u8;
    hex.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn id(step: &Value) -> &str {
    step["id"].as_str().unwrap_or_default()
}

/// The frames of a recorded response as the engine writes them: error payloads without the reference's four extra
/// bytes.
fn expected_frames(step: &Value) -> Vec<Vec<u8>> {
    let response = bytes(&step["response_hex"]);
    let mut rest = response.as_slice();
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (frame, after) = Frame::decode_first(rest).expect("a recorded frame");
        let payload = match frame.header.status {
            STATUS_ERROR => &frame.payload[..frame.payload.len() - 4],
            _ => frame.payload,
        };
        frames.push(Frame::encode(frame.header, payload).expect("a frame"));
        rest = after;
    }
    frames
}

/// Sets the time in TIMER events to zero, because it differs from run to run.
fn without_time(mut frame: Vec<u8>, step: &Value) -> Vec<u8> {
    for range in step["volatile"].as_array().into_iter().flatten() {
        let (from, length) = (range[0].as_u64().unwrap() as usize, range[1].as_u64().unwrap() as usize);
        if range[2] == "monotonic_ns" {
            frame[from..from + length].fill(0);
        }
    }
    frame
}

/// The engine's answers where `specs/zabi.md` decides against the reference, with the reason.
fn deviation(id: &str) -> Option<(&'static str, Vec<Vec<u8>>)> {
    let error = |op, rid, message| {
        let mut payload = Vec::new();
        ErrorPayload { trace: "sys.loop", message, detail: "" }.encode(&mut payload);
        Frame::encode(Header::error(op, rid), &payload).expect("a frame")
    };
    let ok = |op, rid, payload: &[u8]| Frame::encode(Header::ok(op, rid), payload).expect("a frame");
    let no_events = b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    Some(match id {
        "v033" => {
            let event =
                b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0";
            let payload = [event.as_slice(), &[0; 8]].concat();
            ("an absolute due time of 0 is due at once", vec![ok(5, 8, &payload)])
        }
        "v034" => ("so the timer has fired", vec![error(4, 9, "unknown timer_id")]),
        "v056" => ("status and reserved are checked", vec![error(5, 1, "status must be 0")]),
        "v073" => ("a wrong version is answered", vec![error(5, 2, "version must be 1")]),
        "v074" | "v077" => ("the input is not stuck", vec![ok(5, 3, no_events)]),
        "v076" => ("a wrong magic is INVALID", vec![]),
        _ => return None,
    })
}

/// Replays one request and compares what was written and read.
fn replay(harness: &mut Harness, step: &Value) {
    let id = id(step);
    let before = harness.now;
    let written = harness.write(&bytes(&step["request_hex"]));
    if let Some(ms) = step["write_blocked_ms"].as_f64() {
        let waited_ms = (harness.now.0 - before.0) as f64 / 1e6;
        assert!((waited_ms - ms).abs() < 1.5, "{id}: waited {waited_ms} ms, the reference {ms} ms");
    }
    let code = written.map_or_else(|error| i64::from(error.code()), |count| count as i64);
    let expected_code = if id == "v076" { -1 } else { step["write_rc"].as_i64().expect("a code") };
    assert_eq!(code, expected_code, "{id}: zi_write");
    let read: Vec<Vec<u8>> = harness.read_all();
    let expected = deviation(id).map_or_else(|| expected_frames(step), |(_, frames)| frames);
    // A read returns one frame, so a recorded read of two frames becomes two reads.
    assert_eq!(read.len(), expected.len(), "{id}: frames");
    for (read, expected) in read.into_iter().zip(expected) {
        let masked = match id {
            // This event, which the reference does not send, contains the time.
            "v033" => [&read[..64], &[0; 8]].concat(),
            _ => without_time(read, step),
        };
        assert_eq!(masked, without_time(expected, step), "{id}: {}", step["note"]);
    }
}

#[test]
fn loop_errors() {
    let mut harness = Harness::new();
    let steps = session("loop-errors");
    assert_eq!(steps.len(), 25);
    steps.iter().for_each(|step| replay(&mut harness, step));
}

#[test]
fn loop_timers() {
    let mut harness = Harness::new();
    for step in session("loop-timers") {
        match step["action"].as_str() {
            Some("sleep 53 ms") => harness.advance_ns(53_000_000),
            Some(action) => panic!("{action}"),
            None => replay(&mut harness, &step),
        }
    }
    assert_eq!(harness.poll(8).events.len(), 1, "ten missed periods are one event");
}

#[test]
fn loop_framing() {
    let mut harness = Harness::new();
    for step in session("loop-framing") {
        match id(&step) {
            "v055" => assert_eq!(harness.sys_loop.read(&mut [0; 64]), Err(ZabiError::Again)),
            "v060" => {
                let request = bytes(&step["request_hex"]);
                assert_eq!(harness.write(&request), Ok(request.len()));
                let (mut front, mut rest) = ([0; 10], [0; 100]);
                assert_eq!(harness.sys_loop.read(&mut front), Ok(10));
                assert_eq!(harness.sys_loop.read(&mut rest), Ok(30));
                assert_eq!([&front, &rest[..30]].concat(), bytes(&step["response_hex"]));
            }
            "v061" => assert_eq!(harness.write(&[]), Ok(0)),
            "v063" => assert_eq!(harness.write(&[0; 65_537]), Err(ZabiError::Bounds)),
            "v065" => {
                let queued = expected_frames(&step);
                let rid = Frame::decode(&queued[0]).unwrap().header.rid;
                let request = harness::poll(1, millrace_reactor::PollTimeout::Ms(0)).frame(rid);
                assert_eq!(harness.write(&request), Ok(request.len()));
                assert_eq!(harness.read_all(), queued);
            }
            id if HOST_STEPS.contains(&id) => {}
            _ => replay(&mut harness, &step),
        }
    }
}

#[test]
fn loop_malformed() {
    for name in ["loop-malformed-badversion", "loop-malformed-badmagic"] {
        let mut harness = Harness::new();
        for step in session(name) {
            match id(&step) {
                // The reference swallows 2047 requests here; the engine answers all of them.
                "v075" | "v078" => (0..2047).for_each(|_| assert_eq!(harness.poll(1).events, [])),
                _ => replay(&mut harness, &step),
            }
        }
    }
}

#[test]
fn loop_limits() {
    // The sizes of the reference's tables.
    let limits = LoopLimits { watches_max: 1024, timers_max: 1024, ..LoopLimits::default() };
    let mut harness = Harness::with(limits);
    harness.checks_invariants = false;
    harness.polled(4, READABLE);
    for id in 1..=1024 {
        harness.send(watch(id, 4, READABLE)).unwrap();
        harness.send(arm(id, FirstDue::At(MonoNs(1)), 0)).unwrap();
    }
    for step in session("loop-limits") {
        match id(&step) {
            "v095" | "v096" | "v097" => {
                let request = bytes(&step["request_hex"]);
                if id(&step) == "v096" {
                    (1..=1024).for_each(|id| {
                        harness.send(arm(id, FirstDue::At(MonoNs(1)), 0)).unwrap();
                    });
                }
                assert_eq!(harness.write(&request), Ok(request.len()));
                let frame_bytes: usize = harness.read_all().iter().map(Vec::len).sum();
                // The reference answers v096 with an error, and loses the timers that it took.
                let expected = step["response_bytes_total"].as_u64().unwrap_or(65_512);
                assert_eq!(frame_bytes as u64, expected, "{}", id(&step));
            }
            _ => replay(&mut harness, &step),
        }
    }
    assert_eq!(harness.sys_loop.gauges().timers, 0, "every timer was delivered");
    harness.sys_loop.check_invariants().unwrap();
}

#[test]
fn a_refused_connection() {
    let steps = session("tcp-open");
    let mut harness = Harness::new();
    harness.polled(5, Readiness::ALL);
    for step in steps.iter().filter(|step| !HOST_STEPS.contains(&id(step))) {
        replay(&mut harness, step);
    }
}

#[test]
fn every_recorded_frame_decodes_and_encodes_to_the_same_bytes() {
    let mut frames = 0;
    for step in sessions().iter().flat_map(|session| session["steps"].as_array().unwrap().clone()) {
        let is_frame = step["response_hex"].as_str().is_some_and(|hex| hex.starts_with("5a434c31"));
        for bytes in is_frame.then(|| expected_frames(&step)).into_iter().flatten() {
            let frame = Frame::decode(&bytes).unwrap();
            frame.header.check_reply().unwrap();
            if frame.header.status == STATUS_ERROR {
                let error = ErrorPayload::decode(frame.payload).unwrap();
                let mut payload = Vec::new();
                error.encode(&mut payload);
                assert_eq!(payload, frame.payload, "{}", id(&step));
            }
            frames += 1;
        }
    }
    assert_eq!(frames, 57);
}

#[test]
fn no_session_is_left_out() {
    let replayed: BTreeSet<&str> = [
        "loop-errors",
        "loop-timers",
        "loop-framing",
        "loop-malformed-badversion",
        "loop-malformed-badmagic",
        "loop-limits",
        "tcp-open",
    ]
    .into();
    let names: BTreeSet<String> =
        sessions().iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect();
    let others: Vec<&String> = names.iter().filter(|name| !replayed.contains(name.as_str())).collect();
    assert_eq!(others, ["core-calls"], "that one is the host's");
}
