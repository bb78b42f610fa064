//! State for readiness probes and metrics: set by the threads of the shell, read by the edges without waiting for any
//! of them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use millrace_store::{DiskUse, StoreError};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

/// Stands for "none" where a moment is stored.
const NEVER: u64 = 0;
/// Estimated disk space of a commit beyond the bytes of its batches: some pages of its own, and a part of the bytes.
const COMMIT_OVERHEAD_BYTES: u64 = 16 << 10;
const COMMIT_OVERHEAD_PART: u64 = 8;

#[derive(Debug)]
pub struct Health {
    started: Instant,
    commit_stall_ms_max: u64,
    storage_failed: OnceLock<String>,
    /// Set when the store's files have been moved, removed or replaced. Their content is being saved; then the store
    /// counts as failed.
    lost_names: OnceLock<String>,
    /// The store counts as failed because another server leads it: see [`Health::is_deposed`].
    deposed: AtomicBool,
    /// Turns true when everybody who waited for the failed store has been answered.
    failure_told: watch::Sender<bool>,
    stopping: AtomicBool,
    /// When the writer entered its current store call.
    writing_since: AtomicU64,
    /// About how many bytes commits have taken since the monitor last checked the disk (`committed_bytes`), and how
    /// many they may take until the disk's free space is below its minimum (`room_bytes`).
    committed_bytes: AtomicU64,
    room_bytes: AtomicU64,
    /// When the first attempt of the commit that is being retried began.
    retrying_since: AtomicU64,
    details: Mutex<Details>,
}

/// Seldom written, by the writer and the monitor.
#[derive(Debug, Default)]
struct Details {
    /// The store's description of what the writer waits for.
    waits_for: Option<String>,
    /// Why the last attempt to commit wrote nothing.
    retry_reason: Option<String>,
    /// Why there is no room: the disk is full, as a commit found out (`no_space`), or its free space is below the
    /// minimum (`low`).
    no_space: Option<String>,
    low: Option<String>,
    disk_use: Option<DiskUse>,
}

/// A commit that takes too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    pub age: Duration,
    pub waits_for: String,
}

impl Health {
    pub(crate) fn new(commit_stall_ms_max: u64) -> Health {
        Health {
            started: Instant::now(),
            commit_stall_ms_max,
            storage_failed: OnceLock::new(),
            lost_names: OnceLock::new(),
            deposed: AtomicBool::new(false),
            failure_told: watch::Sender::new(false),
            stopping: AtomicBool::new(false),
            writing_since: AtomicU64::new(NEVER),
            committed_bytes: AtomicU64::new(0),
            room_bytes: AtomicU64::new(u64::MAX),
            retrying_since: AtomicU64::new(NEVER),
            details: Mutex::default(),
        }
    }

    /// Why nothing is written any more, if so. The first reason is kept.
    pub fn storage_failed(&self) -> Option<&str> {
        self.storage_failed.get().map(String::as_str)
    }

    /// Which of the store's files have been moved, removed or replaced, if any. Such a server stops: see
    /// [`Health::storage_failed`].
    pub fn lost_names(&self) -> Option<&str> {
        self.lost_names.get().map(String::as_str)
    }

    /// Whether this server has lost the lead of a shared store to another server. Nothing of the commit that found this
    /// out was written, nor of anything behind it. [`Health::storage_failed`] says so, too.
    pub fn is_deposed(&self) -> bool {
        self.deposed.load(Relaxed)
    }

    pub fn stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    pub fn ready(&self) -> bool {
        self.storage_failed().is_none()
            && self.lost_names().is_none()
            && !self.stopping()
            && self.stall().is_none()
            && !self.is_retrying()
    }

    /// How long the commit under way has taken, including earlier attempts. Zero when none is under way.
    pub fn commit_age(&self) -> Duration {
        let since = [&self.writing_since, &self.retrying_since].map(|since| since.load(Relaxed));
        let first = since.into_iter().filter(|since| *since != NEVER).min();
        first.map_or(Duration::ZERO, |since| {
            self.started.elapsed().saturating_sub(Duration::from_micros(since))
        })
    }

