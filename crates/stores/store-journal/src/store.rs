//! The handle on a shared store, and the port's methods: reads go to the copy, commits through the journal.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use millrace_journal::{Fitness, Journal};
use millrace_model::{Batch, Outcome, Space, Stream, Timestamp};
use millrace_store::{
    Changes, CommitNumber, Copies, CopyPosition, DiskUse, FailureCause, Foldable, KeyRange, Maintained, Page,
    ReadLimit, Retention, Row, Store, StoreError, StreamBounds,
};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock::EngineClock;
use crate::commit::Fence;
use crate::keeper::{Keeper, KeeperState};
use crate::lead::{LeadRow, LeadState};
use crate::manifest::ManifestState;
use crate::outbox::PublishingRows;
use crate::settings::{JournalSettings, Leadership};
use crate::status::{JournalStatus, Role, Unreachable};

/// A handle on a shared store. Handles of other servers, on other machines, have the same store open.
///
/// Dropping it gives the lead back, if it had it and the engine can be reached, and closes the copy.
pub struct JournalStore {
    shared: Arc<SharedHandle>,
    /// Ends with the handle.
    keeper: Option<Keeper>,
    /// What [`JournalStore::keep`] remembers.
    pub(crate) quiet_rounds: Mutex<KeeperState>,
}

/// The part of a handle that its keeper thread shares.
pub(crate) struct SharedHandle {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) copies: Arc<dyn Copies>,
    pub(crate) copy: Arc<dyn Foldable>,
    pub(crate) settings: JournalSettings,
    pub(crate) fitness: Fitness,
    pub(crate) clock: Arc<dyn EngineClock>,
    pub(crate) writer_id: u128,
    pub(crate) publishing: PublishingRows,
    /// Held during a commit and while records are folded: the copy moves by one thread at a time.
    turn: Mutex<Turn>,
    pub(crate) manifest: Mutex<ManifestState>,
    /// What others may look at while the turn is taken.
    status: Mutex<JournalStatus>,
    pub(crate) news_at_ms: AtomicU64,
    /// Wakes those who wait for the end of the handle, or for a higher position.
    changed: Condvar,
    pub(crate) is_closed: AtomicBool,
}

/// The state of the thread that commits or folds.
pub(crate) struct Turn {
    pub(crate) position: CopyPosition,
    pub(crate) lead: LeadState,
    /// When the newest record was placed or folded, by the clock that never steps.
    pub(crate) news_at_ms: u64,
    /// Bytes of records placed or folded by this handle since the last snapshot that it knows.
    pub(crate) bytes_since_snapshot: u64,
    pub(crate) ended: Option<StoreError>,
}

impl JournalStore {
    pub(crate) fn assemble(shared: SharedHandle, with_keeper: bool) -> JournalStore {
        let shared = Arc::new(shared);
        let keeper = with_keeper.then(|| Keeper::start(shared.clone()));
        JournalStore { shared, keeper, quiet_rounds: Mutex::default() }
    }

    pub(crate) fn shared(&self) -> &Arc<SharedHandle> {
        &self.shared
    }

    /// Returns what the engine promises.
    pub fn fitness(&self) -> &Fitness {
        &self.shared.fitness
    }

    pub fn settings(&self) -> &JournalSettings {
        &self.shared.settings
    }

    pub fn status(&self) -> JournalStatus {
        self.shared.status()
    }

    pub fn leads(&self) -> bool {
        self.status().role == Role::Leader
    }

    /// Takes the lead if it is free: nobody holds it, or the holder has placed no record for the lead timeout, by this
    /// machine's clock. Returns whether this handle leads now.
    pub fn try_lead(&self) -> Result<bool, StoreError> {
        self.shared.try_lead()
    }

    /// Gives the lead back in one commit, so that another server takes it at once. Nothing happens if this handle does
    /// not lead.
    pub fn step_down(&self) -> Result<(), StoreError> {
        self.shared.step_down()
    }

    /// Folds everything that is new in the journal, and returns how many records that was.
    pub fn follow(&self) -> Result<u64, StoreError> {
        let mut turn = self.shared.turn();
        self.shared.refuse_ended(&turn)?;
        self.shared.catch_up(&mut turn)
    }

    /// Waits until this handle has ended or been closed, or for the given time. Returns why it has ended.
    pub fn wait_for_end(&self, at_most: std::time::Duration) -> Option<String> {
        self.shared.wait_for_end(at_most)
    }

    /// Returns why this handle has ended, as the error that commits get.
    pub fn ended(&self) -> Option<StoreError> {
        self.shared.turn().ended.clone()
    }
}

