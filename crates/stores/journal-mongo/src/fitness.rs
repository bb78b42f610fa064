//! Decides whether a deployment may hold a journal, and what it promises. A pure function of what was observed.

use millrace_journal::{Fitness, HeadGuard, JournalError};

/// Below it, reading the engine's clock together with a document is not possible, and the driver ends its support soon.
const VERSION_MIN: (i64, i64) = (4, 4);
const MEMBERS_MIN_REPLICATED: usize = 3;
/// The name that a build gives itself which runs inside another program. Observed with `9.0.0-alpha0`: it answers
/// journaled writes at once and syncs them later, and after a kill confirmed documents were missing.
const MODULE_EMBEDDED: &str = "embedded";
const EMBEDDED: &str = "an embedded build of MongoDB confirms journaled writes before they are on disk";

/// A deployment as it describes itself, and as it treats documents of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    /// As the engine writes it, such as `7.0.12`.
    pub(crate) version: String,
    /// Parts of the build that are named, such as `enterprise` or `embedded`.
    pub(crate) modules: Vec<String>,
    pub(crate) is_primary: bool,
    pub(crate) deployment: Deployment,
    pub(crate) storage: Storage,
    pub(crate) collections: Vec<ObservedCollection>,
    pub(crate) writing: Writing,
    /// Whether the URL allows an engine that confirms writes before they are on disk.
    pub(crate) allows_unsynced: bool,
    /// Names of options in the URL that have no effect.
    pub(crate) ignored_options: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deployment {
    Standalone,
    /// A router of a sharded cluster. The members behind it are not told.
    Router,
    ReplicaSet {
        name: String,
        /// Members that can become primary, `host:port`. Each has a vote.
        electable: Vec<String>,
        /// Members with data that never become primary, and perhaps have no vote.
        passive: Vec<String>,
    },
}

impl Deployment {
    /// Returns whether an absence may be asked for with the read concern `linearizable`: only where a primary can be
    /// replaced by another one, and only there does the engine accept it.
    pub(crate) fn has_elections(&self) -> bool {
        !matches!(self, Deployment::Standalone)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    WiredTiger,
    /// Keeps documents in memory only, and confirms journaled writes all the same.
    InMemory,
    /// The engine does not say, or says another name.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedCollection {
    pub(crate) name: String,
    /// `collection`, `view` or `timeseries`.
    pub(crate) kind: String,
    pub(crate) is_capped: bool,
}

/// The outcome of writing, reading, writing again and deleting a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    Fine,
    /// The engine does not accept the write concern majority with journal. The text is the engine's.
    ConcernRefused(String),
    /// A second document of the same `_id` was accepted.
    DuplicateAccepted,
    /// A confirmed document was not there when it was read.
    NotFound,
}

pub(crate) fn decide(observed: &Observed) -> Result<Fitness, JournalError> {
    decide_before_writing(&observed.version, observed.is_primary)?;
    let mut remarks = Vec::new();
    if observed.storage == Storage::InMemory {
        return Err(unfit(
            "the storage engine keeps documents in memory only, so a confirmed event would not survive a restart; use \
             a member with the storage engine WiredTiger",
        ));
    }
    if observed.modules.iter().any(|module| module == MODULE_EMBEDDED) {
        if !observed.allows_unsynced {
            return Err(unfit(&format!("{EMBEDDED}; for tests, add allow_unsynced=true to the URL")));
        }
        remarks.push(format!("{EMBEDDED}; the URL allows it, so confirmed events may be lost"));
    }
    observed.collections.iter().try_for_each(refuse_odd_collection)?;
    refuse_writing(&observed.writing)?;
    let is_replicated = judge_members(&observed.deployment, &mut remarks);
    if observed.storage == Storage::Unknown {
        remarks.push(
            "the engine does not tell its storage engine, so whether confirmed writes are on disk could not be looked at"
                .to_owned(),
        );
    }
    if !observed.ignored_options.is_empty() {
        remarks.push(format!(
            "options of the URL without effect, because the journal sets them itself: {}",
            observed.ignored_options.join(", ")
        ));
    }
    Ok(Fitness { engine: engine_name(observed), is_replicated, head_guard: HeadGuard::Manifest, remarks })
}

/// The part of the decision that must be known before anything is written into an engine.
pub(crate) fn decide_before_writing(version: &str, is_primary: bool) -> Result<(), JournalError> {
    refuse_old(version)?;
    if is_primary {
        return Ok(());
    }
    // Passes with the next election, so it is no verdict on the deployment.
    Err(JournalError::Unknown(
        "the server is not the primary: name all members of the replica set in the URL, with replicaSet=…, and \
         without directConnection"
            .into(),
    ))
}

