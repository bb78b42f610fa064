//! The disk of a simulated machine, with the copy of the store. The copy survives the end of its process; a loss of
//! power takes everything since the operating system last wrote it back.

use std::io::Read;
use std::sync::Arc;

use millrace_store::{Copies, CopyBounds, CopyPosition, Foldable, MemoryStore, StoreError};

use super::Writer;
use super::hub::{Hub, State};
use super::machine_copy::MachineCopy;
use super::sabotage::{self, Sabotage};
use super::truth::violation;

/// The bytes of a snapshot: the number under which the truth keeps it, repeated.
const SNAPSHOT_BYTES: usize = 64;

#[derive(Default)]
pub(super) struct Disk {
    pub(super) copy: Option<Arc<MemoryStore>>,
    /// The copy as it was last written back.
    synced: Option<MemoryStore>,
    pub(super) condemned: Option<String>,
    /// How the next write to the copy fails.
    pub(super) fault: Option<CopyFault>,
    /// A write has failed: the handle may end because of that.
    pub(super) has_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyFault {
    /// There is no room for a while.
    Full,
    /// A row cannot be read any more.
    Damaged,
    /// There is no room when a record of this server is already in the journal.
    FullAfterPlacing,
}

impl Disk {
    pub(super) fn sync(&mut self) {
        self.synced = self.copy.as_ref().map(|copy| copy.snapshot());
    }

    /// The process was killed. The handle may still be under way in a call, so it keeps a copy that nobody else sees.
    pub(super) fn part_from_process(&mut self) {
        self.copy = self.copy.take().map(|copy| Arc::new(copy.snapshot()));
    }

    /// The power was lost. Returns whether the copy has lost records.
    pub(super) fn lose_power(&mut self, sabotage: Option<Sabotage>) -> bool {
        let position = |store: &MemoryStore| store.position().ok().flatten();
        let before = self.copy.as_ref().and_then(|copy| position(copy));
        let after = self.synced.as_ref().and_then(position);
        self.copy = self.synced.as_ref().map(|synced| Arc::new(synced.snapshot()));
        if let (Some(Sabotage::CopyAhead), Some(copy), Some(before)) = (sabotage, &self.copy, before) {
            let _ = copy.set_position(&before);
        }
        before != after
    }

    pub(super) fn position(&self) -> Option<CopyPosition> {
        self.copy.as_ref()?.position().ok().flatten()
    }
}

/// The disk as one process sees it.
pub(super) struct MachineCopies {
    pub(super) hub: Arc<Hub>,
    pub(super) writer: Writer,
}

impl MachineCopies {
    /// Calls with the disk, unless the process is gone: then nothing of the disk may change.
    fn with<T>(&self, call: impl FnOnce(&mut State) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut state = self.hub.lock();
        match state.is_alive(self.writer) {
            true => call(&mut state),
            false => Err(StoreError::Busy("this process is gone".into())),
        }
    }

    fn opened(&self, state: &mut State, copy: Arc<MemoryStore>) -> Arc<dyn Foldable> {
        let disk = &mut state.servers[self.writer.server].disk;
        (disk.fault, disk.has_failed) = (None, false);
        Arc::new(MachineCopy::new(self.hub.clone(), self.writer, state.sabotage, copy))
    }
}

impl Copies for MachineCopies {
    fn open(&self, _: &CopyBounds) -> Result<Option<Arc<dyn Foldable>>, StoreError> {
        self.with(|state| {
            let copy = state.servers[self.writer.server].disk.copy.clone();
            Ok(copy.map(|copy| self.opened(state, copy)))
        })
    }

    fn is_there(&self) -> Result<bool, StoreError> {
        self.with(|state| Ok(state.servers[self.writer.server].disk.copy.is_some()))
    }

