//! The thread that watches the writer: it reports what a slow commit waits for, and how much room the disk has.
//!
//! The monitor waits for neither the engine nor the writer, so it can report when they hang. Edges read its findings
//! from [`Health`]; the age of a commit is computed there and needs no thread at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use millrace_bus::Input;
use millrace_store::{DiskUse, Store};
use parking_lot::{Condvar, Mutex};

use crate::command::BrokerInbox;
use crate::health::Health;

/// How often the commit under way is checked. While nothing is written, the monitor rests until the disk is to be checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// A commit that takes this long causes a warning, and another one whenever its age has doubled, at the latest after
/// `WARN_PAUSE_MAX`.
const WARN_AFTER: Duration = Duration::from_secs(1);
const WARN_PAUSE_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Monitor {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) health: Arc<Health>,
    pub(crate) inbox: Arc<BrokerInbox>,
    pub(crate) control: Arc<Control>,
    pub(crate) disk_interval: Duration,
}

/// Wakes the thread before its next check, or ends it.
#[derive(Debug, Default)]
pub(crate) struct Control {
    state: Mutex<ControlState>,
    changed: Condvar,
    /// Store calls of the writer that have begun.
    calls_begun: AtomicU64,
    /// The thread sleeps for longer than `CHECK_INTERVAL`.
    is_resting: AtomicBool,
}

#[derive(Debug, Default)]
struct ControlState {
    check: bool,
    end: bool,
}

impl Control {
    pub(crate) fn end(&self) {
        self.tell(|state| state.end = true);
    }

    /// The engine must be state of a change now: wakes the thread for a check.
    pub(crate) fn check(&self) {
        self.tell(|state| state.check = true);
    }

    /// The writer begins a call of the store, which may take long.
    pub(crate) fn writing(&self) {
        // Ordered with the load in `rests`: either the monitor sees this call, or this thread sees that it rests.
        self.calls_begun.fetch_add(1, SeqCst);
        if self.is_resting.swap(false, SeqCst) {
            self.check();
        }
    }

    /// Returns whether the monitor may rest: no call has begun since `seen` was counted.
    fn rests(&self, seen: u64) -> bool {
        self.is_resting.store(true, SeqCst);
        let rests = self.calls_begun.load(SeqCst) == seen;
        self.is_resting.store(rests, SeqCst);
        rests
    }

    fn tell(&self, tell: impl FnOnce(&mut ControlState)) {
        tell(&mut self.state.lock());
        self.changed.notify_all();
    }

    /// Waits for the next check. Returns true at the end.
    fn wait(&self, wait: Duration) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| !state.check && !state.end, wait);
        state.check = false;
        state.end
    }
}

impl Monitor {
    pub(crate) fn run(&self) {
        let mut warnings = Warnings::default();
        let (mut refused, mut disk_at, mut wal) = (None, Instant::now(), WalWarnings::default());
        let (mut attempts, mut seen) = (0, 0);
        loop {
            let begun = self.control.calls_begun.load(SeqCst);
            let is_quiet = std::mem::replace(&mut seen, begun) == begun && self.health.commit_age().is_zero();
            self.check_commit(&mut warnings);
            // Not while a commit hangs: a file system that hangs would block this thread, too.
            let hangs = self.health.commit_age() >= WARN_AFTER && !self.health.is_retrying();
            if Instant::now() >= disk_at && !hangs {
                let committed = self.health.committed_bytes();
                let disk_use = self.store.disk_use();
                self.health.set_disk_use(disk_use);
                self.health.forget_committed(committed);
                wal.warn(disk_use.unwrap_or_default());
                self.check_names(&mut attempts);
                disk_at = Instant::now() + self.disk_interval;
            }
            self.tell_engine(&mut refused);
            let wait = match is_quiet && self.control.rests(seen) {
                true => disk_at.saturating_duration_since(Instant::now()).max(CHECK_INTERVAL),
                false => CHECK_INTERVAL,
            };
            if self.control.wait(wait) {
                self.check_names_last();
                return;
            }
        }
    }

    fn check_commit(&self, warnings: &mut Warnings) {
        let age = self.health.commit_age();
        self.health.set_waits_for(if age >= WARN_AFTER { self.store.waits_for() } else { None });
        match warnings.after(age) {
            Warning::None => {}
            Warning::Slow => {
                let (ms, waits_for) = (age.as_millis() as u64, self.health.waits_for());
                tracing::warn!(target: "millrace::store", ms, waits_for, "a commit has not come through yet");
            }
            Warning::Over(took) => {
                let ms = took.as_millis() as u64;
                tracing::warn!(target: "millrace::store", ms, "commits come through again");
            }
        }
    }

