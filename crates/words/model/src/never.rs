//! States that an engine believes cannot occur: loud in debug builds, counted in release builds.
//!
//! An engine in production must not take its process down because of a mistake in its own bookkeeping, and the mistake
//! must not go unnoticed either. So a release build counts it and goes on; tests and the simulator, which are debug
//! builds, panic with the reason.

use std::cell::Cell;

/// Counts states that cannot occur but did. Each engine owns a counter, because engines have no global state.
#[derive(Clone, Debug, Default)]
pub struct Broken(Cell<u64>);

impl Broken {
    /// Counts one more. Takes `&self`, so that methods which only read can report what they find.
    pub fn note(&self) {
        self.0.set(self.0.get().saturating_add(1));
    }

    /// Returns how often such a state was found: 0 in a correct engine.
    pub fn count(&self) -> u64 {
        self.0.get()
    }
}

/// Reports a state that cannot occur: counts it in a [`Broken`], and panics with the text in debug builds.
///
/// Only for mistakes of the engine itself. Late answers, unknown tokens and other things that callers may legitimately
/// do are no such states.
///
/// ```
/// # use millrace_model::{Broken, never};
/// # struct Engine { broken: Broken, running: usize }
/// # impl Engine {
/// fn run_ended(&mut self, run: u64) {
///     match self.running.checked_sub(1) {
///         Some(running) => self.running = running,
///         None => never!(self.broken, "run {run} ended, but none was running"),
///     }
/// }
/// # }
/// # Engine { broken: Broken::default(), running: 1 }.run_ended(7);
/// ```
#[macro_export]
macro_rules! never {
    ($broken:expr, $($reason:tt)+) => {{
        $broken.note();
        if cfg!(debug_assertions) {
            panic!($($reason)+);
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::Broken;

    #[test]
    fn a_broken_state_is_counted_before_it_panics() {
        let broken = Broken::default();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            never!(broken, "{} is never {}", 1, 2);
        }));
        assert_eq!(broken.count(), 1);
        assert_eq!(result.is_err(), cfg!(debug_assertions));
    }

    #[test]
    fn the_counter_may_move_between_threads() {
        fn is_send<T: Send>() {}
        is_send::<Broken>();
    }
}
