//! Opening a shared store: checks the engine, finds or makes the store, finds or makes the copy, and folds the journal.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millrace_journal::{Fitness, Journal, JournalError};
use millrace_store::{Copies, CopyPosition, FailureCause, Foldable, StoreError};

use crate::catch_up::ONE;
use crate::clock::EngineClock;
use crate::fetch::{FetchFailure, SnapshotReader};
use crate::handle::{HandleParts, SharedHandle};
use crate::manifest::{Manifest, ManifestError, ManifestState, SnapshotEntry};
use crate::read_ahead::{READ, ReadEnd, decode_all, fold_and_read};
use crate::record;
use crate::settings::JournalSettings;
use crate::store::JournalStore;

/// How often opening begins again with a copy that turned out to be bad, or with a newer snapshot.
const ATTEMPTS_MAX: usize = 4;

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

    /// Told that opening waits for an engine that cannot be reached, and why.
    fn away(&mut self, text: &str) -> bool {
        self.at(text)
    }
}

impl<F: FnMut(&str) -> bool> OpenProgress for F {
    fn at(&mut self, text: &str) -> bool {
        self(text)
    }
}

type OpenCopy = (Arc<dyn Foldable>, CopyPosition);

/// The parts that a handle is made of.
pub(crate) struct Opening<'a> {
    pub(crate) journal: Arc<dyn Journal>,
    copies: Arc<dyn Copies>,
    pub(crate) settings: JournalSettings,
    clock: Arc<dyn EngineClock>,
    progress: &'a mut dyn OpenProgress,
    /// Where a copy lies that has records which the engine lost.
    diverged: Option<String>,
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
        let shared = Opening { journal, copies, settings, clock, progress, diverged: None }.open()?;
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
        let progress = &mut progress;
        let shared = Opening { journal, copies, settings, clock, progress, diverged: None }.open()?;
        Ok(JournalStore::assemble(shared, false))
    }
}

