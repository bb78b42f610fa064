//! Power cuts: everything that was confirmed before a cut is there afterwards.
//!
//! Real processes work on a store under a recorder (`recorder.c`), which records every change and every sync of its
//! files. From that trace the test builds what the disk may hold after a cut at some moment (`disk`, `image`), starts
//! the store from it, and checks everything that had been confirmed by then (`facts`, `check`).
//!
//! `POWERCUT_CUTS` sets the number of cuts per workload, `POWERCUT_SEED` repeats an earlier choice of work and cuts;
//! `cargo xtask powercut` sets both. The timing of the machine is never quite the same.

// Every module uses only some functions of the harness.
#![allow(dead_code, unreachable_pub)]

mod check;
#[path = "../router/client.rs"]
mod client;
mod cuts;
mod damaged;
#[path = "../bus/crash/dice.rs"]
mod dice;
mod disk;
mod driver;
mod facts;
mod image;
mod record;
mod report;
#[path = "../cli/run.rs"]
mod run;
mod seen;
#[path = "../bus/server.rs"]
mod server;
mod session;
#[path = "../bus/socket.rs"]
mod socket;
mod trace;
mod workload;

use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use check::Through;
use cuts::Cuts;
use dice::Dice;
use disk::Lie;
use driver::Driver;
use image::Kind;
use report::Report;
use workload::{WORKLOADS, Workload};

/// Cuts per workload; each gives an image of every kind.
const CUTS: u64 = 40;
/// Starts a real server from every so many-th image.
const SERVER_EVERY: u64 = 20;
/// Cuts of one round, in which a lie of the disk should be noticed.
const LIE_CUTS: u64 = 40;
/// The most rounds until a lie must have been noticed.
const LIE_ROUNDS_MAX: u64 = 10;
/// More cuts need a longer workload: one round for so many cuts.
const CUTS_PER_ROUND: u64 = 100;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}: a whole number is expected")))
}

fn seed() -> u64 {
    let clock =
        || SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_micros() as u64;
    let seed = number("POWERCUT_SEED").unwrap_or_else(clock);
    println!("POWERCUT_SEED={seed}");
    seed
}

#[test]
fn a_power_cut_takes_nothing_that_was_confirmed() {
    let (seed, cuts) = (seed(), number("POWERCUT_CUTS").unwrap_or(CUTS));
    let mut report = Report::default();
    thread::scope(|scope| {
        let each = WORKLOADS.iter().zip(0..).map(|(workload, n)| {
            scope.spawn(move || {
                let driver = workload.run(2 + cuts / CUTS_PER_ROUND, Dice::of(seed, 0, n));
                cut(workload, &driver, Lie::None, cuts, &mut Dice::of(seed, 1, n))
            })
        });
        let each: Vec<_> = each.collect();
        each.into_iter().for_each(|one| report.append(one.join().expect("a workload that runs")));
    });
    println!("{report}");
    assert!(report.failures.is_empty(), "POWERCUT_SEED={seed}: {} failures", report.failures.len());
    for kind in ["dead letters", "timers", "handler commits", "backups", "acks", "topic changes"] {
        assert!(report.confirmed.contains_key(kind), "no {kind} were confirmed: {report}");
    }
}

/// Tests the checks themselves: a disk that only claims to have synced is noticed.
#[test]
fn a_disk_that_lies_about_a_sync_is_found_out() {
    let seed = seed();
    let workload = &WORKLOADS[0];
    let driver = workload.run(2, Dice::of(seed, 0, 0));
    for lie in [Lie::WalHeader, Lie::WalEvery(7)] {
        // Few cuts meet the lie: repeat until it is noticed, up to a limit.
        let noticed = (0..LIE_ROUNDS_MAX).any(|round| {
            let report = cut(workload, &driver, lie, LIE_CUTS, &mut Dice::of(seed, 1, round));
            println!("{lie:?}: {report}");
            report.failed() > 0
        });
        assert!(noticed, "{lie:?} was not noticed in {LIE_ROUNDS_MAX} times {LIE_CUTS} cuts");
    }
}

/// Cuts the power many times in the recorded trace.
fn cut(workload: &Workload, driver: &Driver, lie: Lie, count: u64, dice: &mut Dice) -> Report {
    let trace = driver.recorder.trace();
    let places = Cuts::of(&trace, &driver.ledger);
    let mut report = Report { confirmed: driver.ledger.counts(), ..Report::default() };
    let (records, restarts) = (trace.records.len(), places.restarts());
    report.notes.push(format!("{}: {records} changes and syncs, {restarts} WALs", workload.name));
    let headers = cuts::unsynced_headers(&trace);
    if headers > 0 {
        report.failures.push(format!("{}: {headers} headers of the WAL were not synced", workload.name));
    }
    report.failures.extend(check::check_backups(driver.recorder.root(), &driver.ledger));
    let mut disk = driver.recorder.disk(&trace, lie);
    let (mut next, mut images) = (0, dice.below(SERVER_EVERY));
    for at in places.draw(count, lie, dice) {
        trace.records[next..=at].iter().for_each(|record| disk.apply(record));
        next = at + 1;
        for kind in Kind::ALL {
            images += 1;
            let through = if lie == Lie::None && images.is_multiple_of(SERVER_EVERY) {
                Through::Server
            } else {
                Through::Store
            };
            let place = tempfile::tempdir().expect("a temporary folder");
            image::write(&disk, kind, dice, place.path());
            let position = trace.records[at].end;
            let checked =
                check::check(place.path(), driver.recorder.root(), &driver.ledger, position, through);
            let row = report.rows.entry((workload.name, kind)).or_default();
            row.images += 1;
            row.facts += checked.facts;
            row.failed += u64::from(!checked.failures.is_empty());
            let whence = format!("{}, record {at}, {}, {through:?}", workload.name, kind.as_str());
            report.failures.extend(
                checked
                    .failures
                    .first()
                    .map(|first| format!("{whence}: {first} ({} in all)", checked.failures.len())),
            );
        }
    }
    report
}
