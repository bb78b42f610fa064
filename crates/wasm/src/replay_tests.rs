//! Recordings answered again, and the divergences that are reported.

use super::*;

fn event(run: &str, what: TraceKind) -> TraceEvent {
    TraceEvent { run: run.into(), what }
}

fn call(run: &str, arg: i32) -> TraceEvent {
    event(run, TraceKind::Call { op: "m::E.o".into(), args: vec![arg.into()] })
}

fn reply(run: &str, value: i32) -> TraceEvent {
    let (op, value) = ("m::E.o".into(), value.into());
    event(run, TraceKind::Reply { op, action: ScriptAction::Resume, value, error: None })
}

fn outcome(run: &str, kind: &str, value: impl Into<Value>) -> TraceEvent {
    event(run, TraceKind::Outcome { kind: kind.into(), value: value.into() })
}

fn replay(events: Vec<TraceEvent>) -> Replay {
    let events = (2..).zip(events).collect();
    Replay::new(Recording { module_sha256: String::new(), events })
}

fn answer(run: &str, value: i32) -> Option<ReplayAction> {
    let reply = RecordedReply { action: ScriptAction::Resume, value: value.into(), error: None };
    Some(ReplayAction::Answer { run: run.into(), reply })
}

#[test]
fn calls_are_answered_from_the_recording() {
    let mut replay = replay(vec![call("run_1", 1), reply("run_1", 2), outcome("run_1", "value", 3)]);
    assert_eq!(replay.next_action(), None);
    replay.observe(&call("run_1", 1)).unwrap();
    assert_eq!(replay.next_action(), answer("run_1", 2));
    assert_eq!(replay.next_action(), None, "it is answered once");
    assert!(!replay.is_done());
    replay.observe(&outcome("run_1", "value", 3)).unwrap();
    assert!(replay.is_done() && replay.unfinished().is_none());
}

#[test]
fn steps_of_several_runs_come_in_their_recorded_order() {
    let mut replay = replay(vec![
        call("run_1", 1),
        call("run_2", 1),
        reply("run_1", 10),
        reply("run_2", 20),
        call("run_2", 2),
        outcome("run_1", "value", 0),
        reply("run_2", 21),
        outcome("run_2", "value", 0),
    ]);
    replay.observe(&call("run_1", 1)).unwrap();
    assert_eq!(replay.next_action(), None, "run_2 has not made its first call");
    replay.observe(&call("run_2", 1)).unwrap();
    assert_eq!(replay.next_action(), answer("run_2", 20), "run_2 made the next step");
    replay.observe(&call("run_2", 2)).unwrap();
    assert_eq!(replay.next_action(), answer("run_1", 10));
    replay.observe(&outcome("run_1", "value", 0)).unwrap();
    assert_eq!(replay.next_action(), answer("run_2", 21));
}

#[test]
fn the_first_difference_is_shown_with_both_sides() {
    let mut replay = replay(vec![call("run_1", 1), outcome("run_1", "value", 3)]);
    let error = replay.observe(&call("run_1", 7)).unwrap_err();
    assert_eq!(error.line, Some(2));
    let text = error.to_string();
    assert!(
        text.contains("line 2") && text.contains("m::E.o with [1]") && text.contains("m::E.o with [7]"),
        "{text}"
    );
}

#[test]
fn more_and_less_than_was_recorded_differ_too() {
    let mut more = replay(vec![call("run_1", 1)]);
    more.observe(&call("run_1", 1)).unwrap();
    let error = more.observe(&outcome("run_1", "value", 0)).unwrap_err();
    assert!(error.to_string().contains("the recording ends here"), "{error}");

    let mut less = replay(vec![call("run_1", 1), call("run_1", 2)]);
    less.observe(&call("run_1", 1)).unwrap();
    let error = less.unfinished().unwrap();
    assert!(error.to_string().contains("[2]") && error.to_string().contains("nothing"), "{error}");
}

#[test]
fn a_cancellation_happens_at_its_place() {
    let cancel = event("run_1", TraceKind::Cancel { accepted: true });
    let late = event("run_1", TraceKind::Cancel { accepted: false });
    let mut replay = replay(vec![call("run_1", 1), cancel, outcome("run_1", "cancelled", "why"), late]);
    replay.observe(&call("run_1", 1)).unwrap();
    assert_eq!(
        replay.next_action(),
        Some(ReplayAction::Cancel { run: "run_1".into(), reason: Some("why".into()) })
    );
    assert_eq!(replay.next_action(), None);
    replay.observe(&outcome("run_1", "cancelled", "why")).unwrap();
    assert!(replay.is_done());
}

#[test]
fn a_run_that_ended_unanswered_ends_with_the_same_text() {
    let mut replay = replay(vec![call("run_1", 1), outcome("run_1", "failed", "too late")]);
    replay.observe(&call("run_1", 1)).unwrap();
    let Some(ReplayAction::Answer { reply, .. }) = replay.next_action() else { panic!("no answer") };
    assert_eq!((reply.action, reply.error.as_deref()), (ScriptAction::Throw, Some("too late")));
}

#[test]
fn a_call_that_had_no_handler_is_known_by_its_outcome() {
    let text = "Unhandled effect m::E.o (tail)";
    let replay = replay(vec![outcome("run_1", "failed", text)]);
    assert_eq!(replay.unhandled("run_1", "m::E.o"), Some(text));
    assert_eq!(replay.unhandled("run_2", "m::E.o"), None);
    assert_eq!(replay.unhandled("run_1", "m::E.other"), None);
    assert_eq!(replay.unhandled("run_1", "m::E"), None);
}