impl SharedHandle {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        journal: Arc<dyn Journal>,
        copies: Arc<dyn Copies>,
        copy: Arc<dyn Foldable>,
        settings: JournalSettings,
        fitness: Fitness,
        clock: Arc<dyn EngineClock>,
        position: CopyPosition,
        manifest: ManifestState,
    ) -> Result<SharedHandle, StoreError> {
        let now_ms = clock.mono_ms();
        let lead = LeadState::load(copy.as_ref())?;
        let turn = Turn { position, lead, news_at_ms: now_ms, bytes_since_snapshot: 0, ended: None };
        let status = JournalStatus {
            role: Role::Follower,
            unreachable: None,
            position,
            head_seen: position.n,
            is_led: false,
            leader_url: None,
            term: 0,
            silent_ms: 0,
            ended: None,
            placed_records: 0,
            placed_bytes: 0,
            engine_failures: 0,
            lost_records: 0,
            records_since_snapshot: 0,
        };
        let handle = SharedHandle {
            journal,
            copies,
            copy,
            settings,
            fitness,
            clock,
            writer_id: rand::random(),
            publishing: PublishingRows::default(),
            turn: Mutex::new(turn),
            manifest: Mutex::new(manifest),
            status: Mutex::new(status),
            news_at_ms: AtomicU64::new(now_ms),
            changed: Condvar::new(),
            is_closed: AtomicBool::new(false),
        };
        handle.publish(&handle.turn.lock());
        Ok(handle)
    }

    pub(crate) fn status(&self) -> JournalStatus {
        let mut status = self.status.lock().clone();
        status.silent_ms = self.clock.mono_ms().saturating_sub(self.news_at_ms.load(Relaxed));
        status
    }

    fn wait_for_end(&self, at_most: std::time::Duration) -> Option<String> {
        let mut status = self.status.lock();
        if status.ended.is_none() && !self.is_closed.load(Relaxed) {
            let _ = self.changed.wait_for(&mut status, at_most);
        }
        status.ended.clone()
    }

    pub(crate) fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock()
    }

    pub(crate) fn refuse_ended(&self, turn: &Turn) -> Result<(), StoreError> {
        match &turn.ended {
            Some(error) => Err(error.clone()),
            None if self.is_closed.load(Relaxed) => Err(closed()),
            None => Ok(()),
        }
    }

    /// Ends the handle: nothing is written through it any more. Returns the error that callers get from now on.
    pub(crate) fn end(&self, turn: &mut Turn, error: StoreError) -> StoreError {
        if turn.ended.is_none() {
            tracing::error!("the shared store ends for this process: {error}");
            turn.ended = Some(error.clone());
            self.publish(turn);
        }
        error
    }

    /// Ends the handle because of its copy, which is set aside and made anew when the store is opened again.
    pub(crate) fn condemn(&self, turn: &mut Turn, reason: &str, why: &str) -> StoreError {
        if let Err(error) = self.copies.condemn(reason) {
            tracing::error!("the copy cannot be marked as {reason}: {error}");
        }
        let text = format!("the local copy of the shared store is {reason} and is made anew: {why}");
        self.end(turn, StoreError::Poisoned(FailureCause::from(text)))
    }

    /// Makes the turn's state visible to those who do not have the turn.
    pub(crate) fn publish(&self, turn: &Turn) {
        let mut status = self.status.lock();
        let row = turn.lead.row().filter(LeadRow::is_held);
        status.role = match (turn.lead.leads(), self.settings.leadership) {
            (true, _) => Role::Leader,
            (false, Leadership::Needed) => Role::Follower,
            (false, Leadership::Free) => Role::Peer,
        };
        status.position = turn.position;
        status.head_seen = status.head_seen.max(turn.position.n);
        status.term = turn.lead.row().map_or(0, |row| row.term);
        status.is_led = row.is_some();
        status.leader_url = row.map(|row| row.url).filter(|url| !url.is_empty());
        status.ended = turn.ended.as_ref().map(ToString::to_string);
        let snapshot = self.manifest.lock().snapshot_n();
        status.records_since_snapshot = turn.position.n.saturating_sub(snapshot);
        self.news_at_ms.store(turn.news_at_ms, Relaxed);
        self.changed.notify_all();
    }

    pub(crate) fn with_status<T>(&self, change: impl FnOnce(&mut JournalStatus) -> T) -> T {
        let changed = change(&mut self.status.lock());
        self.changed.notify_all();
        changed
    }

    /// Notes that a request to the engine failed.
    pub(crate) fn unreachable(&self, reason: &str) {
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

    pub(crate) fn reachable(&self) {
        let was = self.with_status(|status| status.unreachable.take());
        if let Some(was) = was {
            let away_ms = self.clock.wall_ms().saturating_sub(was.since_ms);
            tracing::info!(away_ms, "the engine of the shared store is reachable again");
        }
    }

    /// Pauses before another attempt to reach the engine. Fails when the handle was closed.
    pub(crate) fn back_off(&self, attempt: u32) -> Result<(), StoreError> {
        if self.is_closed.load(Relaxed) {
            return Err(closed());
        }
        let pause_ms = (10u64 << attempt.min(10)).min(self.settings.backoff_ms_max);
        self.clock.pause(std::time::Duration::from_millis(pause_ms));
        if self.is_closed.load(Relaxed) { Err(closed()) } else { Ok(()) }
    }

    /// Returns a page of the copy. An event of the copy that cannot be read must decide nothing: the journal has it.
    fn whole(&self, page: Page) -> Result<Page, StoreError> {
        let Some(offset) = page.damaged.first() else { return Ok(page) };
        let why = format!("the event at offset {offset} cannot be read");
        Err(self.condemn(&mut self.turn.lock(), "damaged", &why))
    }

    fn fence(&self) -> Fence {
        match self.settings.leadership {
            Leadership::Needed => Fence::Leader,
            Leadership::Free => Fence::Own,
        }
    }
}

