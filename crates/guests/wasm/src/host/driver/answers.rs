//! Results of handlers. They are checked here where the module itself would not notice a mistake.

use millrace_runs::{Answer, CallId, HandlerError, ResumeKind};

use super::{Driver, RunEntry, tell};
use crate::codec::schema::TypeMismatch;
use crate::handler::{Continuation, HandlerResult};
use crate::handlers::HandlerSlot;
use crate::host::observe::RunEvent;
use crate::table::EffectOp;
use crate::value::Value;

impl Driver {
    /// Ends a handler's work: turns its result into the scheduler's answer.
    pub(super) fn answer_of(&mut self, call: CallId, result: HandlerResult) -> Answer<Value> {
        let entry = self.entries.get_mut(&call.run.serial());
        let Some((entry, (op, _))) =
            entry.and_then(|entry| entry.working.take().map(|working| (entry, working)))
        else {
            // The run has ended; any answer will be dropped.
            return Answer::NotAContinuation;
        };
        let Some(effect_op) = entry.module.info.table.get(op as usize) else {
            return Answer::NotAContinuation;
        };
        let (run, step) = (entry.number(), call.step);
        tell(&mut self.observer, RunEvent::Reply { run, step, op: effect_op, reply: &result });
        let slot = self.hosted.get(&entry.instance).and_then(|hosted| hosted.handlers.get(op as usize));
        match result {
            Ok(continuation) => {
                let checked = check(continuation, effect_op, slot, entry);
                checked.unwrap_or_else(|mismatch| Answer::Failed(HandlerError::new(mismatch.to_string())))
            }
            Err(error) => Answer::Failed(error),
        }
    }
}

/// Checks the value of a handler's answer. Continuation calls of the wrong kind pass: the scheduler refuses them,
/// whatever their value.
fn check(
    continuation: Continuation,
    op: &EffectOp,
    slot: Option<&HandlerSlot>,
    entry: &RunEntry,
) -> Result<Answer<Value>, TypeMismatch> {
    let declared = |value: Value| match slot.and_then(|slot| slot.declared.as_ref()) {
        Some(types) => match &types.result {
            Some(result) => result.fit(value, &types.names, &format_args!("reply to effect {}", op.label)),
            None => Ok(value),
        },
        None => Ok(value),
    };
    Ok(match (continuation, op.kind) {
        (Continuation::Resume(value), ResumeKind::Resume) => Answer::Resume(declared(value)?),
        (Continuation::Tail(value), ResumeKind::Tail) => Answer::Tail(declared(value)?),
        (Continuation::End(value), ResumeKind::Resume) => {
            Answer::End(entry.module.info.codec.seam().end_value(&entry.export, value)?)
        }
        (Continuation::Resume(value), ResumeKind::Tail) => Answer::Resume(value),
        (Continuation::Tail(value), ResumeKind::Resume) => Answer::Tail(value),
        (Continuation::End(value), ResumeKind::Tail) => Answer::End(value),
        (Continuation::Plain(_), _) => Answer::NotAContinuation,
    })
}
