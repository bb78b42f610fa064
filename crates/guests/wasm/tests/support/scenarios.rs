//! The conformance scenarios of the event-loop specification, for either generation. Each is a test in
//! `conformance_a.rs` and in `conformance_b.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;

use millrace_wasm::{
    Clock, Continuation, EffectHandler, EffectOutcome, Generation, Handled, HandlerCall, HandlerError,
    RunStart, RunsLimits, Value,
};
use tokio::sync::{Notify, oneshot};

use super::{
    Fixture, arg, doubling, end, failure, mains, on, on_async, resume, run, set, sum_module, tail, value,
};

fn text(generation: Generation, a: &str, b: &str) -> String {
    match generation {
        Generation::A => a.to_owned(),
        Generation::B => b.to_owned(),
    }
}

pub fn resume_step_continues_with_the_value(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance =
        fixture.instance(&sum_module(generation, 1), |handlers| on(handlers, "bump", |_| resume(40)));
    assert_eq!(value(run(&instance)), 40);
    assert_eq!(fixture.trace.lines(), ["run_1 call bump[Int(0)]", "run_1 bump resume 40", "run_1 value"]);
}

pub fn tail_step_continues_with_the_value(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(generation, 2), |handlers| {
        on(handlers, "bump", |_| resume(1));
        on(handlers, "tick", |_| tail(-300));
    });
    assert_eq!(value(run(&instance)), -299);
    assert_eq!(fixture.trace.lines()[3], "run_1 tick tail -300");
}

pub fn tail_for_a_resume_op_fails_before_resumption(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(generation, 3), |handlers| on(handlers, "bump", |_| tail(1)));
    let expected = text(
        generation,
        "Resume effect hand::Hand.bump cannot return tail(...) (return resume(...) or end(...))",
        "handler for hand::Hand.bump cannot return tail(...)",
    );
    assert_eq!(failure(run(&instance)), expected);
    assert_eq!(fixture.errors.lines(), [format!("run_1 {expected}")]);
    assert_eq!(fixture.trace.lines(), ["run_1 call bump[Int(0)]", "run_1 bump tail 1", "run_1 failed"]);
}

pub fn resume_or_end_for_a_tail_op_fails_before_resumption(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let expected = text(
        generation,
        "Tail effect hand::Hand.tick must return tail(...)",
        "handler for hand::Hand.tick must return tail(...)",
    );
    for wrong in [Continuation::Resume(Value::Int(1)), Continuation::End(Value::Int(1))] {
        let (reply, before) = (wrong_reply(&wrong), fixture.trace.lines().len());
        let instance = fixture.instance(&sum_module(generation, 3), |handlers| {
            on(handlers, "bump", |_| resume(1));
            on(handlers, "tick", move |_| Ok(wrong.clone()));
        });
        let run = instance.start("main", vec![]).unwrap();
        assert_eq!(failure(run.wait()), expected);
        // A resumed program would have asked for its third effect.
        let told = ["call bump[Int(0)]", "bump resume 1", "call tick[Int(1)]", reply, "failed"];
        let told = told.map(|line| format!("{} {line}", run.id()));
        assert_eq!(fixture.trace.lines()[before..], told);
    }
}

fn wrong_reply(wrong: &Continuation) -> &'static str {
    match wrong {
        Continuation::End(_) => "tick end 1",
        _ => "tick resume 1",
    }
}

pub fn a_plain_return_fails(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(generation, 3), |handlers| {
        on(handlers, "bump", |_| Ok(Continuation::Plain(Value::Nil)));
    });
    let expected = text(
        generation,
        "Effect handler for hand::Hand.bump must return a continuation call (return resume(...), tail(...), or end(...))",
        "handler for hand::Hand.bump must return a continuation call",
    );
    assert_eq!(failure(run(&instance)), expected);
    assert_eq!(fixture.trace.lines(), ["run_1 call bump[Int(0)]", "run_1 bump plain null", "run_1 failed"]);
}

pub fn early_host_completion_does_not_resume(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(generation, 3), |handlers| {
        on(handlers, "bump", |call| if arg(&call) == 0 { resume(10) } else { end(99) });
        on(handlers, "tick", |_| tail(0));
    });
    assert_eq!(value(run(&instance)), 99);
    assert_eq!(fixture.trace.lines().last().unwrap(), "run_1 value");
    assert_eq!(fixture.trace.lines().len(), 7, "no call after the end");
}

