//! The complete, read-only examination of a store: a single snapshot, a small function per check.
//!
//! A check that cannot go on because the file is damaged is itself a finding; the other checks still run. This crate
//! does not know what the rows of the small tables mean: [`Doctor::each_row`] passes them to a caller who does.

mod commits;
mod events;
mod file;
mod handlers;
mod streams;
mod wal;

use std::path::{Path, PathBuf};

use millrace_model::{Findings, Space, Weight};
use millrace_store::StreamBounds;
use rusqlite::Connection;

use crate::error::Attempt;
use crate::opening::read_only::{self, ReadOnlyError};

pub(crate) const RESTORE: &str = "stop the server and restore a backup (`millrace restore`)";

/// A store under examination.
#[derive(Debug)]
pub struct Doctor {
    conn: Connection,
    path: PathBuf,
}

/// The findings of the store level.
#[derive(Debug, Default)]
pub struct Examined {
    pub findings: Findings,
    /// `None` if the file is no Millrace store or has a version that this build does not know: then nothing else was
    /// examined.
    pub schema_version: Option<usize>,
    /// Events that readers can get, and that are whole.
    pub events: u64,
    /// Bounds of every stream whose topic was not dropped.
    pub streams: Vec<StreamBounds>,
}

impl Doctor {
    /// Opens the store for examination. Never creates anything: a missing store is [`ReadOnlyError::NoStore`].
    pub fn open(path: &Path) -> Result<Doctor, ReadOnlyError> {
        let path = read_only::find_store(path)?;
        Ok(Doctor { conn: read_only::open_found(&path)?, path })
    }

    /// Runs all checks of the store level. Takes as long as reading the whole file. All checks, and
    /// [`Doctor::each_row`] afterwards, read the same snapshot.
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

    /// Returns the first row that is missing or fails its checksum. For a file whose pages SQLite has just written: only
    /// the tables are looked at.
    pub(crate) fn first_problem(&self) -> Option<String> {
        let mut found = Findings::default();
        let findings = &mut found;
        let read = streams::read(&self.conn, findings);
        let rows = survive(findings, "table streams", read);
        let read = commits::read(&self.conn, &rows, findings);
        let logged = survive(findings, "table commits", read);
        let walked = events::walk(&self.conn, &rows, &logged, findings);
        survive(findings, "table events", walked);
        let checked = streams::ids(&self.conn, findings);
        survive(findings, "table ids", checked);
        let checked = streams::gone_ids(&self.conn, findings);
        survive(findings, "table gone_ids", checked);
        let checked = file::hash_key(&self.conn, findings);
        survive(findings, "table meta", checked);
        for space in Space::ALL {
            self.each_row(space, findings, |_, _| {});
        }
        let problem = found.list().iter().find(|finding| finding.weight == Weight::Problem);
        problem.map(|finding| format!("{}: {}", finding.place, finding.what))
    }

    /// Calls `visit` with every row of a small table, in key order. Reports a row whose key is no text or whose value
    /// is no blob.
    pub fn each_row(&self, space: Space, findings: &mut Findings, visit: impl FnMut(&str, &[u8])) {
        let visited = file::small_table(&self.conn, space, findings, visit);
        survive(findings, &format!("table {}", space.as_str()), visited);
    }
}

/// Turns the fault of a check that could not go on into a finding.
fn survive<T: Default>(findings: &mut Findings, place: &str, attempt: Attempt<T>) -> T {
    attempt.unwrap_or_else(|fault| {
        findings.problem(place, format!("cannot be read to its end: {fault}"), RESTORE);
        T::default()
    })
}
