//! Access control: a client cannot get around it by a timer, nor by hanging up.
#![allow(clippy::unwrap_used)]

mod harness;

use std::sync::Arc;

use harness::{Harness, caused, message};
use millrace_model::{Actor, Namespace, OsId, Principal, Requester};
use millrace_router::{ConnId, Input, NotTrusted, RouterLimits, TraceQuery};
use serde_json::json;

fn agent(name: &str) -> Arc<Principal> {
    let roles = vec![Actor::new("role").unwrap()];
    Arc::new(Principal { agent: Actor::new(name).unwrap(), roles, namespaces: None })
}

fn desk_of(name: &str, limits: RouterLimits) -> Harness {
    let mut harness = Harness::with(limits);
    harness.give(Input::Open { conn: ConnId(7), by: Requester::Agent(agent(name)) });
    harness
}

#[test]
fn a_request_is_made_on_behalf_of_its_client_also_when_that_has_hung_up() {
    let mut harness = desk_of("alice", RouterLimits::default());
    harness.client(7, message("command", "Echo.Do", "a", json!(1)));
    harness.give(Input::Close { conn: ConnId(7) });
    harness.run();
    assert_eq!(harness.by, Requester::Agent(agent("alice")));
}

#[test]
fn a_timer_acts_on_behalf_of_whoever_set_it_also_after_a_restart() {
    let mut harness = desk_of("alice", RouterLimits::default());
    let template = json!({"kind": "command", "type": "Echo.Do", "data": 1});
    harness.client(7, message("command", "Timer.Set", "s", json!({"delayMs": 1, "message": template})));
    harness.run();
    let mut rows = std::collections::BTreeMap::new();
    harness.commit(&mut rows);
    harness.pass(5);
    harness.run();
    assert_eq!(harness.by, Requester::Agent(agent("alice")));
    let mut after = Harness::new();
    after.now = harness.now;
    after.restore(rows);
    after.run();
    assert_eq!(after.by, Requester::Agent(agent("alice")));
}

#[test]
fn an_agent_gets_half_of_all_timers_also_after_a_restart() {
    let limits = RouterLimits { timers_max: 4, conn_timers_max: 4, ..RouterLimits::default() };
    let template = json!({"kind": "command", "type": "Echo.Do", "data": 1});
    let set = |harness: &mut Harness, conn: u64, id: &str| {
        harness.client(
            conn,
            message("command", "Timer.Set", id, json!({"delayMs": 60_000, "message": template})),
        );
        harness.run().join("\n")
    };
    let mut rows = std::collections::BTreeMap::new();
    let mut harness = desk_of("alice", limits.clone());
    for id in ["a", "b"] {
        assert!(set(&mut harness, 7, id).starts_with("commit"));
        harness.commit(&mut rows);
        harness.run();
    }
    let mut after = desk_of("alice", limits);
    after.restore(rows);
    for mut harness in [harness, after] {
        let refused = set(&mut harness, 7, "c");
        assert!(refused.contains("This agent has set half of all timers that may be set"), "{refused}");
        harness.give(Input::Open { conn: ConnId(8), by: Requester::Agent(agent("bob")) });
        assert!(set(&mut harness, 8, "d").starts_with("commit"));
        // Connection 1 has no token.
        assert!(set(&mut harness, 1, "e").starts_with("commit"));
        assert!(set(&mut harness, 1, "f").contains("Too many timers are set"));
    }
}

#[test]
fn a_timer_that_a_timer_sets_belongs_to_the_same_client() {
    let limits = RouterLimits { durable_timers: false, conn_timers_max: 3, ..RouterLimits::default() };
    let mut harness = desk_of("alice", limits);
    harness.ask("slow");
    let timeout = json!({"kind": "command", "type": "Sys.RequestTimeout", "data": {"requestId": "slow"}});
    let inner = json!({"kind": "command", "type": "Timer.Set", "data": {"delayMs": 1, "message": timeout}});
    harness.client(7, message("command", "Timer.Set", "s", json!({"delayMs": 1, "message": inner})));
    harness.run();
    for _ in 0..10 {
        harness.pass(2);
        assert!(
            !harness.run().iter().any(|line| line.contains("504")),
            "another client's request is not ended"
        );
    }
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    let many = json!({"kind": "command", "type": "Timer.Set", "data": {"delayMs": 1000, "message": event}});
    for n in 0..3 {
        harness.client(
            7,
            message("command", "Timer.Set", &format!("m{n}"), json!({"delayMs": n, "message": many})),
        );
        harness.run();
    }
    for _ in 0..10 {
        harness.pass(2);
        harness.run();
    }
    assert!(harness.router.gauges().timers <= 3, "the bound of the connection holds for them, too");
}

#[test]
fn clients_cannot_speak_for_the_timer_or_the_bus() {
    let mut harness = Harness::new();
    harness.client(1, message("event", "Timer.Fired", "x", json!({"timerId": "t"})));
    harness.client(1, message("event", "Bus.Message", "y", json!({})));
    assert!(harness.run().is_empty());
    assert_eq!(harness.router.counters().events_undelivered, 2);
}