pub fn missing_capability_fails_deterministically(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance =
        fixture.instance(&sum_module(generation, 3), |handlers| on(handlers, "bump", |_| resume(1)));
    let expected =
        text(generation, "Unhandled effect hand::Hand.tick (tail)", "Unhandled effect hand::Hand.tick");
    for _ in 0..2 {
        assert_eq!(failure(run(&instance)), expected);
    }
    assert_eq!(fixture.errors.lines().len(), 2);
}

pub fn async_handler_rejection_fails_with_its_reason(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(generation, 3), |handlers| {
        on_async(handlers, "bump", |call| async move {
            call.sleep_ms(5).await?;
            Err(HandlerError::new("the disk is gone"))
        });
    });
    assert_eq!(failure(run(&instance)), "the disk is gone");
    assert_eq!(fixture.errors.lines(), ["run_1 the disk is gone"]);
}

pub fn a_handler_that_panics_fails_only_its_run(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(generation, 2), |handlers| {
        on(handlers, "bump", |call| if call.run().serial() == 1 { panic!("oh no") } else { resume(1) });
        on_async(handlers, "tick", |call| async move {
            if call.run().serial() == 2 { panic!("oh dear") } else { tail(2) }
        });
    });
    assert_eq!(failure(run(&instance)), "the handler panicked: oh no");
    assert_eq!(failure(run(&instance)), "the handler panicked: oh dear");
    assert_eq!(value(run(&instance)), 3);
}

pub fn explicit_cancellation_drops_late_completions(generation: Generation) {
    let fixture = Fixture::new(Clock::Real);
    let (called, calls) = mpsc::channel();
    let (answer, answered) = oneshot::channel::<i64>();
    let answered = Arc::new(std::sync::Mutex::new(Some(answered)));
    let instance = fixture.instance(&sum_module(generation, 1), move |handlers| {
        on_async(handlers, "bump", move |_| {
            called.send(()).unwrap();
            let waiting = answered.lock().unwrap().take();
            async move {
                match waiting {
                    Some(waiting) => resume(waiting.await.unwrap()),
                    None => resume(5),
                }
            }
        });
    });
    let cancelled = instance.start("main", vec![]).unwrap();
    calls.recv().unwrap();
    assert!(cancelled.cancel(Some(Value::from("enough"))));
    assert!(!cancelled.cancel(None), "idempotent");
    assert_eq!(cancelled.wait(), EffectOutcome::Cancelled { reason: Some(Value::from("enough")) });
    // Either the handler's future was dropped with its run, or its answer is dropped.
    let _ = answer.send(7);
    assert_eq!(value(run(&instance)), 5, "other runs are not concerned");
    assert_eq!(cancelled.wait().kind(), "cancelled");
    assert!(fixture.errors.lines().is_empty(), "cancelled is not failed");
    let trace = fixture.trace.lines();
    assert!(!trace.contains(&"run_1 bump resume 7".to_owned()), "{trace:?}");
    assert!(trace.contains(&"run_1 cancelled".to_owned()), "{trace:?}");
}

pub fn cancelling_an_ended_run_changes_nothing(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(generation, 3), doubling);
    let ended = instance.start("main", vec![]).unwrap();
    assert_eq!(value(ended.wait()), 6);
    assert!(!ended.cancel(None));
    assert_eq!(value(ended.wait()), 6);
    // Commands are read in their order: when a later run has ended, the refusal has been reported.
    assert_eq!(value(run(&instance)), 6);
    let trace = fixture.trace.lines();
    let of_first: Vec<&String> = trace.iter().filter(|line| line.starts_with("run_1 ")).collect();
    assert_eq!(of_first[of_first.len() - 2..], ["run_1 value", "run_1 cancel false"]);
}

pub fn fairness_pressure_yields_at_the_budget(generation: Generation) {
    let limits = RunsLimits { max_internal_steps_per_tick: 8, ..RunsLimits::default() };
    let fixture = Fixture::with_limits(Clock::Virtual { system_start_ms: 0 }, limits, None);
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = steps.clone();
    let instance = fixture.instance(&sum_module(generation, 100_000), |handlers| {
        for name in ["bump", "tick"] {
            let counted = counted.clone();
            on(handlers, name, move |call| {
                // The third run ends while the first two have hardly begun.
                if call.run().serial() == 3 && arg(&call) == 2 {
                    return end(i64::try_from(counted.load(SeqCst)).unwrap());
                }
                counted.fetch_add(1, SeqCst);
                Ok(call.answer(0))
            });
        }
    });
    let runs = instance.start_all(mains(3)).unwrap();
    let before = value(runs[2].wait());
    assert!(before < 20, "{before} steps of others came first");
    assert!(runs[0].cancel(None) && runs[1].cancel(None));
}

