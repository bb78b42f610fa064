//! Every bound of a guest process, with its default and the answer when it is reached.

use millrace_reactor::{HandleLimits, LoopLimits};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Handles open at once: `zi_cap_open` returns -8; a listener accepts no further connection and returns -8.
    pub handles: HandleLimits,
    /// Loops open at once: `zi_cap_open` returns -8. Each takes up to three descriptors, and each read or write of a
    /// handle looks at every loop.
    pub loops_max: usize,
    /// Bounds of each loop.
    pub sys_loop: LoopLimits,
    /// Events that one call of the operating system's poller returns. More ready handles take more calls, in the same
    /// POLL.
    pub os_events_max: usize,
    /// Blocks that `zi_alloc` has given out: `zi_alloc` returns 0.
    pub allocations_max: usize,
    /// Bytes of one `zi_write` or `zi_read` that the host looks at; the rest is a short write or read.
    pub transfer_bytes_max: u32,
    /// Bytes of topic and message of `zi_telemetry`: longer texts are cut.
    pub telemetry_bytes_max: u32,
    /// Bytes of a capability's kind, name or parameters in `zi_cap_open`: -2.
    pub open_field_bytes_max: u32,
    /// Sockets of `net/tcp` open at once, listeners included: `zi_cap_open` returns -8; a listener accepts no further
    /// connection and returns -8.
    pub sockets_max: usize,
    /// Longest backlog that a listener gets, whatever it asks for.
    pub tcp_backlog_max: u32,
    /// Addresses of one name that a connection tries: the others are ignored.
    pub tcp_addresses_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            handles: HandleLimits { handles_max: 1 << 16, ..HandleLimits::default() },
            loops_max: 16,
            sys_loop: LoopLimits::default(),
            os_events_max: 1024,
            allocations_max: 1 << 20,
            transfer_bytes_max: 1 << 20,
            telemetry_bytes_max: 4096,
            open_field_bytes_max: 4096,
            sockets_max: 1 << 16,
            tcp_backlog_max: 65_535,
            tcp_addresses_max: 16,
        }
    }
}
