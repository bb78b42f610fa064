//! Snapshots: the copy of a server at one position, in parts, so that a new machine does not fold the whole journal.
//!
//! A part's name begins with the position at which its snapshot was begun. A snapshot that was begun before the one in
//! the manifest is never named any more (`make_snapshot`), so its parts can be deleted without comparing clocks.

use std::collections::{HashMap, HashSet};

use millrace_journal::{Journal, JournalError, PartName};
use millrace_store::{FailureCause, StoreError};
use sha2::{Digest, Sha256};

use crate::handle::SharedHandle;
use crate::manifest::{SnapshotEntry, SnapshotPart, hex};

/// Parts of snapshots that no manifest names are deleted after this time: a server that starts may still be fetching them.
const ORPHANS_KEPT_MS: u64 = 24 * 3600 * 1000;
/// How often a part is sent again after a lost answer.
const PART_ATTEMPTS: u32 = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotMade {
    pub n: u64,
    pub bytes: u64,
    pub parts: usize,
}

/// Parts that no manifest names, and since when this handle knows, by the clock that never steps.
#[derive(Debug, Default)]
pub(crate) struct OrphanParts {
    seen_ms: HashMap<PartName, u64>,
}

impl crate::JournalStore {
    /// Makes a snapshot of the copy and names it in the manifest. Commits go on meanwhile.
    pub fn snapshot(&self) -> Result<SnapshotMade, StoreError> {
        self.shared().make_snapshot()
    }
}

impl SharedHandle {
    pub(crate) fn make_snapshot(&self) -> Result<SnapshotMade, StoreError> {
        let busy = |text: &str| StoreError::Busy(FailureCause::from(text));
        let Some(_only) = self.snapshotting.try_lock() else {
            return Err(busy("a snapshot is being made already"));
        };
        self.refuse_ended()?;
        let at_ms = self.clock.wall_ms();
        let began_n = self.status().position.n;
        self.sound(self.copy.settle())?;
        let name = format!("{began_n:020}-{at_ms}-{:016x}", rand::random::<u64>());
        let mut upload = Upload::new(self.journal.as_ref(), &name, self.settings.part_bytes, Some(self));
        let position = match self.copies.snapshot(&mut |bytes| upload.write(bytes)) {
            Err(StoreError::Unreadable(cause)) => return Err(self.condemn_damaged(&cause.to_string())),
            written => written?,
        };
        upload.end_part()?;
        let (parts, bytes) = (upload.parts, upload.bytes);
        if format!("{:032x}", position.store_id) != self.manifest.lock().manifest.store_id {
            let text =
                "the file of the local copy is of another store now: was it replaced while this server ran?";
            return Err(self.condemn_damaged(text));
        }
        // Everybody would begin with records that the engine has lost.
        self.verify_record(position.n, position.tip).map_err(|stop| self.stop(stop))?;
        let made = SnapshotMade { n: position.n, bytes, parts: parts.len() };
        let entry = SnapshotEntry { n: position.n, tip: position.tip.to_string(), bytes, parts };
        let kept = self.settings.records_kept;
        let changed = self.change_manifest(|manifest| {
            if manifest.snapshot.as_ref().is_some_and(|standing| standing.n > began_n) {
                return false;
            }
            let trimmed_to = entry.n.saturating_sub(kept);
            if trimmed_to > manifest.trimmed_to {
                (manifest.trimmed_to, manifest.trimmed_at_ms) = (trimmed_to, at_ms);
            }
            manifest.snapshot = Some(entry);
            true
        });
        if !changed.map_err(failed)? {
            return Err(busy("another server has made a snapshot meanwhile: this one is not used"));
        }
        self.publish(&self.turn());
        tracing::info!(n = made.n, bytes = made.bytes, parts = made.parts, "a snapshot was made");
        Ok(made)
    }

    /// Returns whether the journal behind the last snapshot is so long that the next one is worth its cost.
    pub(crate) fn is_snapshot_due(&self) -> bool {
        let (last_bytes, last_n) = {
            let known = self.manifest.lock();
            known.manifest.snapshot.as_ref().map_or((0, 0), |snapshot| (snapshot.bytes, snapshot.n))
        };
        let turn = self.turn();
        let records = turn.position.n.saturating_sub(last_n);
        // An estimate: records that were placed before this handle was opened were not seen by it.
        let bytes = u128::from(turn.bytes_seen) * u128::from(records) / u128::from(turn.records_seen.max(1));
        bytes > u128::from(self.settings.snapshot_bytes.max(last_bytes))
            || records > self.settings.snapshot_records
    }

