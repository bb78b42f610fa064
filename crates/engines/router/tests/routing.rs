//! Routing rules (RFC 0032, sections 9 and 11): where messages go by kind, and which are refused.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Harness, branch, caused, manifest, message};
use millrace_model::OsKind::{Command, Event, Query, Reply};
use millrace_router::{BootError, Input, RouterLimits, Schema};
use serde_json::json;

#[test]
fn a_request_goes_to_exactly_one_capability_and_its_outcome_to_the_requester() {
    let mut harness = Harness::new();
    harness.open(2);
    harness.ask("a");
    assert_eq!(harness.run(), [r#"Echo gets query Echo.Say "a""#]);
    harness.answer("a", json!(1));
    assert_eq!(harness.run(), [r"1 is told reply Echo.Say 1 <a"], "and connection 2 hears nothing");
    assert!(harness.router.is_quiescent());
}

#[test]
fn a_command_may_emit_events_before_its_reply() {
    let mut harness = Harness::new();
    harness.client(1, message("command", "Echo.Do", "a", json!(null)));
    harness.run();
    let delivery = harness.delivery("a");
    harness.say("Echo", Some(delivery), caused("event", "Echo.Said", "e1", json!(1), Some("a")));
    harness.say("Echo", Some(delivery), caused("reply", "Echo.Do", "r", json!(2), Some("a")));
    assert_eq!(harness.run(), ["Ear gets event Echo.Said 1 <a", "1 is told reply Echo.Do 2 <a"]);
}

#[test]
fn an_event_reaches_every_listener_its_author_included_and_needs_no_reply() {
    let mut harness = Harness::new();
    harness.install(vec![manifest("Parrot", &[(Query, "Parrot.Say")], &["Echo.Said", "Echo.Said"])]);
    harness.client(1, message("event", "Echo.Said", "e", json!(1)));
    assert_eq!(
        harness.run(),
        ["Ear gets event Echo.Said 1", "Parrot gets event Echo.Said 1"],
        "a type that is listed twice is heard once"
    );
    harness.say("Parrot", None, message("event", "Echo.Said", "f", json!(2)));
    assert_eq!(harness.run(), ["Ear gets event Echo.Said 2", "Parrot gets event Echo.Said 2"]);
}

#[test]
fn an_event_nobody_listens_to_is_dropped_and_counted() {
    let mut harness = Harness::new();
    harness.client(1, message("event", "No.Body", "e", json!(1)));
    assert!(harness.run().is_empty());
    assert_eq!(harness.router.counters().events_unheard, 1);
}

#[test]
fn a_request_nobody_handles_is_answered_404_and_leaves_nothing() {
    let mut harness = Harness::new();
    harness.client(1, message("command", "No.Where", "a", json!(1)));
    assert_eq!(
        harness.run(),
        [
            "note Sys.RoutingError",
            r#"1 is told error No.Where {"code":404,"message":"Capability 'No.Where' not found in registry."} <a"#,
        ]
    );
    assert!(harness.router.is_quiescent());
}

#[test]
fn the_wrong_kind_is_404_and_the_right_one_is_named() {
    let mut harness = Harness::new();
    harness.client(1, message("command", "Echo.Say", "a", json!(1)));
    let told = harness.run().pop().unwrap();
    assert!(told.contains("404") && told.contains("is a query"), "{told}");
}

#[test]
fn data_that_does_not_fit_never_reaches_the_mailbox() {
    let mut harness = Harness::bare(RouterLimits::default());
    let mut strict = manifest("Strict", &[], &[]);
    strict.inbound.push(branch(
        Query,
        "Strict.Ask",
        Schema::new(json!({"type": "object", "required": ["n"]})).unwrap(),
    ));
    harness.install(vec![strict]);
    harness.open(1);
    harness.client(1, message("query", "Strict.Ask", "a", json!({})));
    let told = harness.run();
    assert_eq!(told.len(), 1);
    assert!(told[0].contains(r#""code":422,"message":"Schema validation failed: "#), "{told:?}");
    harness.client(1, message("query", "Strict.Ask", "b", json!({"n": 1})));
    assert_eq!(harness.run(), [r#"Strict gets query Strict.Ask {"n":1}"#]);
}

#[test]
fn outcomes_of_clients_answer_nobody() {
    let mut harness = Harness::new();
    harness.open(2);
    harness.ask("a");
    harness.run();
    for kind in ["reply", "error"] {
        harness.client(2, caused(kind, "Echo.Say", "forged", json!(0), Some("a")));
        assert_eq!(harness.run(), ["note Sys.OrphanOutcome"], "{kind}");
    }
    harness.answer("a", json!(1));
    assert_eq!(harness.run(), ["1 is told reply Echo.Say 1 <a"]);
}

#[test]
fn correlation_is_carried_over_when_the_actor_forgets_it() {
    for said in [None, Some("another")] {
        carried_over(said);
    }
}

fn carried_over(said: Option<&str>) {
    let mut harness = Harness::new();
    let mut ask = message("query", "Echo.Say", "a", json!(1));
    ask.metadata.correlation = Some(millrace_model::OsId::new("undertaking").unwrap());
    harness.client(1, ask);
    harness.run();
    let delivery = harness.delivery("a");
    let mut reply = caused("reply", "Echo.Say", "r", json!(1), Some("a"));
    reply.metadata.correlation = said.map(|id| millrace_model::OsId::new(id).unwrap());
    harness.say("Echo", Some(delivery), reply);
    while harness.router.turn(harness.now) {}
    let answer = harness.router.drain().find_map(|effect| match effect {
        millrace_router::Effect::Answer { message, .. } => message.metadata.correlation,
        _ => None,
    });
    assert_eq!(answer.unwrap().as_str(), "undertaking");
}

#[test]
fn actors_ask_actors_and_hear_the_outcome_if_they_declared_it() {
    let mut harness = Harness::new();
    harness.install(vec![
        manifest("Curious", &[(Command, "Curious.Go"), (Reply, "Echo.Say")], &[]),
        manifest("Careless", &[(Command, "Careless.Go")], &[]),
    ]);
    for (name, heard) in [("Curious", vec!["Curious gets reply Echo.Say 9 <q-Curious"]), ("Careless", vec![])]
    {
        let id = format!("q-{name}");
        harness.say(name, None, message("query", "Echo.Say", &id, json!(1)));
        assert_eq!(harness.run(), ["Echo gets query Echo.Say 1"]);
        harness.answer(&id, json!(9));
        assert_eq!(harness.run(), heard, "{name}");
    }
}

#[test]
fn an_outcome_somebody_waits_for_passes_the_mailbox() {
    let mut harness = Harness::new();
    let (from, ask) = (harness.ids["Ear"], message("query", "Echo.Say", "q", json!(1)));
    harness.give(Input::Emit { from, during: None, message: ask, wait: true, trusted: false });
    harness.run();
    harness.answer("q", json!(2));
    assert_eq!(harness.run(), ["Ear awaited reply Echo.Say 2 <q"]);
}

#[test]
fn boot_refuses_what_cannot_be_routed() {
    let two = |a: millrace_router::Manifest, b| {
        Harness::bare(RouterLimits::default())
            .router
            .install(millrace_model::Now::default(), vec![a, b])
            .unwrap_err()
    };
    let clash = two(manifest("A", &[(Query, "X.Y")], &[]), manifest("B", &[(Query, "X.Y")], &[]));
    assert_eq!(
        clash.to_string(),
        r#"query X.Y is claimed by "A" and by "B": one capability only may handle it"#
    );
    let one = || manifest("A", &[(Query, "X.Y")], &[]);
    assert!(matches!(two(one(), manifest("A", &[], &[])), BootError::NameTaken(_)));
    assert!(matches!(two(one(), manifest("a b", &[], &[])), BootError::BadName(_)));
    for ty in ["Sys.RequestTimeout", "Sys.Anything", "Timer.Set"] {
        assert!(
            matches!(two(one(), manifest("B", &[(Command, ty)], &[])), BootError::Reserved { .. }),
            "{ty}"
        );
    }
    let limits = RouterLimits { capabilities_max: 1, ..RouterLimits::default() };
    let error = Harness::bare(limits)
        .router
        .install(millrace_model::Now::default(), vec![one(), manifest("B", &[], &[])]);
    assert!(
        matches!(error.unwrap_err(), BootError::TooMany { found: 4, max: 3 }),
        "the loop's own two count"
    );
}

#[test]
fn the_same_type_may_be_a_command_and_a_query_of_two_capabilities() {
    let mut harness = Harness::bare(RouterLimits::default());
    harness.install(vec![manifest("A", &[(Query, "X.Y")], &[]), manifest("B", &[(Command, "X.Y")], &[])]);
    harness.open(1);
    harness.client(1, message("query", "X.Y", "a", json!(1)));
    harness.client(1, message("command", "X.Y", "b", json!(1)));
    assert_eq!(harness.run(), ["A gets query X.Y 1", "B gets command X.Y 1"]);
}

#[test]
fn an_event_branch_without_a_subscription_only_validates() {
    let mut harness = Harness::bare(RouterLimits::default());
    let strict = || Schema::new(json!({"type": "number"})).unwrap();
    let mut deaf = manifest("Deaf", &[], &[]);
    deaf.inbound.push(branch(Event, "X.Happened", strict()));
    let mut ear = manifest("Ear", &[], &["X.Happened"]);
    ear.inbound.push(branch(Event, "X.Happened", strict()));
    harness.install(vec![deaf, ear]);
    harness.open(1);
    harness.client(1, message("event", "X.Happened", "a", json!(1)));
    harness.client(1, message("event", "X.Happened", "b", json!("text")));
    // Only the subscriber lost an event, and the loss is reported once.
    assert_eq!(harness.run(), ["Ear gets event X.Happened 1", "note Sys.EventDropped"]);
    assert_eq!(harness.router.counters().events_undelivered, 1);
}