    /// The commit under way, if it takes longer than `commit_stall_ms_max`.
    pub fn stall(&self) -> Option<Stall> {
        let age = self.commit_age();
        (age >= Duration::from_millis(self.commit_stall_ms_max))
            .then(|| Stall { age, waits_for: self.waits_for() })
    }

    /// Why the last attempt to commit wrote nothing, while that commit is retried.
    pub fn retrying(&self) -> Option<String> {
        self.details().retry_reason.clone()
    }

    /// Why publishes are refused for lack of disk space, if so.
    pub fn no_space(&self) -> Option<String> {
        let details = self.details();
        details.no_space.clone().or_else(|| details.low.clone())
    }

    /// Used and free bytes of the store and its file system when the monitor last checked.
    pub fn disk_use(&self) -> Option<DiskUse> {
        self.details().disk_use
    }

    /// Waits until the store has failed and everybody who waited for it was answered.
    pub async fn failure_told(&self) {
        // The sender lives as long as `self`.
        let _ = self.failure_told.subscribe().wait_for(|told| *told).await;
    }

    pub(crate) fn set_storage_failed(&self, reason: String) {
        let _ = self.storage_failed.set(reason);
    }

    pub(crate) fn set_lost_names(&self, what: String) {
        let _ = self.lost_names.set(what);
    }

    /// To be called before the store counts as failed, so that whoever is told of the failure is told why.
    pub(crate) fn set_deposed(&self) {
        self.deposed.store(true, Relaxed);
    }

    pub(crate) fn set_failure_told(&self) {
        self.failure_told.send_replace(true);
    }

    pub(crate) fn set_stopping(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// The writer is inside a store call until the guard is dropped.
    pub(crate) fn writing(&self) -> Writing<'_> {
        self.writing_since.store(self.now(), Relaxed);
        Writing(self)
    }

    /// A commit wrote nothing and will be retried. Must be called inside the store call that failed
    /// ([`Health::writing`]): the age of the commit then counts from the beginning of that call, without a gap.
    pub(crate) fn set_retrying(&self, error: &StoreError) {
        let (reason, no_space) = (error.to_string(), matches!(error, StoreError::NoSpace(_)));
        let since = match self.writing_since.load(Relaxed) {
            NEVER => self.now(),
            since => since,
        };
        let _ = self.retrying_since.compare_exchange(NEVER, since, Relaxed, Relaxed);
        let mut details = self.details();
        details.no_space = no_space.then(|| reason.clone());
        details.retry_reason = Some(reason);
    }

    /// A commit has succeeded. Returns whether it had been retried.
    pub(crate) fn set_written(&self) -> bool {
        if !self.is_retrying() {
            return false;
        }
        self.retrying_since.store(NEVER, Relaxed);
        let mut details = self.details();
        details.retry_reason = None;
        details.no_space = None;
        true
    }

    pub(crate) fn is_retrying(&self) -> bool {
        self.retrying_since.load(Relaxed) != NEVER
    }

    pub(crate) fn set_waits_for(&self, waits_for: Option<String>) {
        self.details().waits_for = waits_for;
    }

    pub(crate) fn set_disk_use(&self, disk_use: Option<DiskUse>) {
        let room = disk_use.map_or(u64::MAX, |disk| disk.free_bytes.saturating_sub(disk.free_bytes_min));
        self.room_bytes.store(room, Relaxed);
        let mut details = self.details();
        details.low = disk_use.and_then(|disk_use| disk_use.low());
        details.disk_use = disk_use;
    }

    /// Bytes committed since the last check of the disk; to be passed to [`Health::forget_committed`] after the next
    /// check.
    pub(crate) fn committed_bytes(&self) -> u64 {
        self.committed_bytes.load(Relaxed)
    }

    /// The disk was checked when so many bytes had been committed.
    pub(crate) fn forget_committed(&self, bytes: u64) {
        self.committed_bytes.fetch_sub(bytes, Relaxed);
    }