    /// Deletes parts of older snapshots, and parts of uploads that were never finished.
    pub(crate) fn delete_orphans(&self) -> Result<usize, JournalError> {
        let listed = self.noted(self.journal.parts())?;
        // Read after the listing: a part that was named in between must stay.
        self.read_manifest()?;
        let snapshot = self.manifest.lock().manifest.snapshot.clone();
        let parts = snapshot.iter().flat_map(|snapshot| &snapshot.parts);
        let named: HashSet<&str> = parts.map(|part| part.name.as_str()).collect();
        let standing_n = snapshot.as_ref().map_or(0, |snapshot| snapshot.n);
        let stands_ms = named.iter().next().and_then(|name| number_in(name, 1)).unwrap_or(u64::MAX);
        let (now_ms, stood_ms) = (self.clock.mono_ms(), self.clock.wall_ms().saturating_sub(stands_ms));
        let is_given_up = |part: &PartName| {
            !named.contains(part.0.as_str()) && number_in(&part.0, 0).is_none_or(|n| n < standing_n)
        };
        let dead: Vec<PartName> = listed.into_iter().filter(is_given_up).collect();
        let due: Vec<PartName> = {
            let mut orphans = self.orphans.lock();
            let seen: HashMap<PartName, u64> = dead
                .into_iter()
                .map(|part| {
                    let since_ms = orphans.seen_ms.get(&part).copied().unwrap_or(now_ms);
                    (part, since_ms)
                })
                .collect();
            orphans.seen_ms = seen;
            // After a restart nobody has seen a whole day pass: then wall clocks are believed after twice the time.
            let is_due = |since_ms: u64| {
                let seen_ms = now_ms.saturating_sub(since_ms);
                seen_ms >= ORPHANS_KEPT_MS
                    || stood_ms >= 2 * ORPHANS_KEPT_MS && seen_ms >= ORPHANS_KEPT_MS / 24
            };
            let due = orphans.seen_ms.iter().filter(|(_, since_ms)| is_due(**since_ms));
            due.map(|(part, _)| part.clone()).collect()
        };
        for part in &due {
            self.noted(self.journal.delete_part(part))?;
        }
        Ok(due.len())
    }
}

/// Returns a number in the name of a part: 0 = the position at which the snapshot was begun, 1 = the time.
fn number_in(name: &str, at: usize) -> Option<u64> {
    name.split(['-', '/']).nth(at)?.parse().ok()
}

fn failed(error: JournalError) -> StoreError {
    let text = format!("a snapshot could not be made: {error}");
    StoreError::Busy(FailureCause::new(text, error))
}

/// Sends a snapshot part by part.
pub(crate) struct Upload<'a> {
    journal: &'a dyn Journal,
    name: &'a str,
    part_bytes: usize,
    /// The handle whose end also ends the upload.
    handle: Option<&'a SharedHandle>,
    buffer: Vec<u8>,
    pub(crate) parts: Vec<SnapshotPart>,
    pub(crate) bytes: u64,
}

impl<'a> Upload<'a> {
    pub(crate) fn new(
        journal: &'a dyn Journal,
        name: &'a str,
        part_bytes: usize,
        handle: Option<&'a SharedHandle>,
    ) -> Upload<'a> {
        let part_bytes = part_bytes.max(1);
        Upload { journal, name, part_bytes, handle, buffer: Vec::new(), parts: Vec::new(), bytes: 0 }
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            let room = self.part_bytes - self.buffer.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == self.part_bytes {
                self.end_part()?;
            }
        }
        Ok(())
    }

    pub(crate) fn end_part(&mut self) -> Result<(), StoreError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        // A snapshot of many parts must not hold up the end of the process.
        self.handle.map_or(Ok(()), SharedHandle::refuse_ended)?;
        let name = format!("{}/{}", self.name, self.parts.len());
        let part = PartName(name.clone());
        // Storing the same part again is allowed, so a lost answer costs a repetition.
        let mut stored = self.journal.put_part(&part, &self.buffer);
        for attempt in 0..PART_ATTEMPTS {
            if !matches!(stored, Err(JournalError::Unknown(_))) {
                break;
            }
            if let Some(handle) = self.handle {
                let _ = handle.noted(stored);
                handle.back_off(attempt)?;
            }
            stored = self.journal.put_part(&part, &self.buffer);
        }
        stored.map_err(failed)?;
        self.bytes += self.buffer.len() as u64;
        let sha256 = hex(&Sha256::digest(&self.buffer));
        self.parts.push(SnapshotPart { name, bytes: self.buffer.len() as u64, sha256 });
        self.buffer.clear();
        Ok(())
    }
}