pub(crate) fn closed() -> StoreError {
    StoreError::Closed(FailureCause::from("the process is ending"))
}

impl Store for JournalStore {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        self.shared.commit_batches(batches, self.shared.fence())
    }

    fn read(
        &self,
        stream: &Stream,
        from: millrace_model::Offset,
        limit: ReadLimit,
    ) -> Result<Page, StoreError> {
        self.shared.whole(self.shared.copy.read(stream, from, limit)?)
    }

    fn seek(&self, stream: &Stream, ts: Timestamp) -> Result<millrace_model::Offset, StoreError> {
        self.shared.copy.seek(stream, ts)
    }

    fn retention_start(
        &self,
        stream: &Stream,
        rule: Retention,
    ) -> Result<millrace_model::Offset, StoreError> {
        self.shared.copy.retention_start(stream, rule)
    }

    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError> {
        self.shared.copy.scan(space, range, rows_max)
    }

    fn scan_keys(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<String>, StoreError> {
        self.shared.copy.scan_keys(space, range, rows_max)
    }

    fn streams(&self) -> Result<Vec<StreamBounds>, StoreError> {
        self.shared.copy.streams()
    }

    fn watch(&self, after: CommitNumber, commits_max: usize) -> Result<Changes, StoreError> {
        self.shared.copy.watch(after, commits_max)
    }

    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.shared.copy.maintain(rows_max)
    }

    fn claim_serving(&self) -> Result<(), StoreError> {
        if self.shared.lead_if_free()? {
            return Ok(());
        }
        let leader = self.shared.turn().lead.leader();
        Err(StoreError::InUse(FailureCause::from(format!("another server has it: {leader}"))))
    }

    fn is_served_elsewhere(&self) -> bool {
        if self.keeper.is_none() {
            // Nobody else folds for this handle. An engine that is away leaves the answer as it was.
            let _ = self.follow();
        }
        let status = self.status();
        status.role != Role::Leader && status.is_led
    }

    fn waits_for(&self) -> Option<String> {
        match self.shared.status.lock().unreachable.as_ref() {
            Some(away) => Some(format!("the engine of the shared store ({})", away.reason)),
            None => self.shared.copy.waits_for(),
        }
    }

    /// Only the leader writes, and this handle knows what it writes.
    fn has_others(&self) -> bool {
        self.shared.settings.leadership == Leadership::Free
    }

    fn lost_names(&self) -> Option<String> {
        self.shared.copy.lost_names()
    }

    fn disk_use(&self) -> Option<DiskUse> {
        self.shared.copy.disk_use()
    }

    fn close(&self) {
        self.shared.is_closed.store(true, Relaxed);
        self.shared.changed.notify_all();
    }
}

impl Drop for JournalStore {
    fn drop(&mut self) {
        // An orderly stop hands the lead over. A handle that was closed, or whose engine is away, just ends: another
        // server takes the lead after the timeout.
        let is_reachable = self.shared.status.lock().unreachable.is_none();
        if is_reachable
            && !self.shared.is_closed.load(Relaxed)
            && let Err(error) = self.step_down()
        {
            tracing::warn!("the lead could not be given back: {error}");
        }
        self.close();
    }
}

impl fmt::Debug for JournalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalStore")
            .field("engine", &self.shared.fitness.engine)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