fn set_timer(harness: &mut Harness, conn: u64, id: &str) -> String {
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    let set = json!({"delayMs": 3_600_000, "message": event});
    harness.client(conn, message("command", "Timer.Set", id, set));
    timer_id(harness)
}

/// The id of the timer that was just set, after its commit.
fn timer_id(harness: &mut Harness) -> String {
    harness.run();
    harness.commit(&mut std::collections::BTreeMap::new());
    let told = harness.run();
    harness::member(&told[0], "timerId").as_str().unwrap().to_owned()
}

fn cancels(harness: &mut Harness, conn: u64, timer: &str) -> bool {
    harness.client(conn, message("command", "Timer.Cancel", "cancel", json!({ "timerId": timer })));
    let told = harness.run();
    // A cancellation is confirmed once the timer's row is deleted.
    let answered = told.iter().any(|line| line.contains("is told"));
    harness.commit(&mut std::collections::BTreeMap::new());
    let told = if answered { told } else { harness.run() };
    harness::member(&told[0], "cancelled").as_bool().unwrap()
}

#[test]
fn a_timer_is_cancelled_by_whoever_set_it_over_connections_and_restarts() {
    let mut harness = desk_of("alice", RouterLimits::default());
    harness.give(Input::Open { conn: ConnId(8), by: Requester::Agent(agent("bob")) });
    harness.give(Input::Open { conn: ConnId(9), by: Requester::Agent(agent("alice")) });
    let timer = set_timer(&mut harness, 7, "s1");
    assert!(!cancels(&mut harness, 8, &timer), "another agent, as if there were none");
    assert!(cancels(&mut harness, 9, &timer), "the same agent on another connection");
    let timer = set_timer(&mut harness, 7, "s2");
    assert!(cancels(&mut harness, 1, &timer), "whom no access control concerns");
    let timer = set_timer(&mut harness, 1, "s3");
    assert!(!cancels(&mut harness, 7, &timer), "a name is not that of somebody without one");
    assert!(cancels(&mut harness, 1, &timer), "where nobody has a name all are one");
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    harness.client(7, message("command", "Timer.Set", "s", json!({"delayMs": 3_600_000, "message": event})));
    harness.run();
    let mut rows = std::collections::BTreeMap::new();
    harness.commit(&mut rows);
    let told = harness.run();
    let timer = harness::member(&told[0], "timerId").as_str().unwrap().to_owned();
    let mut after = desk_of("bob", RouterLimits::default());
    after.give(Input::Open { conn: ConnId(8), by: Requester::Agent(agent("alice")) });
    after.now = harness.now;
    after.restore(rows);
    assert!(!cancels(&mut after, 7, &timer), "the row says who set it");
    assert!(cancels(&mut after, 8, &timer));
}