impl Opening<'_> {
    fn open(mut self) -> Result<SharedHandle, OpenError> {
        let (journal, has_copy) = (self.journal.clone(), self.copies.is_there()?);
        let fitness = self.until_reached("looking at the engine", || {
            if has_copy { journal.check_existing() } else { journal.check() }
        })?;
        for _ in 0..ATTEMPTS_MAX {
            let Some(shared) = self.attempt(&fitness)? else { continue };
            if let Some(aside) = self.diverged.take() {
                shared.report_lost(&aside);
            }
            return Ok(shared);
        }
        let text =
            format!("the local copy was made anew {ATTEMPTS_MAX} times and could not be used: see the log");
        Err(StoreError::Unusable(FailureCause::from(text)).into())
    }

    /// Returns `None` if the copy has turned out to be bad while it was opened, and is marked so.
    fn attempt(&mut self, fitness: &Fitness) -> Result<Option<SharedHandle>, OpenError> {
        let manifest = self.manifest(fitness)?;
        let manifest = self.with_own_bounds(manifest)?;
        let store_id = manifest.manifest.store_id()?;
        let Some((copy, position)) = self.copy(store_id, &manifest.manifest)? else { return Ok(None) };
        let shared = SharedHandle::new(HandleParts {
            journal: self.journal.clone(),
            copies: self.copies.clone(),
            copy,
            settings: self.settings.clone(),
            fitness: fitness.clone(),
            clock: self.clock.clone(),
            position,
            manifest,
        });
        let opened = match shared {
            Ok(shared) => self.fold_journal(&shared).map(|()| shared),
            Err(StoreError::Unreadable(cause)) => {
                self.copies.condemn("damaged")?;
                Err(StoreError::Unreadable(cause).into())
            }
            Err(error) => Err(error.into()),
        };
        match opened {
            Ok(shared) => Ok(Some(shared)),
            Err(error @ OpenError::Stopped) => Err(error),
            Err(error) => match self.copies.condemned()? {
                Some(reason) => {
                    tracing::warn!("the local copy is {reason}, opening begins again: {error}");
                    Ok(None)
                }
                None => Err(error),
            },
        }
    }

    /// Folds everything that is new. Nobody reads the copy yet, so records that may be deleted by now are folded too: the
    /// chain of their tips is checked up to records that are not trimmed.
    fn fold_journal(&mut self, shared: &SharedHandle) -> Result<(), OpenError> {
        let journal = self.journal.clone();
        let mut turn = shared.turn();
        loop {
            let from = turn.position.n + 1;
            self.tell_folding(from)?;
            let found = self.until_reached("folding the journal", || journal.read(from, READ))?;
            if found.is_empty() {
                break;
            }
            let end = fold_and_read(&*journal, decode_all(found), |found| {
                self.tell_folding(found.first().map_or(from, |first| first.n))?;
                shared.fold(&mut turn, found).map_err(OpenError::from)
            })?;
            if let ReadEnd::AtEnd = end {
                break;
            }
        }
        shared.refuse_trimmed(turn.position.n + 1).map_err(|stop| shared.stop(stop))?;
        // The age of the newest record is not known: its writer gets the whole timeout from now on.
        shared.heard(&mut turn);
        shared.publish(&turn);
        Ok(())
    }

    fn tell_folding(&mut self, from: u64) -> Result<(), OpenError> {
        match self.progress.at(&format!("folding the journal into the local copy, from record {from} on")) {
            true => Ok(()),
            false => Err(OpenError::Stopped),
        }
    }

    /// Repeats a request while the engine cannot be reached.
    pub(crate) fn until_reached<T>(
        &mut self,
        what: &str,
        mut request: impl FnMut() -> Result<T, JournalError>,
    ) -> Result<T, OpenError> {
        let began_ms = self.clock.mono_ms();
        let pause_ms_max = self.settings.backoff_ms_max.max(1);
        let mut pause_ms = pause_ms_max.min(100);
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
            if !self.progress.away(&format!("{what}: waiting for the engine of the shared store: {cause}")) {
                return Err(OpenError::Stopped);
            }
            self.clock.pause(Duration::from_millis(pause_ms));
            pause_ms = (pause_ms * 2).min(pause_ms_max);
        }
    }

    /// Returns the manifest, and makes one if the engine holds no store yet.
    fn manifest(&mut self, fitness: &Fitness) -> Result<ManifestState, OpenError> {
        let journal = self.journal.clone();
        loop {
            if let Some(state) = self.standing_manifest()? {
                return Ok(state);
            }
            let records = self.until_reached("reading the journal", || journal.read(1, ONE))?;
            if !records.is_empty() {
                // Another server may have made the store since the manifest was looked for.
                return self.standing_manifest()?.ok_or_else(|| {
                    let text =
                        "the engine holds records of a store whose manifest is gone: restore it from a backup";
                    StoreError::Unusable(FailureCause::from(text)).into()
                });
            }
            if self.copies.is_there()? {
                // A new store here would be in the way of a backup, and others would begin to use it.
                let text = "the engine holds no store any more, and this server has a copy of one: check the store's \
                            address, or restore the engine's data from a backup. To begin with an empty store, remove the \
                            copy from the cache folder";
                return Err(StoreError::Unusable(FailureCause::from(text)).into());
            }
            let new = Manifest::new(rand::random()).encode();
            // Two servers may do this at once: the loop reads whichever manifest came first.
            if self.until_reached("making the store", || journal.set_manifest(&new, None))? {
                tracing::info!(engine = fitness.engine, "a new shared store was made");
            }
        }
    }

    pub(crate) fn standing_manifest(&mut self) -> Result<Option<ManifestState>, OpenError> {
        let (journal, clock) = (self.journal.clone(), self.clock.clone());
        let mut began = (0, 0);
        let read = self.until_reached("reading the manifest", || {
            began = (clock.mono_ms(), clock.wall_ms());
            journal.manifest()
        })?;
        let Some(read) = read else { return Ok(None) };
        let state = ManifestState::new(&read, clock.as_ref(), began)?;
        let found = state.manifest.record_format;
        if found > record::FORMAT {
            let text = format!(
                "the store has records of format {found}, this build reads up to {}: upgrade this server",
                record::FORMAT
            );
            return Err(StoreError::Unusable(FailureCause::from(text)).into());
        }
        Ok(Some(state))
    }

    /// Returns a copy to begin with. `None`: the manifest must be read again first.
    fn copy(&mut self, store_id: u128, manifest: &Manifest) -> Result<Option<OpenCopy>, OpenError> {
        if let Some(reason) = self.copies.condemned()? {
            self.set_aside(&reason, "it was marked when it was last open")?;
        }
        match self.usable_copy(store_id, manifest)? {
            Some(found) => Ok(Some(found)),
            None => self.new_copy(store_id, manifest),
        }
    }

    /// Returns the copy that is there if it is of this store and of this journal's history.
    fn usable_copy(&mut self, store_id: u128, manifest: &Manifest) -> Result<Option<OpenCopy>, OpenError> {
        let opened = match self.copies.open(&manifest.copy_bounds()) {
            Ok(None) => return Ok(None),
            Ok(Some(copy)) => copy.position().map(|position| (copy, position)),
            Err(error) => Err(error),
        };
        let (copy, position) = match opened {
            Ok((copy, Some(position))) => (copy, position),
            Ok((copy, None)) => {
                drop(copy);
                self.set_aside("unfinished", "it was never finished")?;
                return Ok(None);
            }
            Err(error @ (StoreError::Unusable(_) | StoreError::Unreadable(_) | StoreError::Poisoned(_))) => {
                self.set_aside("damaged", &error.to_string())?;
                return Ok(None);
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
        match self.why_unusable(&position, manifest)? {
            None => Ok(Some((copy, position))),
            Some((reason, why)) => {
                drop(copy);
                self.set_aside(reason, &why)?;
                Ok(None)
            }
        }
    }

    /// Compares the copy's position with the journal. Returns why the copy must be made anew, if so.
    fn why_unusable(
        &mut self,
        position: &CopyPosition,
        manifest: &Manifest,
    ) -> Result<Option<(&'static str, String)>, OpenError> {
        let stale = || Some(("stale", "the journal is trimmed beyond it".to_owned()));
        let n = position.n;
        if n == 0 {
            return Ok(if manifest.trimmed_to > 0 { stale() } else { None });
        }
        let journal = self.journal.clone();
        let found = self.until_reached("comparing the local copy", || journal.read(n, ONE))?;
        let found = found.first().filter(|(at, _)| *at == n).map(|(_, bytes)| record::decode_head(bytes));
        match found {
            Some(Ok((_, tip))) if tip == position.tip => Ok(None),
            Some(Err(error)) if n > manifest.trimmed_to => {
                let text = format!("record {n} of the journal cannot be read: {error}");
                Err(StoreError::Unusable(FailureCause::from(text)).into())
            }
            _ if manifest.snapshot.as_ref().is_some_and(|snapshot| snapshot.is_at(n, position.tip)) => {
                Ok(None)
            }
            _ => {
                // This machine may have slept since the manifest was read.
                let newest = self.standing_manifest()?;
                let trimmed_to = newest.map_or(manifest.trimmed_to, |newest| newest.manifest.trimmed_to);
                let diverged = || ("diverged", format!("the journal has lost or replaced its record {n}"));
                Ok(match n.cmp(&trimmed_to) {
                    Ordering::Greater => Some(diverged()),
                    // The record may be deleted, or be one that a sleeping writer placed for nobody.
                    Ordering::Less => stale(),
                    Ordering::Equal => None,
                })
            }
        }
    }

    fn set_aside(&mut self, reason: &str, why: &str) -> Result<(), OpenError> {
        let to = self.copies.set_aside(reason)?;
        tracing::warn!("the local copy cannot be used ({why}): it lies at {to}, and a new one is made");
        if reason == "diverged" {
            self.diverged = Some(to);
        }
        Ok(())
    }

    fn new_copy(&mut self, store_id: u128, manifest: &Manifest) -> Result<Option<OpenCopy>, OpenError> {
        let Some(entry) = &manifest.snapshot else { return self.empty_copy(store_id, manifest).map(Some) };
        if !self.progress.at(&format!("fetching a snapshot of {} bytes", entry.bytes)) {
            return Err(OpenError::Stopped);
        }
        let copies = self.copies.clone();
        let mut reader = SnapshotReader::new(self, entry);
        let created = copies.create(Some(&mut reader), &manifest.copy_bounds());
        let what = match (created, reader.failure) {
            (_, Some(FetchFailure::Open(error))) => return Err(error),
            (_, Some(FetchFailure::Part(what))) => what,
            (Err(error @ (StoreError::Unusable(_) | StoreError::Unreadable(_))), None) => {
                self.set_aside("unfinished", &error.to_string())?;
                format!("the snapshot cannot be opened: {error}")
            }
            (Err(error), None) => return Err(error.into()),
            (Ok(copy), None) => {
                let expected = CopyPosition { store_id, n: entry.n, tip: entry.tip()? };
                if entry.n == 0 {
                    // The file of a store that was brought here from elsewhere (`import.rs`).
                    copy.set_position(&expected)?;
                }
                let found = copy.position()?;
                if found == Some(expected) {
                    return Ok(Some((copy, expected)));
                }
                drop(copy);
                self.set_aside("unfinished", "the snapshot is not of the position that the manifest tells")?;
                format!("the snapshot stands at {found:?}, and the manifest says {expected:?}")
            }
        };
        self.without_snapshot(store_id, manifest, entry, &what)
    }

    /// Goes on without a snapshot that cannot be used: with a newer one, or with the whole journal if it is still there.
    fn without_snapshot(
        &mut self,
        store_id: u128,
        manifest: &Manifest,
        entry: &SnapshotEntry,
        what: &str,
    ) -> Result<Option<OpenCopy>, OpenError> {
        let standing = self.standing_manifest()?;
        if standing.as_ref().is_none_or(|standing| standing.manifest.snapshot.as_ref() != Some(entry)) {
            tracing::warn!("{what}: there is a newer snapshot, which is fetched instead");
            return Ok(None);
        }
        let journal = self.journal.clone();
        let first =
            self.until_reached("reading the journal", || journal.read(1, ONE))?.first().map(|(n, _)| *n);
        if first == Some(1) && !manifest.is_imported {
            tracing::error!("{what}: the whole journal is folded instead. Make a new snapshot soon");
            return self.empty_copy(store_id, manifest).map(Some);
        }
        let begins = first.map_or("is empty".to_owned(), |n| format!("begins at record {n}"));
        let text = format!(
            "{what}, and the journal {begins}: restore the engine's data, or start a server that still has a copy and \
             let it make a snapshot"
        );
        Err(StoreError::Unusable(FailureCause::from(text)).into())
    }

    fn empty_copy(&mut self, store_id: u128, manifest: &Manifest) -> Result<OpenCopy, OpenError> {
        let copy = self.copies.create(None, &manifest.copy_bounds())?;
        let position = CopyPosition::start(store_id);
        copy.set_position(&position)?;
        Ok((copy, position))
    }
}

impl fmt::Debug for Opening<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("settings", &self.settings).finish_non_exhaustive()
    }
}
