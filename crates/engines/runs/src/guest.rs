//! The trait of guests: the programs that runs execute.

use std::fmt::Debug;

/// A program in one run. Implemented by the wasm host (`crates/guests/wasm`) and by the scripted guest of this crate.
///
/// The engine owns the guest while the run lives, calls it for one continuation step at a time, and hands it back with
/// [`crate::Effect::Release`] on every terminal transition, exactly once. After a step other than
/// [`GuestStep::Request`] the guest is not called again.
pub trait Guest {
    /// Arguments of effects, replies and results.
    type Value: Debug;
    /// Why a guest failed: a trap, a protocol mismatch, a limit. Ends up in [`crate::RunError::Guest`].
    type Fault: Debug;
    /// State that guests share and that the shell lends for each step, such as the wasm instances. `()` if there is
    /// none.
    type Host: ?Sized;

    /// Calls the entry of the program. Called once, in the run's first step; the guest itself holds the entry's
    /// arguments.
    fn start(&mut self, host: &mut Self::Host) -> GuestStep<Self::Value, Self::Fault>;

    /// Continues the program with the reply to the effect it asked for. The engine has checked the resume kind before.
    fn resume(&mut self, host: &mut Self::Host, reply: Self::Value) -> GuestStep<Self::Value, Self::Fault>;

    /// Releases the guest's resources in the host, such as its continuation and buffer. The shell calls this when it
    /// carries out [`crate::Effect::Release`]; the guest may be suspended, finished, or never started.
    fn release(self, host: &mut Self::Host)
    where
        Self: Sized;
}

/// How a continuation step of a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestStep<V, F> {
    /// The program returned.
    Done(V),
    /// The program asks for an effect and is suspended until [`Guest::resume`].
    Request {
        /// Position in the operations that the run was started with. A position outside of them makes the run fail.
        op: u32,
        args: Vec<V>,
    },
    /// The program trapped, broke the protocol or exceeded a limit. The run fails.
    Failed(F),
}