    /// Gives up a store whose files have been moved, removed or replaced: a process that opens it by name would not see
    /// what this process confirms.
    fn check_names(&self, attempts: &mut u32) {
        if self.health.storage_failed().is_some() {
            return;
        }
        if !self.has_lost_names() {
            return;
        }
        match self.store.retire() {
            Ok(reason) => self.inbox.complete([Input::StorageFailed { reason }]),
            Err(error) => {
                *attempts += 1;
                if attempts.is_power_of_two() {
                    tracing::error!(target: "millrace::store", %error, "nothing is confirmed until this is done");
                }
            }
        }
    }

    /// The last check, at a stop: closing a file without a name would lose its content. Nobody waits for an answer any
    /// more.
    fn check_names_last(&self) {
        if self.health.storage_failed().is_none() && self.has_lost_names() {
            let reason = self.store.retire().unwrap_or_else(|error| error.to_string());
            self.health.set_storage_failed(reason);
        }
    }

    fn has_lost_names(&self) -> bool {
        if self.health.lost_names().is_none() {
            let Some(what) = self.store.lost_names() else { return false };
            tracing::error!(target: "millrace::store", what, "the store has lost its place: this server stops");
            // Set at once, because saving the content of the files may take a while.
            self.health.set_lost_names(what);
        }
        true
    }

    /// Tells the engine whether publishes are to be refused, if that has changed.
    fn tell_engine(&self, refused: &mut Option<String>) {
        let reason = self.health.no_space();
        if refused.is_some() == reason.is_some() {
            return;
        }
        refused.clone_from(&reason);
        // Before the log line, so that a request sent after the line is handled after this.
        self.inbox.complete([Input::NoSpace { reason: reason.clone() }]);
        match reason {
            Some(reason) => {
                tracing::warn!(target: "millrace::store", reason, "publishes are refused: there is no room");
            }
            None => tracing::warn!(target: "millrace::store", "there is room again: publishes are taken"),
        }
    }
}

/// Decides when to warn of a write-ahead log that cannot start over: once, and whenever it has doubled.
#[derive(Debug, Default)]
struct WalWarnings {
    warned_bytes: Option<u64>,
}

impl WalWarnings {
    fn warn(&mut self, disk_use: DiskUse) {
        let bytes = disk_use.wal_bytes;
        if self.after(disk_use) {
            tracing::warn!(
                target: "millrace::store",
                bytes,
                "the write-ahead log grows and cannot start over: a reader holds an old state of the store (a backup, \
                 `millrace doctor`, or an open transaction of another program); end it"
            );
        }
    }

    /// Returns whether to warn now.
    fn after(&mut self, disk_use: DiskUse) -> bool {
        if !disk_use.wal_stuck {
            self.warned_bytes = None;
            return false;
        }
        let due = self.warned_bytes.is_none_or(|warned| disk_use.wal_bytes >= warned.saturating_mul(2));
        if due {
            self.warned_bytes = Some(disk_use.wal_bytes);
        }
        due
    }
}

/// Decides when to warn of the commit under way.
#[derive(Debug, Default)]
struct Warnings {
    /// The age at the last warning about this commit.
    warned: Option<Duration>,
    /// The age when it was looked at last.
    seen: Duration,
}

#[derive(Debug, PartialEq, Eq)]
enum Warning {
    None,
    Slow,
    /// A commit that was warned of has ended. Has its age when it was last seen under way.
    Over(Duration),
}

impl Warnings {
    /// `age` is how long the commit under way has taken so far.
    fn after(&mut self, age: Duration) -> Warning {
        let seen = std::mem::replace(&mut self.seen, age);
        match self.warned {
            Some(_) if age < seen => {
                self.warned = None;
                Warning::Over(seen)
            }
            Some(warned) if age >= warned + warned.min(WARN_PAUSE_MAX) => {
                self.warned = Some(age);
                Warning::Slow
            }
            None if age >= WARN_AFTER => {
                self.warned = Some(age);
                Warning::Slow
            }
            _ => Warning::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_cannot_start_over_is_warned_of_whenever_it_has_doubled() {
        let mut warnings = WalWarnings::default();
        let mut after =
            |wal_bytes, wal_stuck| warnings.after(DiskUse { wal_bytes, wal_stuck, ..DiskUse::default() });
        assert!(!after(100, false), "it is large and starts over");
        assert!(after(100, true) && !after(150, true) && after(200, true) && !after(399, true));
        assert!(!after(400, false) && after(100, true));
    }

    #[test]
    fn a_slow_commit_is_warned_of_at_growing_intervals() {
        let mut warnings = Warnings::default();
        let mut told = Vec::new();
        for ms in (0..400_000).step_by(200) {
            match warnings.after(Duration::from_millis(ms)) {
                Warning::None => {}
                Warning::Slow => told.push(ms / 1000),
                Warning::Over(_) => panic!("it is not over"),
            }
        }
        assert_eq!(told, [1, 2, 4, 8, 16, 32, 64, 124, 184, 244, 304, 364]);
        assert_eq!(warnings.after(Duration::ZERO), Warning::Over(Duration::from_millis(399_800)));
        assert_eq!(warnings.after(Duration::from_millis(999)), Warning::None);
    }
}
