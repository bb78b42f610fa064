//! Runs whose steps are expensive: other runs, cancellations and deadlines are served all the same.
//!
//! Expensive here means a handler that takes longer than a tick may last, so that every tick has one of its calls. The
//! tests count calls: a slow machine makes fewer of them in the same time, never more.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use millrace_wasm::{
    Clock, EffectHandler, EffectOutcome, Generation, Handled, HandlerCall, Handlers, HostOptions, Instance,
    RunHandle, RunLimits, RunStart, RunsLimits,
};

use support::{Fixture, end, failure, mains, set, sum_module, value};

const BOTH: [Generation; 2] = [Generation::A, Generation::B];

/// Longer than the tick of [`short_ticks`].
const CALL_MS: u64 = 3;

/// The time that runs in these tests wait, sleep, and may last.
const WAIT_MS: u64 = 30;

/// More calls than fit into [`WAIT_MS`], and far fewer than a tick's budget of steps.
const CALLS_MAX: usize = 20;

fn short_ticks() -> Fixture {
    Fixture::with_options(HostOptions { tick_ms_max: 1, ..HostOptions::default() })
}

/// A handler from a function that may answer at once or later.
struct Either<F>(F);

impl<F: Fn(HandlerCall) -> Handled + Send + Sync> EffectHandler for Either<F> {
    fn call(&self, call: HandlerCall) -> Handled {
        (self.0)(call)
    }
}

fn on_both(handlers: &mut Handlers, function: impl Fn(HandlerCall) -> Handled + Send + Sync + 'static) {
    let handler: Arc<dyn EffectHandler> = Arc::new(Either(function));
    for name in ["bump", "tick"] {
        set(handlers, name, &handler);
    }
}

fn now(call: &HandlerCall) -> Handled {
    Handled::Now(Ok(call.answer(0)))
}

/// A program that asks for ever, with an expensive handler, and the counter of its calls.
fn expensive(fixture: &Fixture, generation: Generation) -> (Instance, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let instance = fixture.instance(&sum_module(generation, u32::MAX), |handlers| {
        on_both(handlers, move |call| {
            counted.fetch_add(1, SeqCst);
            thread::sleep(Duration::from_millis(CALL_MS));
            now(&call)
        });
    });
    (instance, calls)
}

#[test]
fn a_sleeper_wakes_beside_a_run_with_expensive_steps() {
    for generation in BOTH {
        let fixture = short_ticks();
        let (instance, calls) = expensive(&fixture, generation);
        let sleeper = fixture.instance(&sum_module(generation, 1), move |handlers| {
            support::on_async(handlers, "bump", move |call| {
                let calls = calls.clone();
                async move {
                    let before = calls.load(SeqCst);
                    call.sleep_ms(WAIT_MS).await?;
                    end(i64::try_from(calls.load(SeqCst) - before).unwrap())
                }
            });
        });
        let expensive = instance.start("main", vec![]).unwrap();
        let calls = value(sleeper.start("main", vec![]).unwrap().wait());
        assert!(calls <= CALLS_MAX.try_into().unwrap(), "{calls} expensive calls in {WAIT_MS} ms");
        assert!(expensive.cancel(None));
    }
}

#[test]
fn a_run_with_expensive_steps_is_cancelled_and_fails_on_time() {
    for generation in BOTH {
        let fixture = short_ticks();
        let (instance, calls) = expensive(&fixture, generation);
        let start = RunStart { cancel_after_ms: Some(WAIT_MS), ..RunStart::new("main", vec![]) };
        let outcome = instance.start_run(start).unwrap().wait();
        assert_eq!(outcome, EffectOutcome::Cancelled { reason: None });
        let counted = calls.swap(0, SeqCst);
        assert!(counted <= CALLS_MAX, "{counted} calls before the cancellation");
        let limits = RunLimits { wall_ms_max: Some(WAIT_MS), ..RunLimits::default() };
        let outcome =
            instance.start_run(RunStart { limits, ..RunStart::new("main", vec![]) }).unwrap().wait();
        let text = failure(outcome);
        assert!(text.starts_with("the run did not end by its deadline"), "{text}");
        let counted = calls.load(SeqCst);
        assert!(counted <= CALLS_MAX, "{counted} calls before the deadline");
    }
}

