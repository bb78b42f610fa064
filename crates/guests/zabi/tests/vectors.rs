//! The recorded bytes of the reference host, replayed against this host through the calls of zABI.
//!
//! Every step must return the recorded codes and bytes, less the volatile ones and the four extra bytes of the
//! reference's errors. The steps that differ on purpose, because `specs/zabi.md` decides against the reference:
//!
//! | step | this host |
//! |---|---|
//! | v033, v034 | an absolute due time of 0 is due at once |
//! | v056 | status and reserved of a request are checked |
//! | v059 | two replies are two reads |
//! | v073 | a wrong version is answered with an error frame |
//! | v076 | a wrong magic is -1 |
//! | v074, v075, v077, v078 | requests after a malformed one are answered |
//! | v096 | a POLL for more events than fit a frame returns those that fit, and loses no timer |
//!
//! In `loop-limits` a readable connection stands for the reference's pipe.
#![allow(clippy::unwrap_used)]

mod harness;

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use harness::{Guest, MEMORY_BYTES, OPEN_REQUEST, REQUEST, RESPONSE, everything_here, hex};
use millrace_reactor::zcl1::{ErrorPayload, Frame, Header, STATUS_ERROR};
use millrace_zabi::{CapsListForm, FileRoot, Grants, LocalBus, NetAllowList, ProcessOptions, TcpPolicy};
use serde_json::Value;

fn session(name: &str) -> Vec<Value> {
    let file: Value =
        serde_json::from_str(include_str!("../../../engines/reactor/tests/vectors/zcl1.json")).unwrap();
    let sessions = file["sessions"].as_array().unwrap();
    let session = sessions.iter().find(|session| session["name"] == name).unwrap();
    session["steps"].as_array().unwrap().clone()
}

fn bytes(value: &Value) -> Vec<u8> {
    hex(value.as_str().unwrap_or_default())
}

fn id(step: &Value) -> &str {
    step["id"].as_str().unwrap_or_default()
}

/// The frames of a recorded response; error frames without their four extra bytes.
fn expected_frames(step: &Value) -> Vec<Vec<u8>> {
    let response = bytes(&step["response_hex"]);
    let (mut rest, mut frames) = (response.as_slice(), Vec::new());
    while !rest.is_empty() {
        let (frame, after) = Frame::decode_first(rest).unwrap();
        let payload = match frame.header.status {
            STATUS_ERROR => &frame.payload[..frame.payload.len() - 4],
            _ => frame.payload,
        };
        frames.push(Frame::encode(frame.header, payload).unwrap());
        rest = after;
    }
    frames
}

/// Sets the time of TIMER events to zero, which differs from run to run.
fn without_time(mut frame: Vec<u8>, step: &Value) -> Vec<u8> {
    for range in step["volatile"].as_array().into_iter().flatten() {
        let (from, length) = (range[0].as_u64().unwrap() as usize, range[1].as_u64().unwrap() as usize);
        if range[2] == "monotonic_ns" {
            frame[from..from + length].fill(0);
        }
    }
    frame
}

/// The frames that this host returns where `specs/zabi.md` decides against the reference, and why.
fn deviation(id: &str) -> Option<(&'static str, Vec<Vec<u8>>)> {
    let error = |op, rid, message| {
        let mut payload = Vec::new();
        ErrorPayload { trace: "sys.loop", message, detail: "" }.encode(&mut payload);
        Frame::encode(Header::error(op, rid), &payload).unwrap()
    };
    let no_events =
        |rid| Frame::encode(Header::ok(5, rid), &hex("01000000000000000000000000000000")).unwrap();
    Some(match id {
        "v033" => {
            let payload = [
                hex("01000000000000000100000000000000"),
                hex("02000000000000000000000000000000"),
                hex("03000000000000000000000000000000"),
            ];
            let frame = Frame::encode(Header::ok(5, 8), &payload.concat()).unwrap();
            ("an absolute due time of 0 is due at once", vec![frame])
        }
        "v034" => ("so the timer has fired", vec![error(4, 9, "unknown timer_id")]),
        "v056" => ("status and reserved are checked", vec![error(5, 1, "status must be 0")]),
        "v073" => ("a wrong version is answered", vec![error(5, 2, "version must be 1")]),
        "v074" | "v077" => ("the input is not stuck", vec![no_events(3)]),
        "v076" => ("a wrong magic is INVALID", vec![]),
        _ => return None,
    })
}

