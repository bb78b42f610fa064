//! SIGKILL at random moments under load: nothing confirmed is lost or duplicated, no offset is given twice, no commit
//! moves back, acked events stay acked, dead letters are written once, delayed events come once and not early.
//!
//! `MILLRACE_CRASH_SEED` repeats the moments of an earlier run; what the server is doing at these moments depends on
//! the machine.

mod consume;
mod dice;
mod ledger;
mod publish;
mod stored;

use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::server::Server;
pub use dice::Dice;
use ledger::Ledger;
use publish::{DELAY_MS_MAX, PUBLISHERS};

const KILLS: u64 = 30;
/// Read by two members that ack, and published to by all kinds of publishers.
const ORDERS: &str = "orders";
/// Read by one member that refuses events with a poison payload.
const FRAGILE: &str = "fragile";
const TOPICS: [&str; 2] = [ORDERS, FRAGILE];
const PARTITIONS: u64 = 3;
const MAX_ATTEMPTS: u64 = 3;

fn group_of(topic: &str) -> &'static str {
    if topic == ORDERS { "workers" } else { "refusers" }
}

/// Data shared by the threads of one round.
struct Run {
    ws: String,
    http: String,
    seed: u64,
    round: u64,
    ledger: Arc<Mutex<Ledger>>,
}

impl Run {
    fn of(server: &Server, seed: u64, round: u64, ledger: &Arc<Mutex<Ledger>>) -> Arc<Run> {
        Arc::new(Run { ws: server.ws_url(), http: server.http_url(), seed, round, ledger: ledger.clone() })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no other thread failed")
    }

    fn dice(&self, who: u64) -> Dice {
        Dice::of(self.seed, self.round, who)
    }
}

#[test]
fn thirty_kills_lose_nothing_that_was_confirmed() {
    let seed = dice::seed();
    println!("MILLRACE_CRASH_SEED={seed}");
    let mut server = Server::start();
    // So many attempts that no order becomes a dead letter only because of the kills.
    for (topic, attempts) in [(ORDERS, 100), (FRAGILE, MAX_ATTEMPTS)] {
        let config = json!({"topic": topic, "partitions": PARTITIONS, "maxAttempts": attempts});
        assert_eq!(server.post("/topics", &config).0, 201);
        let mut socket = server.socket();
        socket.send(&consume::subscribe(topic));
        socket.expect("OK");
    }
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    for round in 0..KILLS {
        let run = Run::of(&server, seed, round, &ledger);
        let workers = spawn(&run);
        thread::sleep(Duration::from_micros(20_000 + run.dice(100).below(200_000)));
        server.kill();
        workers.into_iter().for_each(|worker| worker.join().expect("no check failed"));
        server.restart();
        look(&server, &mut run.ledger());
    }
    let run = Run::of(&server, seed, KILLS, &ledger);
    let between_kills = run.ledger().commits_total();
    settle(&server, &run);
    for topic in TOPICS {
        finish(&server, &run, topic);
    }
    let mut ledger = run.ledger();
    look(&server, &mut ledger);
    let stored = stored::check_all(&server, &ledger);
    println!(
        "{KILLS} kills (seed {seed}): {} confirmed, {stored} stored, {} resent, {} committed ({between_kills} between kills), {} redelivered (at most \
         {} attempts), {} dead letters, {} delayed",
        ledger.confirmed.len() + ledger.delayed.len(),
        ledger.resent,
        ledger.commits_total(),
        ledger.redelivered,
        ledger.attempts_max,
        ledger.letters.len(),
        ledger.delayed.len(),
    );
    assert!(ledger.commits_total() > 1000 && between_kills > 0, "the groups went on between the kills");
    assert!(ledger.redelivered > 0 && ledger.attempts_max > 1, "redeliveries carry attempts");
    assert!(ledger.resent > 0 && !ledger.letters.is_empty() && !ledger.delayed.is_empty());
}

fn spawn(run: &Arc<Run>) -> Vec<thread::JoinHandle<()>> {
    let start = |work: Box<dyn FnOnce(&Run) + Send>| {
        let run = run.clone();
        thread::spawn(move || work(&run))
    };
    let mut workers: Vec<_> =
        (0..PUBLISHERS).map(|who| start(Box::new(move |run: &Run| publish::publish(run, who)))).collect();
    for (topic, who) in [(ORDERS, 101), (ORDERS, 102), (FRAGILE, 103)] {
        workers.push(start(Box::new(move |run: &Run| consume::consume(run, topic, who))));
    }
    workers.push(start(Box::new(consume::watch)));
    workers
}

/// Checks that a restarted server agrees with what was promised before.
fn look(server: &Server, ledger: &mut Ledger) {
    stored::check_letters(server, ledger);
    for topic in TOPICS {
        ledger.committed(topic, &server.get(&format!("/topics/{topic}/offsets")).1);
    }
    ledger.check_commits();
}

/// Sends again what was never answered, and waits until every delayed event is stored, which is certain once an event
/// that is due after all of them arrives.
fn settle(server: &Server, run: &Run) {
    let mut socket = server.socket();
    let unanswered: Vec<_> = std::mem::take(&mut run.ledger().unanswered).into_values().collect();
    for frame in unanswered {
        socket.send(&frame);
        run.ledger().published(&frame, &socket.next());
    }
    let last = json!({"type": "PUBLISH", "topic": "last", "delay_ms": DELAY_MS_MAX + 1, "payload": "last"});
    let mut reader = server.socket();
    reader.subscribe("last", "settle", &json!({}));
    socket.send(&last);
    socket.expect("PUBLISHED");
    reader.message();
}

/// Brings the group to its end with a consumer that answers everything.
fn finish(server: &Server, run: &Run, topic: &'static str) {
    let mut socket = server.socket();
    socket.send(&consume::subscribe(topic));
    socket.expect("OK");
    loop {
        for frame in socket.drained() {
            if let Some(answer) = consume::answer(run, topic, &frame, None) {
                socket.send(&answer);
            }
        }
        let (_, offsets) = server.get(&format!("/topics/{topic}/offsets"));
        let rows = offsets["partitions"].as_array().expect("partitions");
        if rows.iter().all(|row| row["groups"][group_of(topic)]["lag"] == 0) {
            return;
        }
    }
}
