//! The phase of the session, and the times of what it does at intervals.

use millrace_model::{Mono, Now, Timestamp};

use crate::interface::config::WorkerConfig;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Fresh,
    /// Reads what it must know before it can work (`start.rs`).
    Starting,
    Working,
    Stopping,
    /// The commit that says that the session has stopped is under way.
    Closing,
    Stopped,
    Failed,
}

#[derive(Debug)]
pub(crate) struct SessionState {
    phase: Phase,
    began: Timestamp,
    heartbeat_at: Mono,
    refresh_at: Mono,
    /// When a stop no longer waits for runs.
    stop_at: Option<Mono>,
    /// Why the store failed.
    failure: Option<String>,
}

impl SessionState {
    pub(crate) fn new() -> SessionState {
        SessionState {
            phase: Phase::Fresh,
            began: Timestamp(0),
            heartbeat_at: Mono(0),
            refresh_at: Mono(0),
            stop_at: None,
            failure: None,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) fn is_working(&self) -> bool {
        self.phase == Phase::Working
    }

    pub(crate) fn is_starting(&self) -> bool {
        self.phase == Phase::Starting
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.phase == Phase::Stopping
    }

    /// Whether handlers may be running.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Working | Phase::Stopping | Phase::Closing)
    }

    pub(crate) fn may_commit(&self) -> bool {
        !matches!(self.phase, Phase::Fresh | Phase::Failed | Phase::Stopped)
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(crate) fn began(&self) -> Timestamp {
        self.began
    }

    pub(crate) fn heartbeat_at(&self) -> Mono {
        self.heartbeat_at
    }

    pub(crate) fn refresh_at(&self) -> Mono {
        self.refresh_at
    }

    pub(crate) fn stop_at(&self) -> Option<Mono> {
        self.stop_at
    }

    /// Whether a stop no longer waits for runs.
    pub(crate) fn is_grace_over(&self, now: Now) -> bool {
        self.stop_at.is_some_and(|at| at <= now.mono)
    }

    pub(crate) fn start(&mut self, now: Now) {
        self.phase = Phase::Starting;
        self.began = now.wall;
    }

    pub(crate) fn work(&mut self, now: Now, config: &WorkerConfig) {
        self.phase = Phase::Working;
        self.refresh_at = now.mono + config.refresh_interval_ms;
    }

    pub(crate) fn stop(&mut self, now: Now, config: &WorkerConfig) {
        self.phase = Phase::Stopping;
        self.stop_at = Some(now.mono + config.stop_grace_ms);
    }

    /// The session writes that it has stopped: that is its last heartbeat.
    pub(crate) fn close(&mut self) {
        self.phase = Phase::Closing;
        self.heartbeat_at = Mono(u64::MAX);
    }

    pub(crate) fn end(&mut self) {
        self.phase = Phase::Stopped;
    }

    pub(crate) fn fail(&mut self, reason: String) {
        self.phase = Phase::Failed;
        self.failure = Some(reason);
    }

    /// The session's row has changed: write it with the next commit.
    pub(crate) fn heartbeat_now(&mut self, now: Now) {
        self.heartbeat_at = now.mono;
    }

    /// Returns whether a heartbeat is due, and plans the next one.
    pub(crate) fn take_heartbeat(&mut self, now: Now, config: &WorkerConfig) -> bool {
        let due = self.heartbeat_at <= now.mono;
        if due {
            self.heartbeat_at = now.mono + config.session_heartbeat_interval_ms;
        }
        due
    }

    /// Returns whether the rows of the namespace are to be read again, and plans the next time.
    pub(crate) fn take_refresh(&mut self, now: Now, config: &WorkerConfig) -> bool {
        let due = self.refresh_at <= now.mono;
        if due {
            self.refresh_at = now.mono + config.refresh_interval_ms;
        }
        due
    }
}
