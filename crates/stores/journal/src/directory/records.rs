//! The records: a file each, in the folder `journal`.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::folder::{self, JournalFolder, failed};
use super::names;
use crate::error::JournalError;
use crate::port::{JournalReadLimit, Placed};

/// How often a page is begun anew because its first record was deleted meanwhile.
const ATTEMPTS_MAX: usize = 10;

#[derive(Debug, Default)]
pub(super) struct Records {
    /// The highest number known to be on the disk together with its name. A reader syncs the folder before it returns
    /// a higher one: the writer may not have done so yet, and the record could still disappear.
    durable: AtomicU64,
}

impl Records {
    pub(super) fn place(
        &self,
        folder: &JournalFolder,
        n: u64,
        record: &[u8],
    ) -> Result<Placed, JournalError> {
        let name = path(folder, n);
        // A number that is taken stays so: looking first saves writing the record in vain.
        if is_there(folder, n)? {
            return Ok(Placed::Taken);
        }
        let temp = folder.write_temp(&[record])?;
        if !temp.link(&name)? {
            return Ok(Placed::Taken);
        }
        self.sync(folder, n)?;
        Ok(Placed::Yes)
    }

    pub(super) fn read(
        &self,
        folder: &JournalFolder,
        from: u64,
        limit: JournalReadLimit,
    ) -> Result<Vec<(u64, Bytes)>, JournalError> {
        if limit.records_max == 0 {
            return Ok(Vec::new());
        }
        for _ in 0..ATTEMPTS_MAX {
            let Some(first) = first_from(folder, from)? else { return Ok(Vec::new()) };
            let page = page(folder, first, limit)?;
            if let Some((last, _)) = page.last() {
                if self.durable.load(Ordering::Relaxed) < *last {
                    self.sync(folder, *last)?;
                }
                return Ok(page);
            }
        }
        Err(JournalError::Unknown("records are deleted as fast as they are found".into()))
    }

    pub(super) fn delete_below(&self, folder: &JournalFolder, n: u64) -> Result<(), JournalError> {
        let mut old = numbers(folder)?;
        old.retain(|found| *found < n);
        if old.is_empty() {
            return Ok(());
        }
        // In order, so that the numbers which are left have no gap, also if this is interrupted.
        old.sort_unstable();
        old.into_iter().try_for_each(|old| folder::remove(&path(folder, old)))?;
        folder::sync(&folder.records)
    }

    /// Syncs the folder, in which all numbers up to `n` have their names.
    fn sync(&self, folder: &JournalFolder, n: u64) -> Result<(), JournalError> {
        folder::sync(&folder.records)?;
        self.durable.fetch_max(n, Ordering::Relaxed);
        Ok(())
    }
}

/// Returns the lowest number from `from` on; `None` at the end of the journal.
fn first_from(folder: &JournalFolder, from: u64) -> Result<Option<u64>, JournalError> {
    if is_there(folder, from)? {
        return Ok(Some(from));
    }
    // Numbers are placed in order and deleted from the lowest on. So if the number before is still there, the journal
    // ended with it when `from` was looked for. This spares a reader at the end the list of all files.
    if from > 1 && is_there(folder, from - 1)? {
        return Ok(None);
    }
    Ok(numbers(folder)?.into_iter().filter(|found| from <= *found).min())
}

/// Reads records without a gap. The page is empty only if the first record is gone.
fn page(
    folder: &JournalFolder,
    first: u64,
    limit: JournalReadLimit,
) -> Result<Vec<(u64, Bytes)>, JournalError> {
    let mut page = Vec::new();
    let mut bytes = 0_usize;
    for n in (first..).take(limit.records_max) {
        let name = path(folder, n);
        let mut file = match File::open(&name) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => break,
            Err(error) => return Err(failed("read", &name)(error)),
        };
        let size = file.metadata().map_err(failed("read", &name))?.len() as usize;
        bytes = bytes.saturating_add(size);
        if bytes > limit.bytes_max && !page.is_empty() {
            break;
        }
        let mut record = Vec::with_capacity(size);
        file.read_to_end(&mut record).map_err(failed("read", &name))?;
        page.push((n, record.into()));
    }
    Ok(page)
}

fn numbers(folder: &JournalFolder) -> Result<Vec<u64>, JournalError> {
    let names = folder::names_in(&folder.records).map_err(failed("list", &folder.records))?;
    Ok(names.iter().filter_map(|name| names::number(name)).collect())
}

fn is_there(folder: &JournalFolder, n: u64) -> Result<bool, JournalError> {
    let name = path(folder, n);
    match fs::symlink_metadata(&name) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("find", &name)(error)),
    }
}

fn path(folder: &JournalFolder, n: u64) -> PathBuf {
    folder.records.join(names::of_record(n))
}
