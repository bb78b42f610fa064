//! Every limit of the engine, with its default and what happens when it is reached.

#[derive(Clone, Debug)]
pub struct RouterLimits {
    /// Messages in one mailbox, including the one in progress: 503 at once.
    pub mailbox_max: usize,
    /// Messages of one connection that wait for their turn or for an outcome. The edge stops reading the connection at
    /// this number, until [`crate::Effect::Release`] makes room; if it does not stop, 503.
    pub conn_messages_max: usize,
    /// Messages in the user lane, together with events that wait for a slot in a mailbox. Beyond it requests get 503,
    /// events are dropped and reported as `Sys.EventDropped`. Edges stay far below it.
    pub user_lane_max: usize,
    /// Messages in the system lane, and the most that are taken from it between two user messages while a user message
    /// waits. So a user message at the front of its lane is routed at most this many turns later (and its own).
    /// Timeouts beyond it wait in their queue; observability events beyond it are dropped and counted.
    pub system_lane_max: usize,
    /// Requests that wait for their outcome, of all requesters together: 503.
    pub pending_max: usize,
    /// A request without an outcome this long after it arrived is answered with 504; 0 = never. A client's event that
    /// has found no slot in a mailbox for as long is dropped and reported as `Sys.EventDropped`.
    pub request_timeout_ms: u64,
    /// Timers of all owners together, from being set until their work is done: 503.
    pub timers_max: usize,
    /// Timers of one connection: 503.
    pub conn_timers_max: usize,
    /// How long a timer waits before it tries again, if its message could not be taken: its capability is down, or (for
    /// a request) has a full mailbox.
    pub timer_retry_ms: u64,
    /// How long a due durable timer waits for a subscriber to its event, and how long a timer tries again for a
    /// subscriber that answers 503. After that it is lost, and reported as `Sys.TimerLost`. Counted from the first
    /// failure, anew in every process.
    pub timer_give_up_ms: u64,
    /// Shortest time between two `Sys.EventDropped` about one subscriber: the second one tells how many events were
    /// dropped since.
    pub event_dropped_ms: u64,
    /// Requests of one actor that wait for their outcome: 503 to the actor.
    pub actor_requests_max: usize,
    /// How many messages that a capability was given or has emitted it may still name as a cause after it has finished
    /// with them. The oldest are forgotten; naming a forgotten one is a fault of the capability, like naming one it
    /// never had.
    pub lineage_max: usize,
    /// Installed capabilities: more are refused.
    pub capabilities_max: usize,
    /// Records of the trace kept in memory: the oldest are dropped.
    pub trace_records_max: usize,
    /// Bytes of a message's data kept in its trace record: the rest is cut off. 0 = none.
    pub trace_data_bytes_max: usize,
    /// Emit `Sys.Routed` for every message that was put into a mailbox, if a capability subscribes to it.
    pub routing_events: bool,
    /// Also emit every trace record as [`crate::Effect::Trace`], so that the shell can store them.
    pub trace_effects: bool,
    /// Store a `router/timer/...` row for each timer, so that it outlives the process.
    pub durable_timers: bool,
}

impl Default for RouterLimits {
    fn default() -> Self {
        RouterLimits {
            mailbox_max: 8192,
            conn_messages_max: 1024,
            user_lane_max: 1 << 20,
            system_lane_max: 64,
            pending_max: 1 << 20,
            request_timeout_ms: 30_000,
            timers_max: 1 << 20,
            conn_timers_max: 131_072,
            timer_retry_ms: 1000,
            timer_give_up_ms: 3_600_000,
            event_dropped_ms: 1000,
            actor_requests_max: 1024,
            lineage_max: 8192,
            capabilities_max: 256,
            trace_records_max: 10_000,
            trace_data_bytes_max: 256,
            routing_events: false,
            trace_effects: false,
            durable_timers: true,
        }
    }
}
