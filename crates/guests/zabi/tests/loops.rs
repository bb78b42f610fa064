//! `sys/loop` over the operating system: timers, readiness, interruption, several loops.
#![allow(clippy::unwrap_used)]

mod harness;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use harness::{FOREVER, Guest, READABLE, WRITABLE, everything_here};
use millrace_reactor::PollEvent;

/// A stream of the guest and its peer in the test.
fn pair(guest: &mut Guest) -> (i32, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let handle = guest.tcp("127.0.0.1", listener.local_addr().unwrap().port(), 0);
    assert!(handle >= 3, "{handle}");
    let peer = listener.accept().unwrap().0;
    (handle, peer)
}

#[test]
fn a_timer_ends_a_wait_and_is_never_early() {
    let mut guest = Guest::new(everything_here());
    let sys_loop = guest.open_ok("sys", "loop");
    for delay_ns in [1, 100_000, 1_500_000, 12_345_678] {
        let begun = Instant::now();
        guest.arm(sys_loop, 7, delay_ns, 0);
        let events = guest.poll(sys_loop, 8, FOREVER);
        assert!(
            matches!(events[..], [PollEvent::Timer { timer_id, .. }] if timer_id.0.get() == 7),
            "{events:?}"
        );
        assert!(begun.elapsed().as_nanos() >= u128::from(delay_ns), "early");
    }
    let begun = Instant::now();
    assert!(guest.poll(sys_loop, 8, 3).is_empty());
    assert!(begun.elapsed().as_millis() >= 3);
}

#[test]
fn a_repeating_timer_keeps_to_its_grid() {
    let mut guest = Guest::new(everything_here());
    let sys_loop = guest.open_ok("sys", "loop");
    let begun = Instant::now();
    guest.arm(sys_loop, 1, 500_000, 500_000);
    for tick in 1..=20u32 {
        assert_eq!(guest.poll(sys_loop, 8, FOREVER).len(), 1);
        assert!(begun.elapsed() >= std::time::Duration::from_micros(500) * tick, "tick {tick} is early");
    }
}

#[test]
fn readiness_is_level_triggered() {
    let mut guest = Guest::new(everything_here());
    let (stream, mut peer) = pair(&mut guest);
    let sys_loop = guest.open_ok("sys", "loop");
    assert!(guest.watch(sys_loop, stream, READABLE, 1).is_ok);
    assert_eq!(guest.ready(sys_loop, 0), []);
    peer.write_all(b"0123456789").unwrap();
    for _ in 0..3 {
        assert_eq!(guest.ready(sys_loop, FOREVER), [(1, READABLE)], "as long as there is something to read");
    }
    assert_eq!(guest.read_max(stream, 4), Ok(b"0123".to_vec()));
    assert_eq!(guest.ready(sys_loop, FOREVER), [(1, READABLE)], "six bytes are left");
    assert_eq!(guest.read_max(stream, 6), Ok(b"456789".to_vec()));
    assert_eq!(guest.ready(sys_loop, 0), [], "the read took everything, and no more was asked for");
    peer.write_all(b"x").unwrap();
    assert_eq!(guest.ready(sys_loop, FOREVER), [(1, READABLE)]);
    assert_eq!(guest.read(stream), Ok(b"x".to_vec()));
    assert_eq!(guest.read(stream), Err(-6));
    assert_eq!(guest.ready(sys_loop, 0), []);
    peer.shutdown(Shutdown::Write).unwrap();
    for _ in 0..3 {
        assert_eq!(guest.ready(sys_loop, FOREVER), [(1, READABLE)], "the end of the stream stays readable");
        assert_eq!(guest.read(stream), Ok(vec![]));
    }
}

#[test]
fn writability_ends_when_the_peer_does_not_read_and_returns_when_it_does() {
    let mut guest = Guest::new(everything_here());
    let (stream, mut peer) = pair(&mut guest);
    let sys_loop = guest.open_ok("sys", "loop");
    assert!(guest.watch(sys_loop, stream, WRITABLE, 1).is_ok);
    assert_eq!(guest.ready(sys_loop, FOREVER), [(1, WRITABLE)]);
    let block = [7; 65_536];
    let mut written = 0;
    loop {
        match guest.write(stream, &block) {
            -6 => break,
            count if count > 0 => written += count as usize,
            code => panic!("{code}"),
        }
    }
    assert_eq!(guest.ready(sys_loop, 0), [], "the buffers are full");
    let reader = thread::spawn(move || {
        let mut bytes = vec![0; written];
        peer.read_exact(&mut bytes).unwrap();
        (bytes.iter().all(|byte| *byte == 7), peer)
    });
    assert_eq!(guest.ready(sys_loop, FOREVER), [(1, WRITABLE)]);
    assert!(reader.join().unwrap().0);
}

#[test]
fn a_hup_that_nobody_asked_for_does_not_end_a_poll() {
    let mut guest = Guest::new(everything_here());
    let (stream, peer) = pair(&mut guest);
    let sys_loop = guest.open_ok("sys", "loop");
    const ERROR: u32 = 8;
    assert!(guest.watch(sys_loop, stream, ERROR, 1).is_ok);
    drop(peer);
    assert_eq!(guest.process.zi_ctl(&mut guest.memory, 0, 0, 0, 0), -1);
    shut_down_writing(&mut guest, stream);
    guest.arm(sys_loop, 9, 2_000_000, 0);
    let events = guest.poll(sys_loop, 8, FOREVER);
    assert!(matches!(events[..], [PollEvent::Timer { .. }]), "{events:?}");
    const HUP: u32 = 4;
    assert!(guest.watch(sys_loop, stream, HUP | READABLE, 2).is_ok);
    assert_eq!(guest.ready(sys_loop, FOREVER), [(2, HUP | READABLE)]);
}

