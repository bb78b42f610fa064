//! `millrace events` and `millrace commits`: what users see of durable handlers, and what they can repair.

use millrace::{Config, Entity, Event, HandlerContext, Result, Session, SessionError, handlers, on_event};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::run::{Ran, run};

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order: u64,
}

#[derive(Event, Serialize, Deserialize)]
#[event(priority = 50)]
struct PaymentDone {
    order: u64,
}

#[derive(Entity, Serialize, Deserialize)]
struct Payment {
    #[key]
    order: u64,
    paid: bool,
}

#[on_event(OrderPlaced, id = "shop:pay")]
fn pay(ctx: &mut HandlerContext<OrderPlaced>) -> Result<()> {
    let order = ctx.event.order;
    if order == 3 {
        return Err(SessionError::EventLoopLimit { depth: 1, limit: 0 });
    }
    ctx.ensure(Payment { order, paid: true })?;
    ctx.add_commit_meta("by", "test");
    ctx.commit_with(PaymentDone { order })?;
    Ok(())
}

#[on_event(OrderPlaced, id = "shop:thank")]
fn thank(_: &mut HandlerContext<OrderPlaced>) -> Result<()> {
    Ok(())
}

struct Shop {
    folder: TempDir,
}

impl Shop {
    /// Publishes three orders: two are paid, one becomes a dead letter at its first failure. No handler takes the
    /// payments.
    fn open() -> Shop {
        let shop = Shop { folder: tempfile::tempdir().unwrap() };
        let config = Config { event_max_attempts: 1, ..Config::default() };
        let session = Session::builder(&shop.url()).namespace("shop").config(config).open().unwrap();
        for order in 1..=3 {
            session.publish(OrderPlaced { order }).unwrap();
        }
        session.run_until_idle(handlers![pay], vec![]).unwrap();
        shop
    }

    fn url(&self) -> String {
        format!("sqlite:///{}", self.folder.path().join("shop.db").display())
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&[args, &["--store", &self.url()]].concat())
    }

    fn shown(&self) -> Vec<Value> {
        let all = self.run(&["events", "show", "--namespace", "shop", "--limit", "100", "--json"]).json();
        all.as_array().unwrap().clone()
    }

    fn ids_of(&self, event_type: &str) -> Vec<String> {
        let of_type =
            |event: &Value| (event["type"] == event_type).then(|| event["id"].as_str().unwrap().to_owned());
        self.shown().iter().filter_map(of_type).collect()
    }
}

#[test]
fn everything_is_listed_for_people_and_for_programs() {
    let shop = Shop::open();
    let namespaces = shop.run(&["events", "list-namespaces"]).ok();
    let mut lines = namespaces.lines();
    assert_eq!(lines.next(), Some("Namespace  Sessions  Pending Events  Dead Letters"));
    assert_eq!(lines.next().unwrap().split_whitespace().collect::<Vec<_>>(), ["shop", "0", "3", "1"]);
    let namespaces = shop.run(&["events", "list-namespaces", "--json"]).json();
    assert_eq!(
        namespaces,
        json!([{
            "namespace": "shop", "sessions": 0, "pending_events": 3, "without_handler": 3, "dead_letters": 1,
        }]),
        "as many as `show` lists as pending below"
    );

    let sessions = shop.run(&["events", "sessions", "--namespace", "shop"]).ok();
    assert!(sessions.starts_with("Session ID"), "{sessions}");
    assert!(
        sessions.contains(&std::process::id().to_string()) && sessions.contains("(STOPPED)"),
        "{sessions}"
    );

    let statuses: Vec<_> =
        shop.shown().iter().map(|event| (event["type"].clone(), event["status"].clone())).collect();
    for (event_type, status, count) in [
        ("order.placed", "acked", 2),
        ("order.placed", "dead_lettered", 1),
        ("payment.done", "pending", 2),
        ("event.dead_letter", "pending", 1),
    ] {
        let found = statuses.iter().filter(|found| **found == (json!(event_type), json!(status))).count();
        assert_eq!(found, count, "{event_type} {status} in {statuses:?}");
    }
    let table = shop.run(&["events", "show", "--namespace", "shop"]).ok();
    assert!(table.starts_with("Event ID") && table.contains("shop:pay"), "{table}");

    let letters = shop.run(&["events", "dead-letters", "--namespace", "shop"]).ok();
    assert!(letters.contains("order.placed") && letters.contains("shop:pay"), "{letters}");
}

