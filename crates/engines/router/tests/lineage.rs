//! Lineage of messages that actors emit (RFC 0032, section 9.2; point 33 of the specification): causes are true.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Harness, caused, manifest, message};
use millrace_model::{OsId, OsKind, OsMessage};
use millrace_router::{Effect, Input, RouterLimits};
use serde_json::json;

fn event(id: &str, cause: &str) -> OsMessage {
    caused("event", "Echo.Said", id, json!(id), Some(cause))
}

fn heard(harness: &mut Harness, id: &str) -> bool {
    harness.run().iter().any(|line| line.starts_with(&format!("Ear gets event Echo.Said \"{id}\"")))
}

/// Sends request `id` to Echo and returns the delivery that Echo is then working on.
fn asked(harness: &mut Harness, id: &str) -> millrace_router::DeliveryId {
    harness.ask(id);
    harness.run();
    harness.delivery(id)
}

#[test]
fn an_event_with_a_cause_its_author_never_had_is_a_fault_and_reaches_nobody() {
    let mut harness = Harness::new();
    harness.install(vec![manifest("Other", &[(OsKind::Query, "Other.Ask")], &[])]);
    harness.client(1, message("query", "Other.Ask", "elsewhere", json!(1)));
    let delivery = asked(&mut harness, "a");
    for lie in ["elsewhere", "never", "itself"] {
        harness.say("Echo", None, event("itself", lie));
        assert_eq!(harness.run(), ["note Sys.ActorFault"], "{lie}: no request is in hand as far as it said");
    }
    harness.say("Echo", Some(delivery), event("e", "elsewhere"));
    let told = harness.run();
    assert_eq!(
        told[0],
        "1 is told error Echo.Say {\"code\":500,\"message\":\"Capability 'Echo' emitted event Echo.Said with \
         metadata.causation elsewhere, which it was not given and did not say\"} <a"
    );
    assert_eq!(told[1..], ["note Sys.ActorFault"]);
    assert_eq!(harness.router.counters().actor_faults, 4);
}

#[test]
fn honest_events_pass_in_hand_after_the_reply_and_after_other_work() {
    let mut harness = Harness::new();
    let first = asked(&mut harness, "a");
    harness.say("Echo", Some(first), event("e1", "a"));
    assert!(heard(&mut harness, "e1"), "in hand");
    harness.answer("a", json!(1));
    harness.say("Echo", None, event("e2", "a"));
    assert!(heard(&mut harness, "e2"), "after its reply");
    harness.say("Echo", Some(first), event("e3", "a"));
    assert!(heard(&mut harness, "e3"), "and as what followed from that delivery");
    let second = asked(&mut harness, "b");
    harness.say("Echo", Some(second), event("e4", "a"));
    assert!(heard(&mut harness, "e4"), "while it is at something else");
    harness.say("Echo", None, event("e5", "b"));
    assert!(heard(&mut harness, "e5"), "who cannot say which delivery it is at");
    harness.say("Echo", None, event("e6", "e5"));
    assert!(heard(&mut harness, "e6"), "of what it said itself");
    harness.say("Echo", None, event("e7", "e8"));
    harness.say("Echo", None, event("e8", "b"));
    assert!(heard(&mut harness, "e8"));
    assert_eq!(harness.router.counters().actor_faults, 1, "not of what it will say");
    harness.say("Echo", None, message("event", "Echo.Said", "e9", json!("e9")));
    assert!(heard(&mut harness, "e9"), "with nothing in hand it may begin something");
}

#[test]
fn an_outcome_it_was_given_is_a_cause_like_any_message() {
    let mut harness = Harness::new();
    let (from, ask) = (harness.ids["Ear"], message("query", "Echo.Say", "q", json!(1)));
    harness.give(Input::Emit { from, during: None, message: ask, wait: true, trusted: false });
    harness.run();
    harness.say("Ear", None, event("early", "re-q"));
    assert_eq!(harness.run(), ["note Sys.ActorFault"], "it has not had it yet");
    harness.answer("q", json!(2));
    harness.run();
    harness.say("Ear", None, event("e", "re-q"));
    assert!(heard(&mut harness, "e"));
    harness.say("Ear", None, event("f", "q"));
    assert!(heard(&mut harness, "f"), "its own question, too");
}

