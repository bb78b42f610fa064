//! The results of a run, as a table.

use std::collections::BTreeMap;
use std::fmt;

use crate::image::Kind;

/// The most failures that are shown in full.
const SHOWN_MAX: usize = 10;

#[derive(Default)]
pub struct Row {
    pub images: u64,
    pub facts: u64,
    pub failed: u64,
}

#[derive(Default)]
pub struct Report {
    pub rows: BTreeMap<(&'static str, Kind), Row>,
    /// Confirmed facts by kind.
    pub confirmed: BTreeMap<&'static str, u64>,
    pub failures: Vec<String>,
    pub notes: Vec<String>,
}

impl Report {
    pub fn append(&mut self, other: Report) {
        self.rows.extend(other.rows);
        for (kind, count) in other.confirmed {
            *self.confirmed.entry(kind).or_default() += count;
        }
        self.failures.extend(other.failures);
        self.notes.extend(other.notes);
    }

    pub fn failed(&self) -> u64 {
        self.rows.values().map(|row| row.failed).sum()
    }

    pub fn images(&self) -> u64 {
        self.rows.values().map(|row| row.images).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))?;
        let confirmed: Vec<String> =
            self.confirmed.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        writeln!(f, "confirmed: {}", confirmed.join(", "))?;
        writeln!(f, "{:<10} {:<8} {:>8} {:>10} {:>8}", "WORKLOAD", "UNSYNCED", "IMAGES", "FACTS", "FAILED")?;
        for ((workload, kind), row) in &self.rows {
            let kind = kind.as_str();
            writeln!(f, "{workload:<10} {kind:<8} {:>8} {:>10} {:>8}", row.images, row.facts, row.failed)?;
        }
        let facts: u64 = self.rows.values().map(|row| row.facts).sum();
        writeln!(f, "{:<19} {:>8} {facts:>10} {:>8}", "all", self.images(), self.failed())?;
        self.failures.iter().take(SHOWN_MAX).try_for_each(|failure| writeln!(f, "{failure}"))
    }
}
