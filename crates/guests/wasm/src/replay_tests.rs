//! Replays of recordings, and the divergences that are reported.

use super::*;
use crate::host::clock::Clock;
use crate::limits::{InstanceLimits, RunLimits};
use crate::record::{Recorder, RecordingSettings};

fn event(run: &str, what: TraceKind) -> TraceEvent {
    TraceEvent { run: run.into(), what }
}

fn start(run: &str) -> TraceEvent {
    event(run, TraceKind::Start { export: "main".into(), args: vec![] })
}

fn call(run: &str, arg: i32) -> TraceEvent {
    event(run, TraceKind::Call { op: "m::E.o".into(), args: vec![arg.into()] })
}

fn reply(run: &str, value: i32) -> TraceEvent {
    let (op, value) = ("m::E.o".into(), value.into());
    event(run, TraceKind::Reply { op, action: ScriptAction::Resume, value, error: None })
}

fn cancel(run: &str) -> TraceEvent {
    event(run, TraceKind::Cancel { accepted: true })
}

fn outcome(run: &str, kind: &str, value: impl Into<Value>) -> TraceEvent {
    event(run, TraceKind::Outcome { kind: kind.into(), value: value.into(), timed: false })
}

fn timed(run: &str, text: &str) -> TraceEvent {
    event(run, TraceKind::Outcome { kind: "failed".into(), value: text.into(), timed: true })
}

fn replay(events: &[TraceEvent]) -> Replay {
    let settings = RecordingSettings {
        clock: Clock::Real,
        seed: None,
        budget: 1,
        instance: InstanceLimits::default(),
        run: RunLimits::default(),
    };
    let mut text = Vec::new();
    let mut recorder = Recorder::new(&mut text, "", &settings).unwrap();
    events.iter().for_each(|event| recorder.add(event).unwrap());
    Replay::new(Recording::parse(std::str::from_utf8(&text).unwrap()).unwrap())
}

/// The actions of the replay until a module has to take a step.
fn actions(replay: &mut Replay) -> Vec<ReplayAction> {
    std::iter::from_fn(|| replay.next_action()).collect()
}

fn started(run: &str) -> ReplayAction {
    ReplayAction::Start { run: run.into(), export: "main".into(), args: vec![] }
}

fn answer(run: &str, value: i32) -> ReplayAction {
    let reply = RecordedReply { action: ScriptAction::Resume, value: value.into(), error: None };
    ReplayAction::Answer { run: run.into(), reply }
}

fn repeat(event: TraceEvent) -> ReplayAction {
    ReplayAction::Repeat(event)
}

fn ended(outcome: TraceEvent) -> ReplayAction {
    ReplayAction::End { run: outcome.run.clone(), outcome }
}

#[test]
fn calls_are_answered_from_the_recording() {
    let mut replay =
        replay(&[start("run_1"), call("run_1", 1), reply("run_1", 2), outcome("run_1", "value", 3)]);
    assert_eq!(actions(&mut replay), [repeat(start("run_1")), started("run_1")]);
    replay.observe(&call("run_1", 1)).unwrap();
    assert_eq!(actions(&mut replay), [repeat(reply("run_1", 2)), answer("run_1", 2)]);
    assert_eq!(replay.ended(), None);
    replay.observe(&outcome("run_1", "value", 3)).unwrap();
    assert_eq!((actions(&mut replay), replay.ended()), (vec![], Some(ReplayEnd::Whole)));
}

#[test]
fn steps_of_several_runs_come_in_their_recorded_order() {
    let mut replay = replay(&[
        start("run_1"),
        start("run_2"),
        call("run_1", 1),
        call("run_2", 1),
        reply("run_1", 10),
        reply("run_2", 20),
        call("run_2", 2),
        outcome("run_1", "value", 0),
        reply("run_2", 21),
        outcome("run_2", "value", 0),
    ]);
    assert_eq!(actions(&mut replay), [repeat(start("run_1")), repeat(start("run_2")), started("run_1")]);
    replay.observe(&call("run_1", 1)).unwrap();
    assert_eq!(actions(&mut replay), [started("run_2")], "run_2 makes the next step");
    replay.observe(&call("run_2", 1)).unwrap();
    let both = [repeat(reply("run_1", 10)), repeat(reply("run_2", 20)), answer("run_2", 20)];
    assert_eq!(actions(&mut replay), both);
    replay.observe(&call("run_2", 2)).unwrap();
    assert_eq!(actions(&mut replay), [answer("run_1", 10)]);
    replay.observe(&outcome("run_1", "value", 0)).unwrap();
    assert_eq!(actions(&mut replay), [repeat(reply("run_2", 21)), answer("run_2", 21)]);
}

