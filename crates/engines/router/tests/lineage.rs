//! Lineage of messages that actors emit (RFC 0032, section 9.2; point 33 of the specification): causes are true.
#![allow(clippy::unwrap_used)]

mod desk;

use desk::{Desk, caused, manifest, message};
use millrace_model::{OsId, OsKind, OsMessage};
use millrace_router::{Effect, Input, RouterLimits};
use serde_json::json;

fn event(id: &str, cause: &str) -> OsMessage {
    caused("event", "Echo.Said", id, json!(id), Some(cause))
}

fn heard(desk: &mut Desk, id: &str) -> bool {
    desk.run().iter().any(|line| line.starts_with(&format!("Ear gets event Echo.Said \"{id}\"")))
}

/// Sends request `id` to Echo and returns the delivery that Echo is then working on.
fn asked(desk: &mut Desk, id: &str) -> millrace_router::DeliveryId {
    desk.ask(id);
    desk.run();
    desk.delivery(id)
}

#[test]
fn an_event_with_a_cause_its_author_never_had_is_a_fault_and_reaches_nobody() {
    let mut desk = Desk::new();
    desk.install(vec![manifest("Other", &[(OsKind::Query, "Other.Ask")], &[])]);
    desk.client(1, message("query", "Other.Ask", "elsewhere", json!(1)));
    let delivery = asked(&mut desk, "a");
    for lie in ["elsewhere", "never", "itself"] {
        desk.say("Echo", None, event("itself", lie));
        assert_eq!(desk.run(), ["note Sys.ActorFault"], "{lie}: no request is in hand as far as it said");
    }
    desk.say("Echo", Some(delivery), event("e", "elsewhere"));
    let told = desk.run();
    assert_eq!(
        told[0],
        "1 is told error Echo.Say {\"code\":500,\"message\":\"Capability 'Echo' emitted event Echo.Said with \
         metadata.causation elsewhere, which it was not given and did not say\"} <a"
    );
    assert_eq!(told[1..], ["note Sys.ActorFault"]);
    assert_eq!(desk.router.counters().actor_faults, 4);
}

#[test]
fn honest_events_pass_in_hand_after_the_reply_and_after_other_work() {
    let mut desk = Desk::new();
    let first = asked(&mut desk, "a");
    desk.say("Echo", Some(first), event("e1", "a"));
    assert!(heard(&mut desk, "e1"), "in hand");
    desk.answer("a", json!(1));
    desk.say("Echo", None, event("e2", "a"));
    assert!(heard(&mut desk, "e2"), "after its reply");
    desk.say("Echo", Some(first), event("e3", "a"));
    assert!(heard(&mut desk, "e3"), "and as what followed from that delivery");
    let second = asked(&mut desk, "b");
    desk.say("Echo", Some(second), event("e4", "a"));
    assert!(heard(&mut desk, "e4"), "while it is at something else");
    desk.say("Echo", None, event("e5", "b"));
    assert!(heard(&mut desk, "e5"), "who cannot say which delivery it is at");
    desk.say("Echo", None, event("e6", "e5"));
    assert!(heard(&mut desk, "e6"), "of what it said itself");
    desk.say("Echo", None, event("e7", "e8"));
    desk.say("Echo", None, event("e8", "b"));
    assert!(heard(&mut desk, "e8"));
    assert_eq!(desk.router.counters().actor_faults, 1, "not of what it will say");
    desk.say("Echo", None, message("event", "Echo.Said", "e9", json!("e9")));
    assert!(heard(&mut desk, "e9"), "with nothing in hand it may begin something");
}

#[test]
fn an_outcome_it_was_given_is_a_cause_like_any_message() {
    let mut desk = Desk::new();
    let (from, ask) = (desk.ids["Ear"], message("query", "Echo.Say", "q", json!(1)));
    desk.give(Input::Emit { from, during: None, message: ask, wait: true, vouched: false });
    desk.run();
    desk.say("Ear", None, event("early", "re-q"));
    assert_eq!(desk.run(), ["note Sys.ActorFault"], "it has not had it yet");
    desk.answer("q", json!(2));
    desk.run();
    desk.say("Ear", None, event("e", "re-q"));
    assert!(heard(&mut desk, "e"));
    desk.say("Ear", None, event("f", "q"));
    assert!(heard(&mut desk, "f"), "its own question, too");
}

