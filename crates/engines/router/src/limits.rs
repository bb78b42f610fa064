//! Every bound of the engine, with its default and the answer when it is reached.

#[derive(Clone, Debug)]
pub struct RouterLimits {
    /// Messages in one mailbox, the one in hand included: 503 at once.
    pub mailbox_max: usize,
    /// Messages of one connection that wait for their turn or for an outcome. The edge stops reading the connection at
    /// this number ([`crate::Effect::Release`] gives room back); should it not, 503.
    pub conn_messages_max: usize,
    /// Messages in the user lane, and events that wait for a place in a mailbox: 503 for requests, events are dropped
    /// and `Sys.EventDropped` says so. Edges stay far below it.
    pub user_lane_max: usize,
    /// Messages in the system lane, and the most that are taken from it between two user messages while one waits: so
    /// a user message starts at most this many turns (and its own) after it came to the front. Timeouts beyond it wait
    /// in their queue, observability is dropped and counted.
    pub system_lane_max: usize,
    /// Requests that wait for their outcome, of everybody: 503.
    pub pending_max: usize,
    /// A request without an outcome this long after it arrived is answered with 504; 0 = never. An event of a client
    /// that found no place in a mailbox for as long is dropped, and `Sys.EventDropped` says so.
    pub request_timeout_ms: u64,
    /// Timers set and not yet fired, of everybody: 503.
    pub timers_max: usize,
    /// The same of one connection: 503.
    pub conn_timers_max: usize,
    /// What a timer was to send could not be taken (a request: a full mailbox; a capability that is down): tried again
    /// after this.
    pub timer_retry_ms: u64,
    /// How long a timer that was due waits for somebody who subscribes to its event, if it is durable, and how long it
    /// tries again for a subscriber that answers 503: then it is lost, and `Sys.TimerLost` says so. Counted from the
    /// first time it was in vain, anew in every process.
    pub timer_give_up_ms: u64,
    /// Between two `Sys.EventDropped` about one subscriber: the second one tells how many there were since.
    pub event_dropped_ms: u64,
    /// Requests an actor has emitted and that wait for their outcome: 503 to the actor.
    pub actor_requests_max: usize,
    /// Messages one capability had or said that it may still name as a cause once it has finished with them. The oldest
    /// is forgotten; naming it after that is like naming what it never had: a fault of the capability.
    pub lineage_max: usize,
    /// Capabilities that run: more are refused.
    pub capabilities_max: usize,
    /// Records of the trace kept in memory: the oldest make room.
    pub trace_records_max: usize,
    /// Bytes of a message's data kept in its record: the rest is cut off. 0 = none.
    pub trace_data_bytes_max: usize,
    /// Say `Sys.Routed` for every message that was put into a mailbox, to whoever subscribes to it.
    pub routing_events: bool,
    /// Also hand every record out as [`crate::Effect::Trace`], for whoever keeps them.
    pub trace_effects: bool,
    /// Keep a `router/timer/...` row of each timer, so that it outlives the process.
    pub durable_timers: bool,
    #[cfg(feature = "sabotage")]
    pub sabotage: Option<crate::Sabotage>,
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
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }
}
