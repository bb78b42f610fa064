//! Events that find a full mailbox: which wait, which are dropped, and what is reported.

// Helpers of tests unwrap like tests.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

mod harness;

use std::collections::BTreeMap;

use harness::{Harness, branch, manifest, message};
use millrace_model::{OsId, OsKind, OsMessage};
use millrace_router::{ConnId, Effect, Input, Note, RouterLimits, Schema};
use serde_json::{Value, json};

fn said(n: u64) -> OsMessage {
    message("event", "Echo.Said", &format!("e{n}"), json!(n))
}

fn small(mailbox_max: usize) -> Harness {
    Harness::with(RouterLimits { mailbox_max, ..RouterLimits::default() })
}

/// How many messages of connection 1 were released.
fn released(harness: &mut Harness) -> usize {
    while harness.router.turn(harness.now) {}
    let effects: Vec<Effect> = harness.router.drain().collect();
    let mut released = 0;
    for effect in effects {
        match effect {
            Effect::Release { conn: ConnId(1), count } => released += count as usize,
            Effect::Post { to, delivery, message, .. } => {
                harness.posted.push((to, delivery, (*message).clone()));
            }
            Effect::Note(note) => harness.notes.push(note),
            _ => {}
        }
    }
    released
}

fn heard(harness: &Harness) -> Vec<u64> {
    let ear = harness.ids["Ear"];
    let own = harness.posted.iter().filter(|(to, _, _)| *to == ear);
    own.map(|(_, _, message)| message.data.as_str().parse().unwrap()).collect()
}

fn dropped(harness: &Harness) -> Vec<(u64, String)> {
    let of = |note: &Note| match note {
        Note::EventDropped { dropped, reason, .. } => Some((*dropped, reason.clone())),
        _ => None,
    };
    harness.notes.iter().filter_map(of).collect()
}

#[test]
fn a_client_waits_for_a_full_mailbox_and_nothing_is_lost() {
    let mut harness = small(3);
    for n in 0..10 {
        harness.client(1, said(n));
    }
    assert_eq!(released(&mut harness), 3, "the others keep their places taken, so the client sends no more");
    assert_eq!(harness.router.counters().events_undelivered, 0);
    let mut all = Vec::new();
    let mut places = 3;
    while !harness.posted.is_empty() {
        all.extend(heard(&harness));
        harness.finish_all("Ear");
        places += released(&mut harness);
    }
    assert_eq!(all, (0..10).collect::<Vec<_>>(), "every one of them, in order");
    assert_eq!(places, 10);
    assert!(dropped(&harness).is_empty() && harness.router.is_quiescent());
}

#[test]
fn an_event_waits_for_the_slow_subscriber_only() {
    let mut harness = small(1);
    harness.install(vec![manifest("Other", &[], &["Echo.Said"])]);
    harness.client(1, said(0));
    harness.client(1, said(1));
    assert_eq!(released(&mut harness), 1);
    harness.finish_all("Other");
    assert_eq!(released(&mut harness), 0, "one of its two copies still waits");
    assert_eq!(harness.posted.iter().filter(|(to, _, _)| *to == harness.ids["Other"]).count(), 1);
    harness.finish_all("Ear");
    assert_eq!(released(&mut harness), 1);
}

#[test]
fn an_event_that_waited_as_long_as_a_request_may_is_dropped_and_told() {
    let mut harness = Harness::with(RouterLimits {
        mailbox_max: 1,
        request_timeout_ms: 100,
        event_dropped_ms: 1000,
        ..RouterLimits::default()
    });
    for n in 0..3 {
        harness.client(1, said(n));
    }
    assert_eq!(released(&mut harness), 1);
    assert!(harness.router.next_deadline().is_some());
    harness.pass(100);
    assert_eq!(released(&mut harness), 0, "never early");
    harness.pass(1);
    assert_eq!(released(&mut harness), 2);
    assert_eq!(dropped(&harness), [(1, "its mailbox was full for 100 ms".to_owned())]);
    // The second drop is reported after the pause, without any further input.
    let due = harness.router.next_deadline().unwrap();
    harness.now.mono = due;
    released(&mut harness);
    assert_eq!(dropped(&harness).iter().map(|(count, _)| count).sum::<u64>(), 2);
    assert_eq!(harness.router.counters().events_undelivered, 2);
}

