//! Carries out the effects that the scheduler decided.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millrace_runs::{Answer, CallId, Effect, Guest, HandlerError, Input, RunError, RunId, RunOutcome};

use super::futures::panicked;
use super::{Driver, RunEntry, tell};
use crate::call::HandlerCall;
use crate::codec::schema::Signature;
use crate::fault::{GuestFault, RunFailure};
use crate::guest::WasmGuest;
use crate::handler::Handled;
use crate::host::observe::RunEvent;
use crate::host::outcome::EffectOutcome;
use crate::value::Value;

impl Driver {
    pub(super) fn carry_out_effects(&mut self) {
        while let Some(effect) = self.runs.next_effect() {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect<WasmGuest>) {
        match effect {
            Effect::Call { call, op, args } => self.call_handler(call, op, args),
            Effect::Woke { call, token } => self.wake(call, token),
            Effect::Abandon { call } => self.abandon(call),
            Effect::Release { guest, .. } => self.release(guest),
            Effect::Failure { run, error } => self.failure(run, error),
            Effect::Outcome { run, outcome } => self.outcome(run, outcome),
        }
    }

    fn call_handler(&mut self, call: CallId, op: u32, args: Vec<Value>) {
        let answer = self.begin_call(call, op, args);
        if let Some(answer) = answer {
            let now = self.now();
            // An immediate answer is never refused, because the run is waiting for it.
            let _ = self.runs.handle(now, Input::Answered { call, answer });
        }
    }

    /// Calls the handler. Returns its answer if there is one at once.
    fn begin_call(&mut self, call: CallId, op: u32, args: Vec<Value>) -> Option<Answer<Value>> {
        let entry = self.entries.get_mut(&call.run.serial())?;
        // The run was cancelled, and the command that ends it is on its way.
        if entry.cell.0.is_decided() {
            return None;
        }
        let slot = self.hosted.get(&entry.instance).and_then(|hosted| hosted.handlers.get(op as usize));
        let Some((handler, slot)) = slot.and_then(|slot| Some((slot.handler.clone()?, slot))) else {
            return Some(Answer::Unhandled);
        };
        let info = &entry.module.info;
        let effect_op = &info.table[op as usize];
        let args = match &slot.declared {
            Some(types) => match declared_args(types, args, &effect_op.label) {
                Ok(args) => args,
                Err(error) => return Some(Answer::Failed(error)),
            },
            None => args,
        };
        entry.working = Some((op, None));
        let (run, step) = (entry.number(), call.step);
        tell(&mut self.observer, RunEvent::Call { run, step, op: effect_op, args: &args });
        let buffer_bytes = self.instances.get(&entry.instance).map_or(0, |instance| instance.buffers.bytes);
        let request =
            HandlerCall { id: call, module: info.clone(), op, args, buffer_bytes, tools: self.tools.clone() };
        let handled = catch_unwind(AssertUnwindSafe(|| handler.call(request)));
        match handled.unwrap_or_else(|panic| Handled::Now(Err(panicked(&*panic)))) {
            Handled::Now(result) => Some(self.answer_of(call, result)),
            Handled::Later(future) => {
                entry.working = Some((op, Some(self.handlers.add(call, future))));
                None
            }
        }
    }

    fn wake(&mut self, call: CallId, token: u64) {
        if self.tools.sleeps.finish(token, Ok(())) {
            let Some(entry) = self.entries.get(&call.run.serial()) else { return };
            let op = entry.working.as_ref().and_then(|(op, _)| entry.module.info.table.get(*op as usize));
            if let Some(op) = op {
                tell(&mut self.observer, RunEvent::Woke { run: entry.number(), op });
            }
        }
    }

    fn abandon(&mut self, call: CallId) {
        let entry = self.entries.get_mut(&call.run.serial());
        if let Some((_, Some(abort))) = entry.and_then(|entry| entry.working.take()) {
            abort.abort();
        }
    }

    fn release(&mut self, guest: WasmGuest) {
        let instance = guest.instance;
        guest.release(&mut self.instances);
        if let Some(hosted) = self.hosted.get_mut(&instance) {
            hosted.active_runs -= 1;
        }
        self.free_if_unused(instance);
    }

    fn failure(&mut self, run: RunId, cause: Arc<RunError<GuestFault>>) {
        let Some(entry) = self.entries.get(&run.serial()) else { return };
        // The run was cancelled before it failed, so its outcome is the cancellation.
        if entry.cell.0.is_decided() {
            return;
        }
        let failure = failure_of(entry, cause);
        if let Some(sink) = &mut self.error_sink {
            let told = catch_unwind(AssertUnwindSafe(|| sink(run.into(), &failure)));
            if told.is_err() {
                tracing::error!(run = %run, "the error sink of effect runs panicked");
            }
        }
    }

    fn outcome(&mut self, run: RunId, outcome: RunOutcome<Value, GuestFault>) {
        let Some(entry) = self.entries.remove(&run.serial()) else { return };
        if let Some(at) = entry.cancel_at {
            self.cancels.remove(&(at, run.serial()));
        }
        let outcome = match outcome {
            RunOutcome::Value(value) => EffectOutcome::Value(value),
            RunOutcome::Failed(cause) => EffectOutcome::Failed(Arc::new(failure_of(&entry, cause))),
            RunOutcome::Cancelled { reason } => EffectOutcome::Cancelled { reason },
        };
        // The observer learns of the outcome before anybody who waits for it can go on.
        let is_cancelled = !entry.cell.0.decide(outcome);
        if is_cancelled && !entry.cancel_is_told {
            // The run ended by itself before the command that cancels it was read.
            self.observe(RunEvent::Cancel { run: run.into(), accepted: true });
        }
        if let Some(decided) = entry.cell.0.decided() {
            self.observe(RunEvent::Ended { run: run.into(), outcome: &decided });
        }
        self.inbox.run_ended();
        entry.cell.0.publish();
    }
}

fn failure_of(entry: &RunEntry, cause: Arc<RunError<GuestFault>>) -> RunFailure {
    RunFailure { generation: entry.module.info.generation, cause }
}

fn declared_args(types: &Signature, args: Vec<Value>, label: &str) -> Result<Vec<Value>, HandlerError> {
    if args.len() != types.params.len() {
        let (expected, got) = (types.params.len(), args.len());
        return Err(HandlerError::new(format!("effect {label} expected {expected} args, got {got}")));
    }
    let args = args.into_iter().zip(&types.params).enumerate();
    let fitted = args.map(|(index, (arg, param))| {
        param.fit(arg, &types.names, &format_args!("effect {label} arg{index}"))
    });
    fitted.collect::<Result<_, _>>().map_err(|mismatch| HandlerError::new(mismatch.to_string()))
}
