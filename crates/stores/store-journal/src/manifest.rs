//! The manifest: the small document beside a journal that says which store this is, where its newest snapshot lies, and
//! which records may be deleted.

use millrace_journal::{JournalError, ManifestRead, ManifestVersion};
use millrace_store::{FailureCause, Tip};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::EngineClock;
use crate::handle::SharedHandle;

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
    /// The store was made of a file, whose content is in no record: the journal alone is not the whole store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_imported: bool,
    /// How many ids the copies of this store remember for dedupe: the most that any server was told to. `None` in stores
    /// that were made before this was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_ids_max: Option<u64>,
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
            is_imported: false,
            dedupe_ids_max: None,
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
    /// Returns whether this is a snapshot of exactly this position.
    pub(crate) fn is_at(&self, n: u64, tip: Tip) -> bool {
        self.n == n && self.tip() == Ok(tip)
    }

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
    /// When the engine answered, by its own clock, if it tells.
    read_engine_ms: Option<u64>,
    /// An earlier reading, with a lower `trimmed_to`.
    before: Option<EarlierTrim>,
    /// Since when this handle knows the present `trimmed_to`, by the clock that never steps.
    pub(crate) trimmed_seen_ms: u64,
}

/// A reading of the manifest that is not the newest one.
#[derive(Clone, Copy, Debug)]
struct EarlierTrim {
    trimmed_to: u64,
    mono_ms: u64,
    wall_ms: u64,
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
            read_engine_ms: read.engine_time_ms,
            before: None,
            trimmed_seen_ms: clock.mono_ms(),
        })
    }

    pub(crate) fn snapshot_n(&self) -> u64 {
        self.manifest.snapshot.as_ref().map_or(0, |snapshot| snapshot.n)
    }

    /// Returns whether the reading is older than `age_ms_max`, by the largest of both clocks of this machine and the
    /// engine's. A wall clock that was set back says nothing; one that was set ahead only costs a reading.
    pub(crate) fn is_stale(&self, clock: &dyn EngineClock, engine_ms: Option<u64>, age_ms_max: u64) -> bool {
        let by_mono = clock.mono_ms().saturating_sub(self.read_mono_ms);
        let by_wall = clock.wall_ms().saturating_sub(self.read_wall_ms);
        let by_engine = engine_ms.zip(self.read_engine_ms).map_or(0, |(now, then)| now.saturating_sub(then));
        by_mono.max(by_wall).max(by_engine) >= age_ms_max
    }

    /// Returns up to where the journal was trimmed at an earlier reading that is younger than `age_ms_max`: what was not
    /// trimmed then is not deleted yet.
    pub(crate) fn trimmed_before(&self, clock: &dyn EngineClock, age_ms_max: u64) -> Option<u64> {
        let is_young = |before: &&EarlierTrim| {
            let by_mono = clock.mono_ms().saturating_sub(before.mono_ms);
            by_mono.max(clock.wall_ms().saturating_sub(before.wall_ms)) < age_ms_max
        };
        self.before.as_ref().filter(is_young).map(|before| before.trimmed_to)
    }

    /// Takes over what this handle knew before it read this manifest.
    fn follow(&mut self, known: &ManifestState, age_ms_max: u64) {
        if known.manifest.trimmed_to == self.manifest.trimmed_to {
            self.trimmed_seen_ms = known.trimmed_seen_ms;
            self.before = known.before;
            return;
        }
        // The older one is worth more, as long as it lasts for a while.
        let lasts = |before: &EarlierTrim| self.read_mono_ms.saturating_sub(before.mono_ms) < age_ms_max / 2;
        self.before = known.before.filter(lasts).or(Some(EarlierTrim {
            trimmed_to: known.manifest.trimmed_to,
            mono_ms: known.read_mono_ms,
            wall_ms: known.read_wall_ms,
        }));
    }
}

impl SharedHandle {
    /// Reads the manifest again.
    pub(crate) fn read_manifest(&self) -> Result<(), JournalError> {
        let began = (self.clock.mono_ms(), self.clock.wall_ms());
        let refused = |text: String| JournalError::Refused(FailureCause::from(text));
        let Some(read) = self.noted(self.journal.manifest())? else {
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
        fresh.follow(&known, self.settings.manifest_age_ms_max);
        *known = fresh;
        Ok(())
    }

    /// Changes the manifest, unless another server has changed it meanwhile or `change` wants nothing any more: then it
    /// is read again and nothing is changed. Returns whether it was changed.
    pub(crate) fn change_manifest(
        &self,
        change: impl FnOnce(&mut Manifest) -> bool,
    ) -> Result<bool, JournalError> {
        let (mut new, version) = {
            let known = self.manifest.lock();
            (known.manifest.clone(), known.version.clone())
        };
        let is_set =
            change(&mut new) && self.noted(self.journal.set_manifest(&new.encode(), Some(&version)))?;
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
