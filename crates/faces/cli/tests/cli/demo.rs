//! `millrace serve --demo`: a load to look at, in which something fails.

use serde_json::{Value, json};

use crate::run::{run, run_in};
use crate::server::{Server, eventually};

const TOPICS: [&str; 7] = [
    "demo.emails",
    "demo.orders",
    "demo.orders.DLQ",
    "demo.payments",
    "demo.payments.DLQ",
    "demo.reminders",
    "demo.reminders.DLQ",
];

fn demo() -> Server {
    Server::with(&["--demo"])
}

fn group(server: &Server, topic: &str, group: &str) -> Value {
    server.get("/stats").1["byGroup"][topic][group].clone()
}

fn newest(server: &Server, topic: &str) -> Option<Value> {
    let (_, page) =
        server.get(&format!("/topics/{topic}/events?order=desc&partition=all&lineage=true&limit=1"));
    page["events"].get(0).cloned()
}

#[test]
fn a_visitor_finds_causes_a_slow_group_and_letters_that_can_be_mended() {
    let mut server = demo();
    assert_eq!(server.topics(), TOPICS);
    for topic in TOPICS {
        let (_, settings) = server.get(&format!("/topics/{topic}"));
        assert!(settings["retentionBytes"].as_u64().is_some_and(|bytes| bytes <= 16 << 20), "{settings}");
        assert!(settings["retentionMs"].as_u64().is_some(), "{settings}");
    }

    // Events that cause others: the e-mail of a payment of an order.
    eventually("an e-mail is written", || newest(&server, "demo.emails").is_some());
    let email = newest(&server, "demo.emails").unwrap();
    let (root, cause) = (&email["lineage"]["root"], &email["lineage"]["causation"]);
    let found = |id: &Value| server.get(&format!("/events/{}", id.as_str().unwrap())).1["event"].clone();
    let (order, payment) = (found(root), found(cause));
    assert_eq!((&order["topic"], &payment["topic"]), (&json!("demo.orders"), &json!("demo.payments")));
    assert_eq!(order["payload"]["order"], email["payload"]["order"]);
    assert_eq!(email["lineage"]["depth"], json!(2));

    eventually("the warehouse falls behind", || {
        group(&server, "demo.orders", "warehouse")["lag"].as_u64() > Some(3)
    });
    assert!(group(&server, "demo.orders", "reports")["lag"].as_u64() < Some(3), "another group keeps up");

    // A letter, mended and replayed, succeeds.
    let letters = || server.get("/topics/demo.payments.DLQ/events").1["events"].clone();
    eventually("a letter is there", || letters().get(0).is_some());
    let letter = letters()[0].clone();
    assert_eq!(letter["headers"]["x-dlq-reason"], "the address hedy@@example.com is not valid");
    let mut payload = letter["payload"].clone();
    payload["email"] = json!("hedy@example.com");
    let edit = json!({"edited": [{"partition": 0, "offset": letter["offset"], "payload": payload}]});
    let (status, replayed) = server.post("/dead-letters/demo.payments/replay", &edit);
    assert_eq!(status, 200, "{replayed}");
    eventually("the mended letter is sent", || {
        let (_, found) = server.get("/topics/demo.emails/events?key=hedy&partition=all");
        found["events"].get(0).is_some_and(|email| email["payload"]["to"] == "hedy@example.com")
    });

    assert_eq!(server.terminate(), Some(0));
    server.restart();
    assert_eq!(server.topics(), TOPICS, "the demo's own store is its own again");
}

#[test]
fn a_visitor_finds_events_that_wait_and_an_audit_of_what_the_visitor_did() {
    let server = demo();
    let waiting = || server.get("/delayed?topic=demo.reminders").1["delayed"].clone();
    eventually("a reminder waits", || waiting().get(0).is_some());
    let reminder = waiting()[0].clone();

    // Delivered now instead of in ten minutes, it becomes an e-mail.
    let entry = reminder["entry"].as_str().unwrap();
    let (status, done) = server.post(&format!("/delayed/{entry}/now"), &json!({}));
    assert_eq!((status, &done["state"]), (200, &json!("published")), "{done}");
    let question = || {
        let (_, found) = server.get("/topics/demo.emails/events?contains=How&partition=all&lineage=true");
        found["events"].get(0).cloned()
    };
    eventually("the customer is asked", || question().is_some());
    let (_, order) =
        server.get(&format!("/events/{}", question().unwrap()["lineage"]["root"].as_str().unwrap()));
    assert_eq!(order["event"]["topic"], "demo.orders", "the chain begins with the order");
    assert!(reminder["due"].as_u64() > order["event"]["ts"].as_u64(), "{reminder}");

    eventually("the act is audited", || {
        let (_, page) = server.get("/topics/system.bus.audit/events?limit=1000");
        let records = page["events"].as_array().cloned().unwrap_or_default();
        records.iter().any(|record| record["payload"]["target"] == reminder["id"])
    });
}

#[test]
fn a_store_with_other_topics_is_refused() {
    let mut server = Server::start();
    server.post("/topics/orders/events", &json!({"payload": {"id": 1}}));
    server.terminate();
    let store = server.store_url();
    let serve = |store: &str| {
        let flags = ["serve", "--demo", "--listen", "127.0.0.1:0", "--socket", "none", "--store", store];
        run_in(server.folder(), &[], &flags)
    };
    serve(&store).refused(
        1,
        &["demo is set", "default/orders", "another store", "memory:", "remove millrace-demo.db"],
    );
    serve("dir:///shared").refused(2, &["demo is set", "other servers share"]);
    server.restart();
    assert_eq!(server.topics(), ["orders"], "nothing was added");
}

#[test]
fn the_demo_has_a_store_of_its_own_unless_one_is_given() {
    let store =
        |flags: &[&str]| run(&[&["config", "print", "--json"], flags].concat()).json()["store"].clone();
    assert_eq!(store(&["--demo"]), json!({"value": "sqlite:///millrace-demo.db", "from": "default"}));
    assert_eq!(store(&["--demo", "--store", "memory:"])["value"], "memory:");
    assert_eq!(store(&[])["value"], "sqlite:///millrace.db");
}

#[test]
fn the_demo_audits_unless_it_is_told_what_to_audit() {
    let audit =
        |flags: &[&str]| run(&[&["config", "print", "--json"], flags].concat()).json()["audit"].clone();
    assert_eq!(audit(&["--demo"]), json!({"value": ["refusals", "admin"], "from": "default"}));
    assert_eq!(audit(&["--demo", "--audit", "read"])["value"], json!(["read"]));
    assert_eq!(audit(&["--demo", "--audit", ""])["value"], json!([]));
    assert_eq!(audit(&[])["value"], json!([]));
}

#[test]
fn without_one_of_its_topics_the_demo_ends_and_the_server_goes_on() {
    let server = Server::with_log_level("", &["--demo"], "info");
    assert!(server.log().contains("the demo runs"), "{}", server.log());
    // Before that, deleting the topic would only make the group begin with a new one.
    eventually("the topic is read", || group(&server, "demo.emails", "archive").is_object());
    let (status, gone) = server.send_json("DELETE", "/topics/demo.emails", &Value::Null);
    assert_eq!(status, 204, "{gone}");
    eventually("the demo says that it has ended", || server.log().contains("the demo has ended"));
    assert_eq!(server.get("/readyz").0, 200);
}
