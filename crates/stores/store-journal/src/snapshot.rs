//! Snapshots: the copy of a server at one position, in parts, so that a new machine does not fold the whole journal.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use millrace_journal::{Journal, JournalError, PartName};
use millrace_store::{CopyPosition, FailureCause, StoreError};
use sha2::{Digest, Sha256};

use crate::manifest::{SnapshotEntry, SnapshotPart, hex};
use crate::store::SharedHandle;

/// Parts of snapshots that no manifest names are deleted after this time.
const ORPHANS_KEPT_MS: u64 = 24 * 3600 * 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotMade {
    pub n: u64,
    pub bytes: u64,
    pub parts: usize,
}

impl crate::JournalStore {
    /// Makes a snapshot of the copy and names it in the manifest. Commits go on meanwhile.
    pub fn snapshot(&self) -> Result<SnapshotMade, StoreError> {
        self.shared().make_snapshot()
    }
}

impl SharedHandle {
    pub(crate) fn make_snapshot(&self) -> Result<SnapshotMade, StoreError> {
        let at_ms = self.clock.wall_ms();
        let name = format!("{:020}-{at_ms}-{:016x}", self.status().position.n, rand::random::<u64>());
        let mut upload = Upload::new(self.journal.as_ref(), &name, self.settings.part_bytes.max(1));
        let position = self.copies.snapshot(&mut |bytes| upload.write(bytes))?;
        upload.end_part()?;
        let (parts, bytes) = (upload.parts, upload.bytes);
        let made = SnapshotMade { n: position.n, bytes, parts: parts.len() };
        let entry = SnapshotEntry { n: position.n, tip: position.tip.to_string(), bytes, parts };
        let kept = self.settings.records_kept;
        let is_set = self
            .change_manifest(|manifest| {
                if manifest.snapshot.as_ref().is_some_and(|standing| standing.n > entry.n) {
                    return;
                }
                let trimmed_to = entry.n.saturating_sub(kept).max(manifest.trimmed_to);
                if trimmed_to > manifest.trimmed_to {
                    (manifest.trimmed_to, manifest.trimmed_at_ms) = (trimmed_to, at_ms);
                }
                manifest.snapshot = Some(entry);
            })
            .map_err(failed)?;
        if !is_set {
            let text = "another server has changed the manifest meanwhile: this snapshot is not used";
            return Err(StoreError::Busy(FailureCause::from(text)));
        }
        let mut turn = self.turn();
        turn.bytes_since_snapshot = 0;
        self.publish(&turn);
        tracing::info!(n = made.n, bytes = made.bytes, parts = made.parts, "a snapshot was made");
        Ok(made)
    }

    /// Deletes parts of older snapshots, and parts of uploads that were never finished.
    pub(crate) fn delete_orphans(&self) -> Result<usize, JournalError> {
        let named: Vec<String> = {
            let known = self.manifest.lock();
            let parts = known.manifest.snapshot.iter().flat_map(|snapshot| &snapshot.parts);
            parts.map(|part| part.name.clone()).collect()
        };
        let now_ms = self.clock.wall_ms();
        let mut deleted = 0;
        for part in self.journal.parts()? {
            let made_ms = made_ms(&part.0).unwrap_or(0);
            if named.contains(&part.0) || now_ms.saturating_sub(made_ms) < ORPHANS_KEPT_MS {
                continue;
            }
            self.journal.delete_part(&part)?;
            deleted += 1;
        }
        Ok(deleted)
    }
}

/// Returns when a part was uploaded, which is in its name.
fn made_ms(name: &str) -> Option<u64> {
    name.split(['-', '/']).nth(1)?.parse().ok()
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
    buffer: Vec<u8>,
    pub(crate) parts: Vec<SnapshotPart>,
    pub(crate) bytes: u64,
}

impl<'a> Upload<'a> {
    pub(crate) fn new(journal: &'a dyn Journal, name: &'a str, part_bytes: usize) -> Upload<'a> {
        Upload { journal, name, part_bytes, buffer: Vec::new(), parts: Vec::new(), bytes: 0 }
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
        let name = format!("{}/{}", self.name, self.parts.len());
        let part = PartName(name.clone());
        // Storing the same part again is allowed, so a lost answer costs a repetition.
        let mut stored = self.journal.put_part(&part, &self.buffer);
        for _ in 0..PART_ATTEMPTS {
            if !matches!(stored, Err(JournalError::Unknown(_))) {
                break;
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

/// How often a part is sent or fetched again after a lost answer.
const PART_ATTEMPTS: u32 = 5;

/// Reads a snapshot part by part, each checked against the manifest.
pub(crate) struct SnapshotReader<'a> {
    journal: &'a dyn Journal,
    parts: std::slice::Iter<'a, SnapshotPart>,
    part: Bytes,
}

impl<'a> SnapshotReader<'a> {
    pub(crate) fn new(journal: &'a dyn Journal, snapshot: &'a SnapshotEntry) -> SnapshotReader<'a> {
        SnapshotReader { journal, parts: snapshot.parts.iter(), part: Bytes::new() }
    }

    fn fetch(&self, part: &SnapshotPart) -> io::Result<Bytes> {
        let name = PartName(part.name.clone());
        let mut found = self.journal.get_part(&name);
        for _ in 0..PART_ATTEMPTS {
            if !matches!(found, Err(JournalError::Unknown(_))) {
                break;
            }
            found = self.journal.get_part(&name);
        }
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        match found.map_err(io::Error::other)? {
            None => Err(invalid(format!("part {name} of the snapshot is missing"))),
            Some(bytes) if hex(&Sha256::digest(&bytes)) == part.sha256 => Ok(bytes),
            Some(_) => Err(invalid(format!("part {name} of the snapshot is damaged"))),
        }
    }
}

impl Read for SnapshotReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            let Some(next) = self.parts.next() else { return Ok(0) };
            self.part = self.fetch(next)?;
        }
        let count = buffer.len().min(self.part.len());
        self.part.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// Returns the position that a snapshot has.
pub(crate) fn position_of(
    store_id: u128,
    snapshot: &SnapshotEntry,
) -> Result<CopyPosition, crate::manifest::ManifestError> {
    Ok(CopyPosition { store_id, n: snapshot.n, tip: snapshot.tip()? })
}