fn replay(guest: &mut Guest, step: &Value) {
    let id = id(step);
    let handle = step["handle"].as_i64().unwrap() as i32;
    let begun = std::time::Instant::now();
    let code = guest.write(handle, &bytes(&step["request_hex"]));
    if let Some(ms) = step["write_blocked_ms"].as_f64() {
        // v038 waits for what is left of 30 ms, so only the wait with a timeout can be compared.
        assert!(id != "v037" || begun.elapsed().as_secs_f64() * 1000.0 >= ms.floor(), "{id} was early");
    }
    let expected_code = if id == "v076" { -1 } else { step["write_rc"].as_i64().unwrap() };
    assert_eq!(i64::from(code), expected_code, "{id}: zi_write");
    // A read returns one frame, so a recorded read of two frames is two reads.
    let mut read = Vec::new();
    let last = loop {
        match guest.read(handle) {
            Ok(frame) => read.push(frame),
            Err(code) => break code,
        }
    };
    assert_eq!(last, -6, "{id}");
    let expected = deviation(id).map_or_else(|| expected_frames(step), |(_, frames)| frames);
    assert_eq!(read.len(), expected.len(), "{id}: {}", step["note"]);
    for (read, expected) in read.into_iter().zip(expected) {
        let masked = match id {
            "v033" => [&read[..64], &[0; 8]].concat(),
            _ => without_time(read, step),
        };
        assert_eq!(masked, without_time(expected, step), "{id}: {}", step["note"]);
    }
}

#[test]
fn loop_errors_and_timers() {
    for name in ["loop-errors", "loop-timers"] {
        let mut guest = Guest::new(everything_here());
        assert_eq!(guest.open_ok("sys", "loop"), 3);
        for step in session(name) {
            match step["action"].as_str() {
                // The last step of the session: no later step depends on it.
                Some(action) => assert_eq!(action, "sleep 53 ms"),
                None => replay(&mut guest, &step),
            }
        }
    }
}

#[test]
fn loop_framing() {
    let mut guest = Guest::new(everything_here());
    assert_eq!(guest.open_ok("sys", "loop"), 3);
    for step in session("loop-framing") {
        let (memory, process) = (&mut guest.memory, &mut guest.process);
        let code = |key: &str| step[key].as_i64().unwrap() as i32;
        match id(&step) {
            "v055" => assert_eq!(guest.read(3), Err(-6)),
            "v060" => {
                let request = bytes(&step["request_hex"]);
                assert_eq!(guest.write(3, &request), request.len() as i32);
                let read = [guest.read_max(3, 10).unwrap(), guest.read(3).unwrap()];
                assert_eq!(read.concat(), bytes(&step["response_hex"]));
            }
            "v061" => assert_eq!(guest.write(3, &[]), 0),
            "v062" => assert_eq!(process.zi_write(memory, 3, MEMORY_BYTES as u64 - 4, 32), code("write_rc")),
            "v063" => assert_eq!(process.zi_write(memory, 3, REQUEST, 65_537), code("write_rc")),
            "v064" => {
                let request = hex("5a434c31010005000c0000000000000000000000080000000100000000000000");
                assert_eq!(guest.write(3, &request), 32);
                let end = MEMORY_BYTES as u64 - 4;
                assert_eq!(guest.process.zi_read(&mut guest.memory, 3, end, 64), code("read_rc"));
            }
            "v065" => assert_eq!(guest.read(3), Ok(bytes(&step["response_hex"]))),
            "v066" | "v071" => assert_eq!(process.zi_handle_hflags(3) as i32, code("rc")),
            "v067" | "v068" => assert_eq!(process.zi_end(3), code("rc")),
            "v069" => assert_eq!(guest.write(3, &bytes(&step["request_hex"])), code("write_rc")),
            "v070" => assert_eq!(guest.read(3), Err(code("read_rc"))),
            "v072" => assert_eq!(guest.open("sys", "loop", &[]), code("rc")),
            _ => replay(&mut guest, &step),
        }
    }
}

