//! The handle on a shared store, and the port's methods: reads go to the copy, commits through the journal.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millrace_journal::Fitness;
use millrace_model::{Batch, Offset, Outcome, Space, Stream, Timestamp};
use millrace_store::{
    Changes, CommitNumber, DiskUse, FailureCause, KeyRange, Maintained, OtherHandles, Page, ReadLimit,
    Retention, Row, Store, StoreError, StreamBounds,
};

use crate::handle::SharedHandle;
use crate::keeper::Keeper;
use crate::settings::{JournalSettings, Leadership};
use crate::status::{JournalStatus, Role};

/// A handle on a shared store. Handles of other servers, on other machines, have the same store open.
///
/// Dropping it gives the lead back, if it had it and the engine can be reached, and closes the copy.
pub struct JournalStore {
    shared: Arc<SharedHandle>,
    /// Ends with the handle.
    keeper: Option<Keeper>,
}

impl JournalStore {
    pub(crate) fn assemble(shared: SharedHandle, with_keeper: bool) -> JournalStore {
        let shared = Arc::new(shared);
        let keeper = with_keeper.then(|| Keeper::start(shared.clone()));
        JournalStore { shared, keeper }
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
        self.shared.refuse_ended()?;
        self.shared.catch_up(&mut turn)
    }

    /// Waits until this handle has ended or been closed, or for the given time. Returns why it has ended.
    pub fn wait_for_end(&self, at_most: Duration) -> Option<String> {
        self.shared.wait_for_end(at_most)
    }

    /// Does once what the thread of a handle does again and again: follows or beats, reads the manifest, makes a snapshot
    /// if one is due, and deletes what nobody needs any more. For a handle without a thread
    /// ([`JournalStore::open_quiet`]).
    pub fn keep(&self) {
        self.shared.keep();
    }

    /// Returns why this handle has ended, as the error that commits get.
    pub fn ended(&self) -> Option<StoreError> {
        self.shared.ended().map(|end| end.error)
    }
}

impl Store for JournalStore {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        self.shared.commit_batches(batches, self.shared.fence())
    }

    fn read(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, StoreError> {
        self.shared.whole(self.shared.copy.read(stream, from, limit))
    }

    fn seek(&self, stream: &Stream, ts: Timestamp) -> Result<Offset, StoreError> {
        self.shared.sound(self.shared.copy.seek(stream, ts))
    }

    fn retention_start(&self, stream: &Stream, rule: Retention) -> Result<Offset, StoreError> {
        self.shared.sound(self.shared.copy.retention_start(stream, rule))
    }

    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError> {
        self.shared.sound(self.shared.copy.scan(space, range, rows_max))
    }

    fn scan_keys(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<String>, StoreError> {
        self.shared.sound(self.shared.copy.scan_keys(space, range, rows_max))
    }

    fn streams(&self) -> Result<Vec<StreamBounds>, StoreError> {
        self.shared.sound(self.shared.copy.streams())
    }

    fn watch(&self, after: CommitNumber, commits_max: usize) -> Result<Changes, StoreError> {
        self.shared.sound(self.shared.copy.watch(after, commits_max))
    }

    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.shared.sound(self.shared.copy.maintain(rows_max))
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
        match self.shared.away() {
            Some(away) => Some(format!("the engine of the shared store ({})", away.reason)),
            None => self.shared.copy.waits_for(),
        }
    }

    /// Only the leader writes, and this handle knows what it writes.
    fn other_handles(&self) -> OtherHandles {
        match self.shared.settings.leadership {
            Leadership::Free => OtherHandles::Silent,
            _ => OtherHandles::None,
        }
    }

    fn lost_names(&self) -> Option<String> {
        self.shared.copy.lost_names()
    }

    fn disk_use(&self) -> Option<DiskUse> {
        self.shared.copy.disk_use()
    }

    /// The journal has everything, so nothing has to be saved.
    fn retire(&self) -> Result<String, StoreError> {
        let what = self.lost_names().unwrap_or_else(|| "the local copy had lost its name".to_owned());
        let text =
            format!("{what}. The journal has everything: start the server again, and a new copy is made");
        self.shared.end_without_copy(StoreError::Poisoned(FailureCause::from(text.clone())));
        Ok(text)
    }

    fn wait_to_commit(&self) {
        self.shared.keep_interval();
    }

    fn close(&self) {
        self.shared.close();
    }
}

impl Drop for JournalStore {
    fn drop(&mut self) {
        // An orderly stop hands the lead over. A handle that was closed, or whose engine is away, just ends: another
        // server takes the lead after the timeout.
        if self.shared.away().is_none() && !self.shared.is_closed() {
            // Afterwards others take the lead anyway.
            self.shared.give_up_after(self.shared.settings.lead_timeout_ms);
            if let Err(error) = self.step_down() {
                tracing::warn!("the lead could not be given back: {error}");
            }
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
