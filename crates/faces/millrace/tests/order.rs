//! Order per key: a handler with `order = "key"` handles the events of one key one at a time, in the order in which
//! they were published.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace::{
    Config, Event, Handler, HandlerContext, HandlerOrder, HandlerOutcome, HandlerResult, HandlerSettings,
    Session, Simulation, handlers, on_event,
};
use serde::{Deserialize, Serialize};

const KEYS: u64 = 5;
const EACH: u64 = 16;

#[derive(Event, Clone, Debug, Serialize, Deserialize)]
struct Moved {
    account: u64,
    n: u64,
}

/// An account as the handler saw it.
#[derive(Debug, Default)]
struct Account {
    running: bool,
    ended: Vec<u64>,
}

type Accounts = Arc<Mutex<BTreeMap<u64, Account>>>;

#[on_event(Moved, id = "in-order", order = "key", backoff_base_ms = 1, backoff_max_ms = 8, max_attempts = 3)]
fn in_order(ctx: &mut HandlerContext<Moved>) -> HandlerResult {
    let accounts = ctx.data::<Accounts>()?;
    let (Moved { account, n }, attempt) = (ctx.event.clone(), ctx.meta().attempt);
    {
        let mut all = accounts.lock().unwrap();
        let seen = all.entry(account).or_default();
        assert!(!seen.running, "{n} of {account} runs beside another one");
        assert_eq!(seen.ended.last().copied().unwrap_or(0) + 1, n, "of {account}");
        seen.running = true;
    }
    std::thread::sleep(Duration::from_micros(300 * (n * 7 + account) % 5));
    // Decides the fate of a run: the same for all tests, and without a pattern that could hide a wrong order.
    let fate = (n * 37 + account * 11 + u64::from(attempt) * 5) % 16;
    let outcome = match fate {
        0..=2 => Err("no luck".into()),
        3 => Err(HandlerOutcome::snooze(Duration::from_millis(4), "later").into()),
        4 => Err(HandlerOutcome::give_up("never").into()),
        5 => Err(HandlerOutcome::discard("not wanted").into()),
        _ => Ok(()),
    };
    let ends = matches!(fate, 4..) || (fate < 3 && attempt == 3);
    let mut all = accounts.lock().unwrap();
    let seen = all.entry(account).or_default();
    seen.running = false;
    if ends {
        seen.ended.push(n);
    }
    outcome
}

/// Returns the events, alternating between the accounts, with priorities that would reverse the order.
fn moves() -> Vec<millrace::WithOptions<Moved>> {
    let at = |at: u64| Moved { account: at % KEYS, n: at / KEYS + 1 };
    let with = |event: Moved| {
        let (key, priority) = (format!("account-{}", event.account), (event.n % 3 * 400) as i32);
        event.with_key(key).with_priority(priority)
    };
    (0..KEYS * EACH).map(|n| with(at(n))).collect()
}

fn check(accounts: &Accounts) {
    for (account, seen) in accounts.lock().unwrap().iter() {
        assert_eq!(seen.ended, (1..=EACH).collect::<Vec<_>>(), "account {account}");
    }
}

/// Runs the handler on eight threads, with failures of every kind.
#[test]
fn keys_stay_in_order_on_eight_threads() {
    let folder = tempfile::tempdir().unwrap();
    let accounts = Accounts::default();
    let config = Config { handler_concurrency: 8, ..Config::default() };
    let url = format!("sqlite:///{}", folder.path().join("app.db").display());
    let session = Session::builder(&url).config(config).with(accounts.clone()).open().unwrap();
    let running = session.spawn(handlers![in_order], vec![]).unwrap();
    session.publish_all(moves()).unwrap();
    for _ in 0..3000 {
        let ended: usize = accounts.lock().unwrap().values().map(|seen| seen.ended.len()).sum();
        if ended as u64 == KEYS * EACH {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    running.stop().unwrap();
    check(&accounts);
}

/// Runs two sessions on one store, on virtual time.
#[test]
fn keys_stay_in_order_over_two_sessions() {
    let accounts = Accounts::default();
    let sim = Simulation::builder(3).with(accounts.clone()).open().unwrap();
    sim.start(handlers![in_order], vec![]).unwrap();
    let other = sim.beside();
    other.start(handlers![in_order], vec![]).unwrap();
    sim.publish_all(moves()).unwrap();
    sim.advance(Duration::from_secs(60)).unwrap();
    check(&accounts);
    let succeeded = |sim: &millrace::Simulation| {
        let sessions = sim.sessions().unwrap();
        sessions.iter().map(|(_, row)| row.counts.succeeded).sum::<u64>()
    };
    assert!(succeeded(&sim) > KEYS * EACH / 2, "{:?}", sim.sessions());
}

/// An event that waits for a day delays only the events of its own key. Here the configuration sets the order, by the
/// handler's id.
#[test]
fn an_event_that_waits_holds_back_only_its_key() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let handler = Handler::from_fn::<Moved>("patient", move |ctx| {
        if (ctx.event.account, ctx.event.n) == (0, 1) && ctx.meta().attempt == 1 {
            let snoozed = notes.lock().unwrap().iter().any(|text| text == "waits");
            if !snoozed {
                notes.lock().unwrap().push("waits".to_owned());
                return Err(HandlerOutcome::snooze(Duration::from_secs(86_400), "tomorrow").into());
            }
        }
        notes.lock().unwrap().push(format!("{}-{}", ctx.event.account, ctx.event.n));
        Ok(())
    });
    let by_key = HandlerSettings { order: Some(HandlerOrder::Key), ..HandlerSettings::default() };
    let handlers = BTreeMap::from([("patient".to_owned(), by_key)]);
    let sim = Simulation::builder(5).config(Config { handlers, ..Config::default() }).open().unwrap();
    sim.start(vec![handler], vec![]).unwrap();
    for (account, n) in [(0, 1), (1, 1), (0, 2), (1, 2)] {
        sim.publish(Moved { account, n }.with_key(account.to_string())).unwrap();
    }
    // An event without a key waits for no other event.
    sim.publish(Moved { account: 0, n: 9 }).unwrap();
    sim.advance(Duration::from_secs(3600)).unwrap();
    assert_eq!(*seen.lock().unwrap(), ["waits", "1-1", "0-9", "1-2"]);
    sim.advance(Duration::from_secs(86_400)).unwrap();
    assert_eq!(seen.lock().unwrap()[4..], ["0-1", "0-2"]);
}
