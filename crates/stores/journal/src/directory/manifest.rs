//! The manifest: one file that is replaced as a whole, with its version in the first line.
//!
//! Renaming replaces a file at once and compares nothing, so writers take turns by a lock (`flock`) on a file beside
//! it. Readers need no lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};

use super::folder::{self, FILE_MODE, JournalFolder, failed};
use crate::error::JournalError;
use crate::port::{ManifestRead, ManifestVersion};

const FIRST_LINE: &str = "millrace manifest ";
/// How long a writer waits for its turn. Writers hold the lock for two syncs, so a longer wait means that one of them
/// is stopped, or that the disk is away.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
/// Locks cannot be waited for with a limit, so that the writer asks again and again.
const LOCK_POLL: Duration = Duration::from_millis(5);

pub(super) fn read(folder: &JournalFolder) -> Result<Option<ManifestRead>, JournalError> {
    let Some((version, bytes)) = standing(folder)? else { return Ok(None) };
    Ok(Some(ManifestRead { bytes, version: ManifestVersion(version.to_string()), engine_time_ms: None }))
}

pub(super) fn replace(
    folder: &JournalFolder,
    new: &[u8],
    was: Option<&ManifestVersion>,
) -> Result<bool, JournalError> {
    // Until the end of this function.
    let _turn = lock(folder)?;
    let standing = standing(folder)?.map(|(version, _)| version);
    if standing.map(|version| version.to_string()).as_ref() != was.map(|version| &version.0) {
        return Ok(false);
    }
    let first_line = format!("{FIRST_LINE}{}\n", standing.unwrap_or(0) + 1);
    let temp = folder.write_temp(&[first_line.as_bytes(), new])?;
    temp.rename(&folder.manifest).map_err(failed("replace", &folder.manifest))?;
    folder::sync(&folder.root)?;
    Ok(true)
}

fn standing(folder: &JournalFolder) -> Result<Option<(u64, Bytes)>, JournalError> {
    let Some(file) = folder.read(&folder.manifest)? else { return Ok(None) };
    match split(file.into()) {
        Some(parts) => Ok(Some(parts)),
        None => {
            let path = folder.manifest.display();
            let text =
                format!("{path} does not begin with «{FIRST_LINE}» and a number: restore it from a backup");
            Err(JournalError::Refused(text.into()))
        }
    }
}

/// Splits a file into its version and what follows the first line.
fn split(mut file: Bytes) -> Option<(u64, Bytes)> {
    let end = file.iter().position(|byte| *byte == b'\n')?;
    let version = std::str::from_utf8(&file[..end]).ok()?.strip_prefix(FIRST_LINE)?.parse().ok()?;
    file.advance(end + 1);
    Some((version, file))
}

fn lock(folder: &JournalFolder) -> Result<File, JournalError> {
    let path = &folder.manifest_lock;
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(path);
    let file = file.map_err(failed("open", path))?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(failed("lock", path)(error)),
            Err(TryLockError::WouldBlock) if LOCK_WAIT_MAX < begun.elapsed() => {
                let text = format!("{} has been locked by another process for 10 s", path.display());
                return Err(JournalError::Unknown(text.into()));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_POLL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_split_after_its_first_line() {
        let whole = Bytes::from_static(b"millrace manifest 12\n{\n}");
        assert_eq!(split(whole), Some((12, Bytes::from_static(b"{\n}"))));
        for torn in ["", "millrace manifest 12", "12\n", "millrace manifest x\n"] {
            assert_eq!(split(Bytes::from(torn)), None, "{torn}");
        }
    }
}
