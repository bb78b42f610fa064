//! Where a copy stands in its journal.

use std::fmt;

/// Identifies a record and, through the tip of the record before it, the whole history up to there: the first 16 bytes
/// of a SHA-256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tip(pub [u8; 16]);

impl Tip {
    /// The tip before the first record.
    pub const START: Tip = Tip([0; 16]);
}

impl fmt::Display for Tip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The last record that a copy has folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPosition {
    /// The shared store that this is a copy of.
    pub store_id: u128,
    /// The number of the record; 0 before the first one.
    pub n: u64,
    pub tip: Tip,
}

impl CopyPosition {
    /// The position before the first record of a store.
    pub fn start(store_id: u128) -> CopyPosition {
        CopyPosition { store_id, n: 0, tip: Tip::START }
    }
}