    /// A commit of so many bytes has succeeded. Returns whether it took the free space below its minimum, as far as can
    /// be told without checking the disk: a fast publisher must not pass the minimum between two checks.
    pub(crate) fn add_committed(&self, bytes: u64) -> bool {
        let bytes = bytes.saturating_add(bytes / COMMIT_OVERHEAD_PART).saturating_add(COMMIT_OVERHEAD_BYTES);
        let committed = self.committed_bytes.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if committed <= self.room_bytes.load(Relaxed) {
            return false;
        }
        let mut details = self.details();
        let Some(disk_use) = details.disk_use.filter(|_| details.low.is_none()) else { return false };
        let free_bytes = disk_use.free_bytes.saturating_sub(committed);
        details.low = DiskUse { free_bytes, ..disk_use }.low();
        details.low.is_some()
    }

    /// Describes what the commit under way waits for, as far as is known.
    pub(crate) fn waits_for(&self) -> String {
        let details = self.details();
        let known = match (&details.waits_for, &details.retry_reason) {
            (Some(waits_for), _) => waits_for.clone(),
            (None, Some(reason)) => format!("the next attempt, because {reason}"),
            (None, None) => "the store".to_owned(),
        };
        drop(details);
        known
    }

    /// Microseconds since the start, never [`NEVER`].
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX).max(NEVER + 1)
    }

    fn details(&self) -> MutexGuard<'_, Details> {
        self.details.lock()
    }
}

pub(crate) struct Writing<'a>(&'a Health);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.writing_since.store(NEVER, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_ages_from_its_first_attempt_until_it_is_written() {
        let health = Health::new(0);
        assert_eq!((health.commit_age(), health.retrying()), (Duration::ZERO, None));
        let writing = health.writing();
        health.set_waits_for(Some("a friend".to_owned()));
        assert_eq!(health.stall().map(|stall| stall.waits_for).as_deref(), Some("a friend"));
        health.set_waits_for(None);
        let attempt = Duration::from_millis(40);
        std::thread::sleep(attempt);
        health.set_retrying(&StoreError::NoSpace("every byte is taken".into()));
        drop(writing);
        let mut age = health.commit_age();
        assert!(age >= attempt, "the first attempt counts: {age:?}");
        assert!(!health.ready() && health.no_space().is_some());
        for _ in 0..3 {
            let writing = health.writing();
            std::thread::sleep(Duration::from_millis(5));
            health.set_retrying(&StoreError::NoSpace("every byte is taken".into()));
            let (before, now) = (age, health.commit_age());
            drop(writing);
            age = health.commit_age();
            assert!(before < now && now <= age, "an attempt that ends does not end the wait");
        }
        assert!(health.set_written() && !health.set_written());
        assert_eq!((health.commit_age(), health.retrying(), health.no_space()), (Duration::ZERO, None, None));
    }

    #[test]
    fn what_is_committed_between_two_looks_counts_against_the_mark() {
        let health = Health::new(1000);
        assert!(!health.add_committed(1 << 40), "nothing is known of the disk yet");
        let disk = |free_bytes| Some(DiskUse { free_bytes, free_bytes_min: 1000, ..DiskUse::default() });
        health.forget_committed(health.committed_bytes());
        health.set_disk_use(disk(1_001_000));
        assert!(!health.add_committed(400_000) && health.no_space().is_none());
        assert!(health.add_committed(600_000), "this one passes the mark");
        assert!(health.no_space().is_some());
        assert!(!health.add_committed(600_000), "and is the only one to tell");
        let before = health.committed_bytes();
        assert!(!health.add_committed(1));
        health.set_disk_use(disk(1_001_000));
        health.forget_committed(before);
        assert_eq!(health.no_space(), None);
        assert!(health.committed_bytes() > 0, "what came after the look still counts");
    }

    #[test]
    fn a_low_disk_is_told_until_there_is_room() {
        let health = Health::new(1000);
        let disk = |free_bytes| Some(DiskUse { free_bytes, free_bytes_min: 10, ..DiskUse::default() });
        health.set_disk_use(disk(9));
        assert!(health.no_space().is_some_and(|reason| reason.contains("9 bytes")));
        assert!(health.ready(), "what does not add anything goes on");
        health.set_disk_use(disk(10));
        assert_eq!(health.no_space(), None);
    }
}
