//! What a list of one topic hides from administrators on pages that are about many: what events say.

use std::time::Duration;

use millrace::{Config, Event, Handler, HandlerOutcome, HandlerSettings, Session};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::access::{open, server};
use crate::server::{Server, eventually};

const SECRET: &str = "for-alice-only";

#[derive(Event, Serialize, Deserialize)]
struct SalaryPaid {
    note: String,
}

fn ask(server: &Server, token: &str, path: &str) -> (u16, Value) {
    server.request_as(token, "GET", path, &Value::Null)
}

#[track_caller]
fn act(server: &Server, token: &str, path: &str, body: &Value) -> Value {
    let (status, answer) = server.request_as(token, "POST", path, body);
    assert!((200..300).contains(&status), "{path}: {answer}");
    answer
}

/// A topic that only alice may read.
fn make_private(server: &Server) {
    let config = json!({"topic": "salary.paid", "maxAttempts": 5, "subscribeACL": ["alice"]});
    act(server, "root-secret", "/topics", &config);
}

/// A session whose handlers give up on salaries, or try again later.
fn fail_at_salaries(server: &Server) {
    let bill =
        Handler::from_fn::<SalaryPaid>("shop:bill", |ctx| Err(format!("no: {}", ctx.event.note).into()));
    let mail = Handler::from_fn::<SalaryPaid>("shop:mail", |ctx| {
        let why = format!("later: {}", ctx.event.note);
        Err(HandlerOutcome::retry_after(Duration::from_secs(3600), why).into())
    });
    let more = HandlerSettings { max_attempts: Some(5), ..HandlerSettings::default() };
    let config = Config { event_max_attempts: 1, ..Config::default() };
    let session = Session::builder(&server.store_url()).config(config).open().expect("a session");
    let running = session.spawn(vec![bill, mail.with_settings(more)], vec![]).expect("a run");
    eventually("one handler gives up, one waits", || {
        let list = ask(server, "alice-secret", "/handlers").1;
        (&list["handlers"][0]["deadLetters"], &list["handlers"][1]["waiting"]) == (&json!(1), &json!(1))
    });
    running.stop().expect("a stop");
}

#[test]
fn administrators_are_not_told_what_events_say_that_a_list_denies_them() {
    let server = server();
    make_private(&server);
    let event =
        json!({"id": "paid", "key": SECRET, "headers": {"x-what": SECRET}, "payload": {"note": SECRET}});
    act(&server, "alice-secret", "/topics/salary.paid/events", &event);
    let later = json!({"id": "late", "key": SECRET, "payload": {"note": SECRET}, "delay_ms": 3_600_000});
    act(&server, "alice-secret", "/topics/salary.paid/events", &later);
    let mut socket = open(&server, "alice-secret");
    let filter = json!({"key": SECRET});
    let how = json!({"from": {"kind": "earliest"}, "filter": filter, "ack_mode": "individual"});
    socket.subscribe("salary.paid", "g", &how);
    let offset = socket.message();
    socket.send_nack("salary.paid", "g", offset, &json!({"reason": SECRET, "delay_ms": 3_600_000}));
    fail_at_salaries(&server);
    eventually("the refused event waits", || {
        let inflight = ask(&server, "alice-secret", "/topics/salary.paid/groups/g/inflight").1;
        inflight.to_string().contains(SECRET)
    });
    for (path, status) in [
        ("/events/paid", 404),
        ("/events/paid?topic=salary.paid", 404),
        ("/trace?id=paid", 404),
        ("/dead-letters?handler=shop:bill", 200),
        ("/handlers/shop:mail/claims", 200),
        ("/delayed", 200),
        ("/topics/salary.paid/groups", 200),
        ("/topics/salary.paid/groups/g", 200),
        ("/topics/salary.paid/groups/g/inflight", 200),
        ("/topics/salary.paid/events", 403),
    ] {
        let told = ask(&server, "root-secret", path);
        assert!(told.0 == status && !told.1.to_string().contains(SECRET), "{path}: {told:?}");
        let whole = ask(&server, "alice-secret", path);
        assert!(whole.0 == 200 && whole.1.to_string().contains(SECRET), "{path}: {whole:?}");
    }
    // What is there and why something is missing is told.
    let claims = ask(&server, "root-secret", "/handlers/shop:mail/claims").1;
    assert_eq!((&claims["claims"][0]["id"], &claims["withheld"]), (&json!("paid"), &json!(true)), "{claims}");
    let delayed = ask(&server, "root-secret", "/delayed").1["delayed"][0].clone();
    assert_eq!((&delayed["id"], &delayed["withheld"]), (&json!("late"), &json!(true)), "{delayed}");
    let group = ask(&server, "root-secret", "/topics/salary.paid/groups/g").1;
    assert_eq!((&group["lag"], &group["withheld"]), (&json!(1), &json!(true)), "{group}");
    let count = &ask(&server, "root-secret", "/handlers").1["handlers"][0]["deadLetters"];
    assert_eq!(count, &json!(1));
}
