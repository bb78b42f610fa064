//! The thread beside a handle: a follower folds what is new; a leader beats when it is idle, and looks after snapshots
//! and trimming.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::status::Role;
use crate::store::{JournalStore, SharedHandle};

/// How often a leader looks whether it has to beat.
const LEADER_ROUND_MS: u64 = 50;

#[derive(Debug)]
pub(crate) struct Keeper {
    follower: Option<JoinHandle<()>>,
}

/// What a keeper remembers between two rounds.
#[derive(Debug, Default)]
pub(crate) struct KeeperState {
    manifest_read_ms: u64,
    cleaned_up_ms: u64,
    snapshot: Option<JoinHandle<()>>,
    snapshot_tried_ms: u64,
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
    let mut state = KeeperState::default();
    while !shared.is_closed.load(Relaxed) {
        shared.keeper_round(&mut state, || snapshot_beside(shared));
        let is_leader = shared.status().role == Role::Leader;
        let pause_ms = if is_leader {
            LEADER_ROUND_MS.min(shared.settings.lead_timeout_ms / 6)
        } else {
            shared.settings.follow_ms
        };
        shared.clock.pause(Duration::from_millis(pause_ms.max(1)));
    }
    if let Some(snapshot) = state.snapshot.take() {
        let _ = snapshot.join();
    }
}

/// Makes a snapshot on a thread of its own.
fn snapshot_beside(shared: &Arc<SharedHandle>) -> Option<JoinHandle<()>> {
    let shared = shared.clone();
    match thread::Builder::new().name("snapshot".into()).spawn(move || shared.try_snapshot()) {
        Ok(handle) => Some(handle),
        Err(error) => {
            tracing::warn!("no thread for a snapshot: {error}");
            None
        }
    }
}

impl JournalStore {
    /// Does what the thread of a handle does in one of its rounds: a follower folds what is new; a leader beats if it
    /// was idle, and makes a snapshot and cleans up if that is due. For handles without a thread
    /// ([`JournalStore::open_quiet`]), in tests and simulations.
    pub fn keep(&self) {
        let mut state = std::mem::take(&mut *self.quiet_rounds.lock());
        let shared = self.shared();
        shared.keeper_round(&mut state, || {
            shared.try_snapshot();
            None
        });
        *self.quiet_rounds.lock() = state;
    }
}

impl SharedHandle {
    fn try_snapshot(&self) {
        if let Err(error) = self.make_snapshot() {
            tracing::warn!("no snapshot was made, the next attempt follows: {error}");
        }
    }

    /// Does what is due. Errors of the engine are noted in the status; errors that end the handle end it. `snapshot`
    /// makes a snapshot, and returns the thread that does if there is one.
    fn keeper_round(&self, state: &mut KeeperState, snapshot: impl FnOnce() -> Option<JoinHandle<()>>) {
        let now_ms = self.clock.mono_ms();
        {
            let mut turn = self.turn();
            if turn.ended.is_some() {
                return;
            }
            let is_silent = now_ms.saturating_sub(turn.news_at_ms) >= self.settings.lead_timeout_ms / 3;
            // The errors are in the status already, and the next round tries again.
            let _ = match turn.lead.own.is_some() {
                true if is_silent => self.beat(&mut turn),
                true => Ok(()),
                false => self.catch_up(&mut turn).map(drop),
            };
        }
        if now_ms.saturating_sub(state.manifest_read_ms) >= self.settings.manifest_refresh_ms {
            state.manifest_read_ms = now_ms;
            if let Err(error) = self.read_manifest() {
                tracing::warn!("the manifest of the shared store could not be read: {error}");
            }
        }
        if self.status().role != Role::Leader {
            return;
        }
        if state.snapshot.as_ref().is_some_and(JoinHandle::is_finished) {
            state.snapshot = None;
        }
        if state.snapshot.is_none()
            && self.is_snapshot_due()
            && now_ms.saturating_sub(state.snapshot_tried_ms) >= self.settings.lead_timeout_ms
        {
            state.snapshot_tried_ms = now_ms;
            state.snapshot = snapshot();
        }
        if now_ms.saturating_sub(state.cleaned_up_ms) >= self.settings.clean_up_ms {
            state.cleaned_up_ms = now_ms;
            self.clean_up();
        }
    }

    pub(crate) fn is_snapshot_due(&self) -> bool {
        let (bytes, n) = {
            let turn = self.turn();
            (turn.bytes_since_snapshot, turn.position.n)
        };
        let (last_bytes, last_n) = {
            let known = self.manifest.lock();
            let snapshot = known.manifest.snapshot.as_ref();
            snapshot.map_or((0, 0), |snapshot| (snapshot.bytes, snapshot.n))
        };
        bytes > self.settings.snapshot_bytes.max(last_bytes)
            || n.saturating_sub(last_n) > self.settings.snapshot_records
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
