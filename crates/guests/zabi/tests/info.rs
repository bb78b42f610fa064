//! `sys/info`, `proc/argv` and `proc/env`.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{FOREVER, Guest, everything_here};
use millrace_reactor::PollEvent;
use millrace_reactor::zcl1::FieldReader;
use millrace_zabi::Grants;

#[test]
fn arguments_and_variables_are_byte_streams() {
    let mut guest = Guest::new(Grants::none().proc_argv(["guest", "a b"]).proc_env(["K=V"]));
    let argv = guest.open_ok("proc", "argv");
    assert_eq!(guest.process.zi_handle_hflags(argv), 5);
    let mut bytes = Vec::new();
    while let Ok(more) = guest.read_max(argv, 3) {
        if more.is_empty() {
            break;
        }
        bytes.extend(more);
    }
    assert_eq!(bytes, b"\x01\0\0\0\x02\0\0\0\x05\0\0\0guest\x03\0\0\0a b");
    assert_eq!(guest.read(argv), Ok(vec![]), "the end stays the end");
    assert_eq!(guest.write(argv, b"x"), -4);
    let env = guest.open_ok("proc", "env");
    assert_eq!(guest.read(env), Ok(b"\x01\0\0\0\x01\0\0\0\x03\0\0\0K=V".to_vec()));
    assert_eq!(guest.open("proc", "env", &[0]), -1);
    let again = guest.open_ok("proc", "argv");
    assert!(!guest.read(again).unwrap().is_empty(), "each handle begins at the beginning");
}

#[test]
fn the_clock_of_the_guest_is_the_clock_of_its_timers() {
    let mut guest = Guest::new(everything_here());
    let (info, sys_loop) = (guest.open_ok("sys", "info"), guest.open_ok("sys", "loop"));
    let mono = |guest: &mut Guest| {
        let reply = guest.request(info, 3, &[]);
        let mut fields = FieldReader::new(&reply.payload);
        assert_eq!(fields.u32(), Ok(1));
        assert!(fields.u64().unwrap() > 1_600_000_000_000_000_000, "realtime");
        let mono = fields.u64().unwrap();
        fields.finish().unwrap();
        mono
    };
    let before = mono(&mut guest);
    guest.arm(sys_loop, 1, 1000, 0);
    let events = guest.poll(sys_loop, 1, FOREVER);
    let [PollEvent::Timer { at, .. }] = events[..] else { panic!("{events:?}") };
    assert!(before + 1000 <= at.0 && at.0 <= mono(&mut guest));
}

#[test]
fn the_machine_is_described() {
    let mut guest = Guest::new(everything_here());
    let info = guest.open_ok("sys", "info");
    let reply = guest.request(info, 1, &[]);
    let mut fields = FieldReader::new(&reply.payload);
    let (version, flags) = (fields.u32().unwrap(), fields.u32().unwrap());
    assert_eq!(version, 1);
    assert!(fields.u32().unwrap() >= 1 && fields.u32().unwrap().is_power_of_two());
    for bit in 0..4 {
        assert_eq!(!fields.text().unwrap().is_empty(), flags & 1 << bit != 0, "text {bit}");
    }
    fields.finish().unwrap();
    let reply = guest.request(info, 2, &[]);
    let flags = u32::from_le_bytes(reply.payload[4..8].try_into().unwrap());
    let expected = 16 + if flags & 1 != 0 { 12 } else { 0 } + if flags & 2 != 0 { 20 } else { 0 };
    assert_eq!(reply.payload.len(), expected);
    let seeds: Vec<Vec<u8>> = (0..2).map(|_| guest.request(info, 4, &[]).payload).collect();
    assert_eq!((seeds[0].len(), &seeds[0][..8]), (40, &[1, 0, 0, 0, 32, 0, 0, 0][..]));
    assert_ne!(seeds[0], seeds[1]);
    assert_eq!(guest.request(info, 5, &[]).message(), "unknown op");
    assert_eq!(guest.request(info, 1, &[0]).message(), "payload must be empty");
    let sys_loop = guest.open_ok("sys", "loop");
    assert_eq!(guest.watch(sys_loop, info, 1, 1).message(), "watch failed", "its replies are there at once");
}

#[test]
fn unread_replies_are_bounded() {
    let mut guest = Guest::new(everything_here());
    let info = guest.open_ok("sys", "info");
    let frame = guest.frame(3, &[]);
    let written = (0..10_000).take_while(|_| guest.write(info, &frame) == 24).count();
    assert!(written > 100 && written < 10_000, "{written}");
    assert_eq!(guest.write(info, &frame), -6);
    assert_eq!(guest.replies(info).len(), written);
    assert_eq!(guest.write(info, &frame), 24);
}
