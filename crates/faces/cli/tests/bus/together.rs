//! A session and a server on one file: they share one table of events and need no bridge.

use serde_json::{Value, json};

use crate::server::Server;

#[path = "../../../millrace/examples/ex7_beside_a_server.rs"]
mod example;

fn place(server: &Server, order: &str) {
    let mut socket = server.socket();
    socket.send(&json!({"type": "PUBLISH", "topic": "order.placed",
                        "payload": {"order_id": order, "total": 9.5}}));
    assert_eq!(socket.next()["type"], "PUBLISHED");
}

fn payload(message: &Value) -> &Value {
    assert_eq!(message["type"], "MESSAGE", "{message}");
    &message["envelope"]["payload"]
}

#[test]
fn what_a_client_publishes_a_handler_claims_and_what_it_commits_a_subscriber_receives() {
    let mut server = Server::start();
    let (session, running) = example::start(&server.store_url()).expect("a session");
    let mut subscriber = server.socket();
    subscriber.subscribe("order.shipped", "mail", &json!({"from": {"kind": "earliest"}}));
    place(&server, "o1");
    assert_eq!(payload(&subscriber.next()), &json!({"order_id": "o1"}));
    let order = session.get::<example::Order>("o1").expect("a read").expect("an order");
    assert!(order.value.shipped && order.value.total > 9.0);

    // The session works without a server, and the server finds what was committed while it was down.
    drop(subscriber);
    server.kill();
    session.publish(example::placed("o2")).expect("a commit without a server");
    server.restart();
    let mut subscriber = server.socket();
    subscriber.subscribe("order.shipped", "audit", &json!({"from": {"kind": "earliest"}}));
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.push(payload(&subscriber.next())["order_id"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(seen, ["o1", "o2"]);
    running.stop().expect("a session that stops");
}
