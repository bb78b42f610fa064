//! A restore over a store that SQLite finds damaged, whose log is therefore renamed along with it, with a power cut at
//! every step.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::check::STORE;
use crate::dice::Dice;
use crate::disk::Lie;
use crate::image::{self, Kind};
use crate::record::Recorder;
use crate::server::Server;
use crate::trace::{Record, What};
use crate::{run, seed, seen};

const TOPIC: &str = "t";
/// Events in the backup; `NEW` are those that only the damaged store has.
const OLD: u64 = 10;
const NEW: u64 = 20;
/// Images of each kind and cut: most kinds are random.
const DRAWS: usize = 3;

/// The damaged store and its log as they are on disk, for comparison.
struct Damaged {
    store: Vec<u8>,
    log: Vec<u8>,
}

/// Returns a store that was damaged after its server had been killed, and writes a backup of the state before.
fn damage(root: &Path) -> Damaged {
    let mut server = Server::start();
    let publish = |server: &Server, count| {
        let mut socket = server.socket();
        for n in 0..count {
            socket.publish(TOPIC, &json!(n));
        }
    };
    publish(&server, OLD);
    let backup = root.join("backup");
    run::run(&["backup", backup.to_str().expect("a UTF-8 path"), "--store", &server.store_url()]).ok();
    // Restart with an empty log, so that the pages that describe the tables are only in the database file.
    server.terminate();
    server.restart();
    publish(&server, NEW);
    server.kill();
    let at = |name: &str| server.folder().join(name);
    let bytes = fs::metadata(at("test.db")).expect("a store").len();
    let damaged =
        Damaged { store: vec![7; bytes as usize], log: fs::read(at("test.db-wal")).expect("a log") };
    let store = root.join(STORE);
    fs::create_dir(store.parent().expect("a folder")).expect("a folder");
    fs::write(&store, &damaged.store).expect("a disk with room");
    fs::write(beside(&store, "-wal"), &damaged.log).expect("a disk with room");
    damaged
}

fn beside(store: &Path, more: &str) -> String {
    format!("{}{more}", store.display())
}

/// Checks that the damaged store never has its name without its log, that neither file is removed before the backup is
/// in place, and that only the backup is served.
fn check(store: &Path, damaged: &Damaged) -> Result<(), String> {
    let is = |more: &str, bytes: &[u8]| fs::read(beside(store, more)).is_ok_and(|found| found == bytes);
    let named = is("", &damaged.store);
    if named && !is("-wal", &damaged.log) {
        return Err("the damaged store has its name and not its log".to_owned());
    }
    let has_both = (named || is("-replaced", &damaged.store))
        && (is("-wal", &damaged.log) || is("-replaced-wal", &damaged.log));
    match seen::through_store(store) {
        Ok(seen) if named => Err(format!("the damaged store was opened: {} events", seen.events.len())),
        Ok(seen) => {
            let events = seen.events.keys().filter(|(topic, ..)| topic == TOPIC).count() as u64;
            if events == OLD { Ok(()) } else { Err(format!("{events} events are served")) }
        }
        Err(_) if has_both => Ok(()),
        Err(why) => Err(format!("nothing is served ({why}), and the old store or its log is gone")),
    }
}

#[test]
fn a_damaged_store_is_never_parted_from_its_log() {
    let (recorder, mut dice) = (Recorder::new(), Dice::of(seed(), 2, 0));
    let damaged = damage(recorder.root());
    recorder.settle();
    let settled = recorder.position();
    let (backup, store) = (recorder.root().join("backup"), recorder.root().join(STORE));
    let url = format!("sqlite:///{}", store.display());
    let args = ["restore", backup.to_str().expect("a UTF-8 path"), "--store", &url, "--force"];
    let output = run::command(&args).envs(recorder.environment()).output().expect("the binary runs");
    run::finish(output).ok();
    recorder.assert_complete();
    let trace = recorder.trace();
    let steps_aside =
        |record: &Record| matches!(&record.what, What::Renamed { to } if to.ends_with("-replaced"));
    assert!(trace.records.iter().any(steps_aside), "the damaged store steps aside");
    let is_step =
        |record: &Record| !matches!(record.what, What::Written { .. } | What::Opened) && record.end > settled;
    let (mut disk, mut failures, mut images) = (recorder.disk(&trace, Lie::None), Vec::new(), 0);
    for (at, record) in trace.records.iter().enumerate() {
        disk.apply(record);
        for kind in Kind::ALL.iter().filter(|_| is_step(record)).flat_map(|kind| [*kind; DRAWS]) {
            let place = tempfile::tempdir().expect("a temporary folder");
            image::write(&disk, kind, &mut dice, place.path());
            images += 1;
            if let Err(why) = check(&place.path().join(STORE), &damaged) {
                failures.push(format!("record {at}, {}: {why}", kind.as_str()));
            }
        }
    }
    println!("{images} images");
    assert!(failures.is_empty(), "{} of {images} images: {failures:#?}", failures.len());
}
