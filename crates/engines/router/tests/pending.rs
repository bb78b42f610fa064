//! The table of pending requests (RFC 0032, sections 12.8 and 14; points 5 to 7 and 34 of the specification).

mod desk;

use desk::{Desk, caused, manifest, member, message};
use millrace_model::OsFault;
use millrace_router::{ConnId, Input, RouterLimits};
use serde_json::json;

#[test]
fn a_duplicate_id_is_refused_from_any_connection_and_the_first_is_untouched() {
    let mut desk = Desk::new();
    desk.open(2);
    desk.ask("a");
    desk.run();
    for conn in [1, 2] {
        desk.client(conn, message("query", "Echo.Say", "a", json!(1)));
        assert_eq!(
            desk.run(),
            [format!(
                r#"{conn} is told error Echo.Say {{"code":409,"message":"Duplicate request id: a"}} <a"#
            )]
        );
    }
    desk.answer("a", json!(7));
    assert_eq!(desk.run(), ["1 is told reply Echo.Say 7 <a"]);
}

#[test]
fn a_request_without_an_outcome_is_answered_504_and_its_late_reply_is_an_orphan() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.run();
    desk.pass(30_000);
    assert!(desk.run().is_empty(), "not before its time");
    desk.pass(1);
    assert_eq!(
        desk.run(),
        [
            r#"1 is told error Echo.Say {"code":504,"message":"Request timed out"} <a"#,
            "note Sys.RequestTimedOut"
        ]
    );
    desk.answer("a", json!(1));
    assert_eq!(desk.run(), ["note Sys.OrphanOutcome"]);
    assert!(desk.router.is_quiescent());
}

#[test]
fn the_late_outcome_of_an_earlier_use_does_not_answer_a_later_one() {
    for told in [true, false] {
        let mut desk = Desk::new();
        desk.ask("a");
        desk.run();
        let first = desk.delivery("a");
        desk.pass(30_001);
        desk.run();
        desk.ask("a");
        desk.run();
        let second = desk.delivery("a");
        // The actor answers the first use of the id; if it cannot tell which one that is, it names no delivery.
        let during = told.then_some(first);
        desk.say("Echo", during, caused("reply", "Echo.Say", "late", json!("old"), Some("a")));
        assert_eq!(desk.run(), ["note Sys.OrphanOutcome"], "told: {told}");
        desk.done("Echo", first);
        desk.say("Echo", told.then_some(second), caused("reply", "Echo.Say", "r", json!("new"), Some("a")));
        assert_eq!(desk.run(), [r#"1 is told reply Echo.Say "new" <a"#], "told: {told}");
    }
}

#[test]
fn an_id_may_be_used_again_after_its_answer_and_a_second_outcome_is_an_orphan() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.run();
    let delivery = desk.delivery("a");
    desk.say("Echo", Some(delivery), caused("reply", "Echo.Say", "r1", json!(1), Some("a")));
    desk.say("Echo", Some(delivery), caused("reply", "Echo.Say", "r2", json!(2), Some("a")));
    assert_eq!(desk.run(), ["1 is told reply Echo.Say 1 <a", "note Sys.OrphanOutcome"]);
    desk.done("Echo", delivery);
    desk.ask("a");
    assert_eq!(desk.run(), [r#"Echo gets query Echo.Say "a""#]);
}

#[test]
fn an_actor_cannot_answer_for_another() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.run();
    desk.say("Ear", None, caused("reply", "Echo.Say", "lie", json!(0), Some("a")));
    assert_eq!(desk.run(), ["note Sys.OrphanOutcome"]);
    desk.answer("a", json!(1));
    assert_eq!(desk.run(), ["1 is told reply Echo.Say 1 <a"]);
}

#[test]
fn a_reply_of_another_type_is_delivered_because_causation_joins() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.run();
    let delivery = desk.delivery("a");
    desk.say("Echo", Some(delivery), caused("reply", "Other.Type", "r", json!(1), Some("a")));
    assert_eq!(desk.run(), ["1 is told reply Other.Type 1 <a"]);
}

#[test]
fn an_actor_may_answer_after_it_has_gone_on() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.ask("b");
    desk.run();
    let (first, second) = (desk.delivery("a"), desk.delivery("b"));
    desk.done("Echo", first);
    desk.say("Echo", Some(second), caused("reply", "Echo.Say", "r", json!(1), Some("a")));
    assert_eq!(desk.run(), ["1 is told reply Echo.Say 1 <a"]);
}

