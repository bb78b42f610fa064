//! Every limit of a loop, with its default and what happens when it is reached.

use crate::zcl1::{FRAME_BYTES_MAX, HEADER_BYTES};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopLimits {
    /// Watches installed at once. Beyond it: [`crate::RequestError::TooManyWatches`].
    pub watches_max: usize,
    /// Timers armed at once. Beyond it: [`crate::RequestError::TooManyTimers`]. Arming an armed timer again needs no
    /// room.
    pub timers_max: usize,
    /// Bytes of one write. Beyond it: [`crate::ZabiError::Bounds`], and nothing of the write is consumed.
    pub write_bytes_max: usize,
    /// Bytes of replies that wait to be read; at least [`OUTPUT_BYTES_MIN`]. Without room for its answer a request is
    /// not executed, but refused with [`crate::ZabiError::Again`]. A POLL with less room than it could fill returns
    /// fewer events.
    pub output_bytes_max: usize,
    /// Bytes of one frame, header included. Beyond it: [`crate::ZabiError::Bounds`], and the input is dropped. Replies
    /// keep to this limit too: with the default, a POLL returns at most 2046 events.
    pub frame_bytes_max: usize,
}

/// A loop with less room for replies could only answer requests one by one, and with few events.
pub const OUTPUT_BYTES_MIN: usize = 1024;

impl LoopLimits {
    pub(crate) fn normalised(mut self) -> LoopLimits {
        self.frame_bytes_max = self.frame_bytes_max.clamp(HEADER_BYTES + OUTPUT_BYTES_MIN, FRAME_BYTES_MAX);
        self.output_bytes_max = self.output_bytes_max.max(OUTPUT_BYTES_MIN);
        // Slots of the watch table are numbered by 32 bits.
        self.watches_max = self.watches_max.min(u32::MAX as usize);
        self
    }
}

impl Default for LoopLimits {
    fn default() -> Self {
        LoopLimits {
            watches_max: 1 << 17,
            timers_max: 1 << 17,
            write_bytes_max: FRAME_BYTES_MAX,
            output_bytes_max: FRAME_BYTES_MAX,
            frame_bytes_max: FRAME_BYTES_MAX,
        }
    }
}
