//! The read-only queries of the shell between two turns.

mod harness;

use harness::{Harness, message};
use millrace_model::OsId;
use millrace_router::{Input, RouterLimits, Takes};
use serde_json::json;

#[test]
fn a_capability_takes_events_while_it_is_well_and_has_room() {
    let mut harness = Harness::with(RouterLimits { mailbox_max: 1, ..RouterLimits::default() });
    let echo = harness.ids["Echo"];
    assert_eq!(harness.router.takes(echo), Takes::Now);
    harness.ask("a");
    harness.run();
    assert_eq!(harness.router.takes(echo), Takes::NotNow);
    let (to, delivery, _) = harness.posted.pop().unwrap();
    harness.give(Input::Done { from: to, delivery, result: Ok(()) });
    assert_eq!(harness.router.takes(echo), Takes::Now);
    harness.give(Input::Unhealthy { capability: echo, reason: "it fell".into() });
    assert_eq!(harness.router.takes(echo), Takes::NotNow);
    harness.give(Input::Healthy { capability: echo });
    assert_eq!(harness.router.takes(echo), Takes::Now);
    harness.give(Input::Retire { capability: echo });
    assert_eq!(harness.router.takes(echo), Takes::Never);
}

#[test]
fn who_asked_is_known_for_capabilities_only() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.run();
    let (_, of_client, _) = harness.posted.pop().unwrap();
    harness.say("Ear", None, message("query", "Echo.Say", "b", json!(1)));
    harness.run();
    let (_, of_actor, _) = harness.posted.pop().unwrap();
    let asker = |id: &str, delivery| harness.router.asker(&OsId::new(id).unwrap(), delivery);
    assert_eq!(asker("a", of_client), None);
    assert_eq!(asker("b", of_client), None);
    assert_eq!(asker("b", of_actor), Some((harness.ids["Ear"], "Ear".into())));
}
