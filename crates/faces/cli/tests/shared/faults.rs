//! Three servers under load while the leader is killed, put to sleep past the timeout, or cut off from the engine.
//! Nothing confirmed is lost, no offset moves, no acked event comes again; repeats are counted.
//!
//! `MILLRACE_FAULT_ROUNDS` sets the number of rounds (6; by hand 30), `MILLRACE_FAULT_SEED` repeats a choice of faults.

use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::thread::sleep;
use std::time::Duration;

use crate::cluster::{Member, leader, wait_for};
use crate::engines;
use crate::load::{Load, TOPIC};
use crate::proxy::{Line, Proxy};
use crate::shifted::{HOUR_MS, ShiftedClock};

const LEAD_TIMEOUT_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    /// Longer than the lead timeout.
    Sleep,
    Cut,
    Silence,
    Slow,
    /// An orderly stop.
    Stop,
    /// Killed, and started again with a wall clock that is an hour ahead or behind.
    WrongClock,
}

const FAULTS: [Fault; 7] =
    [Fault::Kill, Fault::Sleep, Fault::Cut, Fault::Silence, Fault::Stop, Fault::Slow, Fault::WrongClock];

fn rounds() -> usize {
    std::env::var("MILLRACE_FAULT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

fn seed() -> u64 {
    std::env::var("MILLRACE_FAULT_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random)
}

#[test]
fn nothing_confirmed_is_lost_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("dir:///{}", folder.path().join("store").display());
    run("a folder", &[store.clone(), store.clone(), store], &[]);
}

#[test]
fn nothing_confirmed_is_lost_on_engines() {
    for (name, url) in engines::started() {
        let host = host_of(&url);
        let target = host.to_socket_addrs().unwrap().next().unwrap();
        let proxies: Vec<Proxy> = (0..3).map(|_| Proxy::to(target)).collect();
        let urls: Vec<String> =
            proxies.iter().map(|proxy| url.replace(&host, &proxy.addr().to_string())).collect();
        run(name, &urls, &proxies);
    }
}

/// Returns host and port of a URL.
pub fn host_of(url: &str) -> String {
    let rest = url.split_once("://").unwrap().1;
    let authority = rest.split(['/', '?']).next().unwrap();
    authority.rsplit('@').next().unwrap().to_owned()
}

fn run(name: &str, urls: &[String], proxies: &[Proxy]) {
    let (rounds, seed) = (rounds(), seed());
    println!("{name}: {rounds} rounds, MILLRACE_FAULT_SEED={seed}");
    let folder = tempfile::tempdir().unwrap();
    let timeout = LEAD_TIMEOUT_MS.to_string();
    let flags = ["--lead-timeout-ms", &timeout];
    let mut members: Vec<Member> = urls
        .iter()
        .enumerate()
        .map(|(at, url)| Member::start(folder.path(), &format!("server-{at}"), url, &flags))
        .collect();
    leader(&members);
    let list = members.iter().map(Member::ws).collect::<Vec<_>>().join(",");
    let load = Load::start(&list);
    let clock = ShiftedClock::new();
    let mut done: BTreeMap<String, u32> = BTreeMap::new();
    for round in 0..rounds {
        let before = load.confirmed();
        wait_for("publishes are confirmed", || (load.confirmed() >= before + 30).then_some(()));
        let at = leader(&members);
        let fault = FAULTS[(seed as usize).wrapping_add(round) % FAULTS.len()];
        let fault = match fault {
            Fault::Cut | Fault::Silence | Fault::Slow if proxies.is_empty() => Fault::Kill,
            fault => fault,
        };
        *done.entry(format!("{fault:?}")).or_default() += 1;
        println!("round {round}: {fault:?} of server {at}, {} confirmed", load.confirmed());
        clock.shift(if round % 2 == 0 { HOUR_MS } else { -HOUR_MS });
        strike(fault, &mut members, at, proxies, &clock);
    }
    let before = load.confirmed();
    wait_for("publishes are confirmed after the last fault", || {
        (load.confirmed() >= before + 30).then_some(())
    });
    load.stop_publishing();
    wait_for("everything is delivered", || load.ledger.lock().unwrap().delivered_all().then_some(()));
    check(&members, &load);
    let ledger = load.ledger.clone();
    load.end();
    let ledger = ledger.lock().unwrap();
    println!(
        "{name}: {} confirmed, 0 lost, 0 moved, {} delivered again; longest time without a confirmed publish {} ms; {done:?}",
        ledger.confirmed.len(),
        ledger.repeats,
        ledger.longest_gap.as_millis()
    );
}

fn strike(fault: Fault, members: &mut [Member], at: usize, proxies: &[Proxy], clock: &ShiftedClock) {
    let past_timeout = Duration::from_millis(LEAD_TIMEOUT_MS * 2);
    match fault {
        Fault::Kill => {
            members[at].kill();
            leader(members);
            members[at].restart();
        }
        Fault::Stop => {
            assert_eq!(members[at].stop(), Some(0), "{}", members[at].log());
            leader(members);
            members[at].restart();
        }
        Fault::Sleep => {
            members[at].signal("STOP");
            sleep(past_timeout);
            members[at].signal("CONT");
        }
        Fault::Cut | Fault::Silence | Fault::Slow => {
            let line = match fault {
                Fault::Cut => Line::Cut,
                Fault::Silence => Line::Silent,
                _ => Line::Slow,
            };
            proxies[at].set(line);
            sleep(past_timeout);
            proxies[at].set(Line::Open);
        }
        Fault::WrongClock => {
            members[at].kill();
            leader(members);
            members[at].restart_with(&clock.env());
        }
    }
}

/// Reads everything back from every server: each confirmed event is at the place that was told.
fn check(members: &[Member], load: &Load) {
    let confirmed = load.ledger.lock().unwrap().confirmed.clone();
    for member in members {
        wait_for("a server has all confirmed events", || {
            let stored = stored(member)?;
            confirmed.iter().all(|(place, payload)| stored.get(place) == Some(payload)).then_some(())
        });
    }
}

fn stored(member: &Member) -> Option<BTreeMap<(u32, u64), String>> {
    let mut found = BTreeMap::new();
    for partition in 0..1u32 {
        let mut from = 1u64;
        loop {
            let path = format!("/topics/{TOPIC}/events?partition={partition}&from={from}&limit=1000");
            let (status, _, body) = member.get(&path)?;
            if status != 200 {
                return None;
            }
            let page: serde_json::Value = serde_json::from_str(&body).ok()?;
            let events = page["events"].as_array()?;
            let Some(last) = events.last() else { break };
            for event in events {
                found.insert((partition, event["offset"].as_u64()?), event["payload"].to_string());
            }
            from = last["offset"].as_u64()? + 1;
        }
    }
    Some(found)
}
