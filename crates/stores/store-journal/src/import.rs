//! Makes a shared store of a file: its content becomes the first snapshot of a journal that has no records yet.

use std::io::Read;

use millrace_journal::{Journal, JournalError};
use millrace_store::{FailureCause, StoreError, Tip};

use crate::manifest::{Manifest, SnapshotEntry};
use crate::settings::JournalSettings;
use crate::snapshot::Upload;

/// How much of the file is read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Fills an engine that holds no store yet. Nobody sees any of it before the last step. Returns how many bytes were
/// sent.
///
/// # Errors
///
/// [`StoreError::InUse`] if the engine holds a store already.
pub fn import(
    journal: &dyn Journal,
    file: &mut dyn Read,
    settings: &JournalSettings,
    made_ms: u64,
) -> Result<u64, StoreError> {
    journal.check().map_err(unusable)?;
    if journal.manifest().map_err(unusable)?.is_some() {
        return Err(in_use());
    }
    let name = format!("{:020}-{made_ms}-{:016x}", 0, rand::random::<u64>());
    let mut upload = Upload::new(journal, &name, settings.part_bytes, None);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => upload.write(&chunk[..count])?,
            Err(error) => return Err(StoreError::Unreadable(FailureCause::of(error))),
        }
    }
    upload.end_part()?;
    let (parts, bytes) = (upload.parts, upload.bytes);
    let mut manifest = Manifest::new(rand::random());
    manifest.is_imported = true;
    manifest.dedupe_ids_max = settings.dedupe_ids_max;
    manifest.snapshot = Some(SnapshotEntry { n: 0, tip: Tip::START.to_string(), bytes, parts });
    match journal.set_manifest(&manifest.encode(), None).map_err(unusable)? {
        true => Ok(bytes),
        false => Err(in_use()),
    }
}

fn unusable(error: JournalError) -> StoreError {
    StoreError::Unusable(FailureCause::of(error))
}

fn in_use() -> StoreError {
    let text = "the engine holds a store already: choose another schema, prefix or database";
    StoreError::InUse(FailureCause::from(text))
}