fn shut_down_writing(guest: &mut Guest, handle: i32) {
    let mut payload = Vec::new();
    millrace_reactor::zcl1::FieldWriter::new(&mut payload).u32(1).u32(handle as u32).u32(1).u32(0);
    let frame = guest.frame(4, &payload);
    guest.put(harness::REQUEST, &frame);
    let (process, memory) = (&mut guest.process, &mut guest.memory);
    assert_eq!(process.zi_ctl(memory, harness::REQUEST, frame.len() as u32, harness::RESPONSE, 256), 24);
}

#[test]
fn two_hundred_ready_handles_are_all_found_with_a_small_buffer_of_events() {
    let mut options = millrace_zabi::ProcessOptions::new("test", everything_here());
    options.limits.os_events_max = 16;
    let mut guest = Guest::with(options);
    let sys_loop = guest.open_ok("sys", "loop");
    let pairs: Vec<_> = (0..200).map(|_| pair(&mut guest)).collect();
    for (index, (stream, peer)) in pairs.iter().enumerate() {
        let mut peer = peer;
        peer.write_all(b"x").unwrap();
        assert!(guest.watch(sys_loop, *stream, READABLE, index as u64 + 1).is_ok);
    }
    let mut found = std::collections::BTreeSet::new();
    let polls_max = millrace_reactor::polls_until_reported_max(200, 64);
    for _ in 0..polls_max + 1 {
        found.extend(guest.ready(sys_loop, FOREVER));
    }
    assert_eq!(found.len(), 200);
}

#[test]
fn an_interrupter_ends_a_wait_from_another_thread() {
    let mut guest = Guest::new(everything_here());
    let sys_loop = guest.open_ok("sys", "loop");
    let interrupter = guest.process.interrupter();
    let (begin, begun) = mpsc::channel();
    let thread = thread::spawn(move || {
        begun.recv().unwrap();
        interrupter.interrupt_poll();
        interrupter
    });
    begin.send(()).unwrap();
    assert!(guest.poll(sys_loop, 8, FOREVER).is_empty());
    let interrupter = thread.join().unwrap();
    interrupter.interrupt_poll();
    assert!(guest.poll(sys_loop, 8, FOREVER).is_empty(), "also if it came before the wait");
    guest.arm(sys_loop, 1, 1_000, 0);
    assert_eq!(guest.poll(sys_loop, 8, FOREVER).len(), 1, "and only once");
}

#[test]
fn a_guest_is_ended_inside_poll_and_every_call_is_closed_afterwards() {
    let mut guest = Guest::new(everything_here());
    let sys_loop = guest.open_ok("sys", "loop");
    let interrupter = guest.process.interrupter();
    let thread = thread::spawn(move || interrupter.end_process());
    let frame = guest.frame(5, &[1, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    let code = guest.write(sys_loop, &frame);
    assert!(code == frame.len() as i32 || code == -5, "{code}: it may have come before the call");
    thread.join().unwrap();
    assert!(guest.process.is_ended());
    assert_eq!((guest.write(sys_loop, &frame), guest.read(sys_loop)), (-5, Err(-5)));
    assert_eq!((guest.open("sys", "loop", &[]), guest.process.zi_end(sys_loop)), (-5, -5));
}

#[test]
fn one_handle_may_be_watched_by_several_loops() {
    let mut guest = Guest::new(everything_here());
    let (stream, mut peer) = pair(&mut guest);
    let loops = [guest.open_ok("sys", "loop"), guest.open_ok("sys", "loop")];
    for sys_loop in loops {
        assert!(guest.watch(sys_loop, stream, READABLE, 5).is_ok);
    }
    peer.write_all(b"x").unwrap();
    for sys_loop in loops {
        assert_eq!(guest.ready(sys_loop, FOREVER), [(5, READABLE)]);
    }
    assert_eq!(guest.read(stream), Ok(b"x".to_vec()));
    for sys_loop in loops {
        assert_eq!(guest.ready(sys_loop, 0), []);
    }
    assert_eq!(guest.process.zi_end(loops[0]), 0);
    peer.write_all(b"y").unwrap();
    assert_eq!(guest.ready(loops[1], FOREVER), [(5, READABLE)]);
}

#[test]
fn an_ended_handle_is_silent_even_if_its_descriptor_is_used_again() {
    let mut guest = Guest::new(everything_here());
    let (stream, _peer) = pair(&mut guest);
    let sys_loop = guest.open_ok("sys", "loop");
    assert!(guest.watch(sys_loop, stream, READABLE, 1).is_ok);
    assert_eq!(guest.process.zi_end(stream), 0);
    let (next, mut peer) = pair(&mut guest);
    peer.write_all(b"x").unwrap();
    assert_eq!(guest.ready(sys_loop, 1), []);
    assert!(guest.watch(sys_loop, next, READABLE, 2).is_ok);
    assert_eq!(guest.ready(sys_loop, FOREVER), [(2, READABLE)]);
    assert!(guest.request(sys_loop, 2, &1u64.to_le_bytes()).is_ok, "UNWATCH still works");
}

#[test]
fn loops_are_bounded() {
    let mut guest = Guest::new(everything_here());
    let loops: Vec<i32> = (0..16).map(|_| guest.open_ok("sys", "loop")).collect();
    assert_eq!(guest.open("sys", "loop", &[]), -8);
    assert_eq!(guest.process.zi_end(loops[3]), 0);
    guest.open_ok("sys", "loop");
}
