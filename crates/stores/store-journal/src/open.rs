//! Opening a shared store: checks the engine, finds or makes the store, finds or makes the copy, and folds the journal.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millrace_journal::{Fitness, Journal, JournalError, JournalReadLimit};
use millrace_store::{Copies, CopyPosition, FailureCause, Foldable, StoreError};

use crate::clock::EngineClock;
use crate::manifest::{Manifest, ManifestError, ManifestState};
use crate::record;
use crate::settings::JournalSettings;
use crate::snapshot::{self, SnapshotReader};
use crate::store::{JournalStore, SharedHandle};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The engine could not be reached in the time that the settings give.
    #[error("the engine of the shared store could not be reached: {0}")]
    Unreachable(String),
    /// The engine refuses, or does not keep a promise that a journal needs: the text says what to change.
    #[error("{0}")]
    Engine(JournalError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("stopped while the shared store was being opened")]
    Stopped,
}

/// Told what opening waits for or does, for log lines and readiness; returns whether to go on.
pub trait OpenProgress {
    fn at(&mut self, text: &str) -> bool;
}

impl<F: FnMut(&str) -> bool> OpenProgress for F {
    fn at(&mut self, text: &str) -> bool {
        self(text)
    }
}

type OpenCopy = (Arc<dyn Foldable>, CopyPosition);

/// The parts that a handle is made of.
struct Opening<'a> {
    journal: Arc<dyn Journal>,
    copies: Arc<dyn Copies>,
    settings: JournalSettings,
    clock: Arc<dyn EngineClock>,
    progress: &'a mut dyn OpenProgress,
}

impl JournalStore {
    /// Opens a shared store, and makes it if the engine has none. Waits for an engine that cannot be reached, as long as
    /// the settings say. The handle follows; [`JournalStore::try_lead`] takes the lead.
    pub fn open(
        journal: Arc<dyn Journal>,
        copies: Arc<dyn Copies>,
        settings: JournalSettings,
        clock: Arc<dyn EngineClock>,
        progress: &mut dyn OpenProgress,
    ) -> Result<JournalStore, OpenError> {
        let shared = Opening { journal, copies, settings, clock, progress }.open()?;
        Ok(JournalStore::assemble(shared, true))
    }

    /// Opens a handle without a thread of its own: it follows only when told to ([`JournalStore::follow`]).
    pub fn open_quiet(
        journal: Arc<dyn Journal>,
        copies: Arc<dyn Copies>,
        settings: JournalSettings,
        clock: Arc<dyn EngineClock>,
    ) -> Result<JournalStore, OpenError> {
        let mut progress = |_: &str| true;
        let shared = Opening { journal, copies, settings, clock, progress: &mut progress }.open()?;
        Ok(JournalStore::assemble(shared, false))
    }
}

