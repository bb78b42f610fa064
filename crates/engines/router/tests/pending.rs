//! The table of pending requests (RFC 0032, sections 12.8 and 14; points 5 to 7 and 34 of the specification).

mod harness;

use harness::{Harness, caused, manifest, member, message};
use millrace_model::OsFault;
use millrace_router::{ConnId, Input, RouterLimits};
use serde_json::json;

#[test]
fn a_duplicate_id_is_refused_from_any_connection_and_the_first_is_untouched() {
    let mut harness = Harness::new();
    harness.open(2);
    harness.ask("a");
    harness.run();
    for conn in [1, 2] {
        harness.client(conn, message("query", "Echo.Say", "a", json!(1)));
        assert_eq!(
            harness.run(),
            [format!(
                r#"{conn} is told error Echo.Say {{"code":409,"message":"Duplicate request id: a"}} <a"#
            )]
        );
    }
    harness.answer("a", json!(7));
    assert_eq!(harness.run(), ["1 is told reply Echo.Say 7 <a"]);
}

#[test]
fn a_request_without_an_outcome_is_answered_504_and_its_late_reply_is_an_orphan() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.run();
    harness.pass(30_000);
    assert!(harness.run().is_empty(), "not before its time");
    harness.pass(1);
    assert_eq!(
        harness.run(),
        [
            r#"1 is told error Echo.Say {"code":504,"message":"Request timed out"} <a"#,
            "note Sys.RequestTimedOut"
        ]
    );
    harness.answer("a", json!(1));
    assert_eq!(harness.run(), ["note Sys.OrphanOutcome"]);
    assert!(harness.router.is_quiescent());
}

#[test]
fn the_late_outcome_of_an_earlier_use_does_not_answer_a_later_one() {
    for told in [true, false] {
        let mut harness = Harness::new();
        harness.ask("a");
        harness.run();
        let first = harness.delivery("a");
        harness.pass(30_001);
        harness.run();
        harness.ask("a");
        harness.run();
        let second = harness.delivery("a");
        // The actor answers the first use of the id; if it cannot tell which one that is, it names no delivery.
        let during = told.then_some(first);
        harness.say("Echo", during, caused("reply", "Echo.Say", "late", json!("old"), Some("a")));
        assert_eq!(harness.run(), ["note Sys.OrphanOutcome"], "told: {told}");
        harness.done("Echo", first);
        harness.say(
            "Echo",
            told.then_some(second),
            caused("reply", "Echo.Say", "r", json!("new"), Some("a")),
        );
        assert_eq!(harness.run(), [r#"1 is told reply Echo.Say "new" <a"#], "told: {told}");
    }
}

#[test]
fn an_id_may_be_used_again_after_its_answer_and_a_second_outcome_is_an_orphan() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.run();
    let delivery = harness.delivery("a");
    harness.say("Echo", Some(delivery), caused("reply", "Echo.Say", "r1", json!(1), Some("a")));
    harness.say("Echo", Some(delivery), caused("reply", "Echo.Say", "r2", json!(2), Some("a")));
    assert_eq!(harness.run(), ["1 is told reply Echo.Say 1 <a", "note Sys.OrphanOutcome"]);
    harness.done("Echo", delivery);
    harness.ask("a");
    assert_eq!(harness.run(), [r#"Echo gets query Echo.Say "a""#]);
}

#[test]
fn an_actor_cannot_answer_for_another() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.run();
    harness.say("Ear", None, caused("reply", "Echo.Say", "lie", json!(0), Some("a")));
    assert_eq!(harness.run(), ["note Sys.OrphanOutcome"]);
    harness.answer("a", json!(1));
    assert_eq!(harness.run(), ["1 is told reply Echo.Say 1 <a"]);
}

#[test]
fn a_reply_of_another_type_is_delivered_because_causation_joins() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.run();
    let delivery = harness.delivery("a");
    harness.say("Echo", Some(delivery), caused("reply", "Other.Type", "r", json!(1), Some("a")));
    assert_eq!(harness.run(), ["1 is told reply Other.Type 1 <a"]);
}

#[test]
fn an_actor_may_answer_after_it_has_gone_on() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.ask("b");
    harness.run();
    let (first, second) = (harness.delivery("a"), harness.delivery("b"));
    harness.done("Echo", first);
    harness.say("Echo", Some(second), caused("reply", "Echo.Say", "r", json!(1), Some("a")));
    assert_eq!(harness.run(), ["1 is told reply Echo.Say 1 <a"]);
}

