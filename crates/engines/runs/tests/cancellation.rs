//! Cancellation: final, idempotent, isolated, at any moment of a run's life; resources are released exactly once.

mod harness;

use harness::{Harness, Reply, ask, endless};
use millrace_model::Mono;
use millrace_runs::{Answer, Disposition, GuestEvent, HandlerError, Input, RunOutcome, ScriptLine};

const DONE: ScriptLine<i64> = ScriptLine::Done(1);

fn released(harness: &Harness, name: u64) -> usize {
    harness.log.events().iter().filter(|event| **event == GuestEvent::Released { name }).count()
}

fn assert_empty(harness: &Harness) {
    harness.check();
    let gauges = harness.runs.gauges();
    assert_eq!((gauges.runs, gauges.ready, gauges.timers), (0, 0, 0), "{gauges:?}");
}

#[test]
fn a_run_cancelled_before_its_first_step_never_enters_the_guest() {
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    let run = harness.start(vec![ask(1), DONE]);
    assert!(harness.cancel(run));
    harness.tick();
    assert_eq!(harness.log.events(), [GuestEvent::Released { name: 1 }]);
    assert_eq!(harness.trace, ["release run_1", "outcome run_1 cancelled"]);
    assert_empty(&harness);
}

#[test]
fn a_run_cancelled_between_its_completion_and_the_tick_is_not_resumed() {
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    let run = harness.start(vec![ask(1), DONE]);
    harness.settle();
    let call = harness.open[0];
    assert_eq!(harness.complete(call, Answer::Resume(2)), Disposition::Accepted);
    assert!(harness.cancel(run));
    harness.tick();
    assert_eq!(harness.outcome(run), Some(&RunOutcome::Cancelled { reason: None }));
    assert!(!harness.log.events().iter().any(|event| matches!(event, GuestEvent::Resumed { .. })));
    // The handler had answered: there is no call to abandon.
    assert!(!harness.trace.iter().any(|line| line.starts_with("abandon")));
    assert_eq!(harness.runs.counters().externals_dropped, 1);
    assert_empty(&harness);
}

#[test]
fn a_sleeping_run_gives_its_timer_back() {
    let mut harness = Harness::new(|_, _, _| Reply::After(50, Answer::Resume(0)));
    let run = harness.start(vec![ask(1), DONE]);
    harness.settle();
    assert_eq!(harness.runs.gauges().timers, 1);
    assert!(harness.cancel(run));
    assert_empty(&harness);
    assert_eq!(harness.runs.next_deadline(), None);
}

#[test]
fn wake_ups_and_the_deadline_go_with_the_run() {
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    let run = harness.try_start(vec![ask(1), DONE], Some(Mono(1000))).expect("room");
    harness.settle();
    let call = harness.open[0];
    for token in 0..3 {
        harness.input(Input::WakeAt { call, at: Mono(10 + token), token });
    }
    assert_eq!(harness.runs.gauges().timers, 4);
    assert!(harness.cancel(run));
    assert_empty(&harness);
}

#[test]
fn cancellation_is_idempotent_and_final() {
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    let run = harness.start(vec![ask(1), DONE]);
    harness.settle();
    assert!(harness.cancel(run));
    assert!(!harness.cancel(run));
    assert!(!harness.cancel(run));
    assert_eq!(harness.outcomes.len(), 1);
    assert_eq!(released(&harness, 1), 1);
}

#[test]
fn cancelling_a_run_that_has_ended_changes_nothing() {
    let mut harness = Harness::new(|_, _, _| Reply::Now(Answer::Resume(0)));
    let run = harness.start(vec![ask(1), DONE]);
    harness.settle();
    assert!(!harness.cancel(run));
    assert_eq!(harness.outcome(run), Some(&RunOutcome::Value(1)));
}

#[test]
fn cancellation_is_isolated() {
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    let runs: Vec<_> = (0..10).map(|_| harness.start(vec![ask(1), DONE])).collect();
    harness.settle();
    let calls = harness.open.clone();
    for run in runs.iter().step_by(2) {
        assert!(harness.cancel(*run));
    }
    for call in calls {
        harness.complete(call, Answer::Resume(0));
    }
    harness.settle();
    for (index, run) in runs.iter().enumerate() {
        let expected = if index % 2 == 0 { "cancelled" } else { "value" };
        assert_eq!(harness.outcome(*run).map(RunOutcome::kind), Some(expected));
    }
}

