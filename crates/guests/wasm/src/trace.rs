//! The events in the runs of a host, in order: for people (`millrace run --trace`), for recordings and for tests.

use millrace_runs::RunError;
use serde_json::{Value as Json, json};

use crate::fault::GuestFault;
use crate::handler::{Continuation, HandlerResult};
use crate::host::observe::RunEvent;
use crate::host::outcome::EffectOutcome;
use crate::script::{ScriptAction, short_label};
use crate::value::Value;

/// An event of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEvent {
    /// The run's name, as in outcomes: `run_1`.
    pub run: String,
    pub what: TraceKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TraceKind {
    /// The run was started.
    Start { export: String, args: Vec<Value> },
    /// The module asked for an effect; `op` is the operation's label.
    Call { op: String, args: Vec<Value> },
    /// The handler went on after a wait.
    Woke { op: String },
    /// The handler answered; `error` is the text of a handler that failed.
    Reply { op: String, action: ScriptAction, value: Value, error: Option<String> },
    /// Somebody asked to cancel the run. Not accepted if the run had ended already. The reason is in the outcome.
    Cancel { accepted: bool },
    /// The run ended: `kind` is `value`, `failed` or `cancelled`, and `value` the result, the text of the error or the
    /// reason. `timed` marks a run that the clock ended, by its deadline or by the time limit of a step: the same
    /// program would end elsewhere on another day.
    Outcome { kind: String, value: Value, timed: bool },
}

impl From<RunEvent<'_>> for TraceEvent {
    fn from(event: RunEvent<'_>) -> TraceEvent {
        let (run, what) = match event {
            // The arguments are encoded by then; recorders that need them add them.
            RunEvent::Started { run, export } => {
                (run, TraceKind::Start { export: export.to_owned(), args: Vec::new() })
            }
            RunEvent::Call { run, op, args, .. } => {
                (run, TraceKind::Call { op: op.label.to_string(), args: args.to_vec() })
            }
            RunEvent::Woke { run, op } => (run, TraceKind::Woke { op: op.label.to_string() }),
            RunEvent::Reply { run, op, reply, .. } => (run, reply_of(&op.label, reply)),
            RunEvent::Cancel { run, accepted } => (run, TraceKind::Cancel { accepted }),
            RunEvent::Ended { run, outcome } => (run, TraceKind::of_outcome(outcome)),
        };
        TraceEvent { run: run.to_string(), what }
    }
}

fn reply_of(op: &str, reply: &HandlerResult) -> TraceKind {
    let (action, value, error) = match reply {
        Ok(Continuation::Resume(value)) => (ScriptAction::Resume, value.clone(), None),
        Ok(Continuation::Tail(value)) => (ScriptAction::Tail, value.clone(), None),
        Ok(Continuation::End(value)) => (ScriptAction::End, value.clone(), None),
        Ok(Continuation::Plain(value)) => (ScriptAction::Plain, value.clone(), None),
        Err(error) => (ScriptAction::Throw, Value::Nil, Some(error.to_string())),
    };
    TraceKind::Reply { op: op.to_owned(), action, value, error }
}

impl TraceKind {
    /// The event for the end of a run.
    pub fn of_outcome(outcome: &EffectOutcome) -> TraceKind {
        let value = match outcome {
            EffectOutcome::Value(value) => value.clone(),
            EffectOutcome::Failed(failure) => failure.to_string().into(),
            EffectOutcome::Cancelled { reason } => reason.clone().unwrap_or_default(),
        };
        let timed = match outcome {
            EffectOutcome::Failed(failure) => matches!(
                &*failure.cause,
                RunError::TimedOut { .. } | RunError::Guest(GuestFault::StepTooLong { .. })
            ),
            EffectOutcome::Value(_) | EffectOutcome::Cancelled { .. } => false,
        };
        TraceKind::Outcome { kind: outcome.kind().to_owned(), value, timed }
    }
}

impl TraceEvent {
    /// Bytes of memory that the event takes, about: for queues that are bounded by bytes.
    pub fn size_bytes(&self) -> usize {
        let list = |values: &[Value]| values.iter().map(Value::size_bytes).sum::<usize>();
        let content = match &self.what {
            TraceKind::Start { export, args } => export.len() + list(args),
            TraceKind::Call { op, args } => op.len() + list(args),
            TraceKind::Woke { op } => op.len(),
            TraceKind::Reply { op, value, error, .. } => {
                op.len() + value.size_bytes() + error.as_ref().map_or(0, String::len)
            }
            TraceKind::Cancel { .. } => 0,
            TraceKind::Outcome { kind, value, .. } => kind.len() + value.size_bytes(),
        };
        size_of::<TraceEvent>() + self.run.len() + content
    }

    /// The line that `--trace` prints for the event; `None` for an event that is not part of a trace.
    pub fn trace_line(&self) -> Option<Json> {
        Some(match &self.what {
            TraceKind::Start { .. } => return None,
            TraceKind::Call { op, args } => json!(["call", short_label(op), shown(args)]),
            TraceKind::Woke { op } => json!(["woke", short_label(op)]),
            TraceKind::Reply { op, action, value, .. } => {
                json!(["reply", short_label(op), action.as_str(), value.to_json()])
            }
            TraceKind::Cancel { accepted } => json!(["cancel", self.run, accepted]),
            TraceKind::Outcome { kind, .. } => json!(["outcome", self.run, kind]),
        })
    }
}

fn shown(args: &[Value]) -> Json {
    Json::Array(args.iter().map(Value::to_json).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_lines_are_those_of_the_contract() {
        let line = |what| {
            let event = TraceEvent { run: "run_1".into(), what };
            event.trace_line().map(|line| line.to_string())
        };
        let op = || "src::m::Ask.number".to_owned();
        let call = TraceKind::Call { op: op(), args: vec![20.into(), "x".into()] };
        assert_eq!(line(call).as_deref(), Some(r#"["call","Ask::number",[20,"x"]]"#));
        assert_eq!(line(TraceKind::Woke { op: op() }).as_deref(), Some(r#"["woke","Ask::number"]"#));
        let reply =
            TraceKind::Reply { op: op(), action: ScriptAction::Resume, value: 40.into(), error: None };
        assert_eq!(line(reply).as_deref(), Some(r#"["reply","Ask::number","resume",40]"#));
        let cancel = TraceKind::Cancel { accepted: true };
        assert_eq!(line(cancel).as_deref(), Some(r#"["cancel","run_1",true]"#));
        let outcome = TraceKind::Outcome { kind: "value".into(), value: 42.into(), timed: false };
        assert_eq!(line(outcome).as_deref(), Some(r#"["outcome","run_1","value"]"#));
        assert_eq!(line(TraceKind::Start { export: "main".into(), args: vec![] }), None);
    }
}