pub fn a_tick_ends_with_its_budget(generation: Generation) {
    for budget in [None, Some(8)] {
        let mut limits = RunsLimits::default();
        if let Some(budget) = budget {
            limits.max_internal_steps_per_tick = budget;
        }
        let fixture = Fixture::with_limits(Clock::Virtual { system_start_ms: 0 }, limits, None);
        let instance = fixture.instance(&sum_module(generation, 3_000), |handlers| {
            for name in ["bump", "tick"] {
                set(handlers, name, &now_or_later(|call| call.run().serial() == 2, |_| async {}));
            }
        });
        instance.start_all(mains(2)).unwrap().iter().for_each(|run| drop(run.wait()));
        // The answer to the second run's first call is ready at once, and is processed when the tick has ended.
        let trace = fixture.trace.lines();
        let answered = trace.iter().position(|line| line == "run_2 bump resume 0").unwrap();
        let steps = trace[..answered].iter().filter(|line| line.contains(" call ")).count();
        assert_eq!(steps, budget.unwrap_or(1024));
    }
}

/// Answers at once with 0, or, in runs for which `is_later` holds, when the future has ended.
fn now_or_later<F: Future<Output = ()> + Send + 'static>(
    is_later: impl Fn(&HandlerCall) -> bool + Send + Sync + 'static,
    wait: impl Fn(&HandlerCall) -> F + Send + Sync + 'static,
) -> Arc<dyn EffectHandler> {
    struct NowOrLater<L, W>(L, W);

    impl<F, L, W> EffectHandler for NowOrLater<L, W>
    where
        F: Future<Output = ()> + Send + 'static,
        L: Fn(&HandlerCall) -> bool + Send + Sync,
        W: Fn(&HandlerCall) -> F + Send + Sync,
    {
        fn call(&self, call: HandlerCall) -> Handled {
            if !(self.0)(&call) {
                return Handled::Now(Ok(call.answer(0)));
            }
            let wait = (self.1)(&call);
            Handled::Later(Box::pin(async move {
                wait.await;
                Ok(call.answer(0))
            }))
        }
    }

    Arc::new(NowOrLater(is_later, wait))
}

pub fn an_external_completion_is_served_beside_endless_chains(generation: Generation) {
    const BUDGET: usize = 64;
    const RUNS: usize = 20;
    let limits = RunsLimits { max_internal_steps_per_tick: BUDGET, ..RunsLimits::default() };
    let fixture = Fixture::with_limits(Clock::Real, limits, None);
    // The first run waits for something outside; all others are answered at once, for ever.
    let chains = Arc::new(AtomicUsize::new(0));
    let go = Arc::new(Notify::new());
    let (counted, gate, opened) = (chains.clone(), go.clone(), go.clone());
    let is_first = move |call: &HandlerCall| {
        if call.run().serial() == 1 {
            return true;
        }
        if counted.fetch_add(1, SeqCst) == 500 {
            opened.notify_one();
        }
        false
    };
    let answer = now_or_later(is_first, move |_| {
        let gate = gate.clone();
        async move { gate.notified().await }
    });
    let instance = fixture.instance(&sum_module(generation, u32::MAX), |handlers| {
        set(handlers, "bump", &answer);
        set(handlers, "tick", &answer);
    });
    let runs = instance.start_all(mains(RUNS)).unwrap();
    // The first run waits in its second call as well: nobody opens the gate again.
    while !fixture.trace.lines().contains(&"run_1 call tick[Int(1)]".to_owned()) {
        std::thread::yield_now();
    }
    assert!(runs.iter().all(|run| run.cancel(None)));
    let trace = fixture.trace.lines();
    let at = |line: &str| trace.iter().position(|told| told == line).unwrap();
    let calls =
        |from: usize, to: usize| trace[from..to].iter().filter(|line| line.contains(" call ")).count();
    let (first, replied, applied) =
        (at("run_1 call bump[Int(0)]"), at("run_1 bump resume 0"), at("run_1 call tick[Int(1)]"));
    let chained = calls(first + 1, replied);
    assert!(chained <= 500 + BUDGET + 1, "{chained} steps of chains before the completion was seen");
    let chained = calls(replied, applied);
    assert!(chained <= RUNS, "{chained} steps of chains before the completion was applied");
}