    fn create(
        &self,
        snapshot: Option<&mut dyn Read>,
        bounds: &CopyBounds,
    ) -> Result<Arc<dyn Foldable>, StoreError> {
        let mut bytes = Vec::new();
        if let Some(snapshot) = snapshot {
            // Asks the engine for each part, so the lock must be free.
            let read = snapshot.read_to_end(&mut bytes);
            read.map_err(|error| StoreError::Unusable(error.to_string().into()))?;
        }
        self.with(|state| {
            let content = match bytes.first_chunk::<8>() {
                None => MemoryStore::with_dedupe_ids_max(bounds.dedupe_ids_max),
                Some(number) => {
                    let number = u64::from_le_bytes(*number);
                    let whole = bytes.len() == SNAPSHOT_BYTES;
                    let kept = state.truth.snapshots.get(number as usize).filter(|_| whole);
                    kept.ok_or(StoreError::Unusable("the snapshot is cut".into()))?.snapshot()
                }
            };
            let copy = Arc::new(content);
            let disk = &mut state.servers[self.writer.server].disk;
            disk.copy = Some(copy.clone());
            disk.sync();
            Ok(self.opened(state, copy))
        })
    }

    fn set_aside(&self, reason: &str) -> Result<String, StoreError> {
        self.with(|state| {
            state.note(&format!("{} sets its copy aside: {reason}", self.writer));
            let server = self.writer.server;
            // A copy that was condemned may have lost its end since: the reason was looked at before.
            if state.servers[server].disk.condemned.is_none() {
                state.look_at_alarm(server, reason);
            }
            // Diverged, or damaged, or from before the trim: then whether it held lost records is not known.
            state.truth.noticed(server);
            let disk = &mut state.servers[server].disk;
            disk.copy = None;
            disk.condemned = None;
            disk.sync();
            Ok("the attic".to_owned())
        })
    }

    fn condemn(&self, reason: &str) -> Result<(), StoreError> {
        self.with(|state| {
            state.note(&format!("{} condemns its copy: {reason}", self.writer));
            state.look_at_alarm(self.writer.server, reason);
            state.servers[self.writer.server].disk.condemned = Some(reason.to_owned());
            Ok(())
        })
    }

    fn condemned(&self) -> Result<Option<String>, StoreError> {
        self.with(|state| Ok(state.servers[self.writer.server].disk.condemned.clone()))
    }

    fn snapshot(
        &self,
        write: &mut dyn FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<CopyPosition, StoreError> {
        let (number, position) = self.with(|state| {
            let copy = state.servers[self.writer.server].disk.copy.as_ref().map(|copy| copy.snapshot());
            let copy = copy.ok_or(StoreError::Busy("there is no copy".into()))?;
            let position = copy.position()?.ok_or(StoreError::Busy("the copy has no position".into()))?;
            let copy = sabotage::snapshot(state.sabotage, copy, &state.truth);
            state.truth.snapshots.push(copy);
            Ok((state.truth.snapshots.len() as u64 - 1, position))
        })?;
        for _ in 0..SNAPSHOT_BYTES / 8 {
            write(&number.to_le_bytes())?;
        }
        Ok(position)
    }
}

impl State {
    /// Looks whether a copy is given up for a reason that is true.
    fn look_at_alarm(&mut self, server: usize, reason: &str) {
        let trimmed_to = self.engine.trimmed_to();
        let position = self.servers[server].disk.position();
        let is_ours = position.is_none_or(|position| self.truth.has(position.n, position.tip));
        let is_true = match (reason, position) {
            ("unfinished", None) => true,
            // Whether a record at the very end of the trim was the same cannot be told.
            ("stale", Some(position)) => position.n < trimmed_to || !is_ours && position.n == trimmed_to,
            ("diverged", Some(_)) => !is_ours,
            ("damaged", Some(_)) => self.servers[server].disk.has_failed,
            _ => false,
        };
        if !is_true {
            let n = position.map(|position| position.n);
            let detail = format!(
                "the copy of s{server} is given up as {reason}: it stands at {n:?}, the journal is trimmed to {trimmed_to}"
            );
            self.fail(violation("no_false_alarm", detail));
        }
    }
}