#[test]
fn loop_malformed() {
    for name in ["loop-malformed-badversion", "loop-malformed-badmagic"] {
        let mut guest = Guest::new(everything_here());
        assert_eq!(guest.open_ok("sys", "loop"), 3);
        for step in session(name) {
            match id(&step) {
                // The reference swallows 2047 requests here; this host answers each.
                "v075" | "v078" => (0..2047).for_each(|_| assert_eq!(guest.poll(3, 1, 0), [])),
                _ => replay(&mut guest, &step),
            }
        }
    }
}

#[test]
fn loop_limits() {
    let mut options = ProcessOptions::new("test", everything_here());
    // The sizes of the reference's tables.
    (options.limits.sys_loop.watches_max, options.limits.sys_loop.timers_max) = (1024, 1024);
    let mut guest = Guest::with(options);
    assert_eq!(guest.open_ok("sys", "loop"), 3);
    // The reference's handle 4 is a readable pipe that the host made; here it is a readable connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(guest.tcp("127.0.0.1", listener.local_addr().unwrap().port(), 0), 4);
    listener.accept().unwrap().0.write_all(b"x").unwrap();
    assert!(guest.watch(3, 4, 1, 1).is_ok);
    assert_eq!(guest.ready(3, harness::FOREVER).len(), 1);
    (2..=1024).for_each(|id| assert!(guest.watch(3, 4, 1, id).is_ok));
    (1..=1024).for_each(|id| guest.arm(3, id, 0, 0));
    for step in session("loop-limits") {
        match id(&step) {
            "v095" | "v096" | "v097" => {
                if id(&step) == "v096" {
                    (1..=1024).for_each(|id| guest.arm(3, id, 0, 0));
                }
                assert_eq!(guest.write(3, &bytes(&step["request_hex"])), 32);
                let frame = guest.read(3).unwrap();
                // The reference answers v096 with an error and loses the timers that it took.
                let expected = step["response_bytes_total"].as_u64().unwrap_or(65_512);
                assert_eq!(frame.len() as u64, expected, "{}", id(&step));
            }
            _ => replay(&mut guest, &step),
        }
    }
}

#[test]
fn tcp_open() {
    let mut guest = Guest::new(everything_here());
    let live = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    closed.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    let port_of = |address: SocketAddr| address.port();
    for step in session("tcp-open") {
        let id = id(&step);
        let port = match id {
            "v152" => Some(port_of(live.local_addr().unwrap())),
            "v153" => Some(port_of(closed.local_addr().unwrap().as_socket().unwrap())),
            _ => None,
        };
        if let Some(port) = port {
            assert_eq!(i64::from(guest.tcp("127.0.0.1", port, 0)), step["rc"].as_i64().unwrap(), "{id}");
        } else if id == "v156" {
            assert_eq!(guest.read(5), Err(-9));
        } else if step["call"] == "zi_cap_open net/tcp" {
            let host = step["host"].as_str().unwrap_or("127.0.0.1");
            let params = match step["params_hex"].as_str().unwrap() {
                "(first 19 bytes)" => hex("40100400000000000900000050000000000000"),
                params => hex(params),
            };
            guest.put(0x41040, host.as_bytes());
            let code = guest.open("net", "tcp", &params);
            assert_eq!(i64::from(code), step["rc"].as_i64().unwrap(), "{id}: {}", step["note"]);
        } else {
            if id == "v154" {
                assert_eq!(guest.open("sys", "loop", &[]), 6);
            }
            replay(&mut guest, &step);
        }
    }
}

/// The reply frame of `zi_ctl`, or its code.
fn control(guest: &mut Guest, request: &[u8], room: u32) -> Result<Vec<u8>, i32> {
    guest.put(REQUEST, request);
    let (process, memory) = (&mut guest.process, &mut guest.memory);
    match process.zi_ctl(memory, REQUEST, request.len() as u32, RESPONSE, room) {
        count if count < 0 => Err(count),
        count => Ok(guest.at(RESPONSE, count as usize)),
    }
}

