//! Events of six accounts, three processes with eight concurrent handlers each, failures and kills: each account sees
//! its events one at a time, in the order in which they were published.

use std::time::Duration;

use millrace::{Config, Entity, Event, Handler, HandlerOrder, HandlerSettings, Session};
use millrace_admin::Admin;
use serde::{Deserialize, Serialize};

use crate::process::{self, Crew, Place, work};
use crate::{Draw, check};

const PROCESSES: usize = 3;
const ACCOUNTS: u64 = 6;
const MOVES_EACH: u64 = 80;
const KILLS: u64 = 8;

#[derive(Event, Clone, Debug, Serialize, Deserialize)]
struct Moved {
    account: u64,
    n: u64,
}

#[derive(Entity, Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    #[key]
    account: u64,
    applied: u64,
    last: u64,
    /// Events that did not follow their predecessor.
    wrong: u64,
}

fn config() -> Config {
    Config {
        handler_concurrency: 8,
        event_claim_lease_ms: 1000,
        event_max_attempts: 60,
        event_backoff_base_ms: 1,
        event_backoff_max_ms: 10,
        event_poll_interval_ms: 100,
        ..Config::default()
    }
}

fn apply() -> Handler {
    let handler = Handler::from_fn::<Moved>("apply", |ctx| {
        let Moved { account, n } = ctx.event;
        if ctx.meta().attempt == 1 && n % 5 == 3 {
            return Err("no luck the first time".into());
        }
        let old = ctx.get::<Account>(account)?.map(millrace::Stored::into_inner);
        let (applied, last, wrong) = old.map_or((0, 0, 0), |old| (old.applied, old.last, old.wrong));
        std::thread::sleep(Duration::from_millis(n % 3));
        let (applied, wrong) = (applied + 1, wrong + u64::from(n != last + 1));
        ctx.ensure(Account { account, applied, last: n, wrong })?;
        ctx.commit_and_ack()?;
        Ok(())
    });
    handler.with_settings(HandlerSettings { order: Some(HandlerOrder::Key), ..HandlerSettings::default() })
}

/// Runs in the child processes.
#[test]
fn child() {
    work(config(), vec![apply()]);
}

#[test]
fn accounts_see_their_events_in_order_over_processes_and_kills() {
    let mut draw = Draw::seeded();
    let place = Place::new();
    let session = Session::builder(&place.url()).config(config()).open().unwrap();
    let moves = (0..ACCOUNTS * MOVES_EACH).map(|at| {
        let (account, n) = (at % ACCOUNTS, at / ACCOUNTS + 1);
        Moved { account, n }.with_key(format!("account-{account}"))
    });
    session.publish_all(moves).unwrap();
    let mut crew = Crew::start(&place, "order::child", vec![(process::STORE, place.url())], PROCESSES);
    for kill in 1..=KILLS {
        wait_for(&session, &mut crew, kill * ACCOUNTS * MOVES_EACH / (KILLS + 1));
        crew.kill_and_replace(draw.below(PROCESSES as u64) as usize);
    }
    wait_for(&session, &mut crew, ACCOUNTS * MOVES_EACH);
    let admin = Admin::new(place.store());
    while check::unfinished(&admin, &session) > 0 {
        crew.are_alive();
        std::thread::sleep(Duration::from_millis(20));
    }
    crew.stop();
    for account in 0..ACCOUNTS {
        let found = session.get::<Account>(account).unwrap().unwrap().into_inner();
        assert_eq!(
            found,
            Account { account, applied: MOVES_EACH, last: MOVES_EACH, wrong: 0 },
            "seed {}",
            draw.seed
        );
    }
    drop((session, admin));
    check::doctor(&place.url());
}

/// Waits until `count` events have been applied.
fn wait_for(session: &Session, crew: &mut Crew<'_>, count: u64) {
    let applied = || -> u64 {
        let of = |account| session.get::<Account>(account).unwrap().map_or(0, |found| found.applied);
        (0..ACCOUNTS).map(of).sum()
    };
    while applied() < count {
        crew.are_alive();
        std::thread::sleep(Duration::from_millis(5));
    }
}
