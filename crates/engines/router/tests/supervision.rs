//! Capabilities that crash, leave and are installed, the bus events they are working on, and stopping.

mod harness;

use harness::{Harness, manifest, message};
use millrace_model::{OsFault, OsKind};
use millrace_router::{Input, RouterLimits, TraceQuery};
use serde_json::json;

#[test]
fn a_crash_fails_what_was_begun_and_keeps_the_rest() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.ask("b");
    harness.run();
    let (capability, begun) = (harness.ids["Echo"], vec![harness.delivery("a")]);
    harness.give(Input::Crashed { capability, begun, over: None, fault: OsFault::new(500, "it ended") });
    let told = harness.run();
    assert_eq!(told[0], r#"1 is told error Echo.Say {"code":500,"message":"it ended"} <a"#);
    assert!(told.contains(&"note Sys.CapabilityDown".to_owned()), "{told:?}");
    harness.answer("b", json!(1));
    assert_eq!(harness.run(), ["1 is told reply Echo.Say 1 <b"], "its successor answers what was left");
}

#[test]
fn an_unhealthy_capability_answers_503_to_everything_until_it_is_well_again() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.run();
    let capability = harness.ids["Echo"];
    harness.give(Input::Unhealthy { capability, reason: "it ended 4 times in a minute".to_owned() });
    assert!(
        harness.run()[0]
            .contains(r#""code":503,"message":"Capability 'Echo' is unhealthy: it ended 4 times"#)
    );
    harness.ask("b");
    assert!(harness.run()[0].contains("503"));
    harness.give(Input::Healthy { capability });
    harness.effects();
    harness.ask("c");
    assert_eq!(harness.run(), [r#"Echo gets query Echo.Say "c""#]);
}

#[test]
fn a_removed_capability_finishes_what_it_has_and_its_successor_gets_the_rest() {
    let mut harness = Harness::new();
    harness.ask("old");
    harness.run();
    let old = harness.ids["Echo"];
    let ids = harness.router.replace(
        harness.now,
        &[old],
        vec![manifest("Echo", &[(OsKind::Query, "Echo.Say")], &[])],
    );
    harness.ids.insert("New".to_owned(), ids.unwrap()[0]);
    harness.effects();
    harness.ask("new");
    assert_eq!(harness.run(), [r#"New gets query Echo.Say "new""#]);
    harness.answer("old", json!(1));
    let told = harness.run();
    assert!(told.contains(&"1 is told reply Echo.Say 1 <old".to_owned()), "{told:?}");
    assert!(told.contains(&"Echo may go".to_owned()), "{told:?}");
}

#[test]
fn a_reload_that_cannot_be_changes_nothing() {
    let mut harness = Harness::new();
    let old = harness.ids["Ear"];
    let clash = manifest("Other", &[(OsKind::Query, "Echo.Say")], &[]);
    assert!(harness.router.replace(harness.now, &[old], vec![clash]).is_err());
    harness.client(1, message("event", "Echo.Said", "e", json!(1)));
    assert_eq!(harness.run(), ["Ear gets event Echo.Said 1"]);
}

#[test]
fn a_bus_event_is_acked_when_it_was_processed_and_given_back_when_not() {
    let mut harness = Harness::new();
    let failed = |code| Err(OsFault::new(code, "no"));
    for (receipt, result, settled) in
        [(1, Ok(()), "processed"), (2, failed(500), "failed 500"), (3, failed(503), "failed 503")]
    {
        harness.bus_event("Ear", receipt);
        assert_eq!(harness.run().last().unwrap(), "Ear gets event Bus.Message {}");
        let (from, delivery) = (harness.ids["Ear"], harness.delivery(&format!("bus-{receipt}")));
        harness.give(Input::Done { from, delivery, result });
        assert!(harness.effects().contains(&format!("settle {receipt} {settled}")));
    }
}

#[test]
fn a_bus_event_that_nobody_has_seen_did_not_fail() {
    let mut harness = Harness::with(RouterLimits { mailbox_max: 2, ..RouterLimits::default() });
    for receipt in 1..=3 {
        harness.bus_event("Ear", receipt);
    }
    assert_eq!(harness.run().last().unwrap(), "settle 3 unseen", "the mailbox is full");
    let (capability, begun) = (harness.ids["Ear"], vec![harness.delivery("bus-1")]);
    harness.give(Input::Crashed { capability, begun, over: None, fault: OsFault::new(500, "it ended") });
    assert!(harness.effects().contains(&"settle 1 failed 500".to_owned()));
    harness.give(Input::Unhealthy { capability, reason: "x".to_owned() });
    assert!(harness.effects().contains(&"settle 2 unseen".to_owned()), "it had not begun that");
    harness.bus_event("Ear", 4);
    assert_eq!(harness.run(), ["settle 4 unseen"], "it is unhealthy");
    harness.give(Input::Healthy { capability });
    harness.effects();
    harness.bus_event("Ear", 5);
    harness.run();
    harness.give(Input::Retire { capability });
    harness.bus_event("Ear", 6);
    assert_eq!(harness.run(), ["settle 6 unseen"], "it is to go");
}

#[test]
fn a_stop_lets_what_is_pending_be_answered_and_refuses_the_rest() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.run();
    harness.give(Input::Stop);
    harness.ask("b");
    assert_eq!(
        harness.run(),
        [r#"1 is told error Echo.Say {"code":503,"message":"Kernel shutting down"} <b"#]
    );
    harness.answer("a", json!(1));
    assert_eq!(harness.run(), ["1 is told reply Echo.Say 1 <a", "stopped"]);
}

#[test]
fn when_the_grace_is_over_everybody_pending_is_told() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.run();
    harness.ask("b");
    harness.give(Input::StopNow);
    let told = harness.run();
    assert_eq!(told.iter().filter(|line| line.contains("Kernel shutting down")).count(), 2, "{told:?}");
    assert_eq!(told.last().unwrap(), "stopped");
}

#[test]
fn an_idle_loop_stops_at_once_and_timers_do_not_keep_it() {
    let mut harness = Harness::with(RouterLimits { durable_timers: false, ..RouterLimits::default() });
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    harness.client(1, message("command", "Timer.Set", "s", json!({"delayMs": 5, "message": event})));
    harness.run();
    assert!(!harness.router.is_quiescent(), "a timer is set");
    harness.give(Input::Stop);
    assert_eq!(harness.run(), ["stopped"]);
}

#[test]
fn the_trace_holds_the_tree_of_causes_and_forgets_the_oldest() {
    let mut harness = Harness::with(RouterLimits { trace_records_max: 4, ..RouterLimits::default() });
    harness.client(1, message("command", "Echo.Do", "root", json!(1)));
    harness.run();
    let delivery = harness.delivery("root");
    harness.say(
        "Echo",
        Some(delivery),
        harness::caused("event", "Echo.Said", "child", json!(1), Some("root")),
    );
    harness.say("Echo", Some(delivery), harness::caused("reply", "Echo.Do", "reply", json!(1), Some("root")));
    harness.say("Ear", None, harness::caused("event", "Ear.Heard", "grandchild", json!(1), Some("child")));
    harness.run();
    let root = TraceQuery::Id(millrace_model::OsId::new("root").unwrap());
    let ids = |harness: &Harness| -> Vec<String> {
        harness.router.trace(&root, 0, 10, &None).iter().map(|record| record.id.to_string()).collect()
    };
    assert_eq!(ids(&harness), ["root", "child", "reply", "grandchild"]);
    harness.ask("other");
    harness.run();
    assert_eq!(ids(&harness), ["child", "reply", "grandchild"], "bounded: the oldest is gone");
}