#[test]
fn an_event_that_two_handlers_have_not_finished_is_one_pending_event() {
    let shop = Shop { folder: tempfile::tempdir().unwrap() };
    let session = Session::builder(&shop.url()).namespace("shop").open().unwrap();
    session.run_until_idle(handlers![pay, thank], vec![]).unwrap();
    for order in [1, 2] {
        session.publish(OrderPlaced { order }).unwrap();
    }
    // An event with another priority than the default, of a type that no handler takes.
    session.publish(PaymentDone { order: 1 }).unwrap();
    let namespaces = shop.run(&["events", "list-namespaces", "--json"]).json();
    assert_eq!((&namespaces[0]["pending_events"], &namespaces[0]["without_handler"]), (&json!(3), &json!(1)));
    let pending = shop.shown().iter().filter(|event| event["status"] == "pending").count();
    assert_eq!(pending, 3);
}

#[test]
fn one_event_is_shown_in_full_with_its_lineage() {
    let shop = Shop::open();
    let payment = &shop.ids_of("payment.done")[0];
    let seen = shop.run(&["events", "inspect", "--event-id", payment, "--json"]).json();
    let order = &shop.ids_of("order.placed")[0];
    assert_eq!((&seen["root_event_id"], &seen["causation_id"]), (&json!(order), &json!(order)));
    assert_eq!(
        (&seen["chain_depth"], &seen["priority"], &seen["namespace"]),
        (&json!(1), &json!(50), &json!("shop"))
    );
    let seen = shop.run(&["events", "inspect", "--event-id", order]).ok();
    assert!(seen.contains("\"ack_at\"") && seen.contains("\n  \"claims\": ["), "{seen}");
    shop.run(&["events", "inspect", "--event-id", "nobody"]).refused(1, &["there is no event nobody"]);
}

#[test]
fn a_dead_letter_is_replayed_to_the_handler_that_gave_up() {
    let shop = Shop::open();
    let letters =
        |args: &[&str]| shop.run(&[&["events", "dead-letters", "--namespace", "shop"], args].concat());
    let dead = letters(&["--json"]).json()[0]["event_id"].as_str().unwrap().to_owned();
    letters(&["--replay", &dead, "--publish-again", &dead]).refused(2, &["--publish-again"]);
    let said = letters(&["--replay", &dead]).ok();
    assert_eq!(
        said,
        format!(
            "Event {dead} re-enqueued for handler shop:pay of namespace 'shop'\nAvailable for processing immediately\n"
        )
    );
    assert_eq!(shop.ids_of("order.placed").len(), 3, "nothing was published");
    let status = |id: &str| {
        shop.shown().iter().find(|event| event["id"] == id).map(|event| event["status"].clone()).unwrap()
    };
    assert_eq!(status(&dead), json!("pending"));
    assert_eq!(letters(&["--replay", "all"]).ok(), "No dead letters in namespace 'shop'\n");
    letters(&["--replay", &dead]).refused(1, &["there is no dead letter of event"]);

    // The handler fails once more; then a repaired handler runs.
    let session = || {
        let config = Config { event_max_attempts: 1, ..Config::default() };
        Session::builder(&shop.url()).namespace("shop").config(config).open().unwrap()
    };
    session().run_until_idle(handlers![pay], vec![]).unwrap();
    let said = letters(&["--replay", "all", "--json"]).json();
    assert_eq!(said, json!([{"replayed_event_id": dead, "handler_id": "shop:pay", "namespace": "shop"}]));
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let notes = seen.clone();
    let mended = millrace::Handler::from_fn::<OrderPlaced>("shop:pay", move |ctx| {
        notes.lock().unwrap().push((ctx.meta().id.to_string(), ctx.event.order, ctx.meta().attempt));
        Ok(())
    });
    session().run_until_idle(vec![mended], vec![]).unwrap();
    assert_eq!(*seen.lock().unwrap(), [(dead.clone(), 3, 1)]);
    assert_eq!(status(&dead), json!("acked"));
}

