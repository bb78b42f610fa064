//! Bounds of the runtime and the store: queues, commits, reader threads, the disk.

use crate::settings::bounds::{bound, largest};
use crate::settings::{Scope, SettingDef, SettingKind, SettingValue};

pub(super) static SETTINGS: &[SettingDef] = &[
    bound!(
        "dedupe-ids-max",
        store_options.dedupe_ids_max,
        usize,
        1,
        u32::MAX as u64 - 1,
        &[],
        "Ids remembered for dedupe, about 24 bytes each: the oldest are forgotten"
    ),
    bound!(
        "notes-max",
        server.broker.notes_max,
        usize,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "Notes of the engine waiting for the log and the audit: more are dropped and counted"
    ),
    bound!(
        "outbound-bytes-pause",
        server.broker.outbox_soft_bytes,
        usize,
        1,
        "Bytes waiting for a reader: deliveries pause"
    ),
    bound!(
        "outbound-bytes-max",
        server.broker.outbox_hard_bytes,
        usize,
        1,
        "Bytes waiting for a reader: it is dropped"
    ),
    bound!(
        "request-units-max",
        server.broker.request_units_max,
        u32,
        1,
        u32::MAX as u64 >> 3,
        &[],
        "Requests waiting, each one plus one per KiB: askers wait"
    ),
    bound!(
        "turn-requests-max",
        server.broker.turn_requests_max,
        usize,
        1,
        "Requests decided before effects leave"
    ),
    bound!(
        "backlog-batches-max",
        server.broker.backlog_batches_max,
        usize,
        1,
        "Batches waiting for the disk: requests wait"
    ),
    bound!(
        "backlog-bytes-max",
        server.broker.backlog_bytes_max,
        usize,
        1,
        "Bytes waiting for the disk: requests wait"
    ),
    bound!(
        "commit-batches-max",
        server.broker.commit_batches_max,
        usize,
        1,
        "Batches merged into one commit"
    ),
    bound!(
        "commit-retry-ms-max",
        server.broker.commit_retry_ms_max,
        u64,
        1,
        "Longest pause before a commit that left nothing (disk full, file locked) is tried again"
    ),
    bound!(
        "commit-stall-ms-max",
        server.broker.commit_stall_ms_max,
        u64,
        1,
        "A commit that takes longer than this makes /readyz answer 503"
    ),
    bound!(
        "disk-free-bytes-min",
        store_options.disk_free_bytes_min,
        u64,
        0,
        "Room on the store's disk below which publishes are refused: storage_failed (507)"
    ),
    bound!(
        "disk-interval-ms",
        server.broker.disk_interval_ms,
        u64,
        1,
        "How often the room on the store's disk is looked at"
    ),
    bound!("commit-bytes-max", server.broker.commit_bytes_max, usize, 1, "Bytes merged into one commit"),
    bound!("maintain-rows-max", server.broker.maintain_rows_max, usize, 1, "Rows of housekeeping at a time"),
    bound!(
        "maintain-interval-ms",
        server.broker.maintain_interval_ms,
        u64,
        1,
        "Pause between slices of housekeeping"
    ),
    bound!(
        "watch-interval-ms",
        server.broker.watch_interval_ms,
        u64,
        1,
        "How often the store is asked what other processes have committed, while one has it open"
    ),
    bound!(
        "watch-idle-ms-max",
        server.broker.watch_idle_ms_max,
        u64,
        1,
        "How often at least while no other process has it open: the first commit of a newcomer may be noticed so late"
    ),
    bound!("readers", server.broker.readers, usize, 1, 1024, &[], "Threads that read"),
    bound!(
        "wait-ms-max",
        server.broker.wait_ms_max,
        u64,
        1,
        "How often the wall clock is looked at, at least"
    ),
    bound!(
        "store-readers-max",
        store_options.readers_max,
        usize,
        1,
        1024,
        &[],
        "Read connections to the SQLite file: more wait"
    ),
    bound!(
        "store-wal-bytes",
        store_options.sqlite.wal_bytes,
        u64,
        4096,
        "Size of the WAL from which on it is checkpointed; a commit waits for it at four times this"
    ),
    bound!(
        "store-fold-events",
        store_options.sqlite.fold_events,
        u64,
        1,
        "Events whose places are kept in memory before they are folded into a table"
    ),
    bound!(
        "store-busy-timeout-ms",
        store_options.sqlite.busy_timeout_ms,
        u64,
        0,
        u32::MAX as u64 >> 1,
        &[],
        "How long locks of other programs on the SQLite file are waited for"
    ),
    bound!(
        "store-fold-bytes",
        store_options.sqlite.fold_bytes,
        u64,
        1,
        "Bytes of events before their places are folded"
    ),
];
