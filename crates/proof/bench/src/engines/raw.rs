//! The raw requests of an engine, without Millrace: the probe beside every figure.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::place::EngineKind;
use crate::error::BenchError;

/// An engine as somebody uses it who has no journal.
pub(crate) trait RawEngine {
    /// Stores bytes in one durable request: a conditional put, an insert in a commit of its own, a synced append.
    fn put(&mut self, bytes: &[u8]) -> Result<(), BenchError>;

    /// Removes everything of this run.
    fn remove(&mut self) -> Result<(), BenchError>;

    /// The tables that are written by hand, if the engine has SQL.
    fn sql(&mut self) -> Option<&mut dyn SqlProbe> {
        None
    }
}

/// Tables that are written by hand, in the schema of the store.
pub(crate) trait SqlProbe {
    /// Inserts rows with one statement, which is a commit of its own.
    fn insert_rows(&mut self, payloads: &[&str], ids: UniqueIds) -> Result<(), BenchError>;

    /// A transaction of an application: one row of its own, and an event if it publishes.
    fn transact(&mut self, payload: &str, publishes: bool) -> Result<(), BenchError>;

    /// Puts events into the outbox, all visible at once.
    fn fill_outbox(&mut self, payload: &str, events: u64) -> Result<(), BenchError>;

    fn is_outbox_empty(&mut self) -> Result<bool, BenchError>;
}

/// Says whether rows have ids in a unique index, as events with ids have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UniqueIds {
    None,
    Indexed,
}

/// Connects to nothing yet. `folder` is that of a store which lies in one.
pub(crate) fn open(kind: EngineKind, url: &str, folder: &Path) -> Result<Box<dyn RawEngine>, BenchError> {
    match kind {
        EngineKind::Sqlite => Ok(Box::new(RawFile { folder: folder.to_owned(), file: None })),
        EngineKind::Folder => Ok(Box::new(RawFolder { folder: folder.to_owned(), number: 0 })),
        EngineKind::Postgres => open_postgres(url),
        EngineKind::Object => open_object(url),
        EngineKind::Mongo => open_mongo(url),
    }
}

#[cfg(feature = "postgres")]
use super::raw_postgres::open_postgres;

#[cfg(not(feature = "postgres"))]
fn open_postgres(_url: &str) -> Result<Box<dyn RawEngine>, BenchError> {
    Err(not_built_in("postgres"))
}

#[cfg(feature = "object")]
use super::raw_object::open_object;

#[cfg(not(feature = "object"))]
fn open_object(_url: &str) -> Result<Box<dyn RawEngine>, BenchError> {
    Err(not_built_in("object"))
}

#[cfg(feature = "mongo")]
use super::raw_mongo::open_mongo;

#[cfg(not(feature = "mongo"))]
fn open_mongo(_url: &str) -> Result<Box<dyn RawEngine>, BenchError> {
    Err(not_built_in("mongo"))
}

#[cfg(not(all(feature = "postgres", feature = "object", feature = "mongo")))]
fn not_built_in(feature: &str) -> BenchError {
    BenchError::StoreUrl(format!("this build has no such engine: build it with the feature `{feature}`"))
}

/// A file that is appended to and synced, as the disk probe of the other benchmarks.
struct RawFile {
    folder: PathBuf,
    file: Option<File>,
}

impl RawEngine for RawFile {
    fn put(&mut self, bytes: &[u8]) -> Result<(), BenchError> {
        let path = self.folder.join("probe");
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let made = OpenOptions::new().create(true).append(true).open(path).map_err(wrong)?;
                self.file.insert(made)
            }
        };
        file.write_all(bytes).and_then(|()| file.sync_data()).map_err(wrong)
    }

    fn remove(&mut self) -> Result<(), BenchError> {
        remove_folder(&self.folder)
    }
}

/// A conditional put of a file: written under another name, synced, linked to a name that must be free; then the folder
/// is synced, because the name is in it.
struct RawFolder {
    folder: PathBuf,
    number: u64,
}

impl RawEngine for RawFolder {
    fn put(&mut self, bytes: &[u8]) -> Result<(), BenchError> {
        let folder = self.folder.join("raw");
        if self.number == 0 {
            std::fs::create_dir_all(&folder).map_err(wrong)?;
        }
        self.number += 1;
        let (temp, name) = (folder.join("temp"), folder.join(self.number.to_string()));
        let mut file = File::create(&temp).map_err(wrong)?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(wrong)?;
        std::fs::hard_link(&temp, &name).map_err(wrong)?;
        std::fs::remove_file(&temp).map_err(wrong)?;
        File::open(&folder).and_then(|folder| folder.sync_all()).map_err(wrong)
    }

    fn remove(&mut self) -> Result<(), BenchError> {
        remove_folder(&self.folder)
    }
}

fn remove_folder(folder: &Path) -> Result<(), BenchError> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BenchError::io("removing the folder of the run", error))
        }
        _ => Ok(()),
    }
}

fn wrong(source: std::io::Error) -> BenchError {
    BenchError::io("probing the disk", source)
}
