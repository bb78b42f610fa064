//! The part of a handle on a shared store that its keeper thread shares: who has the turn, why the handle has ended, and
//! what it tells about itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use millrace_journal::{Fitness, Journal, JournalError};
use millrace_store::{Copies, CopyBounds, CopyPosition, FailureCause, Foldable, Page, StoreError};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock::EngineClock;
use crate::commit::Fence;
use crate::keeper::KeeperState;
use crate::lead::LeadState;
use crate::manifest::ManifestState;
use crate::outbox::PublishingRows;
use crate::settings::{JournalSettings, Leadership};
use crate::snapshot::OrphanParts;
use crate::status::{JournalStatus, Role, Unreachable};

/// The parts that opening has found or made.
pub(crate) struct HandleParts {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) copies: Arc<dyn Copies>,
    pub(crate) copy: Arc<dyn Foldable>,
    pub(crate) settings: JournalSettings,
    pub(crate) fitness: Fitness,
    pub(crate) clock: Arc<dyn EngineClock>,
    pub(crate) position: CopyPosition,
    pub(crate) manifest: ManifestState,
}

pub(crate) struct SharedHandle {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) copies: Arc<dyn Copies>,
    pub(crate) copy: Arc<dyn Foldable>,
    pub(crate) settings: JournalSettings,
    pub(crate) fitness: Fitness,
    pub(crate) clock: Arc<dyn EngineClock>,
    pub(crate) writer_id: u128,
    /// The bounds that the copy was opened with.
    pub(crate) bounds: CopyBounds,
    pub(crate) publishing: PublishingRows,
    /// Held during a commit and while records are folded: the copy moves by one thread at a time.
    turn: Mutex<Turn>,
    /// Not part of the turn: a reader that meets damage does not wait for a commit that waits for the engine.
    ended: Mutex<Option<HandleEnd>>,
    pub(crate) manifest: Mutex<ManifestState>,
    /// The state that others may look at while the turn is taken.
    status: Mutex<JournalStatus>,
    news_at_ms: AtomicU64,
    /// When the newest placing of this handle that succeeded began. Its end proves less: the answer may have been on its
    /// way for long, and another server may have taken the lead meanwhile.
    proved_at_ms: AtomicU64,
    /// How long the journal could not be read, in sum. A leader's silence is not counted meanwhile: nobody knows whether
    /// the leader was silent.
    unreadable_ms: AtomicU64,
    /// A request has failed since the copy's position was last compared with the journal: the engine may have failed over
    /// and lost records.
    pub(crate) was_away: AtomicBool,
    /// Wakes those who wait for the end of the handle. Nobody is woken for a commit.
    end_changed: Condvar,
    is_closed: AtomicBool,
    /// From this time on, by the clock that never steps, no request is repeated.
    give_up_at_ms: AtomicU64,
    /// Held while a snapshot is made: two at once would use the same files.
    pub(crate) snapshotting: Mutex<()>,
    pub(crate) orphans: Mutex<OrphanParts>,
    pub(crate) keeping: Mutex<KeeperState>,
}

/// The state of the thread that commits or folds.
pub(crate) struct Turn {
    pub(crate) position: CopyPosition,
    pub(crate) lead: LeadState,
    /// The highest term of a record that was placed or folded.
    pub(crate) term_seen: u64,
    /// When the newest record was placed or folded, by the clock that never steps.
    pub(crate) news_at_ms: u64,
    /// [`SharedHandle::unreadable_ms`] at that time.
    unreadable_before_ms: u64,
    /// When the last commit of this handle began, by the same clock.
    pub(crate) commit_began_ms: Option<u64>,
    /// Records placed or folded by this handle, and their bytes: their average size is used to tell how much lies behind
    /// the last snapshot.
    pub(crate) records_seen: u64,
    pub(crate) bytes_seen: u64,
}

/// Why nothing is written through this handle any more.
#[derive(Clone)]
pub(crate) struct HandleEnd {
    pub(crate) error: StoreError,
    /// Only the copy is lost; the position in the journal is known, so the lead can be given back.
    pub(crate) is_copy_lost: bool,
}

impl SharedHandle {
    pub(crate) fn new(parts: HandleParts) -> Result<SharedHandle, StoreError> {
        let HandleParts { journal, copies, copy, settings, fitness, clock, position, manifest } = parts;
        let (now_ms, bounds) = (clock.mono_ms(), manifest.manifest.copy_bounds());
        let lead = LeadState::load(copy.as_ref())?;
        let turn = Turn {
            position,
            lead,
            term_seen: 0,
            news_at_ms: now_ms,
            commit_began_ms: None,
            unreadable_before_ms: 0,
            records_seen: 0,
            bytes_seen: 0,
        };
        let handle = SharedHandle {
            journal,
            copies,
            copy,
            settings,
            fitness,
            clock,
            writer_id: rand::random(),
            bounds,
            publishing: PublishingRows::default(),
            turn: Mutex::new(turn),
            ended: Mutex::new(None),
            manifest: Mutex::new(manifest),
            status: Mutex::new(JournalStatus::at(position)),
            news_at_ms: AtomicU64::new(now_ms),
            proved_at_ms: AtomicU64::new(now_ms),
            unreadable_ms: AtomicU64::new(0),
            was_away: AtomicBool::new(false),
            end_changed: Condvar::new(),
            is_closed: AtomicBool::new(false),
            give_up_at_ms: AtomicU64::new(u64::MAX),
            snapshotting: Mutex::new(()),
            orphans: Mutex::default(),
            keeping: Mutex::default(),
        };
        handle.publish(&handle.turn.lock());
        Ok(handle)
    }

