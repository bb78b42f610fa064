//! The conformance scenarios of the Voyd runtime's event loop, one test for each row, on the scripted guest.

mod harness;

use harness::{ASK, Harness, Reply, ask, endless, tell};
use millrace_runs::{
    Answer, Disposition, GuestEvent, HandlerError, Input, RunOutcome, RunsLimits, ScriptLine,
};

const DONE: ScriptLine<i64> = ScriptLine::Done(40);

fn resumed(harness: &Harness) -> usize {
    harness.log.events().iter().filter(|event| matches!(event, GuestEvent::Resumed { .. })).count()
}

fn immediate(answer: Answer<i64>) -> Harness {
    Harness::new(move |_, _, _| Reply::Now(answer.clone()))
}

#[test]
fn resume_step_resumes_the_guest_with_the_value_and_goes_on() {
    let mut harness = immediate(Answer::Resume(2));
    let run = harness.start(vec![ask(1), ask(3), ScriptLine::DoneWithReply]);
    harness.settle();
    assert_eq!(harness.outcome(run), Some(&RunOutcome::Value(2)));
    assert_eq!(
        harness.trace,
        ["call run_1 0 [1]", "call run_1 0 [3]", "release run_1", "outcome run_1 value"]
    );
    let reply = GuestEvent::Resumed { name: 1, reply: 2 };
    assert_eq!(
        harness.log.events(),
        [GuestEvent::Started { name: 1 }, reply.clone(), reply, GuestEvent::Released { name: 1 }]
    );
}

#[test]
fn tail_step_resumes_the_guest_with_the_value_and_goes_on() {
    let mut harness = immediate(Answer::Tail(7));
    let run = harness.start(vec![tell(1), ScriptLine::DoneWithReply]);
    harness.settle();
    assert_eq!(harness.outcome(run), Some(&RunOutcome::Value(7)));
    assert_eq!(resumed(&harness), 1);
}

#[test]
fn resume_kind_violation_fails_before_resumption() {
    let mut harness = immediate(Answer::Tail(2));
    let run = harness.start(vec![ask(1), DONE]);
    harness.settle();
    let text = "Resume effect Test.ask cannot return tail(...) (return resume(...) or end(...))";
    assert_eq!(harness.error(run), text);
    assert_eq!(resumed(&harness), 0);
}

#[test]
fn tail_kind_violation_by_resume_fails_before_resumption() {
    let mut harness = immediate(Answer::Resume(2));
    let run = harness.start(vec![tell(1), DONE]);
    harness.settle();
    assert_eq!(harness.error(run), "Tail effect Test.tell must return tail(...)");
    assert_eq!(resumed(&harness), 0);
}

#[test]
fn tail_kind_violation_by_end_fails_before_resumption() {
    let mut harness = immediate(Answer::End(2));
    let run = harness.start(vec![tell(1), DONE]);
    harness.settle();
    assert_eq!(harness.error(run), "Tail effect Test.tell must return tail(...)");
    assert_eq!(resumed(&harness), 0);
}

#[test]
fn a_plain_return_fails_before_resumption() {
    let mut harness = immediate(Answer::NotAContinuation);
    let run = harness.start(vec![ask(1), DONE]);
    harness.settle();
    let text = "Effect handler for Test.ask must return a continuation call (return resume(...), tail(...), \
                or end(...))";
    assert_eq!(harness.error(run), text);
    assert_eq!(resumed(&harness), 0);
}

#[test]
fn early_host_completion_ends_with_the_value_and_does_not_resume() {
    let mut harness = immediate(Answer::End(9));
    let run = harness.start(vec![ask(1), DONE]);
    harness.settle();
    assert_eq!(harness.outcome(run), Some(&RunOutcome::Value(9)));
    assert_eq!(resumed(&harness), 0);
    assert_eq!(harness.log.released, 1);
}

#[test]
fn missing_capability_fails_deterministically() {
    for _ in 0..2 {
        let mut harness = immediate(Answer::Unhandled);
        let tail = harness.start(vec![tell(1), DONE]);
        let resume = harness.start(vec![ask(1), DONE]);
        harness.settle();
        assert_eq!(harness.error(tail), "Unhandled effect Test.tell (tail)");
        assert_eq!(harness.error(resume), "Unhandled effect Test.ask (resume)");
        assert_eq!(resumed(&harness), 0);
    }
}

