//! The manifest: the small document beside a journal that says which store this is, where its newest snapshot lies, and
//! which records may be deleted.

use millrace_journal::{JournalError, ManifestRead, ManifestVersion};
use millrace_store::{FailureCause, Tip};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::EngineClock;
use crate::store::SharedHandle;

/// The version of the document.
const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// Identifies the store, in hexadecimal: a copy of another store must not be used with this journal.
    pub store_id: String,
    /// The newest format of records in the journal.
    pub record_format: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotEntry>,
    /// Records up to this number may be deleted: the snapshot holds what they did.
    pub trimmed_to: u64,
    /// When `trimmed_to` was set, by the wall clock of the server that did.
    pub trimmed_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotEntry {
    /// The position of the snapshot.
    pub n: u64,
    pub tip: String,
    pub bytes: u64,
    /// In order.
    pub parts: Vec<SnapshotPart>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPart {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

/// A manifest and its checksum, as it is stored.
#[derive(Serialize, Deserialize)]
struct Sealed {
    manifest: Manifest,
    sha256: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest of the store is damaged ({0}): restore it from the engine's backup")]
    Damaged(String),
    #[error(
        "the manifest of the store has format {found}, this build reads up to {FORMAT}: upgrade this server"
    )]
    NewerFormat { found: u32 },
}

impl Manifest {
    pub fn new(store_id: u128) -> Manifest {
        Manifest {
            format: FORMAT,
            store_id: format!("{store_id:032x}"),
            record_format: crate::record::FORMAT,
            snapshot: None,
            trimmed_to: 0,
            trimmed_at_ms: 0,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let sha256 = checksum(self);
        // A struct of strings and numbers always has a JSON text.
        serde_json::to_vec(&Sealed { manifest: self.clone(), sha256 }).unwrap_or_default()
    }

    pub fn decode(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        #[derive(Deserialize)]
        struct Outer {
            manifest: Inner,
        }
        #[derive(Deserialize)]
        struct Inner {
            format: u32,
        }
        let damaged = |error: serde_json::Error| ManifestError::Damaged(error.to_string());
        let Outer { manifest: Inner { format } } = serde_json::from_slice(bytes).map_err(damaged)?;
        if format > FORMAT {
            return Err(ManifestError::NewerFormat { found: format });
        }
        let Sealed { manifest, sha256 } = serde_json::from_slice(bytes).map_err(damaged)?;
        if checksum(&manifest) != sha256 {
            return Err(ManifestError::Damaged("its checksum is wrong".to_owned()));
        }
        Ok(manifest)
    }

    pub fn store_id(&self) -> Result<u128, ManifestError> {
        u128::from_str_radix(&self.store_id, 16).map_err(|error| ManifestError::Damaged(error.to_string()))
    }
}

impl SnapshotEntry {
    pub fn tip(&self) -> Result<Tip, ManifestError> {
        let bits = u128::from_str_radix(&self.tip, 16);
        bits.map(|bits| Tip(bits.to_be_bytes())).map_err(|error| ManifestError::Damaged(error.to_string()))
    }
}

fn checksum(manifest: &Manifest) -> String {
    hex(&Sha256::digest(serde_json::to_vec(manifest).unwrap_or_default()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The manifest as a handle has last read it.
#[derive(Clone, Debug)]
pub(crate) struct ManifestState {
    pub(crate) manifest: Manifest,
    pub(crate) version: ManifestVersion,
    /// When that reading began, by both clocks of this machine.
    pub(crate) read_mono_ms: u64,
    pub(crate) read_wall_ms: u64,
    /// Since when this handle knows the present `trimmed_to`, by the clock that never steps.
    pub(crate) trimmed_seen_ms: u64,
}

impl ManifestState {
    pub(crate) fn new(
        read: &ManifestRead,
        clock: &dyn EngineClock,
        began: (u64, u64),
    ) -> Result<ManifestState, ManifestError> {
        let manifest = Manifest::decode(&read.bytes)?;
        Ok(ManifestState {
            manifest,
            version: read.version.clone(),
            read_mono_ms: began.0,
            read_wall_ms: began.1,
            trimmed_seen_ms: clock.mono_ms(),
        })
    }

    pub(crate) fn snapshot_n(&self) -> u64 {
        self.manifest.snapshot.as_ref().map_or(0, |snapshot| snapshot.n)
    }

    /// Returns whether the reading is older than `age_ms_max`, by the larger of both clocks. A wall clock that was set
    /// back says nothing; one that was set ahead only costs a reading.
    pub(crate) fn is_stale(&self, clock: &dyn EngineClock, age_ms_max: u64) -> bool {
        let by_mono = clock.mono_ms().saturating_sub(self.read_mono_ms);
        let by_wall = clock.wall_ms().saturating_sub(self.read_wall_ms);
        by_mono.max(by_wall) >= age_ms_max
    }
}

impl SharedHandle {
    /// Reads the manifest again.
    pub(crate) fn read_manifest(&self) -> Result<(), JournalError> {
        let began = (self.clock.mono_ms(), self.clock.wall_ms());
        let refused = |text: String| JournalError::Refused(FailureCause::from(text));
        let Some(read) = self.journal.manifest()? else {
            return Err(refused(
                "the manifest of the store is gone: restore it from the engine's backup".into(),
            ));
        };
        let mut fresh = ManifestState::new(&read, self.clock.as_ref(), began)
            .map_err(|error| refused(error.to_string()))?;
        let mut known = self.manifest.lock();
        if known.manifest.store_id != fresh.manifest.store_id {
            return Err(refused("the engine holds another store now: its id has changed".into()));
        }
        if known.manifest.trimmed_to == fresh.manifest.trimmed_to {
            fresh.trimmed_seen_ms = known.trimmed_seen_ms;
        }
        *known = fresh;
        Ok(())
    }

    /// Changes the manifest, unless another server has changed it meanwhile: then it is read again and nothing is
    /// changed. Returns whether it was changed.
    pub(crate) fn change_manifest(&self, change: impl FnOnce(&mut Manifest)) -> Result<bool, JournalError> {
        let (mut new, version) = {
            let known = self.manifest.lock();
            (known.manifest.clone(), known.version.clone())
        };
        change(&mut new);
        let is_set = self.journal.set_manifest(&new.encode(), Some(&version))?;
        self.read_manifest()?;
        Ok(is_set)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_manifest_reads_back_and_every_change_is_noticed() {
        let mut manifest = Manifest::new(7);
        manifest.snapshot = Some(SnapshotEntry {
            n: 9,
            tip: Tip([1; 16]).to_string(),
            bytes: 3,
            parts: vec![SnapshotPart { name: "9-1/0".into(), bytes: 3, sha256: "00".into() }],
        });
        let bytes = manifest.encode();
        let found = Manifest::decode(&bytes).unwrap();
        assert_eq!((&found, found.store_id()), (&manifest, Ok(7)));
        assert_eq!(found.snapshot.unwrap().tip(), Ok(Tip([1; 16])));
        let text = String::from_utf8(bytes).unwrap();
        let changed = text.replace("\"trimmed_to\":0", "\"trimmed_to\":5");
        assert!(matches!(Manifest::decode(changed.as_bytes()), Err(ManifestError::Damaged(_))));
        let newer = text.replace("\"format\":1,", "\"format\":2,\"news\":1,");
        assert_eq!(Manifest::decode(newer.as_bytes()), Err(ManifestError::NewerFormat { found: 2 }));
        assert!(Manifest::decode(b"").is_err());
    }
}