    pub(crate) fn status(&self) -> JournalStatus {
        let mut status = self.status.lock().clone();
        let now_ms = self.clock.mono_ms();
        status.silent_ms = now_ms.saturating_sub(self.news_at_ms.load(Relaxed));
        status.unproven_ms = now_ms.saturating_sub(self.proved_at_ms.load(Relaxed));
        status
    }

    pub(crate) fn wait_for_end(&self, at_most: Duration) -> Option<String> {
        let mut status = self.status.lock();
        if status.ended.is_none() && !self.is_closed.load(Relaxed) {
            let _ = self.end_changed.wait_for(&mut status, at_most);
        }
        status.ended.clone()
    }

    pub(crate) fn close(&self) {
        // Under the lock, so that nobody who has just looked begins to wait.
        let _status = self.status.lock();
        self.is_closed.store(true, Relaxed);
        self.end_changed.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    pub(crate) fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock()
    }

    pub(crate) fn ended(&self) -> Option<HandleEnd> {
        self.ended.lock().clone()
    }

    /// Fails if this handle has ended. After the loss of its copy it says that it does not lead: nothing was written, and
    /// another server can do what this one was asked for.
    pub(crate) fn refuse_ended(&self) -> Result<(), StoreError> {
        match self.ended() {
            Some(HandleEnd { error: StoreError::Poisoned(cause), is_copy_lost: true }) => {
                let text = format!("it gives the lead up: {cause}");
                Err(StoreError::Deposed(FailureCause::new(text, StoreError::Poisoned(cause))))
            }
            Some(end) => Err(end.error),
            None if self.is_closed.load(Relaxed) => Err(closed()),
            None => Ok(()),
        }
    }

    /// Notes that a record was placed, in an attempt that began at this time: this handle led then.
    pub(crate) fn prove_lead(&self, began_ms: u64) {
        self.proved_at_ms.store(began_ms, Relaxed);
    }

    /// Notes that a record was placed or folded just now.
    pub(crate) fn heard(&self, turn: &mut Turn) {
        turn.news_at_ms = self.clock.mono_ms();
        turn.unreadable_before_ms = self.unreadable_ms.load(Relaxed);
    }

    /// Returns how long nobody has placed a record, without the time in which the journal could not be read.
    pub(crate) fn silent_ms(&self, turn: &Turn) -> u64 {
        let unreadable_ms = self.unreadable_ms.load(Relaxed).saturating_sub(turn.unreadable_before_ms);
        self.clock.mono_ms().saturating_sub(turn.news_at_ms).saturating_sub(unreadable_ms)
    }

    pub(crate) fn was_unreadable(&self, ms: u64) {
        self.unreadable_ms.fetch_add(ms, Relaxed);
    }

    /// Ends the handle: nothing is written through it any more. Returns the error that callers get from now on.
    pub(crate) fn end(&self, error: StoreError) -> StoreError {
        self.end_with(HandleEnd { error, is_copy_lost: false })
    }

    /// Ends the handle because its copy cannot follow the journal, which is as it should be.
    pub(crate) fn end_without_copy(&self, error: StoreError) -> StoreError {
        self.end_with(HandleEnd { error, is_copy_lost: true })
    }

    fn end_with(&self, end: HandleEnd) -> StoreError {
        let mut ended = self.ended.lock();
        if ended.is_none() {
            tracing::error!("the shared store ends for this process: {}", end.error);
            let text = end.error.to_string();
            self.with_status(|status| status.ended = Some(text));
            self.end_changed.notify_all();
            *ended = Some(end.clone());
        }
        end.error
    }

    /// Ends the handle because of its copy, which is set aside and made anew when the store is opened again.
    pub(crate) fn condemn(&self, reason: &str, why: &str) -> StoreError {
        self.end(self.mark(reason, why))
    }

    /// Ends the handle because a row or page of the copy is damaged: it must decide nothing, and the journal has it.
    pub(crate) fn condemn_damaged(&self, why: &str) -> StoreError {
        self.end_without_copy(self.mark("damaged", why))
    }