fn refuse_old(version: &str) -> Result<(), JournalError> {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse::<i64>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next()) else {
        return Err(unfit(&format!(
            "its version is not readable: {version:?}; MongoDB 4.4 or newer is needed"
        )));
    };
    if (major, minor) < VERSION_MIN {
        return Err(unfit(&format!("MongoDB {version} is too old: 4.4 or newer is needed")));
    }
    Ok(())
}

fn refuse_odd_collection(collection: &ObservedCollection) -> Result<(), JournalError> {
    let name = &collection.name;
    if collection.kind != "collection" {
        return Err(unfit(&format!(
            "{name} is a {}, not an ordinary collection: drop it, or name another database",
            collection.kind
        )));
    }
    if collection.is_capped {
        return Err(unfit(&format!(
            "the collection {name} is capped, so the engine deletes from it by itself: drop it, or name another database"
        )));
    }
    Ok(())
}

fn refuse_writing(writing: &Writing) -> Result<(), JournalError> {
    match writing {
        Writing::Fine => Ok(()),
        Writing::ConcernRefused(text) => Err(unfit(&format!(
            "it does not accept the write concern majority with journal ({text}): start it with journaling"
        ))),
        Writing::DuplicateAccepted => Err(unfit(
            "it accepted two documents with the same _id, so two servers could place the same record",
        )),
        Writing::NotFound => Err(unfit("a document was missing right after it had been confirmed")),
    }
}

/// Returns whether a confirmed write is on more than one machine. Adds remarks if it is not.
pub(crate) fn judge_members(deployment: &Deployment, remarks: &mut Vec<String>) -> bool {
    let (name, electable, passive) = match deployment {
        Deployment::Standalone => {
            remarks.push(
                "a server without a replica set: confirmed events are on the disk of one machine only"
                    .to_owned(),
            );
            return false;
        }
        Deployment::Router => {
            remarks.push(
                "a router of a sharded cluster does not tell the members behind it: confirmed events count as being on \
                 one machine"
                    .to_owned(),
            );
            return false;
        }
        Deployment::ReplicaSet { name, electable, passive } => (name, electable, passive),
    };
    let members = electable.len() + passive.len();
    if members < MEMBERS_MIN_REPLICATED {
        remarks.push(format!(
            "the replica set {name} has {members} member(s) with data: below {MEMBERS_MIN_REPLICATED}, confirmed events \
             count as being on one machine"
        ));
        return false;
    }
    // A majority is counted in votes. Passive members may have none, so one electable member alone can be a majority.
    if electable.len() < 2 {
        remarks.push(format!(
            "only one member of the replica set {name} can become primary: a majority may be that one alone"
        ));
        return false;
    }
    let mut machines: Vec<&str> = electable.iter().chain(passive).map(|member| host_of(member)).collect();
    machines.sort_unstable();
    machines.dedup();
    if machines.len() < 2 {
        remarks
            .push(format!("all members of the replica set {name} are on one machine, {}", machines.join("")));
        return false;
    }
    true
}

fn host_of(member: &str) -> &str {
    member.rsplit_once(':').map_or(member, |(host, _)| host)
}

fn engine_name(observed: &Observed) -> String {
    let mut name = format!("MongoDB {}", observed.version);
    if !observed.modules.is_empty() {
        name.push_str(&format!(" ({})", observed.modules.join(", ")));
    }
    match &observed.deployment {
        Deployment::Standalone => name.push_str(", standalone"),
        Deployment::Router => name.push_str(", sharded cluster"),
        Deployment::ReplicaSet { name: set, electable, passive } => {
            name.push_str(&format!(", replica set {set} of {}", electable.len() + passive.len()));
        }
    }
    name
}

