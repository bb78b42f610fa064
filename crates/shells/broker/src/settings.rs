//! Every bound of the shell, with its default and the consequence of reaching it.

#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// Requests that wait for the owner, in units: one for each request plus one for each KiB it carries. Above,
    /// callers wait.
    pub request_units_max: u32,
    /// Requests that the owner takes in one turn. The rest waits for the next turn.
    pub turn_requests_max: usize,
    /// Batches handed to the writer and not yet confirmed. Above, the owner takes no more requests.
    pub backlog_batches_max: usize,
    pub backlog_bytes_max: usize,
    /// Batches merged into one commit. The rest waits for the next one. A first batch is taken whatever its size.
    pub commit_batches_max: usize,
    pub commit_bytes_max: usize,
    /// Whether the task of a connection may commit a lone batch itself, which saves waking a thread. Off for a store whose
    /// commits wait for a network.
    pub inline_commits: bool,
    /// Rows of housekeeping between two checks of the queue.
    pub maintain_rows_max: usize,
    /// Pause between rounds of housekeeping when the last one left nothing to do.
    pub maintain_interval_ms: u64,
    /// A commit that wrote nothing, because the disk is full or another program has locked the store, is retried after
    /// a pause that doubles up to this.
    pub commit_retry_ms_max: u64,
    /// A commit that takes longer makes the server not ready.
    pub commit_stall_ms_max: u64,
    /// How often the free space of the file system is checked.
    pub disk_interval_ms: u64,
    /// How often the store is checked for commits of other processes, while others have it open.
    pub watch_interval_ms: u64,
    /// How often it is checked while no other process has it open: the first commit of a process that has just opened
    /// the store is noticed at most this late.
    pub watch_idle_ms_max: u64,
    /// Reader threads.
    pub readers: usize,
    /// Bytes waiting in one connection's outbox. Above, the engine sends it nothing but answers and the edge stops
    /// reading from it; below half of it, both go on.
    pub outbox_soft_bytes: usize,
    /// A connection that exceeds this after it was held back at the soft bound is dropped.
    pub outbox_hard_bytes: usize,
    /// Notes for the log and the audit that wait to be written. More are dropped and counted.
    pub notes_max: usize,
    /// The owner reads the clock at least this often, so that deadlines take a step of the wall clock into account.
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
            inline_commits: true,
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