    fn mark(&self, reason: &str, why: &str) -> StoreError {
        if let Err(error) = self.copies.condemn(reason) {
            tracing::error!("the copy cannot be marked as {reason}: {error}");
        }
        let text = format!("the local copy of the shared store is {reason} and is made anew: {why}");
        StoreError::Poisoned(FailureCause::from(text))
    }

    /// Makes the turn's state visible to those who do not have the turn.
    pub(crate) fn publish(&self, turn: &Turn) {
        let snapshot = self.manifest.lock().snapshot_n();
        let mut status = self.status.lock();
        let row = turn.lead.row().filter(|row| row.is_held());
        status.role = match (turn.lead.leads(), self.settings.leadership) {
            (true, _) => Role::Leader,
            (false, Leadership::Needed) => Role::Follower,
            (false, Leadership::Free) => Role::Peer,
        };
        status.position = turn.position;
        status.head_seen = status.head_seen.max(turn.position.n);
        status.term = turn.lead.row().map_or(0, |row| row.term);
        status.is_led = row.is_some();
        let url = row.map(|row| row.url.as_str()).filter(|url| !url.is_empty());
        if status.leader_url.as_deref() != url {
            status.leader_url = url.map(str::to_owned);
        }
        status.records_since_snapshot = turn.position.n.saturating_sub(snapshot);
        self.news_at_ms.store(turn.news_at_ms, Relaxed);
    }

    pub(crate) fn with_status<T>(&self, change: impl FnOnce(&mut JournalStatus) -> T) -> T {
        change(&mut self.status.lock())
    }

    pub(crate) fn away(&self) -> Option<Unreachable> {
        self.status.lock().unreachable.clone()
    }

    /// Notes that a request to the engine failed.
    pub(crate) fn unreachable(&self, reason: &str) {
        self.was_away.store(true, Relaxed);
        let since_ms = self.clock.wall_ms();
        let is_new = self.with_status(|status| {
            status.engine_failures += 1;
            let is_new = status.unreachable.is_none();
            let since_ms = status.unreachable.as_ref().map_or(since_ms, |since| since.since_ms);
            status.unreachable = Some(Unreachable { since_ms, reason: reason.to_owned() });
            is_new
        });
        if is_new {
            tracing::warn!("the engine of the shared store cannot be reached: {reason}");
        }
    }

    /// Passes an answer on, and notes a failure that nobody waits for: the next placing looks whether the engine has
    /// lost records since.
    pub(crate) fn noted<T>(&self, answer: Result<T, JournalError>) -> Result<T, JournalError> {
        if matches!(answer, Err(JournalError::Unknown(_))) {
            self.was_away.store(true, Relaxed);
        }
        answer
    }

    pub(crate) fn reachable(&self) {
        let was = self.with_status(|status| status.unreachable.take());
        if let Some(was) = was {
            let away_ms = self.clock.wall_ms().saturating_sub(was.since_ms);
            tracing::info!(away_ms, "the engine of the shared store is reachable again");
        }
    }

    /// Lets requests be repeated for this long only: for the end of a handle, which must not wait for an engine.
    pub(crate) fn give_up_after(&self, at_most_ms: u64) {
        self.give_up_at_ms.store(self.clock.mono_ms().saturating_add(at_most_ms), Relaxed);
    }

    /// Pauses before another attempt to reach the engine. Fails when the handle was closed.
    pub(crate) fn back_off(&self, attempt: u32) -> Result<(), StoreError> {
        let is_over =
            || self.is_closed.load(Relaxed) || self.clock.mono_ms() >= self.give_up_at_ms.load(Relaxed);
        if is_over() {
            return Err(closed());
        }
        let pause_ms = (10u64 << attempt.min(10)).min(self.settings.backoff_ms_max);
        self.clock.pause(Duration::from_millis(pause_ms));
        if is_over() { Err(closed()) } else { Ok(()) }
    }

    /// Returns a page of the copy. An event of the copy that cannot be read must decide nothing: the journal has it.
    pub(crate) fn whole(&self, page: Result<Page, StoreError>) -> Result<Page, StoreError> {
        let page = self.sound(page)?;
        let Some(offset) = page.damaged.first() else { return Ok(page) };
        let why = format!("the event at offset {offset} cannot be read");
        Err(self.condemn_damaged(&why))
    }

    /// Returns what was read from the copy. A copy that has met damage is given up; other errors pass.
    pub(crate) fn sound<T>(&self, read: Result<T, StoreError>) -> Result<T, StoreError> {
        match (read, self.copy.damage()) {
            (Err(_), Some(why)) => Err(self.condemn_damaged(&why)),
            (read, _) => read,
        }
    }

    pub(crate) fn fence(&self) -> Fence {
        match self.settings.leadership {
            Leadership::Needed => Fence::Leader,
            Leadership::Free => Fence::Own,
        }
    }
}

pub(crate) fn closed() -> StoreError {
    StoreError::Closed(FailureCause::from("the process is ending"))
}
