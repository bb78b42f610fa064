//! The calls themselves: handles, memory bounds, allocation, standard streams, listing and opening.
#![allow(clippy::unwrap_used)]

mod harness;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use harness::{Guest, MEMORY_BYTES, OPEN_REQUEST, REQUEST, RESPONSE, everything_here};
use millrace_zabi::{Grants, HandleLimits, Limits, Process, ProcessOptions, StandardStreams, VecMemory};

const BEYOND: u64 = MEMORY_BYTES as u64 - 8;

/// Output that the test can inspect.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn standard_streams_are_those_of_the_embedding_program() {
    let (output, error) = (Shared::default(), Shared::default());
    let mut options = ProcessOptions::new("test", Grants::none());
    options.streams = StandardStreams {
        input: Box::new(&b"hello"[..]),
        output: Box::new(output.clone()),
        error: Box::new(error.clone()),
    };
    let mut guest = Guest::with(options);
    assert_eq!(guest.read_max(0, 3), Ok(b"hel".to_vec()));
    assert_eq!(guest.read(0), Ok(b"lo".to_vec()));
    assert_eq!(guest.read(0), Ok(vec![]), "the end of the input");
    assert_eq!((guest.write(1, b"out"), guest.write(2, b"err!")), (3, 4));
    assert_eq!((guest.write(0, b"x"), guest.read(1), guest.read(2)), (-4, Err(-4), Err(-4)));
    assert_eq!(*output.0.lock().unwrap(), b"out");
    assert_eq!(*error.0.lock().unwrap(), b"err!");
    assert_eq!([0, 1, 2].map(|handle| guest.process.zi_handle_hflags(handle)), [5, 6, 6]);
    assert_eq!([0, 1, 2, 1].map(|handle| guest.process.zi_end(handle)), [0; 4]);
}

#[test]
fn pointers_out_of_range_are_negative_codes_for_every_call() {
    let mut guest = Guest::new(everything_here());
    let sys_loop = guest.open_ok("sys", "loop");
    let frame = guest.frame(5, &[1, 0, 0, 0, 0, 0, 0, 0]);
    guest.put(REQUEST, &frame);
    let (process, memory) = (&mut guest.process, &mut guest.memory);
    for (address, length) in [(BEYOND, 9), (u64::MAX, 1), (1 << 32, 1), (0, u32::MAX), (u64::MAX - 3, 8)] {
        for handle in [0, 1, 2, sys_loop] {
            assert_eq!(process.zi_read(memory, handle, address, length), -2, "{handle} {address}");
            assert_eq!(process.zi_write(memory, handle, address, length), -2, "{handle} {address}");
        }
        assert_eq!(process.zi_ctl(memory, address, length, RESPONSE, 1024), -2);
        assert_eq!(process.zi_ctl(memory, REQUEST, 24, address, length), -2);
        assert_eq!(process.zi_telemetry(memory, address, length, REQUEST, 1), -2);
        assert_eq!(process.zi_telemetry(memory, REQUEST, 1, address, length), -2);
        assert_eq!(process.zi_cap_get(memory, 0, address, length), -2);
    }
    for address in [BEYOND, u64::MAX, 1 << 32, MEMORY_BYTES as u64 - 39] {
        assert_eq!(process.zi_cap_open(memory, address), -2, "{address}");
    }
    assert_eq!(process.zi_telemetry(memory, REQUEST, 3, REQUEST, 3), 0);
}

#[test]
fn strings_of_an_open_request_are_checked() {
    let mut guest = Guest::new(everything_here());
    assert_eq!(guest.open("sys", "loop", &[]), 3);
    let good = guest.at(OPEN_REQUEST, 40);
    let mut open_with = |at: usize, bytes: &[u8]| {
        let mut request = good.clone();
        request[at..at + bytes.len()].copy_from_slice(bytes);
        guest.put(OPEN_REQUEST, &request);
        guest.process.zi_cap_open(&mut guest.memory, OPEN_REQUEST)
    };
    for at in [0, 12] {
        assert_eq!(open_with(at, &u64::MAX.to_le_bytes()), -2, "address at {at}");
        assert_eq!(open_with(at + 8, &0u32.to_le_bytes()), -1, "length at {at}");
        assert_eq!(open_with(at + 8, &u32::MAX.to_le_bytes()), -2, "length at {at}");
        assert_eq!(open_with(at + 8, &2u32.to_le_bytes()), -3, "length at {at}");
    }
    assert_eq!(open_with(24, &1u32.to_le_bytes()), -1, "mode");
    assert_eq!(open_with(36, &4u32.to_le_bytes()), -1, "parameters that the capability does not take");
    assert_eq!(open_with(28, &[[0xFF; 8].as_slice(), &[4, 0, 0, 0]].concat()), -2, "parameters out of range");
    assert_eq!(open_with(0, &[]), 4, "nothing was opened in between");
}