#[test]
fn what_a_capability_says_does_not_wait_and_every_drop_is_in_the_sum() {
    let mut harness = small(2);
    harness.install(vec![manifest("Watch", &[], &["Sys.EventDropped"])]);
    let watch = harness.ids["Watch"];
    let mut told: Vec<OsMessage> = Vec::new();
    for n in 0..50 {
        harness.say("Echo", None, said(n));
        harness.pass(100);
        harness.run();
        let own = harness.posted.iter().filter(|(to, _, _)| *to == watch);
        told.extend(own.map(|(_, _, message)| message.clone()));
        harness.finish_all("Watch");
    }
    assert_eq!(heard(&harness), [0, 1]);
    assert_eq!(harness.router.counters().events_undelivered, 48);
    assert!(dropped(&harness).len() <= 6, "at most one a second: {:?}", dropped(&harness));
    harness.pass(1000);
    harness.run();
    assert_eq!(dropped(&harness).iter().map(|(count, _)| count).sum::<u64>(), 48);
    let data: Value = serde_json::from_str(told[0].data.as_str()).unwrap();
    assert_eq!(
        data,
        json!({"capability": "Ear", "type": "Echo.Said", "id": "e2", "reason": "its mailbox is full", "dropped": 1})
    );
    let metadata = &told[0].metadata;
    assert_eq!(metadata.causation.as_ref().map(OsId::as_str), Some("e2"));
    assert_eq!(metadata.correlation.as_ref().map(OsId::as_str), Some("e2"));
}

#[test]
fn data_that_does_not_fit_a_subscriber_is_told() {
    let mut harness = Harness::bare(RouterLimits::default());
    let mut ear = manifest("Ear", &[], &["X.Happened"]);
    ear.inbound.push(branch(OsKind::Event, "X.Happened", Schema::new(json!({"type": "number"})).unwrap()));
    harness.install(vec![ear]);
    harness.open(1);
    harness.client(1, message("event", "X.Happened", "b", json!("text")));
    assert_eq!(harness.run(), ["note Sys.EventDropped"]);
    let why = "Schema validation failed: data: \"text\" is not of type \"number\"";
    assert_eq!(dropped(&harness), [(1, why.to_owned())]);
}

#[test]
fn a_capability_that_becomes_unhealthy_frees_those_who_wait_for_it() {
    let mut harness = small(1);
    for n in 0..4 {
        harness.client(1, said(n));
    }
    assert_eq!(released(&mut harness), 1);
    let capability = harness.ids["Ear"];
    harness.give(Input::Unhealthy { capability, reason: "it ended 4 times".to_owned() });
    assert_eq!(released(&mut harness), 3);
    harness.pass(1000);
    released(&mut harness);
    assert_eq!(dropped(&harness).iter().map(|(count, _)| count).sum::<u64>(), 3);
}

#[test]
fn events_that_wait_count_against_the_lane_and_a_stop_lets_them_in() {
    let limits = RouterLimits { mailbox_max: 1, user_lane_max: 4, ..RouterLimits::default() };
    let mut harness = Harness::with(limits);
    for n in 0..7 {
        harness.client(1, said(n));
        while harness.router.turn(harness.now) {}
    }
    assert_eq!(released(&mut harness), 3, "one has its place, four wait, two found no room at all");
    assert_eq!(dropped(&harness).len(), 1);
    harness.give(Input::Stop);
    assert_eq!(harness.effects(), Vec::<String>::new(), "it does not stop over events that wait");
    let mut told = Vec::new();
    for _ in 0..4 {
        assert!(!told.contains(&"stopped".to_owned()), "{told:?}");
        harness.finish_all("Ear");
        told.extend(harness.run());
    }
    assert_eq!(told.last().unwrap(), "stopped", "all of them are in the mailbox");
}

