//! Every bound of the shell, with its default and the consequence of reaching it.

use millrace_router::RouterLimits;
use millrace_wire::os::LINE_BYTES_MAX;

#[derive(Clone, Debug)]
pub struct KernelSettings {
    pub router: RouterLimits,
    /// Bytes of a line without its LF, in both directions. A longer line is answered with 413; the connection goes on.
    pub line_bytes_max: usize,
    /// Bytes that wait to be written to one connection. Above, it is not read from.
    pub unsent_bytes_max: usize,
    /// A connection that reads none of what waits for it for this long is closed.
    pub slow_reader_ms: u64,
    /// Connections of the socket. Further ones get a line with 503 and are closed.
    pub connections_max: usize,
    /// Messages without `metadata`, or without id or timestamp in it, get them instead of 422.
    pub lenient_metadata: bool,
    /// The first message of a connection of the socket must be `Syscall.Authenticate` with a valid token: otherwise
    /// 401, and the connection is closed.
    pub require_auth: bool,
    /// With `require_auth`, a connection that has sent nothing for this long is closed.
    pub auth_ms_max: u64,
    /// Commands of other threads that the loop has not handled yet. Above, the senders wait.
    pub inbox_max: usize,
    /// Messages in the user lane. Above, actors wait before they emit anything but the answers they owe.
    pub backpressure_max: usize,
    /// Answers are written after this many turns at the latest; at once when the lanes are empty.
    pub flush_turns_max: u32,
    /// How long a capability that a reload replaced has to finish its messages while its successor waits; then the rest
    /// is answered with 503. 0 = no limit.
    pub handover_ms: u64,
    /// Operations merged into one write to the store, as far as they fit a batch. The rest waits for the next write.
    pub commit_ops_max: usize,
}

impl Default for KernelSettings {
    fn default() -> Self {
        KernelSettings {
            router: RouterLimits::default(),
            line_bytes_max: LINE_BYTES_MAX,
            unsent_bytes_max: 1 << 20,
            slow_reader_ms: 30_000,
            connections_max: 1024,
            lenient_metadata: false,
            require_auth: false,
            auth_ms_max: 10_000,
            inbox_max: 1024,
            backpressure_max: 16_384,
            flush_turns_max: 64,
            handover_ms: 60_000,
            commit_ops_max: 1024,
        }
    }
}