#[test]
fn what_it_had_is_remembered_as_far_back_as_the_bound_says() {
    let mut harness = Harness::with(RouterLimits { lineage_max: 3, ..RouterLimits::default() });
    for id in ["a", "b", "c", "d"] {
        asked(&mut harness, id);
        harness.answer(id, json!(1));
        harness.run();
    }
    harness.say("Echo", None, event("e", "a"));
    assert_eq!(harness.run(), ["note Sys.ActorFault"], "too long ago");
    harness.say("Echo", None, event("f", "b"));
    assert!(heard(&mut harness, "f"));
    harness.say("Echo", None, event("g", "b"));
    assert_eq!(harness.run(), ["note Sys.ActorFault"], "what it says counts, too");
}

#[test]
fn what_the_shell_vouches_for_is_not_asked_again() {
    let mut harness = Harness::with(RouterLimits { lineage_max: 1, ..RouterLimits::default() });
    let delivery = asked(&mut harness, "a");
    harness.answer("a", json!(1));
    for id in ["b", "c"] {
        asked(&mut harness, id);
        harness.answer(id, json!(1));
    }
    harness.run();
    let from = harness.ids["Echo"];
    harness.give(Input::Emit {
        from,
        during: Some(delivery),
        message: event("e", "a"),
        wait: false,
        trusted: true,
    });
    assert!(heard(&mut harness, "e"));
}

#[test]
fn a_consequence_belongs_to_the_undertaking_of_its_cause() {
    for (of_cause, said, expected) in [
        (Some("u"), None, Some("u")),
        (Some("u"), Some("other"), Some("u")),
        (None, Some("begun"), Some("begun")),
        (None, None, None),
    ] {
        let id = |text: &str| OsId::new(text).unwrap();
        let mut harness = Harness::new();
        let mut ask = message("query", "Echo.Say", "a", json!(1));
        ask.metadata.correlation = of_cause.map(id);
        harness.client(1, ask);
        harness.run();
        let delivery = harness.delivery("a");
        let mut late = event("late", "a");
        let mut early = event("early", "a");
        (early.metadata.correlation, late.metadata.correlation) = (said.map(id), said.map(id));
        harness.say("Echo", Some(delivery), early);
        harness.answer("a", json!(1));
        harness.say("Echo", None, late);
        while harness.router.turn(harness.now) {}
        let posted: Vec<_> = harness
            .router
            .drain()
            .filter_map(|effect| match effect {
                Effect::Post { message, .. } => Some(message.metadata.correlation.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(posted, [expected.map(id), expected.map(id)], "{of_cause:?} {said:?}");
    }
}

/// Requests are checked like events; and an actor that waits for a faulty request gets an error.
#[test]
fn a_request_with_a_false_cause_or_that_was_not_declared_ends_at_once() {
    let mut harness = Harness::new();
    let mut shy = manifest("Shy", &[(OsKind::Query, "Shy.Ask")], &[]);
    shy.outbound = Some(vec![]);
    harness.install(vec![shy]);
    for (from, cause) in [("Ear", Some("never")), ("Shy", None)] {
        let ask = caused("query", "Echo.Say", "q", json!(1), cause);
        let from_id = harness.ids[from];
        harness.give(Input::Emit { from: from_id, during: None, message: ask, wait: true, trusted: false });
        let told = harness.run();
        assert!(told[0].starts_with(&format!("{from} awaited error Echo.Say {{\"code\":500")), "{told:?}");
        assert_eq!(told[1..], ["note Sys.ActorFault"]);
    }
    assert!(harness.router.is_quiescent());
}

/// An actor may name only its own deliveries as the one it is working on.
#[test]
fn nobody_speaks_with_anothers_delivery_in_hand() {
    let mut harness = Harness::new();
    let delivery = asked(&mut harness, "a");
    harness.say("Ear", Some(delivery), event("e", "a"));
    assert_eq!(harness.run(), ["note Sys.ActorFault"], "and Echo's request still waits");
    harness.answer("a", json!(1));
    assert_eq!(harness.run(), ["1 is told reply Echo.Say 1 <a"]);
}

/// An actor that answers right after a false cause is still blamed: the delivery at the time it emitted the message
/// counts.
#[test]
fn a_lie_costs_the_request_that_was_in_hand_also_when_the_answer_is_close_behind() {
    let mut harness = Harness::new();
    let delivery = asked(&mut harness, "a");
    harness.say("Echo", Some(delivery), event("e", "never"));
    harness.answer("a", json!(1));
    let told = harness.run();
    assert!(told[0].starts_with("1 is told error Echo.Say {\"code\":500"), "{told:?}");
    assert_eq!(told[1..], ["note Sys.ActorFault", "note Sys.OrphanOutcome"]);
}