/// The row of a timer is still on disk while a subscriber works on the timer's event.
#[test]
fn the_row_of_a_timer_stays_until_every_subscriber_has_finished_with_its_event() {
    let (mut harness, mut rows) = (Harness::new(), BTreeMap::new());
    harness.install(vec![manifest("Other", &[], &["Echo.Said"])]);
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 7});
    harness.client(1, message("command", "Timer.Set", "s", json!({"delayMs": 5, "message": event})));
    harness.run();
    harness.commit(&mut rows);
    harness.run();
    harness.pass(6);
    assert_eq!(harness.run().len(), 3, "Timer.Fired, and the event for two");
    assert!(harness.commits.is_empty());
    harness.finish_all("Other");
    assert!(harness.run().is_empty(), "the other one has it still");
    harness.finish_all("Ear");
    assert_eq!(harness.run(), ["commit delete"]);
    harness.commit(&mut rows);
    assert!(rows.is_empty() && harness.router.is_quiescent());
}

#[test]
fn an_event_that_was_handed_over_frees_its_place_and_keeps_its_row() {
    let (mut harness, mut rows) = (small(1), BTreeMap::new());
    let event = json!({"kind": "event", "type": "Other.Said", "data": 7});
    harness.install(vec![manifest("Other", &[], &["Other.Said"])]);
    for id in ["a", "b"] {
        harness.client(1, message("command", "Timer.Set", id, json!({"delayMs": 5, "message": event})));
        harness.run();
        harness.commit(&mut rows);
        harness.run();
    }
    harness.pass(6);
    let other = |told: Vec<String>| told.into_iter().filter(|line| line.starts_with("Other")).count();
    assert_eq!(other(harness.run()), 1, "the other one waits for a place");
    let (from, delivery, _) =
        harness.posted.iter().find(|(to, _, _)| *to == harness.ids["Other"]).unwrap().clone();
    harness.give(Input::Handed { from, delivery });
    assert_eq!(other(harness.run()), 1);
    assert_eq!(rows.len(), 2);
    harness.finish_all("Other");
    harness.run();
    harness.finish_all("Ear");
    harness.run();
    harness.finish_all("Ear");
    harness.run();
    harness.commit(&mut rows);
    assert!(rows.is_empty(), "{rows:?}");
    assert!(harness.router.is_quiescent());
}

#[test]
fn a_timer_whose_event_fits_nobody_is_lost_once_and_its_row_goes() {
    let (mut harness, mut rows) = (Harness::bare(RouterLimits::default()), BTreeMap::new());
    let mut ear = manifest("Ear", &[], &["X.Happened"]);
    ear.inbound.push(branch(OsKind::Event, "X.Happened", Schema::new(json!({"type": "number"})).unwrap()));
    harness.install(vec![ear]);
    harness.open(1);
    let event = json!({"kind": "event", "type": "X.Happened", "data": "text"});
    harness.client(1, message("command", "Timer.Set", "s", json!({"delayMs": 5, "message": event})));
    harness.run();
    harness.commit(&mut rows);
    harness.run();
    harness.pass(6);
    let told = harness.run();
    assert!(told.contains(&"note Sys.TimerLost".to_owned()), "{told:?}");
    assert!(told.contains(&"commit delete".to_owned()), "{told:?}");
    harness.commit(&mut rows);
    assert!(rows.is_empty());
    harness.pass(10_000);
    assert!(harness.run().is_empty() && harness.router.is_quiescent(), "it is not tried again");
    assert_eq!(harness.router.counters().timers_lost, 1);
}

