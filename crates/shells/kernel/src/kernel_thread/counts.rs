//! The shell's counters: plain atomics, read on demand.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(crate) struct AtomicCounts {
    connections: AtomicU64,
    connected: AtomicU64,
    turned_away: AtomicU64,
    refused_lines: AtomicU64,
    dropped_slow: AtomicU64,
    too_long_out: AtomicU64,
    records_lost: AtomicU64,
}

/// Counters of the loop's edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShellCounts {
    /// Connections of the socket now (`connections`) and since the start (`connected`).
    pub connections: u64,
    pub connected: u64,
    /// Connections refused because `connections_max` were open.
    pub turned_away: u64,
    /// Lines answered by the edge itself with 400, 401, 403, 413 or 422; the loop has not seen them.
    pub refused_lines: u64,
    /// Connections dropped because they did not read.
    pub dropped_slow: u64,
    /// Answers that were too long and were replaced by 413.
    pub too_long_out: u64,
    /// Records of the trace that were dropped because their queue was full.
    pub records_lost: u64,
}

impl AtomicCounts {
    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Relaxed);
        self.connected.fetch_add(1, Relaxed);
    }

    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }

    pub(crate) fn turned_away(&self) {
        self.turned_away.fetch_add(1, Relaxed);
    }

    pub(crate) fn refused_line(&self) {
        self.refused_lines.fetch_add(1, Relaxed);
    }

    pub(crate) fn dropped_slow(&self) {
        self.dropped_slow.fetch_add(1, Relaxed);
    }

    pub(crate) fn too_long_out(&self) {
        self.too_long_out.fetch_add(1, Relaxed);
    }

    pub(crate) fn record_lost(&self) {
        self.records_lost.fetch_add(1, Relaxed);
    }

    pub(crate) fn view(&self) -> ShellCounts {
        ShellCounts {
            connections: self.connections.load(Relaxed),
            connected: self.connected.load(Relaxed),
            turned_away: self.turned_away.load(Relaxed),
            refused_lines: self.refused_lines.load(Relaxed),
            dropped_slow: self.dropped_slow.load(Relaxed),
            too_long_out: self.too_long_out.load(Relaxed),
            records_lost: self.records_lost.load(Relaxed),
        }
    }
}