fn unfit(text: &str) -> JournalError {
    JournalError::Unfit(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(electable: &[&str], passive: &[&str]) -> Deployment {
        let owned = |members: &[&str]| members.iter().map(|member| (*member).to_owned()).collect();
        Deployment::ReplicaSet {
            name: "rs0".to_owned(),
            electable: owned(electable),
            passive: owned(passive),
        }
    }

    fn good() -> Observed {
        let collection = |name: &str| ObservedCollection {
            name: name.to_owned(),
            kind: "collection".to_owned(),
            is_capped: false,
        };
        Observed {
            version: "7.0.12".to_owned(),
            modules: Vec::new(),
            is_primary: true,
            deployment: set(&["a:1", "b:1", "c:1"], &[]),
            storage: Storage::WiredTiger,
            collections: ["journal", "manifest", "parts"].map(collection).to_vec(),
            writing: Writing::Fine,
            allows_unsynced: false,
            ignored_options: Vec::new(),
        }
    }

    fn unfit_text(observed: &Observed) -> String {
        match decide(observed) {
            Err(JournalError::Unfit(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_set_of_three_machines_replicates() {
        let fitness = decide(&good()).unwrap();
        assert!(fitness.is_replicated && fitness.remarks.is_empty(), "{fitness:?}");
        assert_eq!(fitness.head_guard, HeadGuard::Manifest);
        assert_eq!(fitness.engine, "MongoDB 7.0.12, replica set rs0 of 3");
        let mixed = Observed { deployment: set(&["a:1", "b:1"], &["c:1"]), ..good() };
        assert!(decide(&mixed).unwrap().is_replicated);
    }

    #[test]
    fn fewer_machines_only_sync_and_a_remark_says_so() {
        for (deployment, expected) in [
            (Deployment::Standalone, "one machine only"),
            (Deployment::Router, "sharded"),
            (set(&["a:1"], &[]), "1 member(s)"),
            (set(&["a:1", "b:1"], &[]), "2 member(s)"),
            (set(&["a:1"], &["b:1", "c:1"]), "that one alone"),
            (set(&["a:1", "a:2", "a:3"], &[]), "on one machine, a"),
        ] {
            let fitness = decide(&Observed { deployment, ..good() }).unwrap();
            assert!(!fitness.is_replicated);
            assert_eq!(fitness.remarks.len(), 1);
            assert!(fitness.remarks[0].contains(expected), "{:?}", fitness.remarks);
        }
    }

    #[test]
    fn versions_below_4_4_are_refused() {
        for version in ["4.2.25", "3.6.0", "4.3.9", "", "new"] {
            let text = unfit_text(&Observed { version: version.to_owned(), ..good() });
            assert!(text.contains("4.4 or newer"), "{text}");
        }
        for version in ["4.4.0", "5.0.1", "9.0.0-alpha0", "10.1"] {
            decide(&Observed { version: version.to_owned(), ..good() }).unwrap();
        }
    }

    #[test]
    fn engines_that_break_a_promise_are_refused() {
        let memory = Observed { storage: Storage::InMemory, ..good() };
        assert!(unfit_text(&memory).contains("memory only"));
        let refused = "cannot use 'j' option when a host does not have journaling enabled";
        let unjournaled = Observed { writing: Writing::ConcernRefused(refused.to_owned()), ..good() };
        assert!(unfit_text(&unjournaled).contains(refused));
        let doubles = Observed { writing: Writing::DuplicateAccepted, ..good() };
        assert!(unfit_text(&doubles).contains("same _id"));
        let forgets = Observed { writing: Writing::NotFound, ..good() };
        assert!(unfit_text(&forgets).contains("missing"));
        let mut capped = good();
        capped.collections[0].is_capped = true;
        assert!(unfit_text(&capped).contains("journal is capped"));
        let mut view = good();
        view.collections[2].kind = "view".to_owned();
        assert!(unfit_text(&view).contains("parts is a view"));
    }

    #[test]
    fn a_secondary_is_waited_for_not_refused() {
        let secondary = Observed { is_primary: false, ..good() };
        assert!(matches!(decide(&secondary), Err(JournalError::Unknown(_))));
    }

    #[test]
    fn doubts_are_remarks() {
        let observed = Observed {
            storage: Storage::Unknown,
            ignored_options: vec!["w".to_owned(), "readPreference".to_owned()],
            modules: vec!["enterprise".to_owned()],
            ..good()
        };
        let fitness = decide(&observed).unwrap();
        assert_eq!(fitness.remarks.len(), 2);
        assert!(fitness.remarks[1].ends_with("w, readPreference"), "{:?}", fitness.remarks);
        assert!(fitness.engine.starts_with("MongoDB 7.0.12 (enterprise)"), "{}", fitness.engine);
    }

    #[test]
    fn an_embedded_build_is_for_tests_only() {
        let embedded = Observed { modules: vec!["embedded".to_owned()], ..good() };
        assert!(unfit_text(&embedded).contains("allow_unsynced=true"));
        let fitness = decide(&Observed { allows_unsynced: true, ..embedded }).unwrap();
        assert!(fitness.remarks[0].contains("may be lost"), "{:?}", fitness.remarks);
    }
}
