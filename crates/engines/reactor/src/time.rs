//! The engine's time: nanoseconds of the host's monotonic clock.

/// A time on the host's monotonic clock, in nanoseconds. The guest sees the same number in TIMER events, in
/// `due_mono_ns` and in TIME_NOW of `sys/info`; the shell decides where zero is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonoNs(pub u64);

/// Nanoseconds per millisecond.
pub const MS: u64 = 1_000_000;

impl MonoNs {
    pub const MAX: MonoNs = MonoNs(u64::MAX);

    /// Returns the time `ns` nanoseconds later, at most [`MonoNs::MAX`].
    #[must_use]
    pub fn after_ns(self, ns: u64) -> MonoNs {
        MonoNs(self.0.saturating_add(ns))
    }

    /// Returns the time `ms` milliseconds later, at most [`MonoNs::MAX`].
    #[must_use]
    pub fn after_ms(self, ms: u32) -> MonoNs {
        self.after_ns(u64::from(ms) * MS)
    }
}
