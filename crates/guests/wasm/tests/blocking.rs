//! Default capabilities that block a thread: never the scheduler's own, except under a virtual clock.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{self, Write};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use millrace_wasm::capability::{Folder, Grants, Output};
use millrace_wasm::{Clock, EffectOutcome, Generation, HostOptions, Instance};

use support::doctored::Doctored;
use support::{Fixture, Trace, doubling, mains, run, sum_module, value};

const VIRTUAL: Clock = Clock::Virtual { system_start_ms: 0 };

/// A stream that calls a function for everything that is written to it.
struct Stream<F>(F);

impl<F: FnMut()> Write for Stream<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A program that writes once to a stream and returns 42.
fn writer(fixture: &Fixture, stream: impl FnMut() + Send + 'static) -> Instance {
    let args = [&[0x91, 0x81, 0xa5][..], b"value", &[0xa2], b"hi"].concat();
    let module = Doctored::asking("voyd.std.output", "write_op", &args).wat();
    let grants = Grants::none().output(Output::new(Stream(stream), io::sink()));
    fixture.instance(&module, |handlers| grants.offer_to(handlers))
}

#[test]
fn output_occupies_the_schedulers_thread_only_under_a_virtual_clock() {
    for (clock, expected) in [(Clock::Real, false), (VIRTUAL, true)] {
        let fixture = Fixture::new(clock);
        let (name, names) = mpsc::channel();
        let instance =
            writer(&fixture, move || name.send(thread::current().name().map(str::to_owned)).unwrap());
        assert_eq!(value(run(&instance)), 42);
        assert_eq!(names.recv().unwrap().as_deref() == Some("millrace-runs"), expected, "{clock:?}");
    }
}

#[test]
fn a_stream_that_nobody_reads_holds_up_neither_other_runs_nor_a_cancellation() {
    let fixture = Fixture::new(Clock::Real);
    let (begun, begins) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let blocked = writer(&fixture, move || {
        begun.send(()).unwrap();
        gate.recv().unwrap();
    });
    let blocked = blocked.start("main", vec![]).unwrap();
    begins.recv().unwrap();
    assert_eq!(value(run(&fixture.instance(&sum_module(Generation::A, 3), doubling))), 6);
    assert!(blocked.cancel(None));
    assert_eq!(blocked.wait(), EffectOutcome::Cancelled { reason: None });
    go.send(()).unwrap();
}

#[test]
fn blocking_calls_beyond_the_bound_wait_for_their_turn() {
    let fixture = Fixture::with_options(HostOptions { blocking_calls_max: 1, ..HostOptions::default() });
    let order = Trace::default();
    let (begun, begins) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let streams = [1, 2].map(|number| {
        let (order, begun, gate) = (order.clone(), begun.clone(), gate.clone());
        writer(&fixture, move || {
            order.say(format!("{number} begins"));
            begun.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            order.say(format!("{number} ends"));
        })
    });
    let first = streams[0].start("main", vec![]).unwrap();
    begins.recv().unwrap();
    let second = streams[1].start("main", vec![]).unwrap();
    // When a run that was started later has ended, the scheduler has taken the second call.
    assert_eq!(value(run(&fixture.instance(&sum_module(Generation::A, 3), doubling))), 6);
    for _ in 0..2 {
        go.send(()).unwrap();
    }
    assert_eq!([first, second].map(|run| value(run.wait())), [42, 42]);
    assert_eq!(order.lines(), ["1 begins", "1 ends", "2 begins", "2 ends"]);
}

#[test]
fn files_do_not_wait_for_output_that_nobody_reads() {
    let fixture = Fixture::with_options(HostOptions { blocking_calls_max: 1, ..HostOptions::default() });
    let (begun, begins) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let blocked = writer(&fixture, move || {
        begun.send(()).unwrap();
        gate.recv().unwrap();
    });
    let blocked = blocked.start("main", vec![]).unwrap();
    begins.recv().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let grants = Grants::none().fs(Folder::open(folder.path()).unwrap());
    let module = Doctored::asking("voyd.std.fs", "exists", &[0x91, 0xa1, b'f']).wat();
    let files = fixture.instance(&module, |handlers| grants.offer_to(handlers));
    assert_eq!(value(run(&files)), 42);
    go.send(()).unwrap();
    assert_eq!(value(blocked.wait()), 42);
}

#[test]
fn traces_of_programs_with_output_are_the_same_under_a_virtual_clock() {
    let trace = || {
        let fixture = Fixture::new(VIRTUAL);
        let instance = writer(&fixture, thread::yield_now);
        instance.start_all(mains(8)).unwrap().iter().for_each(|run| drop(run.wait()));
        fixture.trace.lines()
    };
    assert_eq!(trace(), trace());
}
