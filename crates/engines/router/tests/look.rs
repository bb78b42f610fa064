//! The read-only queries of the shell between two turns.

mod desk;

use desk::{Desk, message};
use millrace_model::OsId;
use millrace_router::{Input, RouterLimits, Takes};
use serde_json::json;

#[test]
fn a_capability_takes_events_while_it_is_well_and_has_room() {
    let mut desk = Desk::with(RouterLimits { mailbox_max: 1, ..RouterLimits::default() });
    let echo = desk.ids["Echo"];
    assert_eq!(desk.router.takes(echo), Takes::Now);
    desk.ask("a");
    desk.run();
    assert_eq!(desk.router.takes(echo), Takes::NotNow);
    let (to, delivery, _) = desk.posted.pop().unwrap();
    desk.give(Input::Done { from: to, delivery, result: Ok(()) });
    assert_eq!(desk.router.takes(echo), Takes::Now);
    desk.give(Input::Unhealthy { capability: echo, reason: "it fell".into() });
    assert_eq!(desk.router.takes(echo), Takes::NotNow);
    desk.give(Input::Healthy { capability: echo });
    assert_eq!(desk.router.takes(echo), Takes::Now);
    desk.give(Input::Retire { capability: echo });
    assert_eq!(desk.router.takes(echo), Takes::Never);
}

#[test]
fn who_asked_is_known_for_capabilities_only() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.run();
    let (_, of_client, _) = desk.posted.pop().unwrap();
    desk.say("Ear", None, message("query", "Echo.Say", "b", json!(1)));
    desk.run();
    let (_, of_actor, _) = desk.posted.pop().unwrap();
    let asker = |id: &str, delivery| desk.router.asker(&OsId::new(id).unwrap(), delivery);
    assert_eq!(asker("a", of_client), None);
    assert_eq!(asker("b", of_client), None);
    assert_eq!(asker("b", of_actor), Some((desk.ids["Ear"], "Ear".into())));
}