#[test]
fn what_it_had_is_remembered_as_far_back_as_the_bound_says() {
    let mut desk = Desk::with(RouterLimits { lineage_max: 3, ..RouterLimits::default() });
    for id in ["a", "b", "c", "d"] {
        asked(&mut desk, id);
        desk.answer(id, json!(1));
        desk.run();
    }
    desk.say("Echo", None, event("e", "a"));
    assert_eq!(desk.run(), ["note Sys.ActorFault"], "too long ago");
    desk.say("Echo", None, event("f", "b"));
    assert!(heard(&mut desk, "f"));
    desk.say("Echo", None, event("g", "b"));
    assert_eq!(desk.run(), ["note Sys.ActorFault"], "what it says counts, too");
}

#[test]
fn what_the_shell_vouches_for_is_not_asked_again() {
    let mut desk = Desk::with(RouterLimits { lineage_max: 1, ..RouterLimits::default() });
    let delivery = asked(&mut desk, "a");
    desk.answer("a", json!(1));
    for id in ["b", "c"] {
        asked(&mut desk, id);
        desk.answer(id, json!(1));
    }
    desk.run();
    let from = desk.ids["Echo"];
    desk.give(Input::Emit {
        from,
        during: Some(delivery),
        message: event("e", "a"),
        wait: false,
        vouched: true,
    });
    assert!(heard(&mut desk, "e"));
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
        let mut desk = Desk::new();
        let mut ask = message("query", "Echo.Say", "a", json!(1));
        ask.metadata.correlation = of_cause.map(id);
        desk.client(1, ask);
        desk.run();
        let delivery = desk.delivery("a");
        let mut late = event("late", "a");
        let mut early = event("early", "a");
        (early.metadata.correlation, late.metadata.correlation) = (said.map(id), said.map(id));
        desk.say("Echo", Some(delivery), early);
        desk.answer("a", json!(1));
        desk.say("Echo", None, late);
        while desk.router.turn(desk.now) {}
        let posted: Vec<_> = desk
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
    let mut desk = Desk::new();
    let mut shy = manifest("Shy", &[(OsKind::Query, "Shy.Ask")], &[]);
    shy.outbound = Some(vec![]);
    desk.install(vec![shy]);
    for (from, cause) in [("Ear", Some("never")), ("Shy", None)] {
        let ask = caused("query", "Echo.Say", "q", json!(1), cause);
        let from_id = desk.ids[from];
        desk.give(Input::Emit { from: from_id, during: None, message: ask, wait: true, vouched: false });
        let told = desk.run();
        assert!(told[0].starts_with(&format!("{from} awaited error Echo.Say {{\"code\":500")), "{told:?}");
        assert_eq!(told[1..], ["note Sys.ActorFault"]);
    }
    assert!(desk.router.is_quiescent());
}

/// An actor may name only its own deliveries as the one it is working on.
#[test]
fn nobody_speaks_with_anothers_delivery_in_hand() {
    let mut desk = Desk::new();
    let delivery = asked(&mut desk, "a");
    desk.say("Ear", Some(delivery), event("e", "a"));
    assert_eq!(desk.run(), ["note Sys.ActorFault"], "and Echo's request still waits");
    desk.answer("a", json!(1));
    assert_eq!(desk.run(), ["1 is told reply Echo.Say 1 <a"]);
}

/// An actor that answers right after a false cause is still blamed: the delivery at the time it emitted the message
/// counts.
#[test]
fn a_lie_costs_the_request_that_was_in_hand_also_when_the_answer_is_close_behind() {
    let mut desk = Desk::new();
    let delivery = asked(&mut desk, "a");
    desk.say("Echo", Some(delivery), event("e", "never"));
    desk.answer("a", json!(1));
    let told = desk.run();
    assert!(told[0].starts_with("1 is told error Echo.Say {\"code\":500"), "{told:?}");
    assert_eq!(told[1..], ["note Sys.ActorFault", "note Sys.OrphanOutcome"]);
}
