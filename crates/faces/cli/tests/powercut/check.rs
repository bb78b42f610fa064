//! Starts a store from an image, and compares its contents with what was confirmed before the cut.

use std::fs;
use std::path::Path;

use millrace_stores::{StoreUrl, open_doctor};
use serde_json::json;

use crate::facts::{Fact, Ledger, Seen};
use crate::run;
use crate::seen;
use crate::server::Server;

/// The path of the store within the recorded folder.
pub const STORE: &str = "data/millrace.db";

/// How an image is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Through {
    /// In this process, through the store port: fast.
    Store,
    /// By `millrace doctor`, then by a real server and its clients.
    Server,
}

/// The result of checking one image.
#[derive(Default)]
pub struct Checked {
    pub facts: u64,
    pub failures: Vec<String>,
}

/// Checks the image in `folder`, of a cut at `position`. `root` has the files in their final state.
pub fn check(folder: &Path, root: &Path, ledger: &Ledger, position: u64, through: Through) -> Checked {
    let facts = ledger.at(position);
    let mut checked = Checked { facts: facts.len() as u64, failures: Vec::new() };
    let store = folder.join(STORE);
    if facts.is_empty() && !store.exists() {
        return checked;
    }
    let seen = match through {
        Through::Store => store_of(&store, !facts.is_empty()),
        Through::Server => server_of(&store, ledger, !facts.is_empty()),
    };
    match seen {
        Err(why) => checked.failures.push(why),
        Ok(seen) => compare(&facts, &seen, &mut checked.failures),
    }
    for fact in facts {
        // A finished backup never changes, so a byte comparison is enough here; `check_backups` checks its contents
        // once.
        if let Fact::Backup { file, .. } = fact
            && fs::read(folder.join(file)).ok() != fs::read(root.join(file)).ok()
        {
            checked.failures.push(format!("{file} is not whole"));
        }
    }
    checked
}

/// Checks that every backup is a healthy store with everything that had been confirmed when the backup began.
pub fn check_backups(root: &Path, ledger: &Ledger) -> Vec<String> {
    let mut failures = Vec::new();
    for fact in ledger.at(u64::MAX) {
        let Fact::Backup { file, begun, ended } = fact else { continue };
        // Work on a copy, because opening a store creates files beside it.
        let place = tempfile::tempdir().expect("a temporary folder");
        let copy = place.path().join(file);
        fs::copy(root.join(file), &copy).expect("a backup");
        match store_of(&copy, true) {
            Err(why) => failures.push(format!("{file}: {why}")),
            Ok(seen) => compare(&ledger.throughout(*begun, *ended), &seen, &mut failures),
        }
    }
    failures
}

fn compare(facts: &[&Fact], seen: &Seen, failures: &mut Vec<String>) {
    failures.extend(facts.iter().filter(|fact| !fact.is_in(seen)).map(|fact| format!("lost: {fact}")));
    failures.extend(seen.halves());
}

/// Reads a store. A store that was complete before the cut must be healthy without being opened. A store that was just
/// being created, or just being switched to WAL mode after a restore, must be healthy once it was opened: only a writer
/// can undo an unfinished switch.
fn store_of(store: &Path, is_made: bool) -> Result<Seen, String> {
    let is_made = is_made && !is_being_switched(store);
    if is_made {
        is_healthy(store)?;
    }
    let seen = seen::through_store(store)?;
    if !is_made {
        is_healthy(store)?;
    }
    Ok(seen)
}

fn is_being_switched(store: &Path) -> bool {
    let journal = format!("{}-journal", store.display());
    fs::metadata(journal).is_ok_and(|journal| journal.len() > 0)
}

fn is_healthy(store: &Path) -> Result<(), String> {
    let doctor = open_doctor(&StoreUrl::Sqlite(store.to_owned())).map_err(|error| error.to_string())?;
    let examined = doctor.examine();
    if examined.findings.is_healthy() {
        Ok(())
    } else {
        Err(format!("doctor: {:?}", examined.findings.list()))
    }
}

fn server_of(store: &Path, ledger: &Ledger, is_made: bool) -> Result<Seen, String> {
    let url = format!("sqlite:///{}", store.display());
    if is_made && !is_being_switched(store) {
        let doctor = run::run(&["doctor", "--json", "--store", &url]);
        if doctor.code != Some(0) {
            return Err(format!("doctor: {}{}", doctor.stdout, doctor.stderr));
        }
    }
    let start = || Server::with(&["--store", &url, "--socket", "os.sock"]);
    let server = std::panic::catch_unwind(start).map_err(|_| "the server does not start".to_owned())?;
    let seen = seen::through_server(&server, &ledger.timers());
    // The server must also accept new events.
    server.socket().publish("after.the.cut", &json!(1));
    Ok(seen)
}