/// The handle of a run, for handlers that are called before `start` has returned.
type Later = Arc<OnceLock<Vec<RunHandle>>>;

fn run_of(runs: &Later, index: usize) -> RunHandle {
    while runs.get().is_none() {
        thread::yield_now();
    }
    runs.get().unwrap()[index].clone()
}

#[test]
fn a_cancelled_run_is_neither_continued_nor_called_again() {
    for (generation, clock) in BOTH.into_iter().zip([Clock::Real, Clock::Virtual { system_start_ms: 0 }]) {
        let fixture = Fixture::with_options(HostOptions { clock, ..HostOptions::default() });
        let runs = Later::default();
        let calls = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let (handles, counted) = (runs.clone(), calls.clone());
        let instance = fixture.instance(&sum_module(generation, u32::MAX), |handlers| {
            on_both(handlers, move |call| {
                let index = usize::try_from(call.run().serial()).unwrap() - 1;
                let count = counted[index].fetch_add(1, SeqCst) + 1;
                // The first run cancels the second, which is ready, and itself a few calls later.
                match (index, count) {
                    (0, 3) => assert!(run_of(&handles, 1).cancel(None)),
                    (0, 6) => assert!(run_of(&handles, 0).cancel(None)),
                    _ => {}
                }
                now(&call)
            });
        });
        runs.set(instance.start_all(mains(2)).unwrap()).unwrap();
        for run in runs.get().unwrap() {
            assert_eq!(run.wait(), EffectOutcome::Cancelled { reason: None });
        }
        assert_eq!(calls.each_ref().map(|calls| calls.load(SeqCst)), [6, 2]);
        let trace = fixture.trace.lines();
        assert_eq!(trace[trace.len() - 2..], ["run_1 cancel true", "run_1 cancelled"]);
        let at = trace.iter().position(|line| line == "run_2 cancel true").unwrap();
        assert_eq!(trace[at + 1], "run_2 cancelled");
    }
}

#[test]
fn a_run_that_another_thread_cancels_is_called_at_most_once_more() {
    for clock in [Clock::Real, Clock::Virtual { system_start_ms: 0 }] {
        let fixture = Fixture::with_options(HostOptions { clock, ..HostOptions::default() });
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let instance = fixture.instance(&sum_module(Generation::A, u32::MAX), |handlers| {
            on_both(handlers, move |call| {
                counted.fetch_add(1, SeqCst);
                now(&call)
            });
        });
        for _ in 0..20 {
            let run = instance.start("main", vec![]).unwrap();
            while calls.load(SeqCst) == 0 {
                thread::yield_now();
            }
            assert!(run.cancel(None));
            let before = calls.load(SeqCst);
            assert_eq!(run.wait(), EffectOutcome::Cancelled { reason: None });
            // At most the call that was about to be made when the run was cancelled.
            let after = calls.swap(0, SeqCst) - before;
            assert!(after <= 1, "{after} calls of a cancelled run");
        }
    }
}

#[test]
fn the_time_of_a_tick_changes_nothing_under_a_virtual_clock() {
    let trace = |tick_ms_max, call_ms| {
        let clock = Clock::Virtual { system_start_ms: 0 };
        let limits = RunsLimits { max_internal_steps_per_tick: 8, ..RunsLimits::default() };
        let options = HostOptions { clock, limits, tick_ms_max, seed: Some(7), ..HostOptions::default() };
        let fixture = Fixture::with_options(options);
        let instance = fixture.instance(&sum_module(Generation::A, 6), |handlers| {
            on_both(handlers, move |call| {
                if call.run().serial() % 2 == 0 {
                    return Handled::Later(Box::pin(async move {
                        call.sleep_ms(call.run().serial()).await?;
                        Ok(call.answer(1))
                    }));
                }
                thread::sleep(Duration::from_millis(call_ms));
                now(&call)
            });
        });
        instance.start_all(mains(6)).unwrap().iter().for_each(|run| drop(run.wait()));
        fixture.trace.lines()
    };
    let undisturbed = trace(u64::MAX, 0);
    assert!(undisturbed.len() > 60);
    assert_eq!(trace(1, CALL_MS), undisturbed);
    assert_eq!(trace(0, CALL_MS), undisturbed, "0 counts as 1");
}
