//! On whose behalf things are done: what somebody may not do, no timer and no hang-up does for them.
#![allow(clippy::unwrap_used)]

mod desk;

use std::sync::Arc;

use desk::{Desk, message};
use millrace_model::{Actor, Principal};
use millrace_router::{ConnId, Input, RouterLimits};
use serde_json::json;

fn agent(name: &str) -> Arc<Principal> {
    Arc::new(Principal { agent: Actor::new(name).unwrap(), roles: vec![Actor::new("role").unwrap()] })
}

fn desk_of(name: &str, limits: RouterLimits) -> Desk {
    let mut desk = Desk::with(limits);
    desk.give(Input::Open { conn: ConnId(7), by: Some(agent(name)) });
    desk
}

#[test]
fn a_request_is_made_on_behalf_of_its_client_also_when_that_has_hung_up() {
    let mut desk = desk_of("alice", RouterLimits::default());
    desk.client(7, message("command", "Echo.Do", "a", json!(1)));
    desk.give(Input::Close { conn: ConnId(7) });
    desk.run();
    assert_eq!(desk.by, Some(agent("alice")));
}

#[test]
fn a_timer_acts_on_behalf_of_whoever_set_it_also_after_a_restart() {
    let mut desk = desk_of("alice", RouterLimits::default());
    let template = json!({"kind": "command", "type": "Echo.Do", "data": 1});
    desk.client(7, message("command", "Timer.Set", "s", json!({"delayMs": 1, "message": template})));
    desk.run();
    let mut rows = std::collections::BTreeMap::new();
    desk.commit(&mut rows);
    desk.pass(5);
    desk.run();
    assert_eq!(desk.by, Some(agent("alice")));
    let mut after = Desk::new();
    after.now = desk.now;
    after.router.restore(after.now, rows.into_iter().collect());
    after.run();
    assert_eq!(after.by, Some(agent("alice")));
}

#[test]
fn a_timer_that_a_timer_sets_belongs_to_the_same_client() {
    let limits = RouterLimits { durable_timers: false, conn_timers_max: 3, ..RouterLimits::default() };
    let mut desk = desk_of("alice", limits);
    desk.ask("slow");
    let timeout = json!({"kind": "command", "type": "Sys.RequestTimeout", "data": {"requestId": "slow"}});
    let inner = json!({"kind": "command", "type": "Timer.Set", "data": {"delayMs": 1, "message": timeout}});
    desk.client(7, message("command", "Timer.Set", "s", json!({"delayMs": 1, "message": inner})));
    desk.run();
    for _ in 0..10 {
        desk.pass(2);
        assert!(!desk.run().iter().any(|line| line.contains("504")), "another client's request is not ended");
    }
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    let many = json!({"kind": "command", "type": "Timer.Set", "data": {"delayMs": 1000, "message": event}});
    for n in 0..3 {
        desk.client(
            7,
            message("command", "Timer.Set", &format!("m{n}"), json!({"delayMs": n, "message": many})),
        );
        desk.run();
    }
    for _ in 0..10 {
        desk.pass(2);
        desk.run();
    }
    assert!(desk.router.gauges().timers <= 3, "the bound of the connection holds for them, too");
}

#[test]
fn clients_cannot_speak_for_the_timer_or_the_bus() {
    let mut desk = Desk::new();
    desk.client(1, message("event", "Timer.Fired", "x", json!({"timerId": "t"})));
    desk.client(1, message("event", "Bus.Message", "y", json!({})));
    assert!(desk.run().is_empty());
    assert_eq!(desk.router.counters().events_undelivered, 2);
}