#[test]
fn core_calls() {
    let folder = tempfile::TempDir::new().unwrap();
    // The eight capabilities of the reference; `async/default` is not registered there.
    let grants = Grants::none().sys_loop().sys_info().net_tcp(TcpPolicy::loopback());
    let grants = grants.net_http(NetAllowList::loopback()).event_bus(Arc::new(LocalBus::default()));
    let grants = grants.proc_argv(["x"]).proc_env(["x=y"]).file_aio(FileRoot::open(folder.path()).unwrap());
    let mut options = ProcessOptions::new("test", grants.clone());
    // The reference's form of the list; the documented one is below.
    options.caps_list = CapsListForm::WithDescription;
    let mut guest = Guest::with(options);
    let mut index = 0;
    for step in session("core-calls") {
        let (id, code) = (id(&step), step["rc"].as_i64().unwrap() as i32);
        match step["call"].as_str().unwrap() {
            "zi_abi_version" => assert_eq!(guest.process.zi_abi_version() as i32, code),
            "zi_cap_count" => assert_eq!(guest.process.zi_cap_count(), code),
            "zi_cap_get" => {
                let (at, room) = if id == "v175" { (0, 4) } else { (index, 64) };
                let size = step["get_size_rc"].as_i64().unwrap() as i32;
                assert_eq!(guest.process.zi_cap_get_size(at), size, "{id}");
                assert_eq!(guest.process.zi_cap_get(&mut guest.memory, at, RESPONSE, room), code, "{id}");
                if code > 0 {
                    assert_eq!(guest.at(RESPONSE, code as usize), bytes(&step["response_hex"]), "{id}");
                }
                index += 1;
            }
            "zi_ctl" => {
                let room = if id == "v177" { 40 } else { 4096 };
                let reply = control(&mut guest, &bytes(&step["request_hex"]), room);
                match expected_frames(&step).first() {
                    None => assert_eq!(reply, Err(code), "{id}"),
                    Some(expected) => assert_eq!(reply.as_ref(), Ok(expected), "{id}: {}", step["note"]),
                }
            }
            "zi_cap_open" => {
                let strings: &[u8] = match id {
                    "v186" => b"sysnope",
                    "v187" => b"SYSloop",
                    _ => b"sysloop",
                };
                guest.put(0x41000, strings);
                guest.put(OPEN_REQUEST, &bytes(&step["open_request_hex"]));
                let handle = guest.process.zi_cap_open(&mut guest.memory, OPEN_REQUEST);
                assert_eq!(handle, code, "{id}: {}", step["note"]);
                if let Some(flags) = step["hflags"].as_u64() {
                    assert_eq!(u64::from(guest.process.zi_handle_hflags(handle)), flags, "{id}");
                }
            }
            call => panic!("{call}"),
        }
    }
    assert_eq!(index, 10);
    // The documented form: the entries of zi_cap_get, one after the other.
    let mut guest = Guest::new(grants);
    let request = hex("5a434c310100010001000000000000000000000000000000");
    let list = harness::Reply::of(&control(&mut guest, &request, 4096).unwrap());
    let mut expected = hex("0100000008000000");
    for index in 0..8 {
        let count = guest.process.zi_cap_get(&mut guest.memory, index, RESPONSE, 64);
        expected.extend(guest.at(RESPONSE, count as usize));
    }
    assert_eq!(list.payload, expected);
}

#[test]
fn no_session_is_left_out() {
    let file: Value =
        serde_json::from_str(include_str!("../../../engines/reactor/tests/vectors/zcl1.json")).unwrap();
    let replayed = [
        "loop-errors",
        "loop-timers",
        "loop-framing",
        "loop-malformed-badversion",
        "loop-malformed-badmagic",
        "loop-limits",
        "tcp-open",
        "core-calls",
    ];
    let names: Vec<&str> = file["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, replayed);
}