#[test]
fn who_hangs_up_is_forgotten_and_late_outcomes_are_orphans() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.run();
    harness.ask("b");
    harness.give(Input::Close { conn: ConnId(1) });
    assert_eq!(harness.run(), [r#"Echo gets query Echo.Say "b""#], "what was sent is carried out");
    harness.answer("a", json!(1));
    harness.answer("b", json!(1));
    assert_eq!(harness.run(), ["note Sys.OrphanOutcome", "note Sys.OrphanOutcome"]);
    assert!(harness.router.is_quiescent() && harness.router.gauges().connections == 0);
    // The id is free for other clients, although the actor may still answer the first use.
    harness.open(2);
    harness.client(2, message("query", "Echo.Say", "a", json!(2)));
    assert_eq!(harness.run(), ["Echo gets query Echo.Say 2"]);
}

#[test]
fn a_full_mailbox_answers_503_at_once() {
    let mut harness = Harness::with(RouterLimits { mailbox_max: 2, ..RouterLimits::default() });
    for id in ["a", "b", "c"] {
        harness.ask(id);
    }
    let told = harness.run();
    assert!(told[2].contains(r#""code":503,"message":"The mailbox of 'Echo' is full"#), "{told:?}");
    harness.answer("a", json!(1));
    harness.ask("d");
    assert_eq!(harness.run().len(), 2, "one answer, and room for one more");
}

#[test]
fn a_client_may_time_out_its_own_requests_only() {
    let mut harness = Harness::new();
    harness.open(2);
    harness.ask("a");
    harness.run();
    let ask = |id: &str| message("command", "Sys.RequestTimeout", id, json!({"requestId": "a"}));
    harness.client(2, ask("t1"));
    assert_eq!(
        harness.run(),
        [r#"2 is told reply Sys.RequestTimeout {"requestId":"a","timedOut":false} <t1"#]
    );
    harness.client(1, ask("t2"));
    let told = harness.run();
    assert_eq!(told[0], r#"1 is told error Echo.Say {"code":504,"message":"Request timed out"} <a"#);
    assert!(told.iter().any(|line| line.contains(r#""timedOut":true"#)), "{told:?}");
    harness.client(1, message("command", "Sys.RequestTimeout", "t3", json!({"requestId": "never"})));
    assert_eq!(member(&harness.run()[0], "timedOut"), json!(false));
    harness.client(1, message("command", "Sys.RequestTimeout", "t4", json!({"requestId": "t4"})));
    assert_eq!(member(&harness.run()[0], "timedOut"), json!(false), "not itself");
}

#[test]
fn an_actor_that_fails_costs_its_requester_an_error_and_nobody_else_anything() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.ask("b");
    harness.run();
    let delivery = harness.delivery("a");
    harness.fails("Echo", delivery, OsFault::new(500, "it fell over"));
    assert_eq!(
        harness.run(),
        [r#"1 is told error Echo.Say {"code":500,"message":"it fell over"} <a"#, "note Sys.ActorFault"]
    );
    harness.answer("b", json!(1));
    assert_eq!(harness.run(), ["1 is told reply Echo.Say 1 <b"]);
}

#[test]
fn what_an_actor_may_not_say_is_its_fault_and_ends_the_request_in_hand() {
    let mut harness = Harness::new();
    let mut shy = manifest("Shy", &[(millrace_model::OsKind::Query, "Shy.Ask")], &[]);
    shy.outbound = Some(vec![]);
    harness.install(vec![shy]);
    harness.effects();
    let said = [
        caused("reply", "Shy.Ask", "r", json!(1), Some("q")),
        message("reply", "Shy.Ask", "r", json!(1)),
        message("event", "Shy.Spoke", "r", json!(1)),
    ];
    for (at, said) in said.into_iter().enumerate() {
        harness.client(1, message("query", "Shy.Ask", "q", json!(at)));
        harness.run();
        let delivery = harness.delivery("q");
        harness.say("Shy", Some(delivery), said);
        let told = harness.run();
        assert!(told[0].contains(r#""code":500"#) && told[1] == "note Sys.ActorFault", "{told:?}");
        harness.done("Shy", delivery);
    }
    harness.client(1, message("query", "Shy.Ask", "q", json!(9)));
    harness.run();
    let delivery = harness.delivery("q");
    let fault = json!({"code": 404, "message": "no"});
    harness.say("Shy", Some(delivery), caused("error", "Shy.Ask", "r", fault, Some("q")));
    let told = harness.run();
    assert_eq!(
        told,
        [r#"1 is told error Shy.Ask {"code":404,"message":"no"} <q"#],
        "an error needs no declaration"
    );
}

#[test]
fn an_error_says_a_code_and_a_sentence_or_is_a_fault_itself() {
    let mut harness = Harness::new();
    for data in
        [json!("text"), json!({"code": 99, "message": "x"}), json!({"message": "x"}), json!({"code": 500})]
    {
        harness.ask("q");
        harness.run();
        let delivery = harness.delivery("q");
        harness.say("Echo", Some(delivery), caused("error", "Echo.Say", "r", data.clone(), Some("q")));
        let told = harness.run();
        assert!(
            told[0].contains(r#""code":500,"message":"Capability 'Echo' emitted an error"#),
            "{data}: {told:?}"
        );
        harness.done("Echo", delivery);
    }
}

#[test]
fn an_error_without_a_cause_is_for_the_record_only() {
    let mut harness = Harness::new();
    harness.say("Echo", None, message("error", "Echo.Say", "x", json!({"code": 500, "message": "hm"})));
    assert!(harness.run().is_empty());
}

/// The timeout counts from the arrival of a request, not from its turn: waiting in the lane counts too.
#[test]
fn a_request_is_timed_out_as_long_after_it_arrived_as_was_said() {
    let mut harness = Harness::new();
    harness.ask("a");
    harness.pass(29_990);
    assert_eq!(harness.run(), [r#"Echo gets query Echo.Say "a""#]);
    harness.pass(11);
    let timed_out = |id: &str| {
        [
            format!(r#"1 is told error Echo.Say {{"code":504,"message":"Request timed out"}} <{id}"#),
            "note Sys.RequestTimedOut".to_owned(),
        ]
    };
    assert_eq!(harness.run(), timed_out("a"));
    harness.ask("b");
    harness.pass(30_001);
    assert_eq!(harness.run(), timed_out("b"), "what nobody waits for any more is not begun");
    assert_eq!(harness.router.counters().timeouts, 2);
    let (from, ask) = (harness.ids["Ear"], message("query", "Echo.Say", "q", json!(1)));
    harness.give(Input::Emit { from, during: None, message: ask, wait: true, trusted: false });
    harness.pass(30_001);
    let told = harness.run();
    assert!(told[0].starts_with("Ear awaited error Echo.Say {\"code\":504"), "of actors, too: {told:?}");
}

/// Disconnecting ends only the requests of that connection.
#[test]
fn who_hangs_up_takes_only_its_own_requests_along() {
    let mut harness = Harness::new();
    harness.open(2);
    harness.ask("mine");
    harness.client(2, message("query", "Echo.Say", "theirs", json!(1)));
    harness.run();
    harness.give(Input::Close { conn: ConnId(1) });
    assert_eq!(harness.router.gauges().pending, 1);
    harness.answer("theirs", json!(1));
    assert_eq!(harness.run(), ["2 is told reply Echo.Say 1 <theirs"]);
}
