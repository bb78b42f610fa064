//! A call of a handler: the request, and what the host offers while it is answered.

use std::fmt;
use std::sync::Arc;

use millrace_runs::{CallId, HandlerError, RunId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::Generation;
use crate::handler::{Continuation, HandlerResult, unusable_result};
use crate::host::blocking::BlockingPlaces;
use crate::host::clock::{ClockHold, HostClock};
use crate::host::sleep::{Sleep, Sleeps};
use crate::module::ModuleInfo;
use crate::table::EffectOp;
use crate::value::{Value, from_value, to_value};

/// An effect request for a handler.
pub struct HandlerCall {
    pub(crate) id: CallId,
    pub(crate) module: Arc<ModuleInfo>,
    pub(crate) op: u32,
    pub(crate) args: Vec<Value>,
    pub(crate) buffer_bytes: u32,
    pub(crate) tools: Arc<CallTools>,
}

/// Shared by all calls of a host.
pub(crate) struct CallTools {
    pub(crate) clock: HostClock,
    pub(crate) sleeps: Sleeps,
    pub(crate) blocking: BlockingPlaces,
}

impl HandlerCall {
    pub fn run(&self) -> RunId {
        self.id.run
    }

    /// The run's continuation step that made this request, counted from 1.
    pub fn step(&self) -> u64 {
        self.id.step
    }

    pub fn op(&self) -> &EffectOp {
        &self.module.table[self.op as usize]
    }

    pub fn generation(&self) -> Generation {
        self.module.generation
    }

    pub fn args(&self) -> &[Value] {
        &self.args
    }

    /// Takes the arguments out of the call.
    pub fn take_args(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.args)
    }

    /// How many bytes a reply may have, its frame included.
    pub fn buffer_bytes(&self) -> u32 {
        self.buffer_bytes
    }

    /// Takes the arguments out of the call as a tuple of Rust types, or as `()` if there are none.
    ///
    /// # Errors
    ///
    /// Fails if number or types of the arguments differ.
    pub fn parse_args<A: DeserializeOwned>(&mut self) -> Result<A, HandlerError> {
        let args = self.take_args();
        let args = if args.is_empty() { Value::Nil } else { Value::Array(args) };
        from_value(args).map_err(|error| {
            HandlerError::new(format!(
                "the arguments of {} are not what its handler takes: {error}",
                self.op().label
            ))
        })
    }

    /// Continues the program with a value, by `resume` or `tail` as the operation's kind demands.
    pub fn answer(&self, value: impl Into<Value>) -> Continuation {
        Continuation::of_kind(self.op().kind, value.into())
    }

    /// Like [`HandlerCall::answer`], with any serializable type.
    ///
    /// # Errors
    ///
    /// Fails if the type has no value.
    pub fn answer_with<T: Serialize + ?Sized>(&self, result: &T) -> HandlerResult {
        let value = to_value(result).map_err(|error| unusable_result(&self.op().label, &error))?;
        Ok(self.answer(value))
    }

    /// Milliseconds of the host's monotonic clock; virtual ones under a virtual clock.
    pub fn monotonic_ms(&self) -> u64 {
        self.tools.clock.now().0
    }

    /// Milliseconds since 1970. Under a virtual clock they move with it.
    pub fn system_ms(&self) -> u64 {
        self.tools.clock.system_ms()
    }

    /// Resolves after this time on the host's clock, through the scheduler's timer queue: timers of the same moment
    /// fire in the order in which they were set. The time counts from this call, not from the first poll.
    ///
    /// The future fails if the scheduler has no room for another timer.
    pub fn sleep_ms(&self, ms: u64) -> Sleep {
        self.tools.sleeps.sleep(self.id, self.tools.clock.after_ms(ms))
    }

    /// Keeps a virtual clock from moving until the hold is dropped. For handlers that wait for something real, such as
    /// a file: without a hold, a virtual clock moves on as soon as no handler has anything to do. Nothing else changes.
    pub fn hold_clock(&self) -> ClockHold {
        self.tools.clock.hold()
    }
}

impl fmt::Debug for HandlerCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = &self.op().label;
        f.debug_struct("HandlerCall")
            .field("id", &self.id)
            .field("op", label)
            .field("args", &self.args)
            .finish()
    }
}