#[test]
fn the_first_difference_is_shown_with_both_sides() {
    let mut replay = replay(&[start("run_1"), call("run_1", 1)]);
    actions(&mut replay);
    let error = replay.observe(&call("run_1", 7)).unwrap_err();
    assert_eq!(error.line, Some(3));
    let text = error.to_string();
    assert!(
        text.contains("line 3") && text.contains("m::E.o with [1]") && text.contains("m::E.o with [7]"),
        "{text}"
    );
}

#[test]
fn a_recording_that_ends_early_releases_no_further_step() {
    let mut replay = replay(&[start("run_1"), start("run_2"), call("run_1", 1), reply("run_1", 2)]);
    actions(&mut replay);
    replay.observe(&call("run_1", 1)).unwrap();
    assert_eq!(actions(&mut replay), [repeat(reply("run_1", 2))]);
    let runs = vec!["run_1".to_owned(), "run_2".to_owned()];
    assert_eq!(replay.ended(), Some(ReplayEnd::CutOff { line: 5, runs }));
}

#[test]
fn a_cancellation_happens_at_its_place_with_its_reason() {
    let late = event("run_1", TraceKind::Cancel { accepted: false });
    let cancelled = outcome("run_1", "cancelled", "why");
    let mut replay =
        replay(&[start("run_1"), call("run_1", 1), cancel("run_1"), cancelled.clone(), late.clone()]);
    actions(&mut replay);
    replay.observe(&call("run_1", 1)).unwrap();
    assert_eq!(actions(&mut replay), [repeat(cancel("run_1")), ended(cancelled), repeat(late)]);
    assert_eq!(replay.ended(), Some(ReplayEnd::Whole));
}

#[test]
fn a_run_that_was_cancelled_before_its_first_step_is_not_started() {
    let cancelled = outcome("run_1", "cancelled", Value::Nil);
    let mut replay = replay(&[start("run_1"), cancel("run_1"), cancelled.clone()]);
    assert_eq!(actions(&mut replay), [repeat(start("run_1")), repeat(cancel("run_1")), ended(cancelled)]);
    assert_eq!(replay.ended(), Some(ReplayEnd::Whole));
}

#[test]
fn a_run_that_the_clock_ended_makes_no_step_for_it() {
    // The clock ended the run while it waited, between a reply and the next step, and before the first step.
    for before in [vec![call("run_1", 1)], vec![call("run_1", 1), reply("run_1", 2)], vec![]] {
        let late = timed("run_1", "too late");
        let mut replay = replay(&[&[start("run_1")], &before[..], std::slice::from_ref(&late)].concat());
        let mut done = actions(&mut replay);
        if let Some(call) = before.first() {
            replay.observe(call).unwrap();
            done.extend(actions(&mut replay));
        }
        assert_eq!(done.last(), Some(&ended(late)));
        assert_eq!(replay.ended(), Some(ReplayEnd::Whole));
    }
}

#[test]
fn a_call_that_had_no_handler_is_known_by_its_outcome() {
    let text = "Unhandled effect m::E.o (tail)";
    let mut replay = replay(&[start("run_1"), outcome("run_1", "failed", text)]);
    actions(&mut replay);
    assert_eq!(replay.unhandled("run_1", "m::E.o"), Some(text));
    assert_eq!(replay.unhandled("run_2", "m::E.o"), None);
    assert_eq!(replay.unhandled("run_1", "m::E.other"), None);
    assert_eq!(replay.unhandled("run_1", "m::E"), None);
}
