//! The journal in a folder: for tests without an engine, and for servers that share a disk.
//!
//! Record N is the file `journal/‹N, 20 digits›`. A record is written under another name, synced, and then given its
//! own name with `link(2)`, which fails if the name exists: so N is placed once, whole, and by one writer, also if the
//! writers run on several machines.
//!
//! The folder may be on a local disk, or on a network disk that keeps these promises:
//!
//! - It has hard links. `check` tries them; FAT and many SMB shares have none and are refused.
//! - A file and a folder that were synced survive a power failure of the machine that holds the disk.
//! - All machines see a new name at once. NFS clients keep for some seconds that a name was missing: mount with
//!   `lookupcache=positive`, otherwise servers follow with that delay (nothing else goes wrong: the NFS server decides
//!   who gets a number). NFS also has to offer locks (version 4 does), for the manifest.
//!
//! `check` cannot try the last two, and nobody has tested this journal on NFS yet.

mod check;
mod folder;
mod manifest;
mod names;
mod parts;
mod records;

use std::path::PathBuf;

use bytes::Bytes;

use self::folder::JournalFolder;
use self::records::Records;
use crate::error::JournalError;
use crate::port::{
    Fitness, Journal, JournalReadLimit, ManifestRead, ManifestVersion, PartName, Placed, Placing,
};

/// Handles on the same folder share its journal, whichever process or machine they are in.
#[derive(Debug)]
pub struct DirectoryJournal {
    folder: JournalFolder,
    records: Records,
}

impl DirectoryJournal {
    /// Touches nothing: [`Journal::check`] makes the folder if it is missing, in a folder that must exist.
    pub fn new(folder: impl Into<PathBuf>) -> DirectoryJournal {
        DirectoryJournal { folder: JournalFolder::new(folder.into()), records: Records::default() }
    }
}

impl Journal for DirectoryJournal {
    fn check(&self) -> Result<Fitness, JournalError> {
        check::check(&self.folder)
    }

    fn place(&self, placing: &Placing<'_>) -> Result<Placed, JournalError> {
        self.records.place(&self.folder, placing.n, placing.record)
    }

    fn read(&self, from: u64, limit: JournalReadLimit) -> Result<Vec<(u64, Bytes)>, JournalError> {
        self.records.read(&self.folder, from, limit)
    }

    fn manifest(&self) -> Result<Option<ManifestRead>, JournalError> {
        manifest::read(&self.folder)
    }

    fn set_manifest(&self, new: &[u8], was: Option<&ManifestVersion>) -> Result<bool, JournalError> {
        manifest::replace(&self.folder, new, was)
    }

    fn put_part(&self, name: &PartName, bytes: &[u8]) -> Result<(), JournalError> {
        parts::put(&self.folder, name, bytes)
    }

    fn get_part(&self, name: &PartName) -> Result<Option<Bytes>, JournalError> {
        parts::get(&self.folder, name)
    }

    fn parts(&self) -> Result<Vec<PartName>, JournalError> {
        parts::list(&self.folder)
    }

    fn delete_part(&self, name: &PartName) -> Result<(), JournalError> {
        parts::delete(&self.folder, name)
    }

    fn delete_below(&self, n: u64) -> Result<(), JournalError> {
        self.records.delete_below(&self.folder, n)
    }
}
