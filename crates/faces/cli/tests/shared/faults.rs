//! Three servers under load while the leader is killed, put to sleep past the timeout, or cut off from the engine, and
//! while the engine itself is restarted. Nothing confirmed is lost, no offset moves, no acked event comes again; repeats
//! are counted.
//!
//! `MILLRACE_FAULT_ROUNDS` sets the number of rounds (6; by hand 30), `MILLRACE_FAULT_SEED` repeats a choice of faults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use crate::cluster::{Member, leader, wait_for};
use crate::engines::{TestEngine, folder_url};
use crate::load::{Load, TOPIC};
use crate::private::PrivateEngine;
use crate::proxy::{Line, Proxy};
use crate::shifted::{HOUR_MS, ShiftedClock};

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    /// Longer than the lead timeout.
    Sleep,
    Cut,
    Silence,
    Slow,
    /// Requests arrive, answers are lost.
    HalfOpen,
    /// An orderly stop.
    Stop,
    /// The engine itself ends and starts again on the same data.
    Restart,
    /// Killed, and started again with a wall clock that is an hour ahead or behind.
    WrongClock,
}

/// Always the first of a run if the test has the engine for itself.
const FAULTS: [Fault; 9] = [
    Fault::Restart,
    Fault::Kill,
    Fault::Sleep,
    Fault::Cut,
    Fault::Silence,
    Fault::Stop,
    Fault::HalfOpen,
    Fault::Slow,
    Fault::WrongClock,
];

fn rounds() -> usize {
    std::env::var("MILLRACE_FAULT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

fn seed() -> u64 {
    std::env::var("MILLRACE_FAULT_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random)
}

#[test]
fn nothing_confirmed_is_lost_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder_url(folder.path());
    Rig { name: "a folder", urls: vec![store; 3], proxies: Vec::new(), engine: None, lead_timeout_ms: 1_000 }
        .run();
}

#[test]
fn nothing_confirmed_is_lost_on_postgres() {
    Rig::run_on("PostgreSQL", PrivateEngine::postgres(), TestEngine::postgres, 1_000);
}

#[test]
fn nothing_confirmed_is_lost_on_mongodb() {
    Rig::run_on("MongoDB", PrivateEngine::mongo(), TestEngine::mongo, 1_000);
}

/// Not on moto: it looks and writes in two steps, so that two servers can place the same number, and a new store on it is
/// refused for that.
#[test]
fn nothing_confirmed_is_lost_on_object_storage() {
    Rig::run_on("SeaweedFS", PrivateEngine::seaweed(), TestEngine::seaweed, 2_000);
}

/// How often a fault was struck, and the longest time without a confirmed publish around it.
#[derive(Debug, Default)]
struct FaultGaps {
    rounds: u32,
    longest: Duration,
}

/// Three servers, a proxy for each of them, and the engine.
struct Rig {
    name: &'static str,
    urls: Vec<String>,
    proxies: Vec<Proxy>,
    engine: Option<PrivateEngine>,
    lead_timeout_ms: u64,
}

impl Rig {
    /// Runs on an engine of the test's own if there is one, otherwise on the one of all tests, which is not restarted.
    fn run_on(
        name: &'static str,
        mut own: Option<PrivateEngine>,
        other: fn() -> Option<TestEngine>,
        lead_timeout_ms: u64,
    ) {
        let (addr, url_at): (SocketAddr, Box<dyn Fn(SocketAddr) -> String>) = match &mut own {
            Some(engine) => {
                engine.start();
                (engine.addr, Box::new(|addr| engine.url_at(addr)))
            }
            None => {
                let Some(engine) = other() else { return };
                (engine.addr, Box::new(move |addr| engine.url_at(addr)))
            }
        };
        let proxies: Vec<Proxy> = (0..3).map(|_| Proxy::to(addr)).collect();
        let urls = proxies.iter().map(|proxy| url_at(proxy.addr())).collect();
        drop(url_at);
        Rig { name, urls, proxies, engine: own, lead_timeout_ms }.run();
    }

    /// Returns the fault of a round, or the nearest one that this rig can have.
    fn fault(&self, seed: u64, round: usize) -> Fault {
        let nth = if round == 0 { 0 } else { (seed as usize).wrapping_add(round) % FAULTS.len() };
        match FAULTS[nth] {
            Fault::Restart if self.engine.is_none() => Fault::Kill,
            Fault::Cut | Fault::Silence | Fault::Slow | Fault::HalfOpen if self.proxies.is_empty() => {
                Fault::Kill
            }
            fault => fault,
        }
    }
}

impl Rig {
    fn run(mut self) {
        let (rounds, seed, name) = (rounds(), seed(), self.name);
        println!("{name}: {rounds} rounds, MILLRACE_FAULT_SEED={seed}");
        let folder = tempfile::tempdir().unwrap();
        let timeout = self.lead_timeout_ms.to_string();
        let flags = ["--lead-timeout-ms", &timeout, "--follow-ms", "50"];
        let start =
            |(at, url): (usize, &String)| Member::start(folder.path(), &format!("server-{at}"), url, &flags);
        let mut members: Vec<Member> = self.urls.iter().enumerate().map(start).collect();
        leader(&members);
        let list = members.iter().map(Member::ws).collect::<Vec<_>>().join(",");
        let load = Load::start(&list);
        let clock = ShiftedClock::new();
        let mut done: BTreeMap<String, FaultGaps> = BTreeMap::new();
        for round in 0..rounds {
            load.wait_until_confirmed(30);
            let at = leader(&members);
            let fault = self.fault(seed, round);
            load.ledger.lock().unwrap().take_longest_gap();
            println!("round {round}: {fault:?} of server {at}, {} confirmed", load.confirmed());
            clock.shift(if round % 2 == 0 { HOUR_MS } else { -HOUR_MS });
            self.strike(fault, &mut members, at, &clock);
            load.wait_until_confirmed(30);
            let gap = load.ledger.lock().unwrap().take_longest_gap();
            let gaps = done.entry(format!("{fault:?}")).or_default();
            (gaps.rounds, gaps.longest) = (gaps.rounds + 1, gaps.longest.max(gap));
        }
        load.stop_publishing();
        load.wait_until_all_is_delivered();
        check(&members, &load);
        let ledger = load.ledger.clone();
        load.end();
        let ledger = ledger.lock().unwrap();
        println!(
            "{name}: {} confirmed, 0 lost, 0 moved, {} delivered again; rounds and longest time without a confirmed publish: \
             {done:?}",
            ledger.confirmed.len(),
            ledger.repeats,
        );
    }

    fn strike(&mut self, fault: Fault, members: &mut [Member], at: usize, clock: &ShiftedClock) {
        let past_timeout = Duration::from_millis(self.lead_timeout_ms * 2);
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
            Fault::Cut | Fault::Silence | Fault::Slow | Fault::HalfOpen => {
                let line = match fault {
                    Fault::Cut => Line::Cut,
                    Fault::Silence => Line::Silent,
                    Fault::HalfOpen => Line::HalfOpen,
                    _ => Line::Slow,
                };
                self.proxies[at].set(line);
                sleep(past_timeout);
                self.proxies[at].set(Line::Open);
            }
            Fault::Restart => {
                let Some(engine) = &mut self.engine else { return };
                engine.stop();
                engine.start();
            }
            Fault::WrongClock => {
                members[at].kill();
                leader(members);
                members[at].restart_with(&clock.env());
            }
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
        assert_eq!(member.copies().len(), 1, "{:?}", member.cached(""));
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
