//! The list of one topic holds on pages that are about many, too: administrators are not told what its events say, others
//! not that it is there. Timers of other namespaces are hidden as well.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrace::{Config, Event, Handler, HandlerOutcome, HandlerSettings, Session};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::access::{open, server};
use crate::server::{Server, eventually};
use crate::socket::Socket;

const SECRET: &str = "for-alice-only";

#[derive(Event, Serialize, Deserialize)]
struct SalaryPaid {
    note: String,
}

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {}

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
    // The answer tells what is there, and why something is missing.
    let claims = ask(&server, "root-secret", "/handlers/shop:mail/claims").1;
    assert_eq!((&claims["claims"][0]["id"], &claims["withheld"]), (&json!("paid"), &json!(true)), "{claims}");
    let delayed = ask(&server, "root-secret", "/delayed").1["delayed"][0].clone();
    assert_eq!((&delayed["id"], &delayed["withheld"]), (&json!("late"), &json!(true)), "{delayed}");
    let group = ask(&server, "root-secret", "/topics/salary.paid/groups/g").1;
    assert_eq!((&group["lag"], &group["withheld"]), (&json!(1), &json!(true)), "{group}");
    let count = &ask(&server, "root-secret", "/handlers").1["handlers"][0]["deadLetters"];
    assert_eq!(count, &json!(1));
}

#[test]
fn the_story_of_an_event_leaves_out_letters_that_the_caller_may_not_read() {
    let server = server();
    act(&server, "root-secret", "/topics", &json!({"topic": "t", "maxAttempts": 1}));
    act(&server, "alice-secret", "/topics/t/events", &json!({"id": "failed", "payload": 1}));
    let mut socket = open(&server, "alice-secret");
    socket.subscribe("t", "g", &json!({"from": {"kind": "earliest"}}));
    let offset = socket.message();
    socket.send_nack("t", "g", offset, &json!({"reason": SECRET}));
    let letters = |token: &str| ask(&server, token, "/events/failed").1["letters"].clone();
    eventually("the letter is there", || letters("reader-secret").to_string().contains(SECRET));
    let list = json!({"subscribeACL": ["alice"]});
    assert_eq!(server.request_as("root-secret", "PATCH", "/topics/t.DLQ", &list).0, 200);
    assert!(letters("alice-secret").to_string().contains(SECRET));
    for token in ["reader-secret", "root-secret"] {
        assert_eq!(letters(token), json!([]), "{token}");
    }
}

#[test]
fn sessions_do_not_name_handlers_of_topics_that_the_caller_may_not_read() {
    let server = server();
    make_private(&server);
    act(&server, "alice-secret", "/topics/salary.paid/events", &json!({"payload": {"note": "x"}}));
    act(&server, "alice-secret", "/topics/order.placed/events", &json!({"payload": {}}));
    let (wake, asleep) = channel::<()>();
    let asleep = Arc::new(Mutex::new(asleep));
    let also_asleep = asleep.clone();
    // Both end with an error when the test lets go.
    let hidden = Handler::from_fn::<SalaryPaid>("pay:pack", move |_| {
        let _ = asleep.lock().map(|asleep| asleep.recv());
        Ok(())
    });
    let shown = Handler::from_fn::<OrderPlaced>("shop:pack", move |_| {
        let _ = also_asleep.lock().map(|asleep| asleep.recv());
        Ok(())
    });
    let config = Config { handler_concurrency: 2, ..Config::default() };
    let session = Session::builder(&server.store_url()).config(config).open().expect("a session");
    let running = session.spawn(vec![hidden, shown], vec![]).expect("a run");
    let holds = |token: &str| ask(&server, token, "/sessions").1["sessions"][0]["holds"].clone();
    let both = json!({"pay:pack": 1, "shop:pack": 1});
    eventually("both handlers hold an event", || holds("alice-secret") == both);
    assert_eq!(holds("root-secret"), both);
    assert_eq!(holds("reader-secret"), json!({"shop:pack": 1}));
    drop(wake);
    running.stop().expect("a stop");
}

const TENANTS: &str = r#"
[[auth.tokens]]
token = "root-secret"
agent = "root"
scopes = ["admin"]
namespaces = ["*"]

[[auth.tokens]]
token = "eu-secret"
agent = "eu"
scopes = ["admin"]
namespaces = ["eu"]

[[auth.tokens]]
token = "eu-also-secret"
agent = "eu-also"
scopes = ["os"]
namespaces = ["eu"]

[[auth.tokens]]
token = "us-secret"
agent = "us"
scopes = ["admin"]
namespaces = ["us"]
"#;

/// Sets a timer for an hour, and returns its name.
fn set_timer(server: &Server, token: &str, namespace: &str) -> String {
    let url = format!("{}os?namespace={namespace}", server.ws_url());
    let mut os = Socket::open_as(&url, token).expect("it opens");
    let what = json!({"topic": "reminders", "payload": 2, "namespace": namespace});
    let template = json!({"kind": "command", "type": "Bus.Publish", "data": what});
    let data = json!({"delayMs": 3_600_000, "message": template});
    let metadata = json!({"id": format!("set-by-{token}"), "timestamp": 1});
    os.send(&json!({"kind": "command", "type": "Timer.Set", "data": data, "metadata": metadata}));
    let answer = os.next();
    answer["data"]["timerId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn timers_are_seen_and_cancelled_only_by_those_who_may_act_where_they_were_set() {
    let mut server = Server::with_config(TENANTS, &[]);
    let (of_eu, of_us) = (set_timer(&server, "eu-secret", "eu"), set_timer(&server, "us-secret", "us"));
    let of_root = set_timer(&server, "root-secret", "default");
    let seen = |server: &Server, token: &str, namespace: &str| -> Vec<String> {
        let (mut names, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("/timers?namespace={namespace}&limit=1{after}");
            let (status, page) = ask(server, token, &path);
            assert_eq!(status, 200, "{page}");
            let timers = page["timers"].as_array().expect("timers").iter();
            names.extend(timers.map(|timer| timer["timer"].as_str().expect("a name").to_owned()));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return names,
            }
        }
    };
    for restarted in [false, true] {
        if restarted {
            server.kill_and_restart();
        }
        assert_eq!(seen(&server, "eu-secret", "eu"), [of_eu.as_str()], "restarted: {restarted}");
        assert_eq!(seen(&server, "eu-also-secret", "eu"), [of_eu.as_str()], "restarted: {restarted}");
        assert_eq!(seen(&server, "us-secret", "us"), [of_us.as_str()], "restarted: {restarted}");
        assert_eq!(seen(&server, "root-secret", "eu").len(), 3, "restarted: {restarted}");
    }
    let cancel = |token: &str, timer: &str, namespace: &str| {
        let path = format!("/timers/{timer}?namespace={namespace}");
        server.request_as(token, "DELETE", &path, &Value::Null).0
    };
    assert_eq!(cancel("eu-secret", &of_us, "eu"), 404, "a timer that is not seen is not there");
    assert_eq!(cancel("eu-secret", &of_root, "eu"), 404);
    assert_eq!(cancel("us-secret", &of_us, "us"), 200);
    assert_eq!(cancel("root-secret", &of_eu, "default"), 200);
    assert_eq!(seen(&server, "root-secret", "default"), [of_root.as_str()]);
}
