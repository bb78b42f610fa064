//! The machine's boot (its run from power-on to shutdown) and its uptime: the only clock that goes on over a restart of
//! the process and that nobody can set.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::clocks::time::{Mono, TICK_MS};

/// Identifies a boot of the machine. No two boots have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BootId(pub u128);

/// The current boot as the shell knows it: its id, and the machine's uptime at [`Mono`] zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    pub id: BootId,
    pub up_at_zero_ms: u64,
}

/// A moment of a boot, as rows store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootMark {
    pub id: BootId,
    /// How long the machine had been running.
    pub up_ms: u64,
}

impl Boot {
    pub fn mark(&self, at: Mono) -> BootMark {
        BootMark { id: self.id, up_ms: self.up_at_zero_ms.saturating_add(at.0) }
    }
}

impl BootMark {
    /// Returns how much time has passed since `earlier`, at least. `None` if the machine was started anew in between.
    pub fn since(&self, earlier: &BootMark) -> Option<u64> {
        // Each mark is the sum of two times that were rounded down to whole milliseconds.
        let passed_ms = self.up_ms.saturating_sub(earlier.up_ms).saturating_sub(2 * TICK_MS);
        (self.id == earlier.id).then_some(passed_ms)
    }
}

impl From<BootId> for String {
    fn from(id: BootId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for BootId {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<BootId, Self::Error> {
        u128::from_str_radix(&text, 16).map(BootId)
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_moments_of_one_run_of_the_machine_are_compared() {
        let boot = Boot { id: BootId(7), up_at_zero_ms: 1_000 };
        let (first, later) = (boot.mark(Mono(5)), boot.mark(Mono(505)));
        assert_eq!(later.since(&first), Some(498));
        assert_eq!(first.since(&later), Some(0));
        let other = Boot { id: BootId(8), up_at_zero_ms: 9_000 };
        assert_eq!(other.mark(Mono(0)).since(&first), None);
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let mark = BootMark { id: BootId(u128::MAX - 1), up_ms: 12 };
        let text = serde_json::to_string(&mark).unwrap();
        assert_eq!(text, r#"{"id":"fffffffffffffffffffffffffffffffe","up_ms":12}"#);
        assert_eq!(serde_json::from_str::<BootMark>(&text).unwrap(), mark);
        assert!(serde_json::from_str::<BootMark>(r#"{"id":"x","up_ms":12}"#).is_err());
    }
}
