//! The output of `millrace events handlers`, `schedules`, `show` and `millrace info` about the work of handlers.

use millrace::{Config, Event, Handler, Schedule, Session};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::run::{Ran, run};

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order: u64,
}

#[derive(Event, Serialize, Deserialize)]
struct Nightly {}

struct Shop {
    folder: TempDir,
}

impl Shop {
    /// Publishes two orders. `shop:bill` handles both, `shop:mail` handles the first and gives up on the second.
    /// `shop:audit` ran once before and has done nothing since.
    fn open() -> Shop {
        let shop = Shop { folder: tempfile::tempdir().unwrap() };
        let config = Config { event_max_attempts: 1, ..Config::default() };
        let session = Session::builder(&shop.url()).namespace("shop").config(config).open().unwrap();
        let idle = Handler::from_fn::<OrderPlaced>("shop:audit", |_| Ok(()));
        session.run_until_idle(vec![idle], vec![]).unwrap();
        for order in 1..=2 {
            session.publish(OrderPlaced { order }).unwrap();
        }
        let bill = Handler::from_fn::<OrderPlaced>("shop:bill", |_| Ok(()));
        let mail = Handler::from_fn::<OrderPlaced>("shop:mail", |ctx| match ctx.event.order {
            1 => Ok(()),
            _ => Err("no such address".into()),
        });
        let nightly =
            Schedule::cron("30 2 * * *", Nightly {}).unwrap().named("nightly").zone("Europe/Berlin");
        let often = Schedule::cron("@every 90s", Nightly {}).unwrap().named("often");
        session.run_until_idle(vec![bill, mail], vec![nightly.unwrap(), often]).unwrap();
        session.set_schedule_enabled("often", false).unwrap();
        session.publish(Nightly {}).unwrap();
        shop
    }

    fn url(&self) -> String {
        format!("sqlite:///{}", self.folder.path().join("shop.db").display())
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&[args, &["--store", &self.url()]].concat())
    }

    fn events(&self, args: &[&str]) -> Ran {
        self.run(&[&["events"], args, &["--namespace", "shop"]].concat())
    }
}

#[test]
fn handlers_are_listed_with_what_they_owe_and_gave_up_on() {
    let shop = Shop::open();
    let listed = shop.events(&["handlers", "--json"]).json();
    let rows: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["handler_id"].as_str().unwrap().to_owned(),
                one["pending"].clone(),
                one["dead_letters"].clone(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("shop:audit".to_owned(), json!(2), json!(0)),
            ("shop:bill".to_owned(), json!(0), json!(0)),
            ("shop:mail".to_owned(), json!(0), json!(1)),
        ]
    );
    assert_eq!((&listed[0]["event_type"], &listed[0]["claimed"]), (&json!("order.placed"), &json!(0)));
    let table = shop.events(&["handlers"]).ok();
    assert!(table.starts_with("Handler"), "{table}");
    let audit: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        (audit[0], audit[1], &audit[4..]),
        ("shop:audit", "order.placed", &["2", "0", "0", "0", "no"][..])
    );
    assert_eq!(shop.run(&["events", "handlers", "--namespace", "nobody", "--json"]).json(), json!([]));
    shop.events(&["pause-handler", "shop:audit"]).ok();
    let paused = shop.events(&["handlers", "--json"]).json();
    assert_eq!((&paused[0]["paused"], &paused[1]["paused"]), (&json!(true), &json!(false)));
}

#[test]
fn schedules_are_listed_with_their_next_fire() {
    let shop = Shop::open();
    let listed = shop.events(&["schedules", "--json"]).json();
    let nightly = &listed[0];
    assert_eq!((&nightly["name"], &nightly["zone"]), (&json!("nightly"), &json!("Europe/Berlin")));
    assert_eq!((&nightly["enabled"], &nightly["event_type"]), (&json!(true), &json!("nightly")));
    let next = nightly["next_at"].as_str().unwrap();
    assert!(next.ends_with(":30:00.000Z") && nightly["overdue_since"].is_null(), "{nightly}");
    assert_eq!((&listed[1]["cron"], &listed[1]["enabled"]), (&json!("@every 90s"), &json!(false)));
    assert!(listed[1]["next_at"].is_null(), "{listed}");
    let table = shop.events(&["schedules"]).ok();
    assert!(table.starts_with("Schedule") && table.lines().nth(2).unwrap().ends_with("off"), "{table}");
}