/// A subscriber has the event and another one is down: the second gets the event when it recovers, the first not again.
#[test]
fn a_timers_event_waits_for_a_subscriber_that_is_down() {
    let (mut harness, mut rows) = (Harness::new(), BTreeMap::new());
    harness.install(vec![manifest("Other", &[], &["Echo.Said"])]);
    let other = harness.ids["Other"];
    harness.give(Input::Unhealthy { capability: other, reason: "it ended".to_owned() });
    harness.effects();
    for n in [7, 8] {
        let event = json!({"kind": "event", "type": "Echo.Said", "data": n});
        let set = json!({"delayMs": 5, "message": event});
        harness.client(1, message("command", "Timer.Set", &format!("s{n}"), set));
        harness.run();
        harness.commit(&mut rows);
        harness.run();
    }
    harness.pass(6);
    harness.run();
    harness.finish_all("Ear");
    harness.run();
    assert_eq!(rows.len(), 2);
    harness.give(Input::Healthy { capability: other });
    harness.effects();
    harness.pass(1000);
    assert_eq!(harness.run(), ["Other gets event Echo.Said 7 <s7", "Other gets event Echo.Said 8 <s8"]);
    harness.finish_all("Other");
    harness.run();
    harness.commit(&mut rows);
    assert!(rows.is_empty());
}

#[test]
fn every_routing_decision_is_an_event_for_those_who_ask_for_it() {
    for wanted in [false, true] {
        let mut harness = Harness::with(RouterLimits { routing_events: wanted, ..RouterLimits::default() });
        harness.install(vec![manifest("Watch", &[], &["Sys.Routed"])]);
        harness.ask("a");
        harness.client(1, said(1));
        let told = harness.run();
        let heard: Vec<&String> = told.iter().filter(|line| line.starts_with("Watch gets")).collect();
        let expected = [
            r#"Watch gets event Sys.Routed {"id":"a","kind":"query","to":["Echo"],"type":"Echo.Say"} <a"#,
            r#"Watch gets event Sys.Routed {"id":"e1","kind":"event","to":["Ear"],"type":"Echo.Said"} <e1"#,
        ];
        assert_eq!(heard, if wanted { expected.to_vec() } else { Vec::new() });
    }
}

