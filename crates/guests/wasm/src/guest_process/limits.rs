//! The bounds of a guest that the wasm machine enforces; those of its handles and loops are in
//! [`millrace_zabi::Limits`].

/// Bounds of one guest, with their defaults and what happens when each is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestLimits {
    /// Bytes of all linear memories, all tables and the heap of garbage-collected objects together. Growth beyond it
    /// fails inside the guest: `memory.grow` returns -1, `zi_alloc` returns 0. A module that declares more is not
    /// started.
    pub memory_bytes_max: usize,
    /// Elements of all tables together. `table.grow` beyond it returns -1.
    pub table_elements_max: usize,
    /// Processor time that the guest computes between two calls of the host; waiting does not count. A guest that takes
    /// longer is stopped.
    pub step_ms_max: u64,
    /// Real time from start to end, waiting included. A guest that takes longer is stopped. `None` is no bound.
    pub wall_ms_max: Option<u64>,
}

impl Default for GuestLimits {
    fn default() -> Self {
        GuestLimits {
            memory_bytes_max: 256 << 20,
            table_elements_max: 1 << 20,
            step_ms_max: 10_000,
            wall_ms_max: None,
        }
    }
}
