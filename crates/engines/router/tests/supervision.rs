//! Capabilities that crash, leave and are installed, the bus events they are working on, and stopping.

mod desk;

use desk::{Desk, manifest, message};
use millrace_model::{OsFault, OsKind};
use millrace_router::{Input, RouterLimits, TraceQuery};
use serde_json::json;

#[test]
fn a_crash_fails_what_was_begun_and_keeps_the_rest() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.ask("b");
    desk.run();
    let (capability, begun) = (desk.ids["Echo"], vec![desk.delivery("a")]);
    desk.give(Input::Crashed { capability, begun, over: None, fault: OsFault::new(500, "it ended") });
    let told = desk.run();
    assert_eq!(told[0], r#"1 is told error Echo.Say {"code":500,"message":"it ended"} <a"#);
    assert!(told.contains(&"note Sys.CapabilityDown".to_owned()), "{told:?}");
    desk.answer("b", json!(1));
    assert_eq!(desk.run(), ["1 is told reply Echo.Say 1 <b"], "its successor answers what was left");
}

#[test]
fn an_unhealthy_capability_answers_503_to_everything_until_it_is_well_again() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.run();
    let capability = desk.ids["Echo"];
    desk.give(Input::Unhealthy { capability, reason: "it ended 4 times in a minute".to_owned() });
    assert!(
        desk.run()[0].contains(r#""code":503,"message":"Capability 'Echo' is unhealthy: it ended 4 times"#)
    );
    desk.ask("b");
    assert!(desk.run()[0].contains("503"));
    desk.give(Input::Healthy { capability });
    desk.effects();
    desk.ask("c");
    assert_eq!(desk.run(), [r#"Echo gets query Echo.Say "c""#]);
}

#[test]
fn a_removed_capability_finishes_what_it_has_and_its_successor_gets_the_rest() {
    let mut desk = Desk::new();
    desk.ask("old");
    desk.run();
    let old = desk.ids["Echo"];
    let ids =
        desk.router.replace(desk.now, &[old], vec![manifest("Echo", &[(OsKind::Query, "Echo.Say")], &[])]);
    desk.ids.insert("New".to_owned(), ids.unwrap()[0]);
    desk.effects();
    desk.ask("new");
    assert_eq!(desk.run(), [r#"New gets query Echo.Say "new""#]);
    desk.answer("old", json!(1));
    let told = desk.run();
    assert!(told.contains(&"1 is told reply Echo.Say 1 <old".to_owned()), "{told:?}");
    assert!(told.contains(&"Echo may go".to_owned()), "{told:?}");
}

#[test]
fn a_reload_that_cannot_be_changes_nothing() {
    let mut desk = Desk::new();
    let old = desk.ids["Ear"];
    let clash = manifest("Other", &[(OsKind::Query, "Echo.Say")], &[]);
    assert!(desk.router.replace(desk.now, &[old], vec![clash]).is_err());
    desk.client(1, message("event", "Echo.Said", "e", json!(1)));
    assert_eq!(desk.run(), ["Ear gets event Echo.Said 1"]);
}

#[test]
fn a_bus_event_is_acked_when_it_was_processed_and_given_back_when_not() {
    let mut desk = Desk::new();
    let failed = |code| Err(OsFault::new(code, "no"));
    for (receipt, result, settled) in
        [(1, Ok(()), "processed"), (2, failed(500), "failed 500"), (3, failed(503), "failed 503")]
    {
        desk.bus_event("Ear", receipt);
        assert_eq!(desk.run().last().unwrap(), "Ear gets event Bus.Message {}");
        let (from, delivery) = (desk.ids["Ear"], desk.delivery(&format!("bus-{receipt}")));
        desk.give(Input::Done { from, delivery, result });
        assert!(desk.effects().contains(&format!("settle {receipt} {settled}")));
    }
}

#[test]
fn a_bus_event_that_nobody_has_seen_did_not_fail() {
    let mut desk = Desk::with(RouterLimits { mailbox_max: 2, ..RouterLimits::default() });
    for receipt in 1..=3 {
        desk.bus_event("Ear", receipt);
    }
    assert_eq!(desk.run().last().unwrap(), "settle 3 unseen", "the mailbox is full");
    let (capability, begun) = (desk.ids["Ear"], vec![desk.delivery("bus-1")]);
    desk.give(Input::Crashed { capability, begun, over: None, fault: OsFault::new(500, "it ended") });
    assert!(desk.effects().contains(&"settle 1 failed 500".to_owned()));
    desk.give(Input::Unhealthy { capability, reason: "x".to_owned() });
    assert!(desk.effects().contains(&"settle 2 unseen".to_owned()), "it had not begun that");
    desk.bus_event("Ear", 4);
    assert_eq!(desk.run(), ["settle 4 unseen"], "it is unhealthy");
    desk.give(Input::Healthy { capability });
    desk.effects();
    desk.bus_event("Ear", 5);
    desk.run();
    desk.give(Input::Retire { capability });
    desk.bus_event("Ear", 6);
    assert_eq!(desk.run(), ["settle 6 unseen"], "it is to go");
}

#[test]
fn a_stop_lets_what_is_pending_be_answered_and_refuses_the_rest() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.run();
    desk.give(Input::Stop);
    desk.ask("b");
    assert_eq!(desk.run(), [r#"1 is told error Echo.Say {"code":503,"message":"Kernel shutting down"} <b"#]);
    desk.answer("a", json!(1));
    assert_eq!(desk.run(), ["1 is told reply Echo.Say 1 <a", "stopped"]);
}

#[test]
fn when_the_grace_is_over_everybody_pending_is_told() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.run();
    desk.ask("b");
    desk.give(Input::StopNow);
    let told = desk.run();
    assert_eq!(told.iter().filter(|line| line.contains("Kernel shutting down")).count(), 2, "{told:?}");
    assert_eq!(told.last().unwrap(), "stopped");
}

#[test]
fn an_idle_loop_stops_at_once_and_timers_do_not_keep_it() {
    let mut desk = Desk::with(RouterLimits { durable_timers: false, ..RouterLimits::default() });
    let event = json!({"kind": "event", "type": "Echo.Said", "data": 1});
    desk.client(1, message("command", "Timer.Set", "s", json!({"delayMs": 5, "message": event})));
    desk.run();
    assert!(!desk.router.is_quiescent(), "a timer is set");
    desk.give(Input::Stop);
    assert_eq!(desk.run(), ["stopped"]);
}

#[test]
fn the_trace_holds_the_tree_of_causes_and_forgets_the_oldest() {
    let mut desk = Desk::with(RouterLimits { trace_records_max: 4, ..RouterLimits::default() });
    desk.client(1, message("command", "Echo.Do", "root", json!(1)));
    desk.run();
    let delivery = desk.delivery("root");
    desk.say("Echo", Some(delivery), desk::caused("event", "Echo.Said", "child", json!(1), Some("root")));
    desk.say("Echo", Some(delivery), desk::caused("reply", "Echo.Do", "reply", json!(1), Some("root")));
    desk.say("Ear", None, desk::caused("event", "Ear.Heard", "grandchild", json!(1), Some("child")));
    desk.run();
    let root = TraceQuery::Id(millrace_model::OsId::new("root").unwrap());
    let ids = |desk: &Desk| -> Vec<String> {
        desk.router.trace(&root, 0, 10, &None).iter().map(|record| record.id.to_string()).collect()
    };
    assert_eq!(ids(&desk), ["root", "child", "reply", "grandchild"]);
    desk.ask("other");
    desk.run();
    assert_eq!(ids(&desk), ["child", "reply", "grandchild"], "bounded: the oldest is gone");
}