#[test]
fn a_letter_that_cannot_be_replayed_stays_and_says_what_can_be_done() {
    let letters = |shop: &Shop, args: &[&str]| {
        shop.run(&[&["events", "dead-letters", "--namespace", "shop"], args].concat())
    };
    let shop = Shop::open();
    let dead = letters(&shop, &["--json"]).json()[0]["event_id"].as_str().unwrap().to_owned();
    shop.run(&["events", "cleanup", "--namespace", "shop", "--before", "0s"]).ok();
    for which in [dead.as_str(), "all"] {
        letters(&shop, &["--replay", which]).refused(1, &["not in the log any more", "--publish-again"]);
    }
    let said = letters(&shop, &["--publish-again", &dead]).ok();
    assert!(said.starts_with(&format!("Event {dead} published again for namespace 'shop' as ")), "{said}");
    assert!(said.ends_with("Available for processing immediately\n"), "{said}");
    let copy = &shop.ids_of("order.placed")[0];
    let copy = shop.run(&["events", "inspect", "--event-id", copy, "--json"]).json();
    assert_eq!(copy["headers"]["x-replayed-from"], json!(dead));
    assert_eq!(letters(&shop, &["--publish-again", "all"]).ok(), "No dead letters in namespace 'shop'\n");

    let shop = Shop::open();
    shop.run(&["events", "forget-handler", "shop:pay", "--namespace", "shop"]).ok();
    letters(&shop, &["--replay", "all"]).refused(1, &["shop:pay is not known", "--publish-again"]);
    assert_eq!(letters(&shop, &["--json"]).json().as_array().unwrap().len(), 1, "the letter is still there");
    // The handler registers again, and receives everything that is retained, so it gets the event without a replay.
    let session = Session::builder(&shop.url()).namespace("shop").open().unwrap();
    session
        .run_until_idle(vec![millrace::Handler::from_fn::<OrderPlaced>("shop:pay", |_| Ok(()))], vec![])
        .unwrap();
    letters(&shop, &["--replay", "all"]).refused(1, &["has finished event"]);
}

#[test]
fn an_event_is_published_again_for_everybody() {
    let shop = Shop::open();
    let order = &shop.ids_of("order.placed")[0];
    let said = shop.run(&["events", "replay", "--namespace", "shop", "--event-id", order, "--json"]).json();
    let copy = shop
        .run(&["events", "inspect", "--event-id", said["new_event_id"].as_str().unwrap(), "--json"])
        .json();
    assert_eq!(copy["headers"]["x-replayed-from"], json!(order));
    assert_eq!((&copy["root_event_id"], &copy["chain_depth"]), (&said["new_event_id"], &json!(0)));
    shop.run(&["events", "replay", "--namespace", "other", "--event-id", order])
        .refused(1, &["there is no event"]);
    let help = shop.run(&["events", "replay", "--help"]).ok();
    assert!(help.contains("every handler of its type"), "{help}");
}

