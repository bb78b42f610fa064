//! Recordings on a real host: recorded events happen again, and no edited recording makes a replay wait.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::{Arc, Mutex, mpsc};

use millrace_wasm::record::{Recorder, Recording, RecordingSettings};
use millrace_wasm::replay::ReplayEnd;
use millrace_wasm::replayed::{ReplayMessage, Replayer};
use millrace_wasm::trace::TraceEvent;
use millrace_wasm::{
    Clock, Compiler, Generation, HandlerError, Handlers, Host, HostOptions, Instance, InstanceLimits,
    RunLimits, RunStart,
};

use support::{arg, on, on_async, resume, sum_module, tail};

const CLOCK: Clock = Clock::Virtual { system_start_ms: 0 };

fn settings() -> RecordingSettings {
    RecordingSettings {
        clock: CLOCK,
        seed: None,
        budget: 1_024,
        instance: InstanceLimits::default(),
        run: RunLimits::default(),
    }
}

fn instance(host: &Host, module: &str, register: impl FnOnce(&mut Handlers)) -> Instance {
    let module = host.load(module.as_bytes()).unwrap();
    let mut handlers = module.handlers();
    register(&mut handlers);
    host.instantiate(&module, handlers, &InstanceLimits::default()).unwrap()
}

/// Records these runs of the sum module. The third call of `tick` fails; the other calls are answered after some time.
fn record(compiler: &Compiler, starts: Vec<RunStart>) -> String {
    let recorder = Arc::new(Mutex::new(Recorder::new(Vec::new(), "", &settings()).unwrap()));
    let observer = recorder.clone();
    let options = HostOptions {
        clock: CLOCK,
        observer: Some(Box::new(move |event| {
            observer.lock().unwrap().add(&TraceEvent::from(event)).unwrap();
        })),
        compiler: Some(compiler.clone()),
        ..HostOptions::default()
    };
    let host = Host::new(options).unwrap();
    let ticks = Mutex::new(0);
    let instance = instance(&host, &sum_module(Generation::A, 3), |handlers| {
        on_async(handlers, "bump", |call| async move {
            call.sleep_ms(10 + call.run().serial()).await?;
            resume(arg(&call) * 2)
        });
        on(handlers, "tick", move |call| {
            let mut ticks = ticks.lock().unwrap();
            *ticks += 1;
            if *ticks == 3 { Err(HandlerError::new("no more")) } else { tail(arg(&call)) }
        });
    });
    for run in instance.start_all(starts).unwrap() {
        run.wait();
    }
    let recorder = recorder.lock().unwrap();
    String::from_utf8(recorder.writer().clone()).unwrap()
}

/// Replays a recording to its end, however it ends.
fn replay(compiler: &Compiler, recording: Recording) -> (Vec<TraceEvent>, ReplayEnd) {
    let (sink, told) = mpsc::channel();
    let replayer = Replayer::new(recording, Box::new(move |told| sink.send(told).unwrap()));
    let options = HostOptions {
        clock: CLOCK,
        observer: Some(replayer.observer()),
        compiler: Some(compiler.clone()),
        ..HostOptions::default()
    };
    let host = Host::new(options).unwrap();
    let instance = instance(&host, &sum_module(Generation::A, 3), |handlers| replayer.register(handlers));
    replayer.start(&RunLimits::default(), Box::new(move |start| instance.start_run(start)));
    let mut events = Vec::new();
    loop {
        match told.recv().unwrap() {
            ReplayMessage::Event { event, .. } => events.push(event),
            ReplayMessage::End(end) => return (events, end),
        }
    }
}

/// Runs that end by a value, a failure, a cancellation and a deadline, before their first step and later.
fn starts() -> Vec<RunStart> {
    let main = || RunStart::new("main", vec![]);
    let deadline = |ms| {
        let mut start = main();
        start.limits.wall_ms_max = Some(ms);
        start
    };
    let cancelled = |ms| RunStart { cancel_after_ms: Some(ms), ..main() };
    vec![main(), main(), main(), cancelled(5), cancelled(0), deadline(5), deadline(0)]
}

#[test]
fn what_was_recorded_happens_again_in_the_same_order() {
    let compiler = Compiler::new().unwrap();
    let recording = Recording::parse(&record(&compiler, starts())).unwrap();
    let recorded: Vec<TraceEvent> = recording.events().iter().map(|(_, event)| event.clone()).collect();
    let (events, end) = replay(&compiler, recording);
    assert_eq!(end, ReplayEnd::Whole);
    assert_eq!(events, recorded);
}

#[test]
fn every_recording_with_an_edited_line_is_refused_or_ends() {
    let compiler = Compiler::new().unwrap();
    let text = record(&compiler, starts());
    let lines: Vec<&str> = text.lines().collect();
    let mut variants: Vec<Vec<&str>> = Vec::new();
    for at in 1..lines.len() {
        let (mut without, mut twice, mut swapped) = (lines.clone(), lines.clone(), lines.clone());
        without.remove(at);
        twice.insert(at, lines[at]);
        swapped.swap(at - 1, at);
        // The last variant is cut off after this line.
        variants.extend([without, twice, swapped, lines[..at].to_vec()]);
    }
    let (mut refused, mut ended) = (0, 0);
    for variant in variants {
        match Recording::parse(&format!("{}\n", variant.join("\n"))) {
            Err(_) => refused += 1,
            Ok(recording) => {
                replay(&compiler, recording);
                ended += 1;
            }
        }
    }
    assert!(refused > 50 && ended > 50, "{refused} refused, {ended} ended");
}

#[test]
fn a_recording_that_was_cut_off_agrees_as_far_as_it_goes() {
    let compiler = Compiler::new().unwrap();
    let text = record(&compiler, vec![RunStart::new("main", vec![])]);
    let count = text.lines().count();
    // Cut at every line, from the start line alone to everything but the outcome.
    for at in 2..count {
        let lines: Vec<&str> = text.lines().take(at).collect();
        let recording = Recording::parse(&format!("{}\n", lines.join("\n"))).unwrap();
        let (events, end) = replay(&compiler, recording);
        assert_eq!(end, ReplayEnd::CutOff { line: at, runs: vec!["run_1".to_owned()] });
        assert_eq!(events.len(), at - 1);
    }
}