#[test]
fn an_id_of_an_ended_run_does_not_reach_the_run_that_reuses_its_slot() {
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    let first = harness.start(vec![ask(1), DONE]);
    harness.settle();
    let late = harness.open[0];
    harness.cancel(first);
    let second = harness.start(vec![ask(1), DONE]);
    harness.settle();
    assert_ne!(first, second);
    assert!(!harness.cancel(first));
    assert_eq!(harness.complete(late, Answer::Resume(0)), Disposition::Dropped);
    assert!(harness.runs.is_active(second));
    assert_eq!((first.to_string(), second.to_string()), ("run_1".into(), "run_2".into()));
}

#[test]
fn the_first_terminal_transition_wins() {
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    let run = harness.try_start(vec![ask(1), DONE], Some(Mono(5))).expect("room");
    harness.settle();
    let call = harness.open[0];
    harness.complete(call, Answer::End(7));
    harness.now = Mono(5);
    // The completion and the deadline fall into the same tick: the run is ready when the deadline ends it.
    harness.tick();
    assert_eq!(harness.error(run), "the run did not end by its deadline, 5 ms on the monotonic clock");
    assert!(!harness.cancel(run));
    assert_eq!(harness.outcomes.len(), 1);
    assert_empty(&harness);
}

#[test]
fn starting_and_cancelling_without_a_tick_does_not_grow_the_ready_queue() {
    let mut harness = Harness::new(|_, _, _| Reply::Now(Answer::Resume(0)));
    let kept = harness.start(endless());
    for _ in 0..10_000 {
        let run = harness.start(endless());
        assert!(harness.cancel(run));
    }
    harness.check();
    assert_eq!(harness.runs.gauges().ready, 1);
    assert!(harness.tick() > 0);
    assert!(harness.runs.is_active(kept));
}

#[test]
fn every_terminal_transition_releases_the_guest_once() {
    let ended = |harness: &Harness, kind: &str| {
        assert_eq!(harness.outcomes.iter().map(|(_, outcome)| outcome.kind()).collect::<Vec<_>>(), [kind]);
        assert_eq!(released(harness, 1), 1);
        assert_empty(harness);
    };
    let answers = [
        (Answer::Resume(0), "value"),
        (Answer::End(0), "value"),
        (Answer::Tail(0), "failed"),
        (Answer::Unhandled, "failed"),
        (Answer::NotAContinuation, "failed"),
        (Answer::Failed(HandlerError::new("no")), "failed"),
    ];
    for (answer, kind) in answers {
        let mut harness = Harness::new(move |_, _, _| Reply::Now(answer.clone()));
        harness.start(vec![ask(1), DONE]);
        harness.settle();
        ended(&harness, kind);
    }
    // The guest fails in its first step, and in a later one; the guest asks for an operation that it does not have.
    let fail = || ScriptLine::Fail("trap".into());
    let unknown = ScriptLine::Request { op: 9, args: vec![] };
    for lines in [vec![fail()], vec![ask(1), fail()], vec![unknown]] {
        let mut harness = Harness::new(|_, _, _| Reply::Now(Answer::Resume(0)));
        harness.start(lines);
        harness.settle();
        ended(&harness, "failed");
    }
    // Runs cancelled or timed out before the first step, while a handler works, and while an answer waits.
    for steps_before in 0..3 {
        for is_cancelled in [true, false] {
            let mut harness = Harness::new(|_, _, _| Reply::Later);
            let run = harness.try_start(vec![ask(1), DONE], Some(Mono(5))).expect("room");
            if steps_before > 0 {
                harness.settle();
            }
            if steps_before > 1 {
                harness.complete(harness.open[0], Answer::Resume(0));
            }
            if is_cancelled {
                assert!(harness.cancel(run));
            } else {
                harness.now = Mono(5);
            }
            harness.settle();
            ended(&harness, if is_cancelled { "cancelled" } else { "failed" });
        }
    }
}