/// Every event of the loop about itself has a causation and a correlation.
#[test]
fn every_event_of_the_loop_has_its_lineage() {
    let types = [
        "Sys.BootComplete",
        "Sys.CapabilityUp",
        "Sys.CapabilityDown",
        "Sys.ActorFault",
        "Sys.RoutingError",
        "Sys.OrphanOutcome",
        "Sys.RequestTimedOut",
        "Sys.TimerSet",
        "Sys.TimerFired",
        "Sys.TimerCancelled",
        "Sys.TimerLost",
        "Sys.EventDropped",
    ];
    let mut harness = Harness::with(RouterLimits {
        durable_timers: false,
        request_timeout_ms: 50,
        system_lane_max: 1000,
        ..RouterLimits::default()
    });
    let mut strict = manifest("Strict", &[], &["X.Happened"]);
    strict.inbound.push(branch(OsKind::Event, "X.Happened", Schema::new(json!({"type": "number"})).unwrap()));
    harness.install(vec![manifest("Watch", &[], &types), strict, manifest("Other", &[], &[])]);
    harness.router.restore(harness.now, None, Vec::new());
    let send = |harness: &mut Harness, kind: &str, ty: &str, id: &str, data: Value| {
        let mut asked = message(kind, ty, id, data);
        asked.metadata.correlation = Some(OsId::new("undertaking").unwrap());
        harness.client(1, asked);
        harness.run()
    };
    send(&mut harness, "query", "No.Where", "nowhere", json!(1));
    send(&mut harness, "query", "Echo.Say", "slow", json!(1));
    send(&mut harness, "query", "Echo.Say", "crash", json!(1));
    let (echo, crash) = (harness.ids["Echo"], harness.delivery("crash"));
    let fault = millrace_model::OsFault::new(500, "it ended");
    harness.give(Input::Crashed { capability: echo, begun: vec![crash], over: None, fault });
    harness.pass(60);
    harness.run();
    send(&mut harness, "reply", "Echo.Say", "forged", json!(1));
    send(&mut harness, "event", "X.Happened", "misfit", json!("text"));
    let template = |ty: &str| json!({"delayMs": 5, "message": {"kind": "event", "type": ty, "data": "text"}});
    send(&mut harness, "command", "Timer.Set", "lost", template("X.Happened"));
    let told = send(&mut harness, "command", "Timer.Set", "cancelled", template("No.Body"));
    let timer = harness::member(told.iter().find(|line| line.contains("is told")).unwrap(), "timerId");
    send(&mut harness, "command", "Timer.Cancel", "cancel", json!({"timerId": timer}));
    harness.pass(10);
    harness.run();
    let watch = harness.ids["Watch"];
    let heard: Vec<&OsMessage> =
        harness.posted.iter().filter(|(to, _, _)| *to == watch).map(|(_, _, message)| message).collect();
    for ty in types {
        let of_type: Vec<&&OsMessage> = heard.iter().filter(|message| message.ty.as_str() == ty).collect();
        assert!(!of_type.is_empty(), "{ty} never came");
        for message in of_type {
            let metadata = &message.metadata;
            let (cause, correlation) = (metadata.causation.as_ref(), metadata.correlation.as_ref());
            assert!(cause.is_some() && correlation.is_some(), "{ty}: {metadata:?}");
            let of_message = !matches!(ty, "Sys.BootComplete" | "Sys.CapabilityUp");
            assert_eq!(correlation.unwrap().as_str() == "undertaking", of_message, "{ty}: {metadata:?}");
        }
    }
}

/// The timer waits without being tried every second, and fires when a capability that subscribes is installed.
#[test]
fn a_durable_timer_whose_event_nobody_hears_waits_and_is_lost_in_the_end() {
    let limits = RouterLimits { timer_give_up_ms: 60_000, ..RouterLimits::default() };
    let (mut harness, mut rows) = (Harness::bare(limits), BTreeMap::new());
    harness.install(vec![]);
    harness.open(1);
    let event = json!({"kind": "event", "type": "X.Happened", "data": 1});
    for id in ["a", "b"] {
        harness.client(1, message("command", "Timer.Set", id, json!({"delayMs": 5, "message": event})));
        harness.run();
        harness.commit(&mut rows);
        harness.run();
    }
    harness.pass(6);
    let waits = harness.run().iter().filter(|line| *line == "note Sys.TimerWaits").count();
    assert_eq!((waits, rows.len()), (2, 2));
    harness.pass(30_000);
    assert!(harness.run().is_empty(), "nothing polls");
    harness.install(vec![manifest("Ear", &[], &["X.Happened"])]);
    let told = harness.run();
    assert_eq!(told.iter().filter(|line| line.starts_with("Ear")).count(), 2, "{told:?}");
    harness.finish_all("Ear");
    harness.run();
    harness.commit(&mut rows);
    assert!(rows.is_empty() && harness.router.is_quiescent());
    assert_eq!(harness.router.counters().timers_lost, 0);
    let other = json!({"kind": "event", "type": "X.Unheard", "data": 1});
    harness.client(1, message("command", "Timer.Set", "c", json!({"delayMs": 5, "message": other})));
    harness.run();
    harness.commit(&mut rows);
    harness.run();
    harness.pass(6);
    harness.run();
    harness.pass(60_001);
    assert!(harness.run().contains(&"note Sys.TimerLost".to_owned()));
    harness.commit(&mut rows);
    assert!(rows.is_empty() && harness.router.is_quiescent());
    assert_eq!(harness.router.counters().timers_lost, 1);
}
