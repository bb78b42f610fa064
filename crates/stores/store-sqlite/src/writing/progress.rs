//! The step that the writing thread is at, to explain why a commit takes long. Costs the writer one store to memory per
//! step.

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::files::real_path;
use crate::locks::holder::{self, HeldLock};
use crate::locks::lock_folder;

#[derive(Debug, Default)]
pub(crate) struct Progress(AtomicU8);

/// The steps, in the order in which a transaction passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WriteStep {
    Idle,
    /// Waits until other processes and handles have written.
    WriteLock,
    /// Waits for SQLite's lock on the file, which no process of Millrace holds at this point.
    FileLock,
    /// Reads what is there and prepares what is to be written.
    Work,
    /// Writes to the WAL and syncs it.
    Commit,
    /// Waits for the thread that copies the WAL.
    Copying,
    /// Copies the end of the WAL itself.
    Checkpoint,
}

const STEPS: [WriteStep; 7] = [
    WriteStep::Idle,
    WriteStep::WriteLock,
    WriteStep::FileLock,
    WriteStep::Work,
    WriteStep::Commit,
    WriteStep::Copying,
    WriteStep::Checkpoint,
];

impl Progress {
    pub(crate) fn step(&self) -> WriteStep {
        STEPS.get(usize::from(self.0.load(Relaxed))).copied().unwrap_or(WriteStep::Idle)
    }

    pub(crate) fn set(&self, step: WriteStep) {
        self.0.store(step as u8, Relaxed);
    }

    /// Begins a step. Dropping the guard sets the step back to idle, however the work ends.
    pub(crate) fn begin(&self, step: WriteStep) -> Working<'_> {
        self.set(step);
        Working(self)
    }
}

pub(crate) struct Working<'a>(&'a Progress);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.set(WriteStep::Idle);
    }
}

/// Describes what a step waits for. `held` is the lock that is in the way of the write lock.
pub(crate) fn describe(step: WriteStep, held: Option<HeldLock>) -> Option<String> {
    Some(match step {
        WriteStep::Idle => return None,
        WriteStep::WriteLock => describe_write_lock(held),
        WriteStep::FileLock => {
            "a lock on the store file, which a program other than Millrace has (an open transaction of the sqlite3 \
             shell, say)"
                .to_owned()
        }
        WriteStep::Work => "the store to be read and changed".to_owned(),
        WriteStep::Commit => "the disk to write and sync it".to_owned(),
        WriteStep::Copying | WriteStep::Checkpoint => {
            "the disk to copy the write-ahead log into the store file and sync it".to_owned()
        }
    })
}

fn describe_write_lock(held: Option<HeldLock>) -> String {
    match (held, held.and_then(HeldLock::other)) {
        (Some(HeldLock::Writer(_)), Some(pid)) => format!("its turn to write, which process {pid} has"),
        (Some(HeldLock::Gate(_)), Some(pid)) => format!(
            "its turn to write, behind process {pid}, which stands in the gate (it is next to write, or opens or replaces \
             the store) and does not go on"
        ),
        // A program that locks the file without signing it leaves the id of the previous holder there, perhaps that of
        // this process.
        (Some(HeldLock::Writer(_)), None) => {
            "its turn to write, which another handle or program has (it does not say who)".to_owned()
        }
        (Some(HeldLock::Gate(_)), None) => {
            "its turn to write, behind another handle or program in the gate (it does not say who)".to_owned()
        }
        (None, _) => "its turn to write, which nobody else has now".to_owned(),
    }
}

/// Returns what an opener of the store would wait for now, if another process or program is in its way. Changes
/// nothing.
pub fn opening_waits_for(database: &Path) -> Option<String> {
    let folder = lock_folder::folder(&real_path::of(database).ok()?);
    let (held, own) = (holder::find_held(&folder)?, Some(std::process::id()));
    Some(match (held, held.other()) {
        (HeldLock::Writer(_), Some(pid)) => format!("process {pid}, whose turn it is to write to the store"),
        (HeldLock::Gate(_), Some(pid)) => {
            format!("process {pid}, which opens or replaces the store, or is next to write to it")
        }
        // The holder is this process, which opens the store itself and is making progress.
        (HeldLock::Writer(pid) | HeldLock::Gate(pid), None) if pid == own => return None,
        (HeldLock::Writer(_) | HeldLock::Gate(_), None) => {
            format!("a program that holds a lock in {} and does not say who it is", folder.display())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_told_as_it_was_set() {
        let progress = Progress::default();
        for step in STEPS {
            progress.set(step);
            assert_eq!(progress.step(), step);
            assert_eq!(describe(step, None).is_none(), step == WriteStep::Idle);
        }
        drop(progress.begin(WriteStep::Work));
        assert_eq!(progress.step(), WriteStep::Idle);
    }

    #[test]
    fn the_holder_is_named_unless_it_is_this_process() {
        let (own, other) = (std::process::id(), std::process::id() + 1);
        for held in [HeldLock::Writer, HeldLock::Gate] {
            let named = describe(WriteStep::WriteLock, Some(held(Some(other)))).unwrap();
            assert!(named.contains(&format!("process {other}")), "{named}");
            let unnamed = describe(WriteStep::WriteLock, Some(held(None)));
            assert_eq!(describe(WriteStep::WriteLock, Some(held(Some(own)))), unnamed);
            assert!(unnamed.unwrap().contains("does not say who"));
        }
    }
}
