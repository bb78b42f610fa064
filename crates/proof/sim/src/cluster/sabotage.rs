//! Deliberate bugs of a cluster, to prove that the checkers find them. The store itself stays correct: a bug is made by
//! changing its settings, the answers of its engine, its copy, or what its server does.

use millrace_store::{Foldable, MemoryStore};
use millrace_store_journal::{JournalSettings, Leadership};

use super::hub::State;
use super::plan::Plan;
use super::truth::Truth;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// The engine lets a second writer replace the newest record.
    TwoWriters,
    /// A placing whose outcome is unknown counts as done.
    UnknownIsYes,
    /// A placing whose outcome is unknown counts as failed.
    UnknownIsTaken,
    /// Reads are answered by a replica that lags behind.
    ReadReplica,
    /// The engine says that it compares with its head, and does not.
    TrustEveryPlacing,
    /// A server that was deposed commits on.
    IgnoreDeposed,
    /// A server that starts does not see who leads, and takes the lead unchecked.
    ForgetLead,
    /// Folding leaves out what some records did.
    SkipRecords,
    /// A copy that lost its end claims to be as new as before.
    CopyAhead,
    /// A snapshot is older than it says.
    SnapshotAhead,
    /// Records are deleted as soon as a snapshot is made, and nobody reads the manifest again.
    TrimAtOnce,
    /// No server takes the lead of a silent one.
    NobodyTakesOver,
}

/// Returns the settings of a server. `was_leader`: its last process led and was deposed.
pub(super) fn settings(
    sabotage: Option<Sabotage>,
    plan: &Plan,
    at: usize,
    was_leader: bool,
) -> JournalSettings {
    let mut settings = JournalSettings { url: format!("sim://{at}"), ..plan.settings.clone() };
    match sabotage {
        Some(Sabotage::IgnoreDeposed) if was_leader => settings.leadership = Leadership::Free,
        Some(Sabotage::TrimAtOnce) => {
            settings.trim_grace_ms = 0;
            settings.clean_up_ms = 0;
            settings.manifest_refresh_ms = u64::MAX;
            settings.manifest_age_ms_max = u64::MAX;
        }
        _ => {}
    }
    settings
}

pub(super) fn may_lead(state: &State) -> bool {
    state.sabotage != Some(Sabotage::NobodyTakesOver) || state.truth.head().0 == 0
}

/// Returns the content of a snapshot of this copy.
pub(super) fn snapshot(sabotage: Option<Sabotage>, copy: MemoryStore, truth: &Truth) -> MemoryStore {
    let n = copy.position().ok().flatten().map_or(0, |position| position.n);
    match sabotage {
        Some(Sabotage::SnapshotAhead) => truth.at(n.saturating_sub(3)).map_or(copy, |older| older.snapshot()),
        _ => copy,
    }
}
