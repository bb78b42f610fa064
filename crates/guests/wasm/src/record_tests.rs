//! Recordings that were written are read back; other texts are refused with the number of the wrong line.

use super::*;
use crate::host::clock::Clock;
use crate::limits::{InstanceLimits, RunLimits};

fn settings() -> RecordingSettings {
    RecordingSettings {
        clock: Clock::Virtual { system_start_ms: 6 },
        seed: Some(u64::MAX),
        budget: 7,
        instance: InstanceLimits { buffer_bytes: Some(20), ..InstanceLimits::default() },
        run: RunLimits { step_fuel_max: 3, step_wall_ms_max: 4, wall_ms_max: Some(5) },
    }
}

fn event(what: TraceKind) -> TraceEvent {
    TraceEvent { run: "run_1".into(), what }
}

fn op() -> String {
    "m::E.o".to_owned()
}

fn events() -> Vec<TraceEvent> {
    vec![
        event(TraceKind::Start { export: "main".into(), args: vec![1.into()] }),
        event(TraceKind::Call { op: op(), args: vec![Value::F64(2.0)] }),
        event(TraceKind::Woke { op: op() }),
        event(TraceKind::Reply {
            op: op(),
            action: ScriptAction::Resume,
            value: Value::Bin(vec![1]),
            error: None,
        }),
        event(TraceKind::Call { op: op(), args: vec![] }),
        event(TraceKind::Reply {
            op: op(),
            action: ScriptAction::Throw,
            value: Value::Nil,
            error: Some("no".into()),
        }),
        event(TraceKind::Cancel { accepted: true }),
        event(TraceKind::Outcome { kind: "cancelled".into(), value: "why".into(), timed: false }),
        TraceEvent {
            run: "run_2".into(),
            what: TraceKind::Start { export: "main".into(), args: Vec::new() },
        },
        TraceEvent {
            run: "run_2".into(),
            what: TraceKind::Outcome { kind: "failed".into(), value: "late".into(), timed: true },
        },
    ]
}

fn recorded() -> String {
    let mut recorder = Recorder::new(Vec::new(), "abc", &settings()).unwrap();
    for event in events() {
        recorder.add(&event).unwrap();
    }
    recorder.flush().unwrap();
    String::from_utf8(recorder.out).unwrap()
}

#[test]
fn what_was_written_is_read_back() {
    let recording = Recording::parse(&recorded()).unwrap();
    assert_eq!((recording.module_sha256(), recording.settings()), ("abc", Some(&settings())));
    let read: Vec<_> = recording.into_events().into_iter().map(|(_, event)| event).collect();
    assert_eq!(read, events());
}

#[test]
fn settings_that_no_run_can_have_are_refused() {
    let refused = |from: &str, to: &str| {
        let text = recorded();
        assert!(text.contains(from), "{from} is not in {text}");
        Recording::parse(&text.replacen(from, to, 1)).unwrap_err().to_string()
    };
    for (from, to, name) in [
        ("\"budget\":7", "\"budget\":0", "budget"),
        ("\"step-ms-max\":4", "\"step-ms-max\":0", "step-ms-max"),
        (
            "\"run-memory-bytes-max\":268435456",
            "\"run-memory-bytes-max\":18446744073709551615",
            "run-memory-bytes-max",
        ),
    ] {
        let error = refused(from, to);
        assert!(error.starts_with(&format!("line 1: the setting {name} is ")), "{error}");
    }
}

#[test]
fn a_line_that_a_crash_cut_off_is_left_out() {
    let text = recorded();
    let cut = &text[..text.len() - 5];
    assert_eq!(Recording::parse(cut).unwrap().events().len(), events().len() - 1);
}

#[test]
fn the_head_of_version_1_is_read_and_its_timed_endings_are_known_by_their_text() {
    let text = "{\"recording\":1,\"module\":\"abc\"}\n{\"run\":\"run_1\",\"start\":\"main\",\"args\":[]}\n\
        {\"run\":\"run_1\",\"call\":\"e\",\"args\":[]}\n\
        {\"run\":\"run_1\",\"outcome\":\"failed\",\"value\":\"the run did not end by its deadline, 5 ms on the monotonic clock\"}\n";
    let recording = Recording::parse(text).unwrap();
    assert_eq!(recording.settings(), None);
    let (_, last) = recording.events().last().unwrap();
    assert!(matches!(last.what, TraceKind::Outcome { timed: true, .. }), "{last:?}");
}

#[test]
fn a_line_that_is_wrong_is_named() {
    let head = "{\"recording\":1,\"module\":\"\"}\n";
    let start = "{\"run\":\"run_1\",\"start\":\"main\",\"args\":[]}\n";
    let call = "{\"run\":\"run_1\",\"call\":\"e\",\"args\":[]}\n";
    let reply = "{\"run\":\"run_1\",\"reply\":\"e\",\"do\":\"tail\",\"value\":1}\n";
    let end = "{\"run\":\"run_1\",\"outcome\":\"value\",\"value\":1}\n";
    for (text, part) in [
        (String::new(), "line 1"),
        ("{}\n".to_owned(), "line 1"),
        ("{\"recording\":9,\"module\":\"\"}\n".to_owned(), "version 9"),
        ("{\"recording\":2,\"module\":\"\"}\n".to_owned(), "line 1"),
        ("{\"recording\":2,\"module\":\"\",\"settings\":{}}\n".to_owned(), "setting clock is null"),
        (format!("{head}x\n"), "line 2 is not valid JSON"),
        (format!("{head}{{\"run\":\"run_1\"}}\n"), "line 2 is no event"),
        (format!("{head}{{\"run\":\"run_1\",\"call\":\"e\"}}\n"), "\"args\" is missing"),
        (format!("{head}{{\"run\":\"r\",\"reply\":\"e\",\"do\":\"x\"}}\n"), "\"do\""),
        (format!("{head}{{\"run\":\"r\",\"outcome\":\"value\",\"value\":{{\"f64\":[]}}}}\n"), "NaN"),
        (format!("{head}{{\"run\":\"r\",\"outcome\":\"maybe\"}}\n"), "\"outcome\""),
        (format!("{head}{call}"), "line 2 cannot follow the lines before it: run_1 was not started"),
        (format!("{head}{start}{start}"), "line 3 cannot follow the lines before it: it starts run_1"),
        (format!("{head}{start}{reply}"), "does not wait for a reply to e"),
        (format!("{head}{start}{call}{call}"), "line 4 cannot follow the lines before it: run_1 waits"),
        (format!("{head}{start}{call}{end}"), "run_1 waits for the reply to e"),
        (format!("{head}{start}{end}{call}"), "run_1 has ended"),
        (format!("{head}{start}{{\"run\":\"run_1\",\"cancel\":true}}\n{end}"), "run_1 was cancelled"),
    ] {
        let error = Recording::parse(&text).unwrap_err().to_string();
        assert!(error.contains(part), "{part:?} is not in {error:?}");
    }
}
