//! The thread that copies the WAL into the database while the writer goes on committing.
//!
//! The thread has a connection of its own and needs no write lock: SQLite lets a passive checkpoint run beside a
//! writer. The thread cannot start the WAL over, because the writer always appends something meanwhile; the writer
//! copies that rest itself (`checkpoint.rs`). A store that never writes much never starts the thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::Attempt;
use crate::locks::lock_folder::Locks;

/// After a pass that copied no more than this, the writer can copy the rest: a further pass would hardly make it
/// smaller.
const REST_FRAMES: i64 = 64;
/// Limits the passes against a writer that is as fast as the copying: the writer must wait for the rest at some point.
const PASSES_MAX: usize = 3;

#[derive(Debug)]
pub(crate) struct Checkpointer {
    path: PathBuf,
    locks: Arc<Locks>,
    shared: Arc<SharedStage>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state that the writer and the thread share.
#[derive(Debug)]
struct SharedStage {
    stage: Mutex<CopyStage>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyStage {
    /// The writer has asked for nothing since it took over last.
    Idle,
    /// The thread has been asked to copy, or is copying.
    Requested,
    /// The thread has finished. The rest is small, and the writer copies it.
    Copied,
    Ended,
}

/// The result of a checkpoint, as SQLite reports it.
pub(crate) struct CheckpointPass {
    /// Another connection is checkpointing.
    pub(crate) busy: bool,
    /// Frames in the WAL, and below how many of them are in the database by now.
    pub(crate) frames: i64,
    pub(crate) copied: i64,
}

/// Does one checkpoint. Does not wait for readers or writers: frames that one of them still needs stay for the next
/// time.
pub(crate) fn pass(conn: &Connection) -> Attempt<CheckpointPass> {
    let mut checkpoint = conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?;
    let pass = checkpoint.query_row([], |row| {
        Ok(CheckpointPass { busy: row.get(0)?, frames: row.get(1)?, copied: row.get(2)? })
    })?;
    Ok(pass)
}

impl SharedStage {
    /// Waits until the stage is none of `passing`, and returns it.
    fn wait(&self, passing: &[CopyStage]) -> CopyStage {
        let mut stage = self.stage.lock();
        self.changed.wait_while(&mut stage, |stage| passing.contains(stage));
        *stage
    }

    /// Changes the stage, unless it is already [`CopyStage::Ended`].
    fn set(&self, next: CopyStage) {
        let mut stage = self.stage.lock();
        if *stage != CopyStage::Ended {
            *stage = next;
        }
        drop(stage);
        self.changed.notify_all();
    }
}

impl Checkpointer {
    pub(crate) fn new(path: &Path, locks: Arc<Locks>) -> Checkpointer {
        let shared = SharedStage { stage: Mutex::new(CopyStage::Idle), changed: Condvar::new() };
        Checkpointer { path: path.to_owned(), locks, shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    pub(crate) fn stage(&self) -> CopyStage {
        *self.shared.stage.lock()
    }

    /// Waits until the thread has finished what it was asked to copy.
    pub(crate) fn wait_copied(&self) -> CopyStage {
        self.shared.wait(&[CopyStage::Requested])
    }

    /// Asks the thread to copy the content of the WAL. Returns false if no thread can be started: the writer must copy.
    pub(crate) fn request_copy(&self) -> bool {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (path, locks, shared) = (self.path.clone(), self.locks.clone(), self.shared.clone());
            let run = move || run(&path, &locks, &shared);
            *thread = thread::Builder::new().name("millrace-wal".to_owned()).spawn(run).ok();
        }
        if thread.is_some() {
            self.shared.set(CopyStage::Requested);
        }
        thread.is_some()
    }

    /// Marks that the writer has taken over.
    pub(crate) fn set_idle(&self) {
        self.shared.set(CopyStage::Idle);
    }

    /// Ends the thread, waiting for a copy that is under way. Afterwards only the writer's connection can checkpoint.
    pub(crate) fn stop(&self) {
        *self.shared.stage.lock() = CopyStage::Ended;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A thread that panicked has raised the poison flag (see `PoisonOnFailure`).
            let _ = thread.join();
        }
    }
}

fn run(path: &Path, locks: &Locks, shared: &SharedStage) {
    // However the thread ends, nobody waits for it any longer, and a failed checkpoint stops all writing to the store.
    let mut on_failure =
        PoisonOnFailure { locks, shared, reason: Some("the checkpointer ended unexpectedly".to_owned()) };
    on_failure.reason = serve(path, locks, shared).err().map(|fault| fault.to_string());
}

fn serve(path: &Path, locks: &Locks, shared: &SharedStage) -> Attempt<()> {
    let mut conn = None;
    while shared.wait(&[CopyStage::Idle, CopyStage::Copied]) == CopyStage::Requested {
        // No connection (no descriptor left, say) is no harm: the writer copies everything.
        conn = conn.or_else(|| connect(path).ok());
        if let Some(conn) = &conn
            && let Err(fault) = copy(conn, locks, shared)
        {
            // The log is unchanged. The writer takes over, meets the same error and reports it.
            fault.left_nothing()?;
        }
        shared.set(CopyStage::Copied);
    }
    Ok(())
}

fn connect(path: &Path) -> Attempt<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "mmap_size", 0)?;
    // SQLite then syncs the WAL before copying it, and the database before the WAL may be overwritten.
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(conn)
}

fn copy(conn: &Connection, locks: &Locks, shared: &SharedStage) -> Attempt<()> {
    let mut before = 0;
    for _ in 0..PASSES_MAX {
        // SQLite never copies frames of a failed commit; this check is for syncs that failed in another handle or
        // process.
        if locks.poisoned().is_some() || *shared.stage.lock() == CopyStage::Ended {
            return Ok(());
        }
        let pass = pass(conn)?;
        if pass.busy || pass.copied - before <= REST_FRAMES {
            return Ok(());
        }
        before = pass.copied;
    }
    Ok(())
}

/// On drop, poisons the store if there is a reason to, and sets [`CopyStage::Ended`].
struct PoisonOnFailure<'a> {
    locks: &'a Locks,
    shared: &'a SharedStage,
    reason: Option<String>,
}

impl Drop for PoisonOnFailure<'_> {
    fn drop(&mut self) {
        if let Some(reason) = self.reason.take() {
            self.locks.raise(&format!("checkpoint: {reason}"));
        }
        *self.shared.stage.lock() = CopyStage::Ended;
        self.shared.changed.notify_all();
    }
}