pub fn a_step_begins_only_after_the_one_before_was_applied(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(generation, 2), |handlers| {
        on_async(handlers, "bump", |call| async move {
            call.sleep_ms(10).await?;
            resume(2)
        });
        on(handlers, "tick", |_| tail(4));
    });
    assert_eq!(value(run(&instance)), 6);
    let expected = [
        "run_1 call bump[Int(0)]",
        "run_1 woke bump",
        "run_1 bump resume 2",
        "run_1 call tick[Int(1)]",
        "run_1 tick tail 4",
        "run_1 value",
    ];
    assert_eq!(fixture.trace.lines(), expected);
}

pub fn timers_of_the_same_moment_fire_in_the_order_of_registration(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(generation, 1), |handlers| {
        on_async(handlers, "bump", |call| async move {
            let ms = if call.run().serial() == 2 { 5 } else { 20 };
            call.sleep_ms(ms).await?;
            resume(i64::try_from(call.monotonic_ms()).unwrap())
        });
    });
    let runs = instance.start_all(mains(4)).unwrap();
    let values: Vec<i64> = runs.iter().map(|run| value(run.wait())).collect();
    assert_eq!(values, [20, 5, 20, 20]);
    let trace = fixture.trace.lines();
    let woke: Vec<&String> = trace.iter().filter(|line| line.contains("woke")).collect();
    assert_eq!(woke, ["run_2 woke bump", "run_1 woke bump", "run_3 woke bump", "run_4 woke bump"]);
}

pub fn a_failed_run_does_not_poison_its_instance(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(generation, 3), |handlers| {
        on(handlers, "bump", |call| match call.run().serial() {
            1 => Err(HandlerError::new("no")),
            2 => resume(i64::MAX),
            _ => resume(1),
        });
        on(handlers, "tick", |_| tail(1));
    });
    assert_eq!(failure(run(&instance)), "no");
    // The module cannot read 64-bit integers: A traps, and B is not even called, because its type is known to be i32.
    let second = failure(run(&instance));
    assert!(second.contains(&text(generation, "unreachable", "expected i32")), "{second}");
    for _ in 0..3 {
        assert_eq!(value(run(&instance)), 3);
    }
}

pub fn cancel_after_ms_cancels_at_that_virtual_moment(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(generation, 3), |handlers| {
        on_async(handlers, "bump", |call| async move {
            call.sleep_ms(100).await?;
            resume(0)
        });
    });
    let start = RunStart { cancel_after_ms: Some(50), ..RunStart::new("main", vec![]) };
    let outcome = instance.start_run(start).unwrap().wait();
    assert_eq!(outcome, EffectOutcome::Cancelled { reason: None });
    assert_eq!(fixture.trace.lines(), ["run_1 call bump[Int(0)]", "run_1 cancel true", "run_1 cancelled"]);
}

pub fn runs_of_one_instance_keep_their_own_buffers(generation: Generation) {
    let fixture = Fixture::virtual_time();
    let instance = fixture.instance(&sum_module(generation, 4), |handlers| {
        for name in ["bump", "tick"] {
            on_async(handlers, name, |call| async move {
                call.sleep_ms(call.run().serial() * 7 % 5).await?;
                Ok(call.answer(i64::try_from(call.run().serial()).unwrap() * 1000 + arg(&call)))
            });
        }
    });
    let runs = instance.start_all(mains(10)).unwrap();
    for (number, run) in (1..).zip(runs) {
        assert_eq!(value(run.wait()), 4 * 1000 * number + 6);
    }
}

pub fn the_same_seed_gives_the_same_trace(generation: Generation) {
    let trace = |seed| {
        let fixture =
            Fixture::with_limits(Clock::Virtual { system_start_ms: 0 }, RunsLimits::default(), seed);
        let instance = fixture.instance(&sum_module(generation, 3), |handlers| {
            for name in ["bump", "tick"] {
                on_async(handlers, name, |call| async move {
                    call.sleep_ms(10).await?;
                    Ok(call.answer(1))
                });
            }
        });
        for run in instance.start_all(mains(8)).unwrap() {
            run.wait();
        }
        fixture.trace.lines()
    };
    assert_eq!(trace(None), trace(None));
    assert_eq!(trace(Some(7)), trace(Some(7)));
    assert_ne!(trace(Some(7)), trace(None));
}

/// Makes every scenario a test of its own.
#[macro_export]
macro_rules! conformance_tests {
    ($generation:expr; $($scenario:ident),* $(,)?) => {$(
        #[test]
        fn $scenario() {
            $crate::support::scenarios::$scenario($generation);
        }
    )*};
}
