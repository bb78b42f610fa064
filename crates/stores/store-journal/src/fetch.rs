//! Fetches the snapshot that the manifest names, part by part, when a server starts without a copy.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use millrace_journal::PartName;
use sha2::{Digest, Sha256};

use crate::manifest::{SnapshotEntry, SnapshotPart, hex};
use crate::open::{OpenError, Opening};

/// Reads a snapshot, each part checked against the manifest. Waits for an engine that is away.
pub(crate) struct SnapshotReader<'a, 'o> {
    opening: &'a mut Opening<'o>,
    parts: std::slice::Iter<'a, SnapshotPart>,
    part: Bytes,
    /// Why reading ended early.
    pub(crate) failure: Option<FetchFailure>,
}

pub(crate) enum FetchFailure {
    /// The engine refuses, cannot be reached for too long, or the process is to stop.
    Open(OpenError),
    /// A part is missing or damaged: the sentence says which.
    Part(String),
}

impl<'a, 'o> SnapshotReader<'a, 'o> {
    pub(crate) fn new(opening: &'a mut Opening<'o>, snapshot: &'a SnapshotEntry) -> SnapshotReader<'a, 'o> {
        SnapshotReader { opening, parts: snapshot.parts.iter(), part: Bytes::new(), failure: None }
    }

    fn fetch(&mut self, part: &SnapshotPart) -> Result<Bytes, FetchFailure> {
        let name = PartName(part.name.clone());
        let journal = self.opening.journal.clone();
        let found = self.opening.until_reached("fetching a snapshot", || journal.get_part(&name));
        match found.map_err(FetchFailure::Open)? {
            None => Err(FetchFailure::Part(format!("part {name} of the snapshot is missing"))),
            Some(bytes) if hex(&Sha256::digest(&bytes)) == part.sha256 => Ok(bytes),
            Some(_) => Err(FetchFailure::Part(format!("part {name} of the snapshot is damaged"))),
        }
    }
}

impl Read for SnapshotReader<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            let Some(next) = self.parts.next() else { return Ok(0) };
            match self.fetch(next) {
                Ok(part) => self.part = part,
                Err(failure) => {
                    self.failure = Some(failure);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the snapshot cannot be fetched"));
                }
            }
        }
        let count = buffer.len().min(self.part.len());
        self.part.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
