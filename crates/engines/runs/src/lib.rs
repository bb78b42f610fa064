//! The engine of effect runs: many sandboxed programs on one scheduler, each asking for effects one at a time.
//!
//! A plain state machine, generic over the guest ([`Guest`]) and its value type. Given the time and one input, it
//! decides which continuation step runs next, which answer is applied, when a timer is due and how a run ends.
//!
//! The engine does not interpret values, does not look up handlers and never blocks; it has no clock, socket, thread or
//! randomness. The shell provides the seed that shuffles simultaneous completions.
//!
//! Start with [`Runs`]. The loop of a shell:
//!
//! 1. [`Runs::tick`] moves due timers and external completions into the ready queue and refills the budget.
//! 2. [`Runs::step`] runs one continuation step, until it returns false: the budget is used up or nothing is ready.
//!    After each step, drain the effects: call the handler of each [`Effect::Call`] and hand its answer to
//!    [`Runs::handle`] as [`Input::Answered`] if there is one at once, or later as [`Input::Completed`].
//! 3. Yield to the host's loop; tick again at [`Runs::next_deadline`] or after the next input.

mod counters;
mod effect;
mod error;
mod external;
mod finish;
mod guest;
mod ids;
mod input;
mod invariants;
mod limits;
mod operation;
mod outcome;
mod run;
mod runs;
mod scripted;
mod shuffle;
mod table;
mod tick;
mod timers;

pub use counters::{Counters, Gauges};
pub use effect::Effect;
pub use error::{HandlerError, InputRefused, NotStarted, RunError, StartRefused};
pub use guest::{Guest, GuestStep};
pub use ids::{CallId, RunId};
pub use input::{Answer, Disposition, Input, NewRun};
pub use invariants::Violation;
pub use limits::RunsLimits;
pub use operation::{Operation, ResumeKind};
pub use outcome::{RunOutcome, RunStopped};
pub use runs::Runs;
pub use scripted::{GuestEvent, GuestLog, ScriptFault, ScriptLine, ScriptedGuest};
