//! Durable handlers of sessions that share the server's store: their backlog in `/metrics`, and their dead letters
//! beside those of groups in `GET /dead-letters`.

use millrace::{Config, Event, Handler, Session};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::server::{Server, eventually};

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order: u64,
}

/// Runs a session that gives up on the orders with odd numbers, after one attempt each.
fn give_up_on_odd_ones(server: &Server, orders: u64) {
    let config = Config { event_max_attempts: 1, ..Config::default() };
    let session = Session::builder(&server.store_url()).config(config).open().expect("a session");
    for order in 1..=orders {
        session.publish(OrderPlaced { order }).expect("a publish");
    }
    let bill = Handler::from_fn::<OrderPlaced>("shop:bill", |ctx| match ctx.event.order % 2 {
        0 => Ok(()),
        _ => Err("no money".into()),
    });
    session.run_until_idle(vec![bill], vec![]).expect("a run");
}

#[test]
fn dead_letters_of_handlers_stand_beside_those_of_groups() {
    let server = Server::with(&["--max-attempts", "1"]);
    give_up_on_odd_ones(&server, 5);
    let mut socket = server.socket();
    socket.subscribe("jobs", "g", &json!({}));
    server.post("/topics/jobs/events", &json!({"payload": 1}));
    socket.next();
    socket.send_nack("jobs", "g", 1, &json!({"rid": 1}));
    eventually("the group gives up, too", || {
        server.get("/dead-letters").1["deadLetters"].as_array().is_some_and(|found| found.len() == 1)
    });

    let (_, listed) = server.get("/dead-letters");
    assert_eq!(listed["deadLetters"][0]["topic"], "jobs", "letters of groups stand where they stood");
    let handlers = listed["handlers"].as_array().expect("handlers");
    assert_eq!(handlers.len(), 1, "{listed}");
    assert_eq!(
        (&handlers[0]["handler"], &handlers[0]["topic"]),
        (&json!("shop:bill"), &json!("order.placed"))
    );
    assert_eq!(handlers[0]["count"], 3);
    assert!(handlers[0]["oldestTs"].as_u64() <= handlers[0]["newestTs"].as_u64(), "{listed}");

    let (_, page) = server.get("/dead-letters?handler=shop:bill&limit=2");
    let letters = page["letters"].as_array().expect("letters");
    assert_eq!(
        letters.iter().map(|one| one["payload"].clone()).collect::<Vec<_>>(),
        [json!({"order": 1}), json!({"order": 3})]
    );
    assert_eq!((&letters[0]["attempts"], &letters[0]["error"]), (&json!(1), &json!("no money")));
    let after = page["next"].as_str().expect("there is more").replace('/', "%2F");
    let (_, rest) = server.get(&format!("/dead-letters?handler=shop:bill&limit=2&after={after}"));
    assert_eq!(rest["letters"][0]["payload"], json!({"order": 5}));
    assert!(rest["next"].is_null(), "{rest}");
    assert_eq!(server.get("/dead-letters?handler=nobody").0, 404);
    assert_eq!(server.post("/handlers/nobody/dead-letters/replay", &json!({})).0, 404);
    let (_, bad) = server.get("/dead-letters?handler=shop:bill&limit=0");
    assert_eq!(bad["status"], 400, "{bad}");
    assert_eq!(server.get("/dead-letters?namespace=other").1["handlers"], json!([]));
}

#[test]
fn backlog_and_letters_of_handlers_are_metrics() {
    let server = Server::start();
    give_up_on_odd_ones(&server, 3);
    let session = Session::open(&server.store_url()).expect("a session");
    session.publish(OrderPlaced { order: 8 }).expect("a publish");
    let labels = "{namespace=\"default\",topic=\"order.placed\",handler=\"shop:bill\"}";
    let (_, text) = server.request("GET", "/metrics", None);
    for line in [
        format!("millrace_handler_events_pending{labels} 1\n"),
        format!("millrace_handler_events_claimed{labels} 0\n"),
        format!("millrace_handler_dead_letters{labels} 2\n"),
        format!("millrace_handler_paused{labels} 0\n"),
    ] {
        assert!(text.contains(&line), "{line} is not in {text}");
    }
}