#[test]
fn what_a_capability_set_only_it_cancels() {
    let mut harness = desk_of("alice", RouterLimits::default());
    harness.install(vec![harness::manifest("Other", &[], &[])]);
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    let set = message("command", "Timer.Set", "s", json!({"delayMs": 3_600_000, "message": event}));
    let waiting = |harness: &mut Harness, from: &str, message| {
        let from = harness.ids[from];
        harness.give(Input::Emit { from, during: None, message, wait: true, trusted: false });
    };
    waiting(&mut harness, "Echo", set);
    let timer = timer_id(&mut harness);
    let cancel = |id: &str| message("command", "Timer.Cancel", id, json!({ "timerId": timer }));
    assert!(!cancels(&mut harness, 1, &timer) && !cancels(&mut harness, 7, &timer), "no client");
    waiting(&mut harness, "Other", cancel("o"));
    assert_eq!(harness.run(), [r#"Other awaited reply Timer.Cancel {"cancelled":false} <o"#]);
    // The successor after a reload has the same name.
    let (gone, come) = (harness.ids["Echo"], harness::manifest("Echo", &[], &[]));
    let new = harness.router.replace(harness.now, &[gone], vec![come]).unwrap();
    harness.ids.insert("Echo".to_owned(), new[0]);
    harness.effects();
    waiting(&mut harness, "Echo", cancel("e"));
    assert_eq!(harness.run(), ["commit delete"]);
    harness.commit(&mut std::collections::BTreeMap::new());
    assert_eq!(harness.run(), [r#"Echo awaited reply Timer.Cancel {"cancelled":true} <e"#]);
}

#[test]
fn who_shows_a_token_later_is_somebody_else_from_then_on() {
    let mut harness = desk_of("alice", RouterLimits::default());
    harness.client(7, message("command", "Echo.Do", "a", json!(1)));
    harness.give(Input::Identify { conn: ConnId(7), by: Requester::Agent(agent("bob")) });
    harness.client(7, message("command", "Echo.Do", "b", json!(1)));
    harness.turn();
    assert_eq!(
        harness.by,
        Requester::Agent(agent("alice")),
        "what was sent before was sent by whoever it was"
    );
    harness.turn();
    assert_eq!(harness.by, Requester::Agent(agent("bob")));
}

#[test]
fn a_timer_of_an_agent_who_may_not_any_more_sends_nothing_and_is_gone() {
    for kind in ["command", "event"] {
        let mut harness = desk_of("alice", RouterLimits::default());
        let ty = if kind == "event" { "Echo.Said" } else { "Echo.Do" };
        let template = json!({"kind": kind, "type": ty, "data": 1});
        harness.client(7, message("command", "Timer.Set", "s", json!({"delayMs": 1, "message": template})));
        harness.run();
        let mut rows = std::collections::BTreeMap::new();
        harness.commit(&mut rows);
        assert_eq!(rows.len(), 1);
        let reason = "no token of agent alice is accepted any more".to_owned();
        harness.refuses = Some(NotTrusted::Refused(reason));
        // The refusal is the same before and after a restart.
        let mut after = Harness::new();
        after.now = harness.now;
        after.refuses.clone_from(&harness.refuses);
        after.restore(rows.clone());
        for harness in [&mut harness, &mut after] {
            harness.pass(5);
            let out = harness.run();
            assert_eq!(
                out.iter().filter(|line| line.contains("note Sys.TimerRefused")).count(),
                1,
                "{out:?}"
            );
            assert!(!out.iter().any(|line| line.contains("gets")), "neither it nor Timer.Fired: {out:?}");
            assert!(out.iter().any(|line| line.starts_with("commit")), "its row goes: {out:?}");
            assert_eq!(
                (harness.router.counters().timers_refused, harness.router.counters().timers_fired),
                (1, 0)
            );
            assert_eq!(harness.router.gauges().timers, 0);
        }
    }
}

#[test]
fn a_timer_whose_token_has_expired_by_a_doubtful_clock_is_kept_and_sent_later() {
    let mut harness = desk_of("alice", RouterLimits::default());
    let template = json!({"kind": "command", "type": "Echo.Do", "data": 1});
    harness.client(7, message("command", "Timer.Set", "s", json!({"delayMs": 1, "message": template})));
    harness.run();
    harness.commit(&mut std::collections::BTreeMap::new());
    harness.refuses = Some(NotTrusted::InDoubt("the token of agent alice has expired".to_owned()));
    harness.pass(5);
    let out = harness.run();
    assert!(!out.iter().any(|line| line.contains("gets") || line.contains("TimerRefused")), "{out:?}");
    assert_eq!((harness.router.counters().timers_refused, harness.router.gauges().timers), (0, 1));
    harness.refuses = None;
    harness.pass(60_000);
    let out = harness.run();
    assert!(out.iter().any(|line| line.contains("gets command Echo.Do")), "{out:?}");
}

fn bound(name: &str, namespaces: &[&str]) -> Arc<Principal> {
    let names = namespaces.iter().map(|name| Namespace::new(name).unwrap()).collect();
    Arc::new(Principal { agent: Actor::new(name).unwrap(), roles: Vec::new(), namespaces: Some(names) })
}

#[test]
fn the_trace_of_one_namespace_is_not_anothers() {
    let mut harness = Harness::with(RouterLimits::default());
    for (conn, by) in
        [(7, bound("ann", &["eu"])), (8, bound("bob", &["eu", "us"])), (9, bound("cid", &["us"]))]
    {
        harness.give(Input::Open { conn: ConnId(conn), by: Requester::Agent(by) });
        // All three clients use the same correlation, which is not a secret.
        let mut asked = message("query", "Echo.Say", &format!("q{conn}"), json!(1));
        asked.metadata.correlation = Some(OsId::new("shared").unwrap());
        harness.client(conn, asked);
        harness.run();
        // The event that the capability emits while it works on the request, and its reply, belong to the same
        // undertaking.
        let during = harness.delivery(&format!("q{conn}"));
        let cause = format!("q{conn}");
        harness.say(
            "Echo",
            Some(during),
            caused("event", "Echo.Said", &format!("e{conn}"), json!(1), Some(&cause)),
        );
        harness.answer(&cause, json!("yes"));
        harness.run();
    }
    // Connection 1 has no token and is unrestricted.
    let mut asked = message("query", "Echo.Say", "q1", json!(1));
    asked.metadata.correlation = Some(OsId::new("shared").unwrap());
    harness.client(1, asked);
    harness.run();
    let seen = |namespaces: Option<&[&str]>, query: &TraceQuery| {
        let from = namespaces.map(|names| names.iter().map(|name| Namespace::new(name).unwrap()).collect());
        let records = harness.router.trace(query, 0, 100, &from);
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
        harness.router.trace(&of_ann, 0, 100, &from).iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(kinds, ["query", "event", "reply"], "all of its own");
}
