//! The work of durable handlers over HTTP: handlers and what they have open, their dead letters, sessions, schedules,
//! delayed events. Sessions of this process do the work, on the server's store.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use millrace::{Config, Event, Handler, HandlerOutcome, Schedule, Session};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::server::{Server, eventually};

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order: u64,
}

#[derive(Event, Serialize, Deserialize)]
struct Nightly {}

fn session(server: &Server) -> Session {
    let config = Config { event_max_attempts: 1, refresh_interval_ms: 50, ..Config::default() };
    Session::builder(&server.store_url()).config(config).metadata("version", "7").open().expect("a session")
}

#[track_caller]
fn get(server: &Server, path: &str) -> Value {
    let (status, answer) = server.get(path);
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

#[track_caller]
fn act(server: &Server, method: &str, path: &str, body: &Value, expected: u16) -> Value {
    let (status, answer) = server.send_json(method, path, body);
    assert_eq!(status, expected, "{method} {path}: {answer}");
    answer
}

fn publish(session: &Session, orders: std::ops::RangeInclusive<u64>) -> Vec<String> {
    let stored = orders.map(|order| session.publish(OrderPlaced { order }).expect("a publish"));
    stored.map(|stored| stored.id.to_string()).collect()
}

/// Returns a handler that gives up on every event.
fn gives_up() -> Handler {
    Handler::from_fn::<OrderPlaced>("shop:bill", |_| Err("no money".into()))
}

#[test]
fn handlers_show_what_they_hold_what_waits_and_what_they_gave_up_on() {
    let server = Server::start();
    assert_eq!(get(&server, "/handlers"), json!({"handlers": []}));
    let session = session(&server);
    let ids = publish(&session, 1..=1);
    let later = Handler::from_fn::<OrderPlaced>("shop:mail", |_| {
        Err(HandlerOutcome::retry_after(Duration::from_secs(3600), "the post is closed").into())
    });
    let (wake, asleep) = channel::<()>();
    let asleep = Mutex::new(asleep);
    let holds = Handler::from_fn::<OrderPlaced>("shop:pack", move |_| {
        // Ends with an error when the test lets go.
        let _ = asleep.lock().expect("one run at a time").recv();
        Ok(())
    });
    let more = millrace::HandlerSettings { max_attempts: Some(5), ..Default::default() };
    let handlers = vec![gives_up(), later.with_settings(more), holds];
    let config = Config { event_max_attempts: 1, handler_concurrency: 3, ..Config::default() };
    let worker = Session::builder(&server.store_url()).config(config).metadata("version", "7");
    let running = worker.open().expect("a session").spawn(handlers, vec![]).expect("a run");
    let of = |list: &Value, at: usize, name: &str| list["handlers"][at][name].clone();
    eventually("the first fails, the second waits, the third holds", || {
        let list = get(&server, "/handlers");
        (of(&list, 0, "deadLetters"), of(&list, 1, "waiting"), of(&list, 2, "claimed"))
            == (json!(1), json!(1), json!(1))
    });

    let list = get(&server, "/handlers");
    let names: Vec<Value> = (0..3).map(|at| of(&list, at, "handler")).collect();
    assert_eq!(names, [json!("shop:bill"), json!("shop:mail"), json!("shop:pack")]);
    assert_eq!((of(&list, 0, "pending"), of(&list, 1, "pending")), (json!(0), json!(1)));
    assert_eq!((of(&list, 0, "oldestMs"), of(&list, 2, "sessions")), (json!(null), json!(1)));
    assert!(of(&list, 1, "oldestMs").is_u64() && of(&list, 1, "nextDue").is_u64(), "{list}");
    assert_eq!((of(&list, 1, "topic"), of(&list, 1, "retrying")), (json!("order.placed"), json!(1)));
    let page = get(&server, "/handlers?limit=2");
    assert_eq!((page["handlers"].as_array().map(Vec::len), &page["next"]), (Some(2), &json!("shop:mail")));
    let rest = get(&server, "/handlers?limit=2&after=shop:mail");
    assert_eq!((of(&rest, 0, "handler"), rest.get("next")), (json!("shop:pack"), None));

    let only = get(&server, "/handlers?handler=shop:mail");
    assert_eq!((only["handlers"].as_array().map(Vec::len), of(&only, 0, "waiting")), (Some(1), json!(1)));

    let waiting = get(&server, "/handlers/shop:mail/claims?state=waiting");
    let claim = &waiting["claims"][0];
    assert_eq!((&claim["id"], &claim["attempts"]), (&json!(ids[0]), &json!(1)), "{waiting}");
    assert_eq!((&claim["state"], &claim["error"]), (&json!("waiting"), &json!("the post is closed")));
    assert!(claim["due"].as_u64() > claim["ts"].as_u64() && claim.get("leaseUntil").is_none(), "{claim}");
    assert_eq!(get(&server, "/handlers/shop:mail/claims?state=claimed")["claims"], json!([]));
    let held = get(&server, "/handlers/shop:pack/claims")["claims"][0].clone();
    assert_eq!(held["state"], "claimed");
    assert!(held["leaseUntil"].is_u64() && held["claimedAt"].is_u64(), "{held}");

    let sessions = get(&server, "/sessions");
    let mine = &sessions["sessions"][0];
    assert_eq!((&mine["session"], &mine["state"]), (&held["session"], &json!("alive")), "{sessions}");
    assert_eq!(mine["holds"], json!({"shop:pack": 1}));
    assert_eq!(
        (&mine["pid"], &mine["metadata"]["version"]),
        (&json!(std::process::id().to_string()), &json!("7"))
    );

    drop(wake);
    running.stop().expect("a stop");
    assert_eq!(get(&server, "/sessions?limit=1")["sessions"][0]["state"], "stopped");
    for path in
        ["/handlers?limit=0", "/handlers/shop:mail/claims?state=lost", "/handlers/shop:mail/claims?after=x"]
    {
        assert_eq!(server.get(path).0, 400, "{path}");
    }
    assert_eq!(server.get("/handlers/nobody/claims").0, 404);
    assert_eq!(get(&server, "/handlers?namespace=other")["handlers"], json!([]));

    let forgotten = act(&server, "DELETE", "/handlers/shop:mail", &json!({}), 200);
    assert_eq!(forgotten["handler"], "shop:mail");
    act(&server, "DELETE", "/handlers/shop:mail", &json!({}), 404);
    assert_eq!(of(&get(&server, "/handlers"), 1, "handler"), "shop:pack");
}

#[test]
fn a_handler_whose_events_a_live_session_holds_is_not_forgotten() {
    let server = Server::start();
    let session = session(&server);
    publish(&session, 1..=1);
    let (wake, asleep) = channel::<()>();
    let asleep = Mutex::new(asleep);
    let holds = Handler::from_fn::<OrderPlaced>("h", move |_| {
        // Ends with an error when the test lets go.
        let _ = asleep.lock().expect("one run at a time").recv();
        Ok(())
    });
    let running = session.beside().spawn(vec![holds], vec![]).expect("a run");
    eventually("it holds the event", || get(&server, "/handlers")["handlers"][0]["claimed"] == 1);
    let refused = act(&server, "DELETE", "/handlers/h", &json!({}), 409);
    assert!(refused["detail"].as_str().is_some_and(|why| why.contains("holds events")), "{refused}");
    assert_eq!(get(&server, "/handlers")["handlers"][0]["claimed"], 1, "nothing was changed");
    drop(wake);
    eventually("the event is done", || get(&server, "/handlers")["handlers"][0]["claimed"] == 0);
    running.stop().expect("a stop");
    act(&server, "DELETE", "/handlers/h", &json!({}), 200);
    assert_eq!(get(&server, "/handlers"), json!({"handlers": []}));
}

#[test]
fn a_delayed_event_of_a_deleted_topic_says_that_its_topic_is_gone() {
    let server = Server::start();
    let delayed = json!({"payload": 1, "id": "i", "delay_ms": 3_600_000});
    let (status, told) = server.post("/topics/later/events", &delayed);
    assert!(told["due"].is_u64(), "{status} {told}");
    let entry = get(&server, "/delayed")["delayed"][0].clone();
    assert_eq!(entry.get("topicGone"), None, "{entry}");
    assert_eq!(server.send_json("DELETE", "/topics/later", &json!(null)).0, 204);
    server.post("/topics", &json!({"topic": "later"}));
    let list = get(&server, "/delayed");
    assert_eq!(list["delayed"][0]["topicGone"], true, "a later topic of that name is another: {list}");
    let path = format!("/delayed/{}", entry["entry"].as_str().expect("an entry"));
    let refused = act(&server, "POST", &format!("{path}/now"), &json!({}), 409);
    assert!(refused["detail"].as_str().is_some_and(|why| why.contains("was deleted")), "{refused}");
    act(&server, "DELETE", &path, &json!({}), 200);
    assert_eq!(get(&server, "/delayed")["delayed"], json!([]));
}

#[test]
fn claims_come_in_pages() {
    let server = Server::start();
    let session = session(&server);
    publish(&session, 1..=5);
    let later = Handler::from_fn::<OrderPlaced>("h", |_| {
        Err(HandlerOutcome::snooze(Duration::from_secs(3600), "not now").into())
    });
    let running = session.spawn(vec![later], vec![]).expect("a run");
    eventually("all wait", || get(&server, "/handlers")["handlers"][0]["waiting"] == 5);
    running.stop().expect("a stop");
    let (mut offsets, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(&server, &format!("/handlers/h/claims?limit=2{after}"));
        let claims = page["claims"].as_array().expect("claims");
        offsets.extend(claims.iter().map(|claim| claim["offset"].as_u64().expect("an offset")));
        assert!(claims.iter().all(|claim| claim["snoozes"] == 1 && claim["attempts"] == 0), "{page}");
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(offsets, [1, 2, 3, 4, 5]);
}

#[test]
fn dead_letters_of_one_handler_are_replayed_and_deleted() {
    let server = Server::start();
    let session = session(&server);
    let ids = publish(&session, 1..=5);
    let other = Handler::from_fn::<OrderPlaced>("shop:other", |_| Err("never".into()));
    session.run_until_idle(vec![gives_up(), other], vec![]).expect("a run");
    let replay = "/handlers/shop:bill/dead-letters/replay";
    let named = act(&server, "POST", replay, &json!({"events": [ids[0], "nothing"]}), 200);
    assert_eq!((&named["done"], &named["missing"]), (&json!([ids[0]]), &json!(["nothing"])), "{named}");
    let list = get(&server, "/handlers");
    assert_eq!(
        (&list["handlers"][0]["pending"], &list["handlers"][0]["deadLetters"]),
        (&json!(1), &json!(4))
    );
    assert_eq!(list["handlers"][1]["deadLetters"], 5, "the other handler's letters stay");

    let page = act(&server, "POST", replay, &json!({"limit": 2}), 200);
    assert_eq!(page["done"], json!([ids[1], ids[2]]), "a letter that is being replayed is no letter");
    let next = page["next"].as_str().expect("there is more");
    let delete = "/handlers/shop:bill/dead-letters/delete";
    let rest = act(&server, "POST", delete, &json!({"limit": 1, "after": next}), 200);
    assert_eq!(rest["done"], json!([ids[3]]));
    let rest = act(&server, "POST", delete, &json!({}), 200);
    assert_eq!((&rest["done"], rest.get("next")), (&json!([ids[4]]), None));
    assert_eq!(act(&server, "POST", delete, &json!({}), 200)["done"], json!([]));

    let bill = Handler::from_fn::<OrderPlaced>("shop:bill", |_| Ok(()));
    session.beside().run_until_idle(vec![bill], vec![]).expect("a run");
    let list = get(&server, "/handlers");
    assert_eq!(
        (&list["handlers"][0]["pending"], &list["handlers"][0]["deadLetters"]),
        (&json!(0), &json!(0))
    );
    let again = act(&server, "POST", replay, &json!({"events": [ids[0]]}), 200);
    assert_eq!(again["missing"], json!([ids[0]]));

    act(&server, "DELETE", "/handlers/shop:other", &json!({}), 200);
    let orphans = act(&server, "POST", "/handlers/shop:other/dead-letters/replay", &json!({"limit": 1}), 200);
    let why = orphans["refused"][0]["detail"].as_str().expect("a reason");
    assert!(why.contains("not known") && orphans["done"] == json!([]), "{orphans}");
    for body in [json!({"events": []}), json!({"limit": 0}), json!({"limit": 501}), json!({"events": 7})] {
        act(&server, "POST", replay, &body, 400);
    }
    act(&server, "POST", replay, &json!({"events": vec!["x"; 501]}), 400);
}

fn count(server: &Server, topic: &str) -> usize {
    let (status, page) = server.get(&format!("/topics/{topic}/events?limit=1000"));
    if status == 404 { 0 } else { page["events"].as_array().map_or(0, Vec::len) }
}

#[test]
fn a_schedule_is_described_and_run_once_by_many_sessions() {
    let server = Server::start();
    assert_eq!(get(&server, "/schedules"), json!({"schedules": []}));
    let yearly = || {
        let schedule = Schedule::cron("30 2 1 1 *", Nightly {}).expect("a schedule").named("a/b ü");
        schedule.zone("Europe/Berlin").expect("a zone")
    };
    let sessions: Vec<_> = (0..3).map(|_| session(&server)).collect();
    let running: Vec<_> =
        sessions.iter().map(|one| one.spawn(vec![], vec![yearly()]).expect("a run")).collect();
    eventually("it is registered", || get(&server, "/schedules")["schedules"][0].is_object());
    let one = get(&server, "/schedules")["schedules"][0].clone();
    assert_eq!(
        (&one["name"], &one["cron"], &one["zone"]),
        (&json!("a/b ü"), &json!("30 2 1 1 *"), &json!("Europe/Berlin"))
    );
    assert_eq!(one["words"], "at 02:30, on day 1 of the month in January (Europe/Berlin)");
    assert_eq!((&one["enabled"], &one["fires"], &one["missed"]), (&json!(true), &json!(0), &json!(0)));
    assert_eq!((one.get("last"), one["next"].as_array().map(Vec::len)), (None, Some(5)));

    let path = "/schedules/a%2Fb%20%C3%BC";
    for fires in 1..=2 {
        let asked = act(&server, "POST", &format!("{path}/run"), &json!({}), 202);
        assert_eq!(asked["name"], "a/b ü");
        eventually("it fires", || get(&server, "/schedules")["schedules"][0]["fires"] == fires);
    }
    let ran = get(&server, "/schedules")["schedules"][0].clone();
    assert!(ran["last"].is_u64() && ran.get("runAskedAt").is_none(), "{ran}");
    assert_eq!(ran["next"], one["next"], "the planned fires are as before");
    for run in running {
        run.stop().expect("a stop");
    }
    assert_eq!(count(&server, "nightly"), 2, "each once, however many sessions there are");

    let waits = act(&server, "POST", &format!("{path}/run"), &json!({}), 202);
    assert!(waits["runAskedAt"].is_u64(), "no session runs: {waits}");
    let again = act(&server, "POST", &format!("{path}/run"), &json!({}), 202);
    assert_eq!(again["runAskedAt"], waits["runAskedAt"], "two requests are one fire");
    let late = sessions[0].beside().spawn(vec![], vec![yearly()]).expect("a run");
    eventually("a session makes the fire", || count(&server, "nightly") == 3);
    late.stop().expect("a stop");
    for act_on in ["run", "pause", "resume"] {
        act(&server, "POST", &format!("/schedules/nothing/{act_on}"), &json!({}), 404);
        act(&server, "POST", &format!("{path}/{act_on}?namespace=other"), &json!({}), 404);
    }
}

#[test]
fn a_pause_of_a_schedule_is_obeyed_at_once_and_over_restarts() {
    let mut server = Server::start();
    let session = session(&server);
    let often = || Schedule::cron("@every 1s", Nightly {}).expect("a schedule").named("often");
    let running = session.spawn(vec![], vec![often()]).expect("a run");
    eventually("it fires", || count(&server, "nightly") >= 1);
    let paused = act(&server, "POST", "/schedules/often/pause", &json!({}), 200);
    assert_eq!((&paused["enabled"], &paused["next"]), (&json!(false), &json!([])));
    let fires = paused["fires"].as_u64().expect("a number");
    // A run is the only thing that still fires: it comes after whatever the session had in hand.
    act(&server, "POST", "/schedules/often/run", &json!({}), 202);
    eventually("the run", || get(&server, "/schedules")["schedules"][0]["fires"] == fires + 1);
    assert_eq!(count(&server, "nightly") as u64, fires + 1, "nothing fired since the pause but the run");
    running.stop().expect("a stop");
    server.kill_and_restart();
    let running = session.beside().spawn(vec![], vec![often()]).expect("a run");
    act(&server, "POST", "/schedules/often/run", &json!({}), 202);
    eventually("the run", || get(&server, "/schedules")["schedules"][0]["fires"] == fires + 2);
    assert_eq!(count(&server, "nightly") as u64, fires + 2);
    let resumed = act(&server, "POST", "/schedules/often/resume", &json!({}), 200);
    assert_eq!((&resumed["enabled"], &resumed["missed"]), (&json!(true), &json!(0)), "{resumed}");
    eventually("it goes on", || count(&server, "nightly") as u64 > fires + 2);
    running.stop().expect("a stop");
}

#[test]
fn delayed_events_are_listed_published_now_and_cancelled() {
    let server = Server::start();
    assert_eq!(get(&server, "/delayed"), json!({"delayed": []}));
    let delay = |id: &str, topic: &str, seconds: u64| {
        let body =
            json!({"payload": {"id": id}, "id": id, "key": "k", "delay_ms": 3_600_000 + seconds * 1000});
        act(&server, "POST", &format!("/topics/{topic}/events"), &body, 200)
    };
    let due = delay("first", "later", 0)["due"].as_u64().expect("it waits");
    delay("second", "later", 1);
    delay("third", "other", 2);
    let session = session(&server);
    let at = millrace::Timestamp(due + 3_600_000);
    session.publish(OrderPlaced { order: 1 }.with_id("fourth").deliver_at(at)).expect("a publish");

    let list = get(&server, "/delayed");
    let ids: Vec<&str> =
        list["delayed"].as_array().expect("a list").iter().filter_map(|one| one["id"].as_str()).collect();
    assert_eq!(ids, ["fourth", "first", "second", "third"], "times of day come first: {list}");
    let first = &list["delayed"][1];
    assert_eq!(
        (&first["topic"], &first["key"], &first["waitsFor"]),
        (&json!("later"), &json!("k"), &json!("delay"))
    );
    assert!(first["due"].as_u64().expect("a time").abs_diff(due) < 60_000, "{first} and {due}");
    assert_eq!((&list["delayed"][0]["due"], &list["delayed"][0]["waitsFor"]), (&json!(at.0), &json!("time")));
    let of_topic = get(&server, "/delayed?topic=later");
    assert_eq!(of_topic["delayed"].as_array().map(Vec::len), Some(2), "{of_topic}");
    let (mut paged, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(&server, &format!("/delayed?limit=1{after}"));
        paged.extend(page["delayed"].as_array().expect("a list").clone());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(json!(paged), list["delayed"]);
    assert_eq!(get(&server, "/delayed?namespace=other")["delayed"], json!([]));

    let mut group = server.socket();
    group.subscribe("later", "g", &json!({"from": {"kind": "earliest"}}));
    let entry = first["entry"].as_str().expect("an entry").to_owned();
    let done = act(&server, "POST", &format!("/delayed/{entry}/now"), &json!({}), 200);
    assert_eq!((&done["id"], &done["state"]), (&json!("first"), &json!("published")));
    assert_eq!(group.expect("MESSAGE")["envelope"]["id"], "first", "groups get it at once");
    act(&server, "POST", &format!("/delayed/{entry}/now"), &json!({}), 404);
    act(&server, "DELETE", &format!("/delayed/{entry}"), &json!({}), 404);

    let second = list["delayed"][2]["entry"].as_str().expect("an entry");
    act(&server, "DELETE", &format!("/delayed/{second}?namespace=other"), &json!({}), 404);
    let gone = act(&server, "DELETE", &format!("/delayed/{second}"), &json!({}), 200);
    assert_eq!(gone["state"], "cancelled");
    let again = delay("second", "later", 1);
    assert_ne!(again["duplicate"], json!(true), "its id is free again: {again}");
    act(&server, "POST", "/delayed/a$b/now", &json!({}), 400);
    assert_eq!(server.get("/delayed?after=a$b").0, 400);
    let fourth = list["delayed"][0]["entry"].as_str().expect("an entry");
    act(&server, "POST", &format!("/delayed/{fourth}/now"), &json!({}), 200);
    let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
    let seen_by = seen.clone();
    let bill = Handler::from_fn::<OrderPlaced>("shop:bill", move |ctx| {
        seen_by.lock().expect("a lock").push(ctx.event.order);
        Ok(())
    });
    session.run_until_idle(vec![bill], vec![]).expect("a run");
    assert_eq!(*seen.lock().expect("a lock"), [1]);
}

#[test]
fn acts_are_audited() {
    let server = Server::with(&["--audit", "admin"]);
    let session = session(&server);
    let yearly = Schedule::cron("@yearly", Nightly {}).expect("a schedule").named("yearly");
    session.run_until_idle(vec![gives_up()], vec![yearly]).expect("a run");
    act(&server, "POST", "/schedules/yearly/pause", &json!({}), 200);
    act(&server, "DELETE", "/handlers/shop:bill", &json!({}), 200);
    let mut found = Vec::new();
    eventually("both are audited", || {
        let page = get(&server, "/topics/system.bus.audit/events?limit=1000");
        let records = page["events"].as_array().expect("events").iter().map(|event| event["payload"].clone());
        found = records.filter(|record| record.get("target").is_some()).collect();
        found.len() == 2
    });
    let told = |at: usize| (found[at]["kind"].clone(), found[at]["target"].clone());
    assert_eq!(told(0), (json!("schedule_paused"), json!("yearly")));
    assert_eq!(told(1), (json!("handler_forgotten"), json!("shop:bill")));
}
