//! The thread beside a handle: a follower folds what is new; a leader beats when it is idle, and looks after snapshots
//! and trimming.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millrace_store::{FailureCause, StoreError};

use crate::commit::{Stop, refused};
use crate::handle::SharedHandle;
use crate::status::Role;

/// How often a leader looks whether it has to beat.
const LEADER_ROUND_MS: u64 = 50;
/// How often the keeper looks whether the copy's files still have their names: somebody may clear the cache folder.
const COPY_LOOK_MS: u64 = 1_000;

#[derive(Debug)]
pub(crate) struct Keeper {
    follower: Option<JoinHandle<()>>,
}

/// The memory of a keeper between two rounds.
#[derive(Debug, Default)]
pub(crate) struct KeeperState {
    manifest_read_ms: Option<u64>,
    names_checked_ms: Option<u64>,
    cleaned_up_ms: Option<u64>,
    snapshot: Option<JoinHandle<()>>,
    snapshot_tried_ms: Option<u64>,
    /// The error of the last round, logged when it changes.
    failed: Option<String>,
}

impl Keeper {
    pub(crate) fn start(shared: Arc<SharedHandle>) -> Keeper {
        let spawned = thread::Builder::new().name("shared-store".into()).spawn(move || run(&shared));
        match spawned {
            Ok(handle) => Keeper { follower: Some(handle) },
            Err(error) => {
                tracing::error!("no thread for the shared store: {error}. This server cannot follow or beat");
                Keeper { follower: None }
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The handle was closed before: the thread ends after the request to the engine that is under way.
        if let Some(follower) = self.follower.take() {
            let _ = follower.join();
        }
    }
}

fn run(shared: &Arc<SharedHandle>) {
    let snapshot = || {
        let shared = shared.clone();
        let spawned = thread::Builder::new().name("snapshot".into()).spawn(move || shared.snapshot_or_warn());
        match spawned {
            Ok(handle) => Some(handle),
            Err(error) => {
                tracing::warn!("no thread for a snapshot: {error}");
                None
            }
        }
    };
    while !shared.is_closed() {
        shared.keep_with(&snapshot);
        let is_leader = shared.status().role == Role::Leader;
        let pause_ms = if is_leader {
            LEADER_ROUND_MS.min(shared.settings.lead_timeout_ms / 6)
        } else {
            shared.settings.follow_ms
        };
        shared.clock.pause(Duration::from_millis(pause_ms.max(1)));
    }
    let snapshot = shared.keeping.lock().snapshot.take();
    if let Some(snapshot) = snapshot {
        let _ = snapshot.join();
    }
}

impl SharedHandle {
    /// Does what is due, and makes a snapshot on the caller's thread.
    pub(crate) fn keep(&self) {
        self.keep_with(&|| {
            self.snapshot_or_warn();
            None
        });
    }

    /// Does what is due. Errors of the engine are noted in the status; errors that end the handle end it.
    fn keep_with(&self, snapshot: &dyn Fn() -> Option<JoinHandle<()>>) {
        let mut state = self.keeping.lock();
        let now_ms = self.clock.mono_ms();
        let is_due = |last_ms: Option<u64>, every_ms: u64| {
            last_ms.is_none_or(|last_ms| now_ms.saturating_sub(last_ms) >= every_ms)
        };
        if self.ended().is_some() {
            return;
        }
        // A leader's broker looks itself, and saves what it has first.
        if self.status().role != Role::Leader && is_due(state.names_checked_ms, COPY_LOOK_MS) {
            state.names_checked_ms = Some(now_ms);
            if let Some(what) = self.copy.lost_names() {
                self.end_without_copy(StoreError::Poisoned(FailureCause::from(what)));
                return;
            }
        }
        let followed = self.follow_or_beat(now_ms);
        state.tell(followed.err());
        if is_due(state.manifest_read_ms, self.settings.manifest_refresh_ms) {
            state.manifest_read_ms = Some(now_ms);
            let _ = self.look_around().map_err(|stop| self.stop(stop));
        }
        if self.ended().is_some() || self.status().role != Role::Leader {
            return;
        }
        if state.snapshot.as_ref().is_some_and(JoinHandle::is_finished) {
            state.snapshot = None;
        }
        if state.snapshot.is_none()
            && is_due(state.snapshot_tried_ms, self.settings.lead_timeout_ms)
            && self.is_snapshot_due()
        {
            state.snapshot_tried_ms = Some(now_ms);
            state.snapshot = snapshot();
        }
        if is_due(state.cleaned_up_ms, self.settings.clean_up_ms) {
            state.cleaned_up_ms = Some(now_ms);
            self.clean_up();
        }
    }

    fn follow_or_beat(&self, now_ms: u64) -> Result<(), StoreError> {
        let mut turn = self.turn();
        self.refuse_ended()?;
        if turn.lead.own.is_none() {
            return self.catch_up(&mut turn).map(drop);
        }
        let is_silent = now_ms.saturating_sub(turn.news_at_ms) >= self.settings.lead_timeout_ms / 3;
        if is_silent { self.beat(&mut turn) } else { Ok(()) }
    }

    /// Reads the manifest again, and compares the copy's position with the journal: an engine that was set back to an
    /// older state tells nobody.
    fn look_around(&self) -> Result<(), Stop> {
        self.read_manifest_until_known()?;
        let position = self.turn().position;
        self.verify_record(position.n, position.tip)?;
        self.refuse_less_replication()
    }

    /// Ends a handle whose engine keeps records on fewer machines than it promised, because others were told so. The
    /// store is opened again, with the promise that holds then.
    fn refuse_less_replication(&self) -> Result<(), Stop> {
        // An engine that does not answer is asked again in the next round.
        if !self.fitness.is_replicated || !matches!(self.journal.is_still_replicated(), Ok(false)) {
            return Ok(());
        }
        Err(Stop::End(refused("records are no longer on more than one machine, and more was promised")))
    }

    fn snapshot_or_warn(&self) {
        if let Err(error) = self.make_snapshot() {
            tracing::warn!("no snapshot was made, the next attempt follows: {error}");
        }
    }

    fn clean_up(&self) {
        match self.delete_trimmed() {
            Ok(Some(to)) => tracing::info!(to, "records before the snapshot were deleted"),
            Ok(None) => {}
            Err(error) => tracing::warn!("records before the snapshot could not be deleted: {error}"),
        }
        match self.delete_orphans() {
            Ok(0) => {}
            Ok(parts) => tracing::info!(parts, "parts of older snapshots were deleted"),
            Err(error) => tracing::warn!("parts of older snapshots could not be deleted: {error}"),
        }
    }
}

impl KeeperState {
    /// Logs an error that the status does not show, such as a full disk, once.
    fn tell(&mut self, error: Option<StoreError>) {
        let text = error.map(|error| error.to_string());
        if self.failed != text {
            if let Some(text) = &text {
                tracing::warn!("the shared store cannot be followed now: {text}");
            }
            self.failed = text;
        }
    }
}
