//! The examination of a store, end to end and read-only: one snapshot, one small function per check.
//!
//! A check that cannot go on because the file is damaged is itself a finding; the others still run. What the rows of the
//! small tables mean is not known here: [`Doctor::each_row`] hands them to whoever knows.

mod commits;
mod events;
mod file;
mod handlers;
mod streams;
mod wal;

use std::path::{Path, PathBuf};

use millrace_model::{Findings, Space};
use millrace_store::StreamBounds;
use rusqlite::Connection;

use crate::error::Attempt;
use crate::look::{self, LookError};

pub(crate) const RESTORE: &str = "stop the server and restore a backup (`millrace restore`)";

/// A store under examination.
#[derive(Debug)]
pub struct Doctor {
    conn: Connection,
    path: PathBuf,
}

/// What the store level found.
#[derive(Debug, Default)]
pub struct Examined {
    pub findings: Findings,
    /// `None` when it is no store of ours, or of a version this build does not know: then nothing else was looked at.
    pub schema_version: Option<usize>,
    /// Events that are there for readers, and whole.
    pub events: u64,
    /// Bounds of every stream whose topic was not dropped.
    pub streams: Vec<StreamBounds>,
}

impl Doctor {
    /// Never creates anything: a store that is not there is [`LookError::NoStore`].
    pub fn open(path: &Path) -> Result<Doctor, LookError> {
        let path = look::find_store(path)?;
        Ok(Doctor { conn: look::open_found(&path)?, path })
    }

    /// All checks of the store level. Takes as long as reading the whole file, in one snapshot, which
    /// [`Doctor::each_row`] then goes on reading.
    pub fn examine(&self) -> Examined {
        let mut examined = Examined::default();
        let findings = &mut examined.findings;
        file::locks(&self.path, findings);
        file::beside(&self.path, findings);
        wal::check(&self.path, findings);
        examined.schema_version = file::version(&self.conn, findings);
        if examined.schema_version.is_none() {
            return examined;
        }
        let begun = self.conn.execute_batch("BEGIN").map_err(Into::into);
        survive(findings, "the file", begun);
        let checked = file::integrity(&self.conn, findings);
        survive(findings, "the file", checked);
        let read = streams::read(&self.conn, findings);
        let rows = survive(findings, "table streams", read);
        let read = commits::read(&self.conn, &rows, findings);
        let logged = survive(findings, "table commits", read);
        let walked = events::walk(&self.conn, &rows, &logged, findings);
        let walked = survive(findings, "table events", walked);
        let checked = streams::ids(&self.conn, findings);
        survive(findings, "table ids", checked);
        let checked = streams::gone_ids(&self.conn, findings);
        survive(findings, "table gone_ids", checked);
        let checked = file::hash_key(&self.conn, findings);
        survive(findings, "table meta", checked);
        let checked = handlers::check(&self.conn, &rows, &walked.bounds, findings);
        survive(findings, "the tables of handlers", checked);
        examined.events = walked.whole;
        examined.streams = walked.bounds;
        examined
    }

    /// Hands every row of a small table to `visit`, in key order. A row that is no text and bytes is a problem.
    pub fn each_row(&self, space: Space, findings: &mut Findings, visit: impl FnMut(&str, &[u8])) {
        let visited = file::small_table(&self.conn, space, findings, visit);
        survive(findings, &format!("table {}", space.as_str()), visited);
    }
}

/// A check that could not go on has found something, too.
fn survive<T: Default>(findings: &mut Findings, place: &str, attempt: Attempt<T>) -> T {
    attempt.unwrap_or_else(|fault| {
        findings.problem(place, format!("cannot be read to its end: {fault}"), RESTORE);
        T::default()
    })
}