#[test]
fn async_handler_rejection_fails_with_the_reason() {
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    let run = harness.start(vec![ask(1), DONE]);
    harness.settle();
    let call = harness.open[0];
    harness.complete(call, Answer::Failed(HandlerError::new("no route to host")));
    harness.settle();
    assert_eq!(harness.error(run), "no route to host");
    assert_eq!(resumed(&harness), 0);
}

#[test]
fn a_failure_is_not_retried_and_reaches_the_error_sink_once() {
    let mut harness = immediate(Answer::Failed(HandlerError::new("broken")));
    harness.start(vec![ask(1), DONE]);
    harness.settle();
    assert_eq!(
        harness.trace,
        ["call run_1 0 [1]", "release run_1", "failure run_1: broken", "outcome run_1 failed"]
    );
}

#[test]
fn protocol_mismatch_of_the_guest_fails_with_its_fault() {
    let mut harness = immediate(Answer::Resume(2));
    let run = harness.start(vec![ask(1), ScriptLine::Fail("invalid status 7".into())]);
    harness.settle();
    assert_eq!(harness.error(run), "invalid status 7");
}

#[test]
fn protocol_mismatch_of_the_operation_fails_without_a_call() {
    let mut harness = immediate(Answer::Resume(2));
    let run = harness.start(vec![ScriptLine::Request { op: 2, args: vec![] }, DONE]);
    harness.settle();
    let text = "the guest asked for operation 2, but its effect table has 2 operations, counted from 0";
    assert_eq!(harness.error(run), text);
    assert!(!harness.trace.iter().any(|line| line.starts_with("call")));
}

#[test]
fn explicit_cancellation_is_an_outcome_of_its_own_and_late_completions_are_dropped() {
    let mut harness = Harness::new(|_, _, _| Reply::Later);
    let run = harness.start(vec![ask(1), DONE]);
    harness.settle();
    let call = harness.open[0];
    let cancel = Input::Cancel { run, reason: Some(5) };
    assert_eq!(harness.input(cancel.clone()), Disposition::Accepted);
    assert_eq!(harness.outcome(run), Some(&RunOutcome::Cancelled { reason: Some(5) }));
    // The answer is dropped before its kind is checked: `tail` would be an error for this operation.
    assert_eq!(harness.complete(call, Answer::Tail(1)), Disposition::Dropped);
    assert_eq!(harness.input(cancel), Disposition::Dropped);
    harness.settle();
    assert_eq!(resumed(&harness), 0);
    assert_eq!(
        harness.trace,
        ["call run_1 0 [1]", "abandon run_1", "release run_1", "outcome run_1 cancelled"]
    );
}

#[test]
fn fairness_pressure_yields_at_the_budget_and_other_ready_work_progresses() {
    let limits = RunsLimits { max_internal_steps_per_tick: 8, ..RunsLimits::default() };
    let mut harness = Harness::with(limits, |_, _, _| Reply::Now(Answer::Resume(0)));
    harness.start(endless());
    let other = harness.start(vec![ask(1), ask(2), DONE]);
    assert_eq!(harness.tick(), 8);
    assert_eq!(harness.outcome(other), Some(&RunOutcome::Value(40)));
    assert_eq!(harness.tick(), 8);
    assert!(harness.runs.next_deadline().is_some());
}

#[test]
fn the_executable_trace_of_the_specification() {
    let mut harness = Harness::new(|call, op, _| {
        assert_eq!(op, ASK);
        if call.step == 1 { Reply::Later } else { Reply::Now(Answer::Resume(4)) }
    });
    let run = harness.start(vec![ask(1), ask(3), DONE]);
    harness.settle();
    assert_eq!(harness.trace, ["call run_1 0 [1]"], "the second handler waits for the first");
    let call = harness.open[0];
    harness.trace.push("h1:end".into());
    harness.complete(call, Answer::Resume(2));
    harness.settle();
    assert_eq!(harness.trace[..3], ["call run_1 0 [1]", "h1:end", "call run_1 0 [3]"]);
    assert_eq!(harness.outcome(run), Some(&RunOutcome::Value(40)));
}