#[test]
fn who_hangs_up_is_forgotten_and_late_outcomes_are_orphans() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.run();
    desk.ask("b");
    desk.give(Input::Close { conn: ConnId(1) });
    assert_eq!(desk.run(), [r#"Echo gets query Echo.Say "b""#], "what was sent is carried out");
    desk.answer("a", json!(1));
    desk.answer("b", json!(1));
    assert_eq!(desk.run(), ["note Sys.OrphanOutcome", "note Sys.OrphanOutcome"]);
    assert!(desk.router.is_quiescent() && desk.router.gauges().connections == 0);
    // The id is free for other clients, although the actor may still answer the first use.
    desk.open(2);
    desk.client(2, message("query", "Echo.Say", "a", json!(2)));
    assert_eq!(desk.run(), ["Echo gets query Echo.Say 2"]);
}

#[test]
fn a_full_mailbox_answers_503_at_once() {
    let mut desk = Desk::with(RouterLimits { mailbox_max: 2, ..RouterLimits::default() });
    for id in ["a", "b", "c"] {
        desk.ask(id);
    }
    let told = desk.run();
    assert!(told[2].contains(r#""code":503,"message":"The mailbox of 'Echo' is full"#), "{told:?}");
    desk.answer("a", json!(1));
    desk.ask("d");
    assert_eq!(desk.run().len(), 2, "one answer, and room for one more");
}

#[test]
fn a_client_may_time_out_its_own_requests_only() {
    let mut desk = Desk::new();
    desk.open(2);
    desk.ask("a");
    desk.run();
    let ask = |id: &str| message("command", "Sys.RequestTimeout", id, json!({"requestId": "a"}));
    desk.client(2, ask("t1"));
    assert_eq!(desk.run(), [r#"2 is told reply Sys.RequestTimeout {"requestId":"a","timedOut":false} <t1"#]);
    desk.client(1, ask("t2"));
    let told = desk.run();
    assert_eq!(told[0], r#"1 is told error Echo.Say {"code":504,"message":"Request timed out"} <a"#);
    assert!(told.iter().any(|line| line.contains(r#""timedOut":true"#)), "{told:?}");
    desk.client(1, message("command", "Sys.RequestTimeout", "t3", json!({"requestId": "never"})));
    assert_eq!(member(&desk.run()[0], "timedOut"), json!(false));
    desk.client(1, message("command", "Sys.RequestTimeout", "t4", json!({"requestId": "t4"})));
    assert_eq!(member(&desk.run()[0], "timedOut"), json!(false), "not itself");
}

#[test]
fn an_actor_that_fails_costs_its_requester_an_error_and_nobody_else_anything() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.ask("b");
    desk.run();
    let delivery = desk.delivery("a");
    desk.fails("Echo", delivery, OsFault::new(500, "it fell over"));
    assert_eq!(
        desk.run(),
        [r#"1 is told error Echo.Say {"code":500,"message":"it fell over"} <a"#, "note Sys.ActorFault"]
    );
    desk.answer("b", json!(1));
    assert_eq!(desk.run(), ["1 is told reply Echo.Say 1 <b"]);
}

#[test]
fn what_an_actor_may_not_say_is_its_fault_and_ends_the_request_in_hand() {
    let mut desk = Desk::new();
    let mut shy = manifest("Shy", &[(millrace_model::OsKind::Query, "Shy.Ask")], &[]);
    shy.outbound = Some(vec![]);
    desk.install(vec![shy]);
    desk.effects();
    let said = [
        caused("reply", "Shy.Ask", "r", json!(1), Some("q")),
        message("reply", "Shy.Ask", "r", json!(1)),
        message("event", "Shy.Spoke", "r", json!(1)),
    ];
    for (at, said) in said.into_iter().enumerate() {
        desk.client(1, message("query", "Shy.Ask", "q", json!(at)));
        desk.run();
        let delivery = desk.delivery("q");
        desk.say("Shy", Some(delivery), said);
        let told = desk.run();
        assert!(told[0].contains(r#""code":500"#) && told[1] == "note Sys.ActorFault", "{told:?}");
        desk.done("Shy", delivery);
    }
    desk.client(1, message("query", "Shy.Ask", "q", json!(9)));
    desk.run();
    let delivery = desk.delivery("q");
    let fault = json!({"code": 404, "message": "no"});
    desk.say("Shy", Some(delivery), caused("error", "Shy.Ask", "r", fault, Some("q")));
    let told = desk.run();
    assert_eq!(
        told,
        [r#"1 is told error Shy.Ask {"code":404,"message":"no"} <q"#],
        "an error needs no declaration"
    );
}

#[test]
fn an_error_says_a_code_and_a_sentence_or_is_a_fault_itself() {
    let mut desk = Desk::new();
    for data in
        [json!("text"), json!({"code": 99, "message": "x"}), json!({"message": "x"}), json!({"code": 500})]
    {
        desk.ask("q");
        desk.run();
        let delivery = desk.delivery("q");
        desk.say("Echo", Some(delivery), caused("error", "Echo.Say", "r", data.clone(), Some("q")));
        let told = desk.run();
        assert!(
            told[0].contains(r#""code":500,"message":"Capability 'Echo' emitted an error"#),
            "{data}: {told:?}"
        );
        desk.done("Echo", delivery);
    }
}

#[test]
fn an_error_without_a_cause_is_for_the_record_only() {
    let mut desk = Desk::new();
    desk.say("Echo", None, message("error", "Echo.Say", "x", json!({"code": 500, "message": "hm"})));
    assert!(desk.run().is_empty());
}

/// The timeout counts from the arrival of a request, not from its turn: waiting in the lane counts too.
#[test]
fn a_request_is_timed_out_as_long_after_it_arrived_as_was_said() {
    let mut desk = Desk::new();
    desk.ask("a");
    desk.pass(29_990);
    assert_eq!(desk.run(), [r#"Echo gets query Echo.Say "a""#]);
    desk.pass(11);
    let timed_out = |id: &str| {
        [
            format!(r#"1 is told error Echo.Say {{"code":504,"message":"Request timed out"}} <{id}"#),
            "note Sys.RequestTimedOut".to_owned(),
        ]
    };
    assert_eq!(desk.run(), timed_out("a"));
    desk.ask("b");
    desk.pass(30_001);
    assert_eq!(desk.run(), timed_out("b"), "what nobody waits for any more is not begun");
    assert_eq!(desk.router.counters().timeouts, 2);
    let (from, ask) = (desk.ids["Ear"], message("query", "Echo.Say", "q", json!(1)));
    desk.give(Input::Emit { from, during: None, message: ask, wait: true, vouched: false });
    desk.pass(30_001);
    let told = desk.run();
    assert!(told[0].starts_with("Ear awaited error Echo.Say {\"code\":504"), "of actors, too: {told:?}");
}

/// Disconnecting ends only the requests of that connection.
#[test]
fn who_hangs_up_takes_only_its_own_requests_along() {
    let mut desk = Desk::new();
    desk.open(2);
    desk.ask("mine");
    desk.client(2, message("query", "Echo.Say", "theirs", json!(1)));
    desk.run();
    desk.give(Input::Close { conn: ConnId(1) });
    assert_eq!(desk.router.gauges().pending, 1);
    desk.answer("theirs", json!(1));
    assert_eq!(desk.run(), ["2 is told reply Echo.Say 1 <theirs"]);
}
