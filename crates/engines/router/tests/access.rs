//! Access control: a client cannot get around it by a timer, nor by hanging up.
#![allow(clippy::unwrap_used)]

mod desk;

use std::sync::Arc;

use desk::{Desk, caused, message};
use millrace_model::{Actor, Namespace, OsId, Principal};
use millrace_router::{ConnId, Input, NotVouched, RouterLimits, TraceQuery};
use serde_json::json;

fn agent(name: &str) -> Arc<Principal> {
    let roles = vec![Actor::new("role").unwrap()];
    Arc::new(Principal { agent: Actor::new(name).unwrap(), roles, namespaces: None })
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
    after.restore(rows);
    after.run();
    assert_eq!(after.by, Some(agent("alice")));
}

#[test]
fn an_agent_gets_half_of_all_timers_also_after_a_restart() {
    let limits = RouterLimits { timers_max: 4, conn_timers_max: 4, ..RouterLimits::default() };
    let template = json!({"kind": "command", "type": "Echo.Do", "data": 1});
    let set = |desk: &mut Desk, conn: u64, id: &str| {
        desk.client(
            conn,
            message("command", "Timer.Set", id, json!({"delayMs": 60_000, "message": template})),
        );
        desk.run().join("\n")
    };
    let mut rows = std::collections::BTreeMap::new();
    let mut desk = desk_of("alice", limits.clone());
    for id in ["a", "b"] {
        assert!(set(&mut desk, 7, id).starts_with("commit"));
        desk.commit(&mut rows);
        desk.run();
    }
    let mut after = desk_of("alice", limits);
    after.restore(rows);
    for mut desk in [desk, after] {
        let refused = set(&mut desk, 7, "c");
        assert!(refused.contains("This agent has set half of all timers that may be set"), "{refused}");
        desk.give(Input::Open { conn: ConnId(8), by: Some(agent("bob")) });
        assert!(set(&mut desk, 8, "d").starts_with("commit"));
        // Connection 1 has no token.
        assert!(set(&mut desk, 1, "e").starts_with("commit"));
        assert!(set(&mut desk, 1, "f").contains("Too many timers are set"));
    }
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

fn set_timer(desk: &mut Desk, conn: u64, id: &str) -> String {
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    let set = json!({"delayMs": 3_600_000, "message": event});
    desk.client(conn, message("command", "Timer.Set", id, set));
    timer_id(desk)
}

/// The id of the timer that was just set, after its commit.
fn timer_id(desk: &mut Desk) -> String {
    desk.run();
    desk.commit(&mut std::collections::BTreeMap::new());
    let told = desk.run();
    desk::member(&told[0], "timerId").as_str().unwrap().to_owned()
}

fn cancels(desk: &mut Desk, conn: u64, timer: &str) -> bool {
    desk.client(conn, message("command", "Timer.Cancel", "cancel", json!({ "timerId": timer })));
    let told = desk.run();
    // A cancellation is confirmed once the timer's row is deleted.
    let answered = told.iter().any(|line| line.contains("is told"));
    desk.commit(&mut std::collections::BTreeMap::new());
    let told = if answered { told } else { desk.run() };
    desk::member(&told[0], "cancelled").as_bool().unwrap()
}

#[test]
fn a_timer_is_cancelled_by_whoever_set_it_over_connections_and_restarts() {
    let mut desk = desk_of("alice", RouterLimits::default());
    desk.give(Input::Open { conn: ConnId(8), by: Some(agent("bob")) });
    desk.give(Input::Open { conn: ConnId(9), by: Some(agent("alice")) });
    let timer = set_timer(&mut desk, 7, "s1");
    assert!(!cancels(&mut desk, 8, &timer), "another agent, as if there were none");
    assert!(cancels(&mut desk, 9, &timer), "the same agent on another connection");
    let timer = set_timer(&mut desk, 7, "s2");
    assert!(cancels(&mut desk, 1, &timer), "whom no access control concerns");
    let timer = set_timer(&mut desk, 1, "s3");
    assert!(!cancels(&mut desk, 7, &timer), "a name is not that of somebody without one");
    assert!(cancels(&mut desk, 1, &timer), "where nobody has a name all are one");
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    desk.client(7, message("command", "Timer.Set", "s", json!({"delayMs": 3_600_000, "message": event})));
    desk.run();
    let mut rows = std::collections::BTreeMap::new();
    desk.commit(&mut rows);
    let told = desk.run();
    let timer = desk::member(&told[0], "timerId").as_str().unwrap().to_owned();
    let mut after = desk_of("bob", RouterLimits::default());
    after.give(Input::Open { conn: ConnId(8), by: Some(agent("alice")) });
    after.now = desk.now;
    after.restore(rows);
    assert!(!cancels(&mut after, 7, &timer), "the row says who set it");
    assert!(cancels(&mut after, 8, &timer));
}

#[test]
fn what_a_capability_set_only_it_cancels() {
    let mut desk = desk_of("alice", RouterLimits::default());
    desk.install(vec![desk::manifest("Other", &[], &[])]);
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    let set = message("command", "Timer.Set", "s", json!({"delayMs": 3_600_000, "message": event}));
    let waiting = |desk: &mut Desk, from: &str, message| {
        let from = desk.ids[from];
        desk.give(Input::Emit { from, during: None, message, wait: true, vouched: false });
    };
    waiting(&mut desk, "Echo", set);
    let timer = timer_id(&mut desk);
    let cancel = |id: &str| message("command", "Timer.Cancel", id, json!({ "timerId": timer }));
    assert!(!cancels(&mut desk, 1, &timer) && !cancels(&mut desk, 7, &timer), "no client");
    waiting(&mut desk, "Other", cancel("o"));
    assert_eq!(desk.run(), [r#"Other awaited reply Timer.Cancel {"cancelled":false} <o"#]);
    // The successor after a reload has the same name.
    let (gone, come) = (desk.ids["Echo"], desk::manifest("Echo", &[], &[]));
    let new = desk.router.replace(desk.now, &[gone], vec![come]).unwrap();
    desk.ids.insert("Echo".to_owned(), new[0]);
    desk.effects();
    waiting(&mut desk, "Echo", cancel("e"));
    assert_eq!(desk.run(), ["commit delete"]);
    desk.commit(&mut std::collections::BTreeMap::new());
    assert_eq!(desk.run(), [r#"Echo awaited reply Timer.Cancel {"cancelled":true} <e"#]);
}

#[test]
fn who_shows_a_token_later_is_somebody_else_from_then_on() {
    let mut desk = desk_of("alice", RouterLimits::default());
    desk.client(7, message("command", "Echo.Do", "a", json!(1)));
    desk.give(Input::Identify { conn: ConnId(7), by: Some(agent("bob")) });
    desk.client(7, message("command", "Echo.Do", "b", json!(1)));
    desk.turn();
    assert_eq!(desk.by, Some(agent("alice")), "what was sent before was sent by whoever it was");
    desk.turn();
    assert_eq!(desk.by, Some(agent("bob")));
}

#[test]
fn a_timer_of_an_agent_who_may_not_any_more_sends_nothing_and_is_gone() {
    for kind in ["command", "event"] {
        let mut desk = desk_of("alice", RouterLimits::default());
        let ty = if kind == "event" { "Echo.Said" } else { "Echo.Do" };
        let template = json!({"kind": kind, "type": ty, "data": 1});
        desk.client(7, message("command", "Timer.Set", "s", json!({"delayMs": 1, "message": template})));
        desk.run();
        let mut rows = std::collections::BTreeMap::new();
        desk.commit(&mut rows);
        assert_eq!(rows.len(), 1);
        let reason = "no token of agent alice is accepted any more".to_owned();
        desk.refuses = Some(NotVouched::Refused(reason));
        // The refusal is the same before and after a restart.
        let mut after = Desk::new();
        after.now = desk.now;
        after.refuses.clone_from(&desk.refuses);
        after.restore(rows.clone());
        for desk in [&mut desk, &mut after] {
            desk.pass(5);
            let out = desk.run();
            assert_eq!(
                out.iter().filter(|line| line.contains("note Sys.TimerRefused")).count(),
                1,
                "{out:?}"
            );
            assert!(!out.iter().any(|line| line.contains("gets")), "neither it nor Timer.Fired: {out:?}");
            assert!(out.iter().any(|line| line.starts_with("commit")), "its row goes: {out:?}");
            assert_eq!((desk.router.counters().timers_refused, desk.router.counters().timers_fired), (1, 0));
            assert_eq!(desk.router.gauges().timers, 0);
        }
    }
}

#[test]
fn a_timer_whose_token_has_expired_by_a_doubtful_clock_is_kept_and_sent_later() {
    let mut desk = desk_of("alice", RouterLimits::default());
    let template = json!({"kind": "command", "type": "Echo.Do", "data": 1});
    desk.client(7, message("command", "Timer.Set", "s", json!({"delayMs": 1, "message": template})));
    desk.run();
    desk.commit(&mut std::collections::BTreeMap::new());
    desk.refuses = Some(NotVouched::InDoubt("the token of agent alice has expired".to_owned()));
    desk.pass(5);
    let out = desk.run();
    assert!(!out.iter().any(|line| line.contains("gets") || line.contains("TimerRefused")), "{out:?}");
    assert_eq!((desk.router.counters().timers_refused, desk.router.gauges().timers), (0, 1));
    desk.refuses = None;
    desk.pass(60_000);
    let out = desk.run();
    assert!(out.iter().any(|line| line.contains("gets command Echo.Do")), "{out:?}");
}

fn bound(name: &str, namespaces: &[&str]) -> Arc<Principal> {
    let names = namespaces.iter().map(|name| Namespace::new(name).unwrap()).collect();
    Arc::new(Principal { agent: Actor::new(name).unwrap(), roles: Vec::new(), namespaces: Some(names) })
}

#[test]
fn the_trace_of_one_namespace_is_not_anothers() {
    let mut desk = Desk::with(RouterLimits::default());
    for (conn, by) in
        [(7, bound("ann", &["eu"])), (8, bound("bob", &["eu", "us"])), (9, bound("cid", &["us"]))]
    {
        desk.give(Input::Open { conn: ConnId(conn), by: Some(by) });
        // All three clients use the same correlation, which is not a secret.
        let mut asked = message("query", "Echo.Say", &format!("q{conn}"), json!(1));
        asked.metadata.correlation = Some(OsId::new("shared").unwrap());
        desk.client(conn, asked);
        desk.run();
        // The event that the capability emits while it works on the request, and its reply, belong to the same
        // undertaking.
        let during = desk.delivery(&format!("q{conn}"));
        let cause = format!("q{conn}");
        desk.say(
            "Echo",
            Some(during),
            caused("event", "Echo.Said", &format!("e{conn}"), json!(1), Some(&cause)),
        );
        desk.answer(&cause, json!("yes"));
        desk.run();
    }
    // Connection 1 has no token and is unrestricted.
    let mut asked = message("query", "Echo.Say", "q1", json!(1));
    asked.metadata.correlation = Some(OsId::new("shared").unwrap());
    desk.client(1, asked);
    desk.run();
    let seen = |namespaces: Option<&[&str]>, query: &TraceQuery| {
        let from = namespaces.map(|names| names.iter().map(|name| Namespace::new(name).unwrap()).collect());
        let records = desk.router.trace(query, 0, 100, &from);
        let mut ids: Vec<String> = records
            .iter()
            .map(|record| record.causation.as_ref().unwrap_or(&record.id).to_string())
            .collect();
        ids.dedup();
        ids
    };
    let shared = TraceQuery::Correlation(OsId::new("shared").unwrap());
    assert_eq!(seen(Some(&["eu"]), &shared), ["q7"], "not bob's, who may do more than ann");
    assert_eq!(seen(Some(&["us"]), &shared), ["q9"]);
    assert_eq!(seen(Some(&["eu", "us"]), &shared), ["q7", "q8", "q9"]);
    assert_eq!(seen(Some(&["default"]), &shared), Vec::<String>::new());
    assert_eq!(seen(None, &shared), ["q7", "q8", "q9", "q1"]);
    let of_ann = TraceQuery::Id(OsId::new("q7").unwrap());
    assert!(seen(Some(&["us"]), &of_ann).is_empty(), "nor by its id");
    let from = Some([Namespace::new("eu").unwrap()].into());
    let kinds: Vec<_> =
        desk.router.trace(&of_ann, 0, 100, &from).iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(kinds, ["query", "event", "reply"], "all of its own");
}
