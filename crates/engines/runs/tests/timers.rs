//! The timer queue: monotonic, first in first out among equal times, the same for sleeps, wake-ups and deadlines.

mod harness;

use std::collections::BTreeMap;

use harness::{Harness, Reply, ask};
use millrace_model::Mono;
use millrace_runs::{Answer, Disposition, Input, ScriptLine};

const DONE: ScriptLine<i64> = ScriptLine::Done(1);

/// Pseudorandom numbers below `below`, the same in every run of the test.
fn numbers(count: usize, below: u64) -> impl Iterator<Item = u64> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    })
}

fn sleeper() -> Harness {
    Harness::new(|_, _, args| Reply::After(args[0].unsigned_abs(), Answer::Resume(args[0])))
}

#[test]
fn sleeps_fire_by_deadline_and_not_early() {
    let mut harness = sleeper();
    let runs: Vec<_> = [30, 10, 20].map(|ms| harness.start(vec![ask(ms), DONE])).into();
    harness.settle();
    assert_eq!(harness.runs.next_deadline(), Some(Mono(10)));
    harness.now = Mono(9);
    harness.tick();
    assert_eq!(harness.outcomes.len(), 0);
    harness.run_virtual();
    let order: Vec<_> = harness.outcomes.iter().map(|(run, _)| *run).collect();
    assert_eq!(order, [runs[1], runs[2], runs[0]]);
    assert_eq!(harness.now, Mono(30));
}

#[test]
fn equal_deadlines_fire_in_the_order_they_were_set() {
    let mut harness = sleeper();
    let runs: Vec<_> = (0..100).map(|_| harness.start(vec![ask(10), DONE])).collect();
    harness.run_virtual();
    let order: Vec<_> = harness.outcomes.iter().map(|(run, _)| *run).collect();
    assert_eq!(order, runs);
}

#[test]
fn a_clock_that_falls_back_reorders_nothing() {
    let mut harness = sleeper();
    harness.now = Mono(100);
    harness.start(vec![ask(10), DONE]);
    harness.settle();
    harness.now = Mono(50);
    harness.tick();
    assert_eq!(harness.runs.next_deadline(), Some(Mono(110)));
    harness.now = Mono(110);
    harness.settle();
    assert_eq!(harness.outcomes.len(), 1);
}

#[test]
fn a_late_tick_fires_everything_that_is_due_in_order_of_deadline() {
    let mut harness = sleeper();
    let late = harness.start(vec![ask(20), DONE]);
    let early = harness.start(vec![ask(10), DONE]);
    harness.settle();
    harness.now = Mono(500);
    harness.settle();
    let order: Vec<_> = harness.outcomes.iter().map(|(run, _)| *run).collect();
    assert_eq!(order, [early, late]);
}

#[test]
fn an_answer_in_the_past_counts_at_the_next_tick() {
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    harness.now = Mono(100);
    harness.start(vec![ask(1), DONE]);
    harness.settle();
    let call = harness.open[0];
    harness.input(Input::AnswerAt { call, at: Mono(3), answer: Answer::Resume(0) });
    assert_eq!(harness.outcomes.len(), 0);
    harness.tick();
    assert_eq!(harness.outcomes.len(), 1);
}

#[test]
fn wake_ups_reach_the_handler_in_order_and_end_with_its_answer() {
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    harness.start(vec![ask(1), DONE]);
    harness.settle();
    let call = harness.open[0];
    for (at, token) in [(30, 3), (10, 1), (20, 2), (20, 4)] {
        harness.input(Input::WakeAt { call, at: Mono(at), token });
    }
    harness.now = Mono(20);
    harness.settle();
    assert_eq!(harness.trace[1..], ["woke run_1 1", "woke run_1 2", "woke run_1 4"]);
    assert_eq!(harness.complete(call, Answer::Resume(0)), Disposition::Accepted);
    assert_eq!(harness.runs.gauges().timers, 0, "the handler has answered and waits for nothing");
    harness.now = Mono(40);
    harness.settle();
    assert!(!harness.trace.contains(&"woke run_1 3".to_owned()));
}

#[test]
fn a_run_that_outlasts_its_deadline_fails() {
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    let run = harness.try_start(vec![ask(1), DONE], Some(Mono(250))).expect("room");
    harness.run_virtual();
    assert_eq!(harness.error(run), "the run did not end by its deadline, 250 ms on the monotonic clock");
    assert_eq!(harness.now, Mono(250));
}

#[test]
fn a_run_that_ends_in_time_leaves_no_deadline_behind() {
    let mut harness = sleeper();
    harness.try_start(vec![ask(10), DONE], Some(Mono(250))).expect("room");
    harness.run_virtual();
    assert_eq!(harness.now, Mono(10));
}

#[test]
fn a_million_virtual_sleeps_in_random_order_fire_in_order() {
    const SLEEPS: usize = 1_000_000;
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    let guest = millrace_runs::ScriptedGuest::new(1, vec![ask(0), DONE]);
    let operations: std::sync::Arc<[_]> = std::sync::Arc::from([millrace_runs::Operation {
        label: "Test.ask".into(),
        kind: millrace_runs::ResumeKind::Resume,
    }]);
    let mut due: BTreeMap<millrace_runs::RunId, u64> = BTreeMap::new();
    for ms in numbers(SLEEPS, 100_000_000) {
        let start =
            millrace_runs::NewRun { guest: guest.clone(), operations: operations.clone(), deadline: None };
        let run = harness.runs.start(Mono(0), start).expect("room");
        due.insert(run, ms);
    }
    let (mut now, mut last, mut fired) = (Mono(0), (0, 0), 0);
    while let Some(at) = harness.runs.next_deadline() {
        now = now.max(at);
        harness.runs.tick(now);
        while harness.runs.step(&mut harness.log) {
            while let Some(effect) = harness.runs.next_effect() {
                match effect {
                    millrace_runs::Effect::Call { call, .. } => {
                        let at = Mono(due[&call.run]);
                        let input = Input::AnswerAt { call, at, answer: Answer::Resume(0) };
                        assert_eq!(harness.runs.handle(now, input), Ok(Disposition::Accepted));
                    }
                    millrace_runs::Effect::Outcome { run, .. } => {
                        let moment = (due[&run], run.serial());
                        assert_eq!(moment.0, now.0, "neither early nor late");
                        assert!(moment > last, "{moment:?} after {last:?}");
                        (last, fired) = (moment, fired + 1);
                    }
                    _ => {}
                }
            }
        }
    }
    assert_eq!(fired, SLEEPS);
}