#[test]
fn events_tell_which_handlers_still_owe_them() {
    let shop = Shop::open();
    let shown = shop.events(&["show", "--json"]).json();
    let of = |event_type: &str| -> Vec<&Value> {
        shown.as_array().unwrap().iter().filter(|event| event["type"] == event_type).collect()
    };
    let orders = of("order.placed");
    assert_eq!(orders[0]["owed_by"], json!(["shop:audit"]), "{shown}");
    let statuses: Vec<_> =
        orders[1]["handlers"].as_array().unwrap().iter().map(|one| one["status"].clone()).collect();
    assert_eq!(statuses, ["pending", "acked", "dead_lettered"], "{shown}");
    assert_eq!((&of("nightly")[0]["owed_by"], &of("nightly")[0]["status"]), (&json!([]), &json!("pending")));
    let table = shop.events(&["show"]).ok();
    let line = |event_type: &str| table.lines().find(|line| line.contains(event_type)).unwrap().to_owned();
    assert!(line("order.placed").ends_with("shop:audit") && table.starts_with("Event ID"), "{table}");
    assert!(line("nightly").ends_with("no handler yet"), "{table}");
    let id = orders[1]["id"].as_str().unwrap();
    let seen = shop.run(&["events", "inspect", "--event-id", id, "--json"]).json();
    assert_eq!(seen["owed_by"], json!(["shop:audit"]));
}

#[test]
fn a_store_is_shown_at_a_glance() {
    let shop = Shop::open();
    let info = shop.run(&["info", "--json"]).json();
    assert_eq!(info["version"], json!(env!("CARGO_PKG_VERSION")));
    assert_eq!((&info["store"], &info["served"]), (&json!(shop.url()), &json!(false)));
    assert_eq!(info["schema"], info["schema_of_this_version"]);
    assert!(info["store_bytes"].as_u64().unwrap() > 0, "{info}");
    let totals = &info["totals"];
    for (name, expected) in [
        ("namespaces", 1),
        ("topics", 3),
        ("events", 4),
        ("groups", 0),
        ("handlers", 3),
        ("schedules", 2),
        ("sessions", 0),
        ("handler_dead_letters", 1),
        ("group_dead_letters", 0),
    ] {
        assert_eq!(totals[name], json!(expected), "{name} of {info}");
    }
    let shown = shop.run(&["info"]).ok();
    assert!(shown.contains("1 of handlers, 0 of groups") && shown.contains("by no server"), "{shown}");
}

#[test]
fn info_makes_no_store_and_tells_what_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| format!("sqlite:///{}", folder.path().join(name).display());
    run(&["info", "--store", &url("none.db")]).refused(3, &["there is no store at"]);
    run(&["info", "--store", "memory:"]).refused(3, &["memory:"]);
    run(&["info", "--store", "nonsense:"]).refused(2, &["nonsense:"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    std::fs::write(folder.path().join("note.txt"), "this is no store").unwrap();
    run(&["info", "--store", &url("note.txt")]).refused(3, &["note.txt"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("note.txt")).unwrap(), "this is no store");
}

#[test]
fn a_schedule_is_paused_resumed_and_asked_to_run() {
    let shop = Shop::open();
    let nightly = || shop.events(&["schedules", "--json"]).json()[0].clone();
    let one = nightly();
    assert_eq!(one["words"], "at 02:30 (Europe/Berlin)");
    assert_eq!((one["next"].as_array().map(Vec::len), &one["missed"]), (Some(5), &json!(0)), "{one}");
    let said = shop.events(&["pause-schedule", "nightly"]).ok();
    assert!(said.contains("is paused: it fires no more"), "{said}");
    assert_eq!((&nightly()["enabled"], &nightly()["next_at"]), (&json!(false), &json!(null)));
    let said = shop.events(&["run-schedule", "nightly", "--json"]).json();
    assert_eq!(said, json!({"namespace": "shop", "schedule": "nightly", "run_asked": true}));
    assert!(nightly()["run_asked_at"].is_string(), "{}", nightly());
    shop.events(&["resume-schedule", "nightly"]).ok();
    assert_eq!(nightly()["enabled"], json!(true));
    for verb in ["pause-schedule", "resume-schedule", "run-schedule"] {
        shop.events(&[verb, "daily"]).refused(1, &["there is no schedule \"daily\""]);
    }
}
