//! Work on a store that needs no server: examinations, copies, and a look at its file. Only a restore makes a store.

use std::error::Error;
use std::path::{Path, PathBuf};

use millrace_store_sqlite::{
    BackupError, Copied, Doctor, Existing, ReadOnlyError, SCHEMA_VERSION, ServeLock, find_store,
    schema_version,
};

use crate::open::{OpenError, OpenedStore, open_shared};
use crate::options::StoreOptions;
use crate::url::StoreUrl;

/// Why work on a store was not done.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// No other process can reach a store of this kind.
    #[error("store is \"{0}\": it lives in its server only, there is no file")]
    NoFile(StoreUrl),
    #[error("{0} is a shared store: this command works on a file only")]
    IsShared(StoreUrl),
    /// There is no store, or it cannot be opened.
    #[error(transparent)]
    Unreachable(Box<dyn Error + Send + Sync>),
    /// The store was reached, and the work failed.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

impl From<ReadOnlyError> for OfflineError {
    fn from(error: ReadOnlyError) -> OfflineError {
        OfflineError::Unreachable(error.into())
    }
}

impl From<OpenError> for OfflineError {
    fn from(error: OpenError) -> OfflineError {
        OfflineError::Unreachable(error.into())
    }
}

impl From<BackupError> for OfflineError {
    fn from(error: BackupError) -> OfflineError {
        match error {
            BackupError::ReadOnly(error) => error.into(),
            error => OfflineError::Failed(error.into()),
        }
    }
}

/// A store as its file shows it, without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreInfo {
    /// The real path of the store's file.
    pub file: PathBuf,
    /// The schema version of the store. `None` if the file is no store, or has a version that this build does not know.
    pub schema: Option<usize>,
    /// The schema version that this build writes. Opening an older store brings it to this version.
    pub schema_of_build: usize,
    /// Whether a server serves the store now.
    pub is_served: bool,
}

/// Looks at a store without changing it.
pub fn store_info(url: &StoreUrl) -> Result<StoreInfo, OfflineError> {
    let file = find_store(file_of(url)?)?;
    let (schema, is_served) = (schema_version(&file)?, ServeLock::is_held(&file));
    Ok(StoreInfo { file, schema, schema_of_build: SCHEMA_VERSION, is_served })
}

/// Opens a store beside all processes that have it open, like [`open_shared`], but never makes one.
pub fn open_existing(url: &StoreUrl, options: &StoreOptions) -> Result<OpenedStore, OfflineError> {
    let found = StoreUrl::Sqlite(find_store(file_of(url)?)?);
    Ok(open_shared(&found, options)?)
}

/// Opens a store for examination. Never makes or changes anything.
pub fn open_doctor(url: &StoreUrl) -> Result<Doctor, OfflineError> {
    Ok(Doctor::open(file_of(url)?)?)
}

/// Copies a store to one file, while it is served or not. The copy is of one moment.
pub fn backup(url: &StoreUrl, target: &Path, existing: Existing) -> Result<Copied, OfflineError> {
    Ok(millrace_store_sqlite::backup(file_of(url)?, target, existing)?)
}

/// Copies a backup beside the store that it is to replace, and keeps everybody else from opening that store.
pub fn prepare_restore(backup: &Path, url: &StoreUrl, existing: Existing) -> Result<Restore, OfflineError> {
    Ok(Restore(millrace_store_sqlite::Restore::prepare(backup, file_of(url)?, existing)?))
}

/// A copy that is ready to become the store. If it is dropped instead, everything stays as it was.
#[derive(Debug)]
pub struct Restore(millrace_store_sqlite::Restore);

impl Restore {
    /// Opens the copy for examination.
    pub fn open_doctor(&self) -> Result<Doctor, OfflineError> {
        Ok(Doctor::open(self.0.path())?)
    }

    /// Puts the copy in place and deletes the old store.
    pub fn finish(self) -> Result<Copied, OfflineError> {
        Ok(self.0.finish()?)
    }
}

fn file_of(url: &StoreUrl) -> Result<&Path, OfflineError> {
    url.file().ok_or_else(|| match url {
        StoreUrl::Shared(_) => OfflineError::IsShared(url.clone()),
        _ => OfflineError::NoFile(url.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::open_store;

    #[test]
    fn a_store_is_looked_at_copied_and_restored_by_its_url() {
        let folder = tempfile::tempdir().unwrap();
        let url = StoreUrl::Sqlite(folder.path().join("store.db"));
        for refused in [
            store_info(&url).map(drop),
            open_existing(&url, &StoreOptions::default()).map(drop),
            open_doctor(&url).map(drop),
            backup(&url, &folder.path().join("copy"), Existing::Keep).map(drop),
        ] {
            assert!(matches!(refused, Err(OfflineError::Unreachable(_))), "{refused:?}");
        }
        assert!(!url.file().unwrap().exists(), "no look makes a store");
        let served = open_store(&url, &StoreOptions::default()).unwrap();
        let info = store_info(&url).unwrap();
        assert_eq!((info.schema, info.is_served), (Some(info.schema_of_build), true));
        let copy = folder.path().join("copy");
        assert_eq!(backup(&url, &copy, Existing::Keep).unwrap().events, 0);
        let in_use = prepare_restore(&copy, &url, Existing::Replace).map(drop);
        assert!(matches!(in_use, Err(OfflineError::Failed(_))), "{in_use:?}");
        drop(served);
        assert!(!store_info(&url).unwrap().is_served);
        open_existing(&url, &StoreOptions::default()).unwrap();
        let restore = prepare_restore(&copy, &url, Existing::Replace).unwrap();
        assert!(restore.open_doctor().unwrap().examine().findings.is_healthy());
        restore.finish().unwrap();
        assert!(open_doctor(&url).unwrap().examine().findings.is_healthy());
    }

    #[test]
    fn a_store_in_memory_has_no_file_to_work_on() {
        let refused = open_doctor(&StoreUrl::Memory).unwrap_err().to_string();
        assert_eq!(refused, "store is \"memory:\": it lives in its server only, there is no file");
    }
}