#[test]
fn dead_letters_are_deleted_by_hand_or_by_age_and_their_events_are_not_sent_again() {
    let letters = |shop: &Shop| {
        let all = shop.run(&["events", "dead-letters", "--namespace", "shop", "--json"]).json();
        all.as_array()
            .unwrap()
            .iter()
            .map(|letter| letter["event_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let shop = Shop::open();
    let delete = |args: &[&str]| {
        shop.run(&[&["events", "dead-letters", "--namespace", "shop", "--delete"], args].concat())
    };
    let dead = letters(&shop).remove(0);
    delete(&["somebody-else"]).refused(1, &["there is no dead letter of event somebody-else"]);
    delete(&["all", "--replay", "all"]).refused(2, &["--replay"]);
    assert_eq!(letters(&shop), std::slice::from_ref(&dead), "nothing was deleted so far");
    assert_eq!(delete(&[&dead]).ok(), "Deleted 1 dead letter of namespace 'shop'\n");
    assert_eq!(letters(&shop), Vec::<String>::new());
    assert_eq!(delete(&["all", "--json"]).json(), json!({"namespace": "shop", "deleted": 0}));
    assert_eq!(shop.ids_of("order.placed").len(), 3, "its event is still there, and there is no copy");
    delete(&[&dead]).refused(1, &["there is no dead letter"]);

    let shop = Shop::open();
    let clean = |args: &[&str]| shop.run(&[&["events", "cleanup", "--namespace", "shop"], args].concat());
    clean(&["--before", "0s"]).ok();
    assert_eq!(letters(&shop).len(), 1, "without a word they stay");
    clean(&["--before", "1d", "--dead-letters"]).ok();
    assert_eq!(letters(&shop).len(), 1, "it is younger");
    let said = clean(&["--before", "0s", "--dead-letters"]).ok();
    assert_eq!(said, "Deleted 0 events and 1 dead letter older than 0 seconds for namespace 'shop'\n");
    assert_eq!(letters(&shop), Vec::<String>::new());
}

#[test]
fn cleanup_removes_what_is_finished_and_with_all_the_rest() {
    let shop = Shop::open();
    let clean = |args: &[&str]| shop.run(&[&["events", "cleanup", "--namespace", "shop"], args].concat());
    assert_eq!(clean(&["--before", "7d"]).ok(), "Deleted 0 events older than 7 days for namespace 'shop'\n");
    clean(&["--before", "soon"]).refused(2, &["--before", "7d"]);
    // The orders are finished by their only handler, and the notice about the dead letter has no handler. The payments
    // are pending, because a handler for them may still come.
    let said = clean(&["--before", "0s", "--json"]).json();
    assert_eq!(said["deleted"], json!(4), "{said}");
    let kept: Vec<_> = shop.shown().iter().map(|event| event["status"].clone()).collect();
    assert_eq!(kept, ["pending"; 2]);
    clean(&["--before", "0s", "--all"]).ok();
    assert_eq!(shop.shown(), Vec::<Value>::new());
    let sessions = shop.run(&["events", "sessions", "--namespace", "shop", "--json"]).json();
    assert_eq!(sessions.as_array().unwrap().len(), 1, "a session of today keeps its row");

    let shop = Shop::open();
    let session = Session::builder(&shop.url()).namespace("shop").open().unwrap();
    session.publish(OrderPlaced { order: 9 }).unwrap();
    drop(session);
    let clean =
        |args: &[&str]| shop.run(&[&["events", "cleanup", "--namespace", "shop", "--json"], args].concat());
    clean(&["--before", "0s"]).json();
    assert_eq!(shop.ids_of("order.placed").len(), 1, "nobody has handled it yet");
    clean(&["--before", "0s", "--all"]).json();
    assert_eq!(shop.ids_of("order.placed").len(), 0);
}

#[test]
fn a_handler_that_will_not_come_back_is_forgotten() {
    let shop = Shop::open();
    let said = shop.run(&["events", "forget-handler", "shop:pay", "--namespace", "shop"]).ok();
    assert_eq!(said, "Handler shop:pay of namespace 'shop' is forgotten\n");
    shop.run(&["events", "forget-handler", "shop:pay", "--namespace", "shop"])
        .refused(1, &["there is no handler"]);
}

#[test]
fn commits_tell_what_changed_and_why() {
    let shop = Shop::open();
    let listed = shop.run(&["commits", "list", "--namespace", "shop", "--json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!((&listed[0]["commit_id"], &listed[0]["meta"]["by"]), (&json!(2), &json!("test")));
    let shown = shop.run(&["commits", "show", "1", "--namespace", "shop"]).ok();
    assert!(shown.starts_with("commit 1 of ") && shown.contains("insert  Payment  1"), "{shown}");
    shop.run(&["commits", "show", "77", "--namespace", "shop"]).refused(1, &["there is no commit 77"]);
}

#[test]
fn no_store_is_ever_made() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:///{}", folder.path().join("none.db").display());
    for args in [
        &["events", "list-namespaces"][..],
        &["events", "show"],
        &["events", "cleanup", "--before", "1d"],
        &["commits", "list"],
    ] {
        run(&[args, &["--store", &url]].concat()).refused(3, &["there is no store at"]);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