#[test]
fn nothing_is_granted_unless_it_is_named() {
    let mut guest = Guest::new(Grants::none());
    assert_eq!(guest.process.zi_cap_count(), 0);
    assert_eq!(guest.process.zi_cap_get_size(0), -3);
    for (kind, name) in [
        ("async", "default"),
        ("event", "bus"),
        ("file", "aio"),
        ("net", "http"),
        ("net", "tcp"),
        ("proc", "argv"),
        ("proc", "env"),
        ("sys", "info"),
        ("sys", "loop"),
    ] {
        assert_eq!(guest.open(kind, name, &[]), -4, "{kind}/{name}");
    }
    assert_eq!(guest.open("sys", "unknown", &[]), -3);
    let mut guest = Guest::new(Grants::none().sys_loop());
    assert_eq!((guest.process.zi_cap_count(), guest.process.zi_cap_get_size(0)), (1, 19));
    assert_eq!(guest.open("sys", "loop", &[]), 3);
}

#[test]
fn lengths_of_zero_touch_nothing() {
    let mut guest = Guest::new(everything_here());
    let sys_loop = guest.open_ok("sys", "loop");
    for handle in [0, 1, 2, sys_loop] {
        let is_readable = guest.process.zi_handle_hflags(handle) & 1 != 0;
        if is_readable {
            assert_eq!(guest.process.zi_read(&mut guest.memory, handle, u64::MAX, 0), 0);
        }
        assert_eq!(guest.process.zi_write(&mut guest.memory, handle, u64::MAX, 0), 0);
    }
}

#[test]
fn unknown_handles_are_not_supported() {
    let mut guest = Guest::new(everything_here());
    for handle in [3, 99, -1, i32::MIN, i32::MAX] {
        assert_eq!(guest.write(handle, b"x"), -7);
        assert_eq!(guest.read(handle), Err(-7));
        assert_eq!(guest.process.zi_end(handle), -7);
        assert_eq!(guest.process.zi_handle_hflags(handle), 0);
    }
}

#[test]
fn a_full_handle_table_recovers_and_numbers_are_used_again() {
    let mut options = ProcessOptions::new("test", everything_here());
    let number_max = millrace_reactor::HandleNumber::new(6).unwrap();
    options.limits = Limits { handles: HandleLimits { handles_max: 3, number_max }, ..Limits::default() };
    let mut guest = Guest::with(options);
    for round in 0..100 {
        let handles: Vec<i32> = (0..3).map(|_| guest.open_ok("sys", "loop")).collect();
        assert_eq!(guest.open("sys", "loop", &[]), -8, "round {round}");
        assert_eq!(guest.tcp("127.0.0.1", 0, 1), -8);
        handles.into_iter().for_each(|handle| assert_eq!(guest.process.zi_end(handle), 0));
    }
    assert_eq!(guest.process.open_handles(), 0);
}

#[test]
fn two_processes_do_not_see_each_others_handles() {
    let (mut one, mut other) = (Guest::new(everything_here()), Guest::new(everything_here()));
    let (listener, _) = one.listen();
    let sys_loop = other.open_ok("sys", "loop");
    assert_eq!(listener, sys_loop, "each has its own numbers");
    assert_eq!(other.write(sys_loop, b"not a frame"), -1, "it is a loop here");
    assert_eq!(one.write(listener, b"not a frame"), -7, "and a listener there");
    one.open_ok("sys", "loop");
    assert_eq!(other.process.zi_end(4), -7);
    assert_eq!(other.watch(sys_loop, 4, 1, 1).message(), "watch failed");
    drop(one);
    assert!(other.poll(sys_loop, 1, 0).is_empty(), "the other goes on");
}

#[test]
fn memory_is_allocated_from_the_heap_base_and_grows() {
    let mut options = ProcessOptions::new("test", Grants::none());
    options.heap_base = Some(1000);
    let mut process = Process::new(options);
    let mut memory = VecMemory::growing(2048, 65_536);
    assert_eq!(process.zi_alloc(&mut memory, 0), 0);
    let first = process.zi_alloc(&mut memory, 100);
    let second = process.zi_alloc(&mut memory, 4000);
    assert!(first >= 1000 && second >= first + 100 && memory.len() as u64 >= second + 4000);
    assert_eq!(process.zi_alloc(&mut memory, 65_536), 0, "the memory cannot grow so far");
    assert_eq!((process.zi_free(first), process.zi_free(first), process.zi_free(0)), (0, -1, -1));
    assert_eq!(process.zi_alloc(&mut memory, 100), first);
    let mut without = Process::new(ProcessOptions::new("test", Grants::none()));
    assert_eq!((without.zi_alloc(&mut memory, 8), without.zi_free(8)), (0, -7));
}

#[test]
fn telemetry_is_cut_and_always_taken() {
    let mut guest = Guest::new(Grants::none());
    guest.put(REQUEST, &[0xFF; 20_000]);
    assert_eq!(guest.process.zi_telemetry(&mut guest.memory, REQUEST, 20_000, REQUEST, 20_000), 0);
    assert_eq!(guest.process.zi_telemetry(&mut guest.memory, 0, 0, 0, 0), 0);
}
