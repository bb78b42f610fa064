//! Every bound of the shell, with its default and what happens when it is reached.

#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// Requests waiting for the owner, in units of one request plus one per KiB it carries: askers wait.
    pub request_units_max: u32,
    /// Requests the owner takes before it settles: the rest waits for the next turn.
    pub turn_requests_max: usize,
    /// Batches handed to the writer and not yet confirmed: the owner takes no more requests.
    pub backlog_batches_max: usize,
    pub backlog_bytes_max: usize,
    /// Batches merged into one commit: the rest waits for the next. A first batch is taken whatever its size.
    pub commit_batches_max: usize,
    pub commit_bytes_max: usize,
    /// Rows of housekeeping between two looks at the queue.
    pub maintain_rows_max: usize,
    /// Pause between looks for housekeeping when the last one left nothing to do.
    pub maintain_interval_ms: u64,
    /// A commit that left nothing, because the disk is full or another program has locked the store, is tried again
    /// after a pause that doubles up to this.
    pub commit_retry_ms_max: u64,
    /// A commit that takes longer makes the server not ready.
    pub commit_stall_ms_max: u64,
    /// How often the file system is asked how much room it has.
    pub disk_interval_ms: u64,
    /// How often the store is asked what other processes have committed, while others have it open.
    pub watch_interval_ms: u64,
    /// How often while nobody else has it open: so late, at most, is the first commit of a process noticed that has just
    /// opened the store.
    pub watch_idle_ms_max: u64,
    /// Threads that read.
    pub readers: usize,
    /// Bytes waiting in one connection's outbox: above, the engine sends it nothing but answers and the edge stops
    /// reading from it; below half of it, both go on.
    pub outbox_soft_bytes: usize,
    /// A connection that was told to wait and still gets past this is dropped.
    pub outbox_hard_bytes: usize,
    /// Notes for the log and the audit that wait to be written down: more are dropped and counted.
    pub notes_max: usize,
    /// The owner looks at the clock at least this often, so that a step of the wall clock is noticed by what is due.
    pub wait_ms_max: u64,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        BrokerSettings {
            request_units_max: 16 << 10,
            turn_requests_max: 1024,
            backlog_batches_max: 8192,
            backlog_bytes_max: 32 << 20,
            commit_batches_max: 4096,
            commit_bytes_max: 16 << 20,
            maintain_rows_max: 512,
            maintain_interval_ms: 250,
            commit_retry_ms_max: 1000,
            commit_stall_ms_max: 10_000,
            disk_interval_ms: 1000,
            watch_interval_ms: 10,
            watch_idle_ms_max: 100,
            readers: 2,
            outbox_soft_bytes: 1 << 20,
            outbox_hard_bytes: 8 << 20,
            notes_max: 4096,
            wait_ms_max: 1000,
        }
    }
}
