//! Lanes and turns (RFC 0032, section 8).

mod harness;

use harness::{Harness, manifest, message};
use millrace_model::OsKind::Query;
use millrace_router::RouterLimits;
use serde_json::json;

#[test]
fn a_turn_routes_one_message_and_finishes_its_bookkeeping() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.client(1, message("query", "No.Where", "b", json!(1)));
    assert_eq!(harness.turn(), [r#"Echo gets query Echo.Say "a""#]);
    assert_eq!(harness.turn().len(), 2, "the note and the answer of the second leave in its own turn");
    assert!(harness.turn().is_empty());
    assert_eq!(harness.router.counters().turns, 2);
}

/// While 100,000 user messages wait, the timeout of a request is still answered in the very next turn.
#[test]
fn a_system_message_starts_within_one_turn_whatever_waits_in_the_user_lane() {
    let limits =
        RouterLimits { conn_messages_max: 200_000, request_timeout_ms: 10, ..RouterLimits::default() };
    let mut harness = Harness::with(limits);
    harness.ask("slow");
    harness.run();
    for n in 0..100_000 {
        harness.client(1, message("event", "No.Body", &n.to_string(), json!(n)));
    }
    harness.pass(11);
    let told = harness.turn();
    assert!(told.iter().any(|line| line.contains("Request timed out")), "{told:?}");
}

#[test]
fn clients_travel_in_the_user_lane_whatever_they_call_their_messages() {
    let limits = RouterLimits { request_timeout_ms: 10, ..RouterLimits::default() };
    let mut harness = Harness::with(limits);
    harness.install(vec![manifest("Sink", &[], &["Sys.Anything"])]);
    harness.ask("slow");
    harness.run();
    harness.pass(11);
    harness.ask("first");
    harness.client(1, message("event", "Sys.Anything", "x", json!(1)));
    assert!(harness.turn().iter().any(|line| line.contains("504")), "the loop's own goes first");
    assert_eq!(harness.turn(), [r#"Echo gets query Echo.Say "first""#], "then the user lane in order");
    assert_eq!(harness.turn(), ["Sink gets event Sys.Anything 1"]);
}

/// However many timeouts are due, at most `system_lane_max` of them go before a user message.
#[test]
fn users_do_not_starve_behind_the_system_lane() {
    let limits = RouterLimits {
        system_lane_max: 8,
        request_timeout_ms: 10,
        conn_messages_max: 5000,
        ..RouterLimits::default()
    };
    let mut harness = Harness::with(limits);
    for n in 0..1000 {
        harness.ask(&n.to_string());
    }
    harness.run();
    harness.pass(11);
    harness.turn();
    for n in 0..100 {
        harness.ask(&format!("user-{n}"));
    }
    let mut since = 0;
    let mut users = 0;
    while users < 100 {
        let lines = harness.turn();
        assert!(!lines.is_empty());
        if lines.iter().any(|line| line.starts_with("Echo gets")) {
            (since, users) = (0, users + 1);
        } else {
            since += 1;
            assert!(since <= 8, "{since} system turns in a row while {} users wait", 100 - users);
        }
    }
}

#[test]
fn the_loop_does_not_talk_about_its_own_talk() {
    let mut harness = Harness::new();
    harness.install(vec![manifest(
        "Watcher",
        &[(Query, "Watcher.Ask")],
        &["Sys.RoutingError", "Sys.OrphanOutcome"],
    )]);
    harness.effects();
    harness.client(1, message("command", "Sys.Nothing", "a", json!(1)));
    let told = harness.run();
    assert_eq!(told.len(), 1, "an answer and no event about Sys.*: {told:?}");
    harness.client(1, message("command", "No.Where", "b", json!(1)));
    let told = harness.run();
    assert!(told.iter().any(|line| line.starts_with("Watcher gets event Sys.RoutingError")), "{told:?}");
}

/// No capability is told about its own failures, and nobody about failures at such reports.
#[test]
fn who_fails_at_hearing_of_failures_does_not_keep_the_loop_busy() {
    let mut harness = Harness::new();
    let types = ["Sys.ActorFault", "Sys.RoutingError", "Sys.OrphanOutcome"];
    harness.install(vec![
        manifest("Clumsy", &[(Query, "Clumsy.Ask")], &types),
        manifest("Watcher", &[], &types),
    ]);
    let fault = || millrace_model::OsFault::new(500, "again");
    let failing = |harness: &mut Harness, name: &str| {
        let at = harness.ids[name];
        let (_, delivery, _) =
            harness.posted.iter().rev().find(|(to, _, _)| *to == at).cloned().expect("a message");
        harness.fails(name, delivery, fault());
        harness.run()
    };
    harness.client(1, message("query", "Clumsy.Ask", "a", json!(1)));
    harness.run();
    let told = failing(&mut harness, "Clumsy");
    assert!(told.iter().any(|line| line.starts_with("Watcher gets event Sys.ActorFault")), "{told:?}");
    assert!(!told.iter().any(|line| line.starts_with("Clumsy gets")), "not of its own failure: {told:?}");
    assert_eq!(failing(&mut harness, "Watcher"), ["note Sys.ActorFault"], "the log hears of it, nobody else");
    harness.say("Clumsy", None, message("query", "No.Where", "q", json!(1)));
    harness.say("Clumsy", None, harness::caused("reply", "Any.Thing", "r", json!(1), Some("nothing")));
    let told = harness.run();
    let heard =
        |who: &str| told.iter().filter(|line| line.starts_with(&format!("{who} gets event Sys."))).count();
    assert_eq!((heard("Watcher"), heard("Clumsy")), (2, 0), "{told:?}");
    assert_eq!(harness.router.counters().routing_errors, 1);
}

#[test]
fn the_end_of_boot_is_an_event() {
    let mut harness = Harness::new();
    harness.install(vec![manifest("Watcher", &[], &["Sys.BootComplete"])]);
    harness.router.restore(harness.now, None, Vec::new());
    let told = harness.run();
    let event = r#"Watcher gets event Sys.BootComplete {"capabilities":3,"timers":0} <"#;
    assert!(told.len() == 2 && told[0] == "note Sys.BootComplete" && told[1].starts_with(event), "{told:?}");
}