impl Opening<'_> {
    fn open(mut self) -> Result<SharedHandle, OpenError> {
        let journal = self.journal.clone();
        let fitness = self.until_reached("looking at the engine", || journal.check())?;
        let manifest = self.manifest(&fitness)?;
        let store_id = manifest.manifest.store_id()?;
        let (copy, position) = self.copy(store_id, &manifest.manifest)?;
        let Opening { journal, copies, settings, clock, progress } = self;
        let shared = SharedHandle::new(journal, copies, copy, settings, fitness, clock, position, manifest)?;
        if !progress.at("folding the journal into the local copy") {
            return Err(OpenError::Stopped);
        }
        {
            let mut turn = shared.turn();
            shared.catch_up(&mut turn)?;
            // The age of the newest record is not known: its writer gets the whole timeout from now on.
            turn.news_at_ms = shared.clock.mono_ms();
            shared.publish(&turn);
        }
        Ok(shared)
    }

    /// Repeats a request while the engine cannot be reached.
    fn until_reached<T>(
        &mut self,
        what: &str,
        mut request: impl FnMut() -> Result<T, JournalError>,
    ) -> Result<T, OpenError> {
        let began_ms = self.clock.mono_ms();
        let mut pause_ms = 100;
        loop {
            let cause = match request() {
                Ok(done) => return Ok(done),
                Err(JournalError::Unknown(cause)) => cause,
                Err(error) => return Err(OpenError::Engine(error)),
            };
            let waited_ms = self.clock.mono_ms().saturating_sub(began_ms);
            if self.settings.store_wait_ms.is_some_and(|most| waited_ms >= most) {
                return Err(OpenError::Unreachable(cause.to_string()));
            }
            if !self.progress.at(&format!("{what}: waiting for the engine of the shared store: {cause}")) {
                return Err(OpenError::Stopped);
            }
            self.clock.pause(Duration::from_millis(pause_ms));
            pause_ms = (pause_ms * 2).min(self.settings.backoff_ms_max.max(1));
        }
    }

    /// Returns the manifest, and makes one if the engine holds no store yet.
    fn manifest(&mut self, fitness: &Fitness) -> Result<ManifestState, OpenError> {
        let (journal, clock) = (self.journal.clone(), self.clock.clone());
        loop {
            let began = (clock.mono_ms(), clock.wall_ms());
            if let Some(read) = self.until_reached("reading the manifest", || journal.manifest())? {
                let state = ManifestState::new(&read, clock.as_ref(), began)?;
                let found = state.manifest.record_format;
                if found > record::FORMAT {
                    let text = format!(
                        "the store has records of format {found}, this build reads up to {}: upgrade this server",
                        record::FORMAT
                    );
                    return Err(StoreError::Unusable(FailureCause::from(text)).into());
                }
                return Ok(state);
            }
            let limit = JournalReadLimit { records_max: 1, bytes_max: 1 };
            let records = self.until_reached("reading the journal", || journal.read(1, limit))?;
            if !records.is_empty() {
                let text =
                    "the engine holds records of a store whose manifest is gone: restore it from a backup";
                return Err(StoreError::Unusable(FailureCause::from(text)).into());
            }
            let new = Manifest::new(rand::random()).encode();
            // Two servers may do this at once: the loop reads whichever manifest came first.
            if self.until_reached("making the store", || journal.set_manifest(&new, None))? {
                tracing::info!(engine = fitness.engine, "a new shared store was made");
            }
        }
    }

    fn copy(&mut self, store_id: u128, manifest: &Manifest) -> Result<OpenCopy, OpenError> {
        if let Some(reason) = self.copies.condemned()? {
            let to = self.copies.set_aside(&reason)?;
            tracing::warn!("the local copy was {reason}: it lies at {to}, and a new one is made");
        }
        match self.usable_copy(store_id, manifest)? {
            Some(found) => Ok(found),
            None => self.new_copy(store_id, manifest),
        }
    }

    /// Returns the copy that is there if it is of this store and of this journal's history.
    fn usable_copy(&mut self, store_id: u128, manifest: &Manifest) -> Result<Option<OpenCopy>, OpenError> {
        let opened = match self.copies.open() {
            Ok(None) => return Ok(None),
            Ok(Some(copy)) => copy.position().map(|position| (copy, position)),
            Err(error) => Err(error),
        };
        let (copy, position) = match opened {
            Ok((copy, Some(position))) => (copy, position),
            Ok((copy, None)) => {
                drop(copy);
                return self.set_aside("unfinished", "it was never finished");
            }
            Err(error @ (StoreError::Unusable(_) | StoreError::Unreadable(_) | StoreError::Poisoned(_))) => {
                return self.set_aside("damaged", &error.to_string());
            }
            Err(error) => return Err(error.into()),
        };
        if position.store_id != store_id {
            let text = format!(
                "the local copy is of another store ({:032x}, the engine has {store_id:032x}): give this server another \
                 cache folder, or check the store's address",
                position.store_id
            );
            return Err(StoreError::Unusable(FailureCause::from(text)).into());
        }
        let journal = self.journal.clone();
        let limit = JournalReadLimit { records_max: 1, bytes_max: 1 };
        if position.n > 0 {
            let found = self.until_reached("comparing the local copy", || journal.read(position.n, limit))?;
            let tip =
                found.first().filter(|(n, _)| *n == position.n).map(|(_, bytes)| record::decode_head(bytes));
            match tip {
                Some(Ok((_, tip))) if tip == position.tip => {}
                Some(Ok(_)) | None if position.n > manifest.trimmed_to => {
                    drop(copy);
                    let why = format!("the journal has lost or replaced its record {}", position.n);
                    return self.set_aside("diverged", &why);
                }
                // The record may be deleted, or be a leftover of one: a copy before the trim is useless.
                _ if position.n < manifest.trimmed_to => {
                    drop(copy);
                    return self.set_aside("stale", "the journal is trimmed beyond it");
                }
                Some(Err(error)) => {
                    let text = format!("record {} of the journal cannot be read: {error}", position.n);
                    return Err(StoreError::Unusable(FailureCause::from(text)).into());
                }
                _ => {}
            }
        } else if manifest.trimmed_to > 0 {
            drop(copy);
            return self.set_aside("stale", "the journal is trimmed beyond it");
        }
        Ok(Some((copy, position)))
    }

    fn set_aside<T>(&self, reason: &str, why: &str) -> Result<Option<T>, OpenError> {
        let to = self.copies.set_aside(reason)?;
        tracing::warn!("the local copy cannot be used ({why}): it lies at {to}, and a new one is made");
        Ok(None)
    }

    fn new_copy(&mut self, store_id: u128, manifest: &Manifest) -> Result<OpenCopy, OpenError> {
        let (copy, position) = match &manifest.snapshot {
            Some(entry) => {
                let text = format!("fetching a snapshot of {} bytes", entry.bytes);
                if !self.progress.at(&text) {
                    return Err(OpenError::Stopped);
                }
                let mut reader = SnapshotReader::new(self.journal.as_ref(), entry);
                let copy = self.copies.create(Some(&mut reader))?;
                (copy, snapshot::position_of(store_id, entry)?)
            }
            None => (self.copies.create(None)?, CopyPosition::start(store_id)),
        };
        copy.set_position(&position)?;
        Ok((copy, position))
    }
}

impl fmt::Debug for Opening<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("settings", &self.settings).finish_non_exhaustive()
    }
}
