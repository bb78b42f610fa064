//! The bounds of a shared store, which every server keeps: they stand in the manifest, so that a server with smaller
//! settings that takes the lead does not forget what the others remember.

use millrace_store::{CopyBounds, FailureCause, StoreError};

use crate::handle::SharedHandle;
use crate::manifest::{Manifest, ManifestState};
use crate::open::{OpenError, Opening};

/// The bound of a store for which no server has told one.
const DEDUPE_IDS_MAX: u64 = 1_000_000;

impl Manifest {
    pub(crate) fn copy_bounds(&self) -> CopyBounds {
        let ids_max = self.dedupe_ids_max.unwrap_or(DEDUPE_IDS_MAX);
        CopyBounds { dedupe_ids_max: usize::try_from(ids_max).unwrap_or(usize::MAX) }
    }
}

impl Opening<'_> {
    /// Returns the manifest after its bounds are at least those of this server's settings.
    pub(crate) fn with_own_bounds(&mut self, standing: ManifestState) -> Result<ManifestState, OpenError> {
        let Some(own) = self.settings.dedupe_ids_max else { return Ok(standing) };
        let mut standing = standing;
        loop {
            match standing.manifest.dedupe_ids_max {
                Some(ids_max) if ids_max >= own => break,
                was => {
                    let manifest = Manifest { dedupe_ids_max: Some(own), ..standing.manifest.clone() };
                    let (bytes, version, journal) =
                        (manifest.encode(), &standing.version, self.journal.clone());
                    // Another server may change the manifest at the same time: the loop looks at what stands then.
                    let is_set = self.until_reached("raising a bound of the store", || {
                        journal.set_manifest(&bytes, Some(version))
                    })?;
                    if is_set && was.is_some() {
                        tracing::info!(
                            ?was,
                            now = own,
                            "the store remembers more ids for dedupe from now on"
                        );
                    }
                    standing = self.standing_manifest()?.ok_or_else(|| {
                        StoreError::Unusable(FailureCause::from("the manifest of the store is gone"))
                    })?;
                }
            }
        }
        if let Some(ids_max) = standing.manifest.dedupe_ids_max.filter(|ids_max| *ids_max > own) {
            tracing::info!(
                ids_max,
                own,
                "the store remembers more ids for dedupe than this server's settings ask for"
            );
        }
        Ok(standing)
    }
}

impl SharedHandle {
    /// Refuses the lead to a handle whose copy was opened before a bound was raised: it has to be opened again.
    pub(crate) fn refuse_smaller_bounds(&self) -> Result<(), StoreError> {
        self.read_manifest_until_known().map_err(|stop| self.stop(stop))?;
        let standing = self.manifest.lock().manifest.copy_bounds();
        if standing.dedupe_ids_max <= self.bounds.dedupe_ids_max {
            return Ok(());
        }
        let text =
            "the store remembers more ids for dedupe since this copy was opened, so it is opened again";
        Err(self.end_without_copy(StoreError::Deposed(FailureCause::from(text))))
    }
}
