//! The work of durable handlers and what waits for its time, over HTTP. The rows are those that sessions write; the
//! tests of the binary (`cli/tests/bus/handler_work.rs`) run real sessions.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_bus::BusLimits;
use millrace_model::*;
use millrace_server::{Server, ServerSettings};
use millrace_store::{MemoryStore, Store};
use serde_json::{Value, json};
use support::{Client, http, start, start_on};

async fn get(addr: SocketAddr, path: &str) -> Value {
    ask(addr, "GET", path, "", 200).await
}

async fn ask(addr: SocketAddr, method: &str, path: &str, body: &str, expected: u16) -> Value {
    let answer = http(addr, method, path, body).await;
    assert_eq!(answer.status, expected, "{method} {path}: {answer:?}");
    answer.json()
}

fn now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64)
}

fn id(handler: &str) -> HandlerId {
    HandlerId::new(handler).unwrap()
}

fn stream() -> Stream {
    TopicKey::parse("default/order.placed").unwrap().stream(Partition(0))
}

fn put(space: Space, key: String, value: bytes::Bytes) -> Op {
    Op::Put { space, key, value }
}

/// Commits as a session of another process would.
fn commit(store: &dyn Store, ops: Vec<Op>) {
    let batch = Batch { nonce: 7, now: now(), durability: Durability::Fsync, checks: Vec::new(), ops };
    assert!(matches!(store.commit(&[batch]).unwrap()[0], Outcome::Done(_)));
}

fn claim(offset: u64, row: ClaimRow) -> Op {
    let row = ClaimRow { generation: 1, ts: now(), claimed_at: now(), ..row };
    Ticket { handler: id("shop:bill"), stream: stream(), offset: Offset(offset), row }.put()
}

fn letter(handler: &str, offset: u64, event: &str) -> Vec<Op> {
    let failed_at = Timestamp(now().0 - 10_000 + offset);
    let row = DeadLetterRow {
        event_id: EventId::parse(event).unwrap(),
        event_type: "order.placed".to_owned(),
        partition: 0,
        offset: Offset(offset),
        handler: id(handler),
        session: None,
        attempts: 3,
        error: "no money".to_owned(),
        failed_at,
        payload: Some("1".to_owned()),
        key: None,
        headers: None,
        priority: Priority::default(),
        root: None,
        depth: 0,
        steps: 0,
    };
    let ended =
        FinishedRow { ending: Ending::DeadLettered, at: failed_at, attempts: 3, session: None, error: None };
    vec![
        put(
            Space::DeadLetters,
            keys::dead_letter(&stream(), Offset(offset), &id(handler), failed_at),
            row.encode(),
        ),
        put(Space::Finished, keys::finished(&stream(), Offset(offset), &id(handler)), ended.encode()),
    ]
}

/// Six events: of `shop:bill` one is held, one waits, one is free and three are dead letters; `shop:mail` has come to
/// none of them.
async fn shop() -> (Server, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    let server = start_on(ServerSettings::default(), BusLimits::default(), store.clone()).await;
    for order in 1..=6 {
        let body = json!({"payload": order, "id": format!("o{order}")}).to_string();
        ask(server.addr(), "POST", "/topics/order.placed/events", &body, 200).await;
    }
    let namespace = Namespace::default();
    let handler = |name| {
        let row = HandlerRow { topic: "order.placed".to_owned(), registered: now(), paused: false };
        put(Space::Handlers, keys::handler(&namespace, &id(name)), row.encode())
    };
    let lane = LaneRow::from_now(Offset(7)).encode();
    let session = SessionId::new("s1").unwrap();
    let (held, waits) = (now().0 + 60_000, now().0 + 3_600_000);
    let alive = SessionRow {
        started: now(),
        heartbeat: now(),
        metadata: BTreeMap::from(
            [("hostname", "h"), ("pid", "42"), ("version", "7")].map(|(a, b)| (a.into(), b.into())),
        ),
        ..SessionRow::default()
    };
    let mut ops = vec![
        handler("shop:bill"),
        handler("shop:mail"),
        put(Space::Lanes, keys::lane(&id("shop:bill"), &stream(), None), lane),
        claim(1, ClaimRow { due: Timestamp(held), session: Some(session.clone()), ..ClaimRow::default() }),
        claim(
            2,
            ClaimRow {
                state: ClaimState::Waiting,
                due: Timestamp(waits),
                attempts: 2,
                error: Some("the bank is away".to_owned()),
                ..ClaimRow::default()
            },
        ),
        claim(3, ClaimRow { due: Timestamp(1), ..ClaimRow::default() }),
        put(Space::Sessions, keys::session(&namespace, &session), alive.encode()),
        put(
            Space::Sessions,
            keys::session(&namespace, &SessionId::new("s0").unwrap()),
            SessionRow { started: Timestamp(1), heartbeat: Timestamp(1), ..SessionRow::default() }.encode(),
        ),
    ];
    for offset in 4..=6 {
        ops.extend(letter("shop:bill", offset, &format!("o{offset}")));
    }
    commit(&*store, ops);
    (server, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_say_what_is_held_what_waits_and_what_they_gave_up_on() {
    let (server, store) = shop().await;
    let addr = server.addr();
    let list = get(addr, "/handlers").await;
    let bill = &list["handlers"][0];
    let counts = ["pending", "claimed", "waiting", "retrying", "deadLetters", "sessions"];
    assert_eq!(counts.map(|name| bill[name].as_u64().unwrap()), [3, 1, 1, 1, 3, 1], "{bill}");
    assert_eq!((&bill["handler"], &bill["topic"]), (&json!("shop:bill"), &json!("order.placed")));
    assert!(bill["oldestMs"].is_u64() && bill["nextDue"].as_u64().unwrap() > now().0, "{bill}");
    assert_eq!((&list["handlers"][1]["pending"], &list["handlers"][1]["claimed"]), (&json!(6), &json!(0)));
    let page = get(addr, "/handlers?limit=1").await;
    assert_eq!((page["handlers"].as_array().unwrap().len(), &page["next"]), (1, &json!("shop:bill")));
    let rest = get(addr, "/handlers?limit=1&after=shop:bill").await;
    assert_eq!((&rest["handlers"][0]["handler"], rest.get("next")), (&json!("shop:mail"), None));
    assert_eq!(get(addr, "/handlers?handler=shop:mail").await["handlers"].as_array().unwrap().len(), 1);
    assert_eq!(get(addr, "/handlers?namespace=other").await["handlers"], json!([]));

    let claims = get(addr, "/handlers/shop:bill/claims").await;
    let of = |at: usize, name: &str| claims["claims"][at][name].clone();
    assert_eq!(
        [of(0, "state"), of(1, "state"), of(2, "state")],
        ["claimed", "waiting", "free"].map(Value::from)
    );
    assert_eq!((of(0, "session"), of(0, "id")), (json!("s1"), json!("o1")));
    assert_eq!((of(1, "attempts"), of(1, "error")), (json!(2), json!("the bank is away")));
    assert!(of(0, "leaseUntil").is_u64() && of(0, "due").is_null() && of(1, "due").is_u64(), "{claims}");
    let waiting = get(addr, "/handlers/shop:bill/claims?state=waiting").await;
    assert_eq!(waiting["claims"].as_array().unwrap().len(), 1);
    let page = get(addr, "/handlers/shop:bill/claims?limit=2").await;
    assert_eq!(page["next"], "0:2");
    assert_eq!(get(addr, "/handlers/shop:bill/claims?limit=2&after=0:2").await["claims"][0]["offset"], 3);
    for path in ["/handlers?limit=0", "/handlers/h/claims?state=lost", "/handlers/h/claims?after=x"] {
        assert_eq!(http(addr, "GET", path, "").await.status, 400, "{path}");
    }
    ask(addr, "GET", "/handlers/nobody/claims", "", 404).await;

    let sessions = get(addr, "/sessions").await;
    let (first, second) = (&sessions["sessions"][0], &sessions["sessions"][1]);
    assert_eq!((&first["state"], &second["state"]), (&json!("alive"), &json!("dead")), "{sessions}");
    assert_eq!(
        (&first["host"], &first["pid"], &first["holds"]),
        (&json!("h"), &json!("42"), &json!({"shop:bill": 1}))
    );
    assert_eq!(first["metadata"], json!({"version": "7"}));
    assert_eq!(get(addr, "/sessions?limit=1").await["next"], "s1");
    assert_eq!(get(addr, "/sessions?limit=1&after=s1").await["sessions"][0]["session"], "s0");

    ask(addr, "DELETE", "/handlers/shop:bill", "", 409).await;
    // The session that holds an event of it ends.
    let session = keys::session(&Namespace::default(), &SessionId::new("s1").unwrap());
    commit(&*store, vec![Op::Delete { space: Space::Sessions, key: session }]);
    ask(addr, "DELETE", "/handlers/shop:bill", "", 200).await;
    ask(addr, "DELETE", "/handlers/shop:bill", "", 404).await;
    ask(addr, "GET", "/handlers/shop:bill/claims", "", 404).await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_handler_are_replayed_and_deleted() {
    let (server, _store) = shop().await;
    let addr = server.addr();
    let replay = "/handlers/shop:bill/dead-letters/replay";
    let named = ask(addr, "POST", replay, r#"{"events":["o4","nothing"]}"#, 200).await;
    assert_eq!((&named["done"], &named["missing"]), (&json!(["o4"]), &json!(["nothing"])), "{named}");
    let free = get(addr, "/handlers/shop:bill/claims").await;
    assert_eq!(free["claims"][3]["offset"], 4, "its event is open again: {free}");
    assert_eq!(
        get(addr, "/handlers").await["handlers"][0]["deadLetters"],
        2,
        "a letter under way is no letter"
    );
    let page = ask(addr, "POST", replay, r#"{"limit":1}"#, 200).await;
    assert_eq!(page["done"], json!(["o5"]));
    let delete = "/handlers/shop:bill/dead-letters/delete";
    let body = json!({"after": page["next"]}).to_string();
    let rest = ask(addr, "POST", delete, &body, 200).await;
    assert_eq!((&rest["done"], rest.get("next")), (&json!(["o6"]), None));
    assert_eq!(ask(addr, "POST", delete, "", 200).await["done"], json!([]));
    for body in [r#"{"events":[]}"#, r#"{"limit":0}"#, r#"{"limit":501}"#, r#"{"events":7}"#, "x"] {
        ask(addr, "POST", replay, body, 400).await;
    }
    let many = json!({"events": vec!["x"; 501]}).to_string();
    ask(addr, "POST", replay, &many, 400).await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_cannot_be_replayed_says_why_and_stays() {
    let (server, store) = shop().await;
    let addr = server.addr();
    commit(&*store, letter("shop:gone", 1, "o1"));
    let refused = ask(addr, "POST", "/handlers/shop:gone/dead-letters/replay", "", 200).await;
    assert_eq!((&refused["done"], &refused["refused"][0]["id"]), (&json!([]), &json!("o1")));
    assert!(refused["refused"][0]["detail"].as_str().unwrap().contains("not known"), "{refused}");
    let deleted = ask(addr, "POST", "/handlers/shop:gone/dead-letters/delete", "", 200).await;
    assert_eq!(deleted["done"], json!(["o1"]));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_say_when_they_fire_and_are_paused_resumed_and_run() {
    let store = Arc::new(MemoryStore::new());
    let server = start_on(ServerSettings::default(), BusLimits::default(), store.clone()).await;
    let addr = server.addr();
    let row = |cron: &str, last: u64| ScheduleRow {
        cron: cron.to_owned(),
        zone: "Europe/Berlin".to_owned(),
        event_type: "nightly".to_owned(),
        enabled: true,
        last: Timestamp(last),
        fires: 2,
        fired: Some(Timestamp(last)),
        run: None,
    };
    let namespace = Namespace::default();
    let of =
        |name: &str, row: ScheduleRow| put(Space::Schedules, keys::schedule(&namespace, name), row.encode());
    let (day_ago, hours_ago) = (now().0 - 86_400_000, now().0 - 3 * 3_600_000 - 60_000);
    commit(
        &*store,
        vec![
            of("a/b ü", row("30 2 * * 1-5", now().0)),
            of("hourly", row("@every 1h", hours_ago)),
            of("minutes", row("* * * * *", day_ago)),
        ],
    );
    let list = get(addr, "/schedules").await;
    let first = &list["schedules"][0];
    assert_eq!(
        (&first["name"], &first["words"]),
        (&json!("a/b ü"), &json!("at 02:30, from Monday to Friday (Europe/Berlin)"))
    );
    assert_eq!((first["next"].as_array().unwrap().len(), &first["missed"]), (5, &json!(0)));
    assert_eq!((&first["fires"], &first["eventType"]), (&json!(2), &json!("nightly")));
    assert!(first["last"].is_u64() && first.get("overdueSince").is_none(), "{first}");
    // Three hours and a minute: a fourth full hour may be in it.
    assert!([3, 4].map(Value::from).contains(&list["schedules"][1]["missed"]), "{list}");
    assert_eq!(list["schedules"][2]["missed"], 100, "no more are counted");
    let page = get(addr, "/schedules?limit=1").await;
    assert_eq!(page["next"], "a/b ü");
    let rest = get(addr, "/schedules?limit=2&after=a%2Fb%20%C3%BC").await;
    assert_eq!((&rest["schedules"][0]["name"], rest.get("next")), (&json!("hourly"), None));

    let path = "/schedules/a%2Fb%20%C3%BC";
    let paused = ask(addr, "POST", &format!("{path}/pause"), "", 200).await;
    assert_eq!((&paused["enabled"], &paused["next"]), (&json!(false), &json!([])));
    let asked = ask(addr, "POST", &format!("{path}/run"), "", 202).await;
    let again = ask(addr, "POST", &format!("{path}/run"), "", 202).await;
    assert!(asked["runAskedAt"].is_u64() && asked["runAskedAt"] == again["runAskedAt"], "{asked} {again}");
    let key = keys::schedule(&namespace, "a/b ü");
    let rows = store.scan(Space::Schedules, &millrace_store::KeyRange::prefix(&key), 1).unwrap();
    let stored = ScheduleRow::decode(&key, &rows[0].value).unwrap();
    assert!(!stored.enabled && stored.run.is_some(), "a session reads this: {stored:?}");
    let resumed = ask(addr, "POST", &format!("{path}/resume"), "", 200).await;
    assert_eq!((&resumed["enabled"], &resumed["runAskedAt"]), (&json!(true), &asked["runAskedAt"]));
    let resumed = ask(addr, "POST", "/schedules/hourly/pause", "", 200).await;
    assert_eq!(resumed["missed"], 0, "what is paused misses nothing");
    let resumed = ask(addr, "POST", "/schedules/hourly/resume", "", 200).await;
    assert_eq!((&resumed["missed"], &resumed["last"]), (&json!(0), &json!(hours_ago)), "{resumed}");
    for act in ["run", "pause", "resume"] {
        ask(addr, "POST", &format!("/schedules/nothing/{act}"), "", 404).await;
        ask(addr, "POST", &format!("/schedules/hourly/{act}?namespace=other"), "", 404).await;
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_events_are_listed_published_now_and_cancelled() {
    let server = start().await;
    let addr = server.addr();
    let delay = |id: &'static str, topic: &'static str, seconds: u64| async move {
        let body = json!({"payload": id, "id": id, "key": "k", "delay_ms": 3_600_000 + 1000 * seconds});
        ask(addr, "POST", &format!("/topics/{topic}/events"), &body.to_string(), 200).await
    };
    let due = delay("first", "later", 0).await["due"].as_u64().unwrap();
    delay("second", "later", 1).await;
    delay("third", "other", 2).await;
    let list = get(addr, "/delayed").await;
    let ids: Vec<&str> =
        list["delayed"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["first", "second", "third"]);
    let first = &list["delayed"][0];
    assert_eq!(
        (&first["topic"], &first["key"], &first["waitsFor"]),
        (&json!("later"), &json!("k"), &json!("delay"))
    );
    assert!(first["due"].as_u64().unwrap().abs_diff(due) < 60_000, "{first} and {due}");
    assert_eq!(get(addr, "/delayed?topic=other").await["delayed"][0]["id"], "third");
    let page = get(addr, "/delayed?limit=2").await;
    let next = page["next"].as_str().unwrap();
    let rest = get(addr, &format!("/delayed?limit=2&after={next}")).await;
    assert_eq!((&rest["delayed"][0]["id"], rest.get("next")), (&json!("third"), None));
    assert_eq!(get(addr, "/delayed?namespace=other").await["delayed"], json!([]));

    let mut client = Client::connect(addr).await;
    let subscribe =
        json!({"type": "SUBSCRIBE", "topic": "later", "group": "g", "from": {"kind": "earliest"}});
    client.send(&subscribe.to_string()).await;
    assert_eq!(client.recv().await["type"], "OK");
    let entry = first["entry"].as_str().unwrap();
    let done = ask(addr, "POST", &format!("/delayed/{entry}/now"), "", 200).await;
    assert_eq!((&done["id"], &done["state"]), (&json!("first"), &json!("published")));
    assert_eq!(client.recv().await["envelope"]["id"], "first", "its group gets it");
    ask(addr, "POST", &format!("/delayed/{entry}/now"), "", 404).await;
    ask(addr, "DELETE", &format!("/delayed/{entry}"), "", 404).await;

    let entry = list["delayed"][1]["entry"].as_str().unwrap();
    ask(addr, "DELETE", &format!("/delayed/{entry}?namespace=other"), "", 404).await;
    assert_eq!(ask(addr, "DELETE", &format!("/delayed/{entry}"), "", 200).await["state"], "cancelled");
    let again = delay("second", "later", 1).await;
    assert_ne!(again["duplicate"], json!(true), "its id is free again: {again}");
    ask(addr, "DELETE", "/delayed/a$b", "", 400).await;
    ask(addr, "GET", "/delayed?after=a$b", "", 400).await;
    drop(client);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_of_the_loop_are_listed_and_cancelled() {
    let server = start().await;
    let addr = server.addr();
    assert_eq!(get(addr, "/timers").await, json!({"timers": []}));
    let mut client = Client::connect_to(&format!("ws://{addr}/os")).await;
    let mut set = Vec::new();
    for hours in [2, 1] {
        let data = json!({"delayMs": hours * 3_600_000, "message": {"kind": "event", "type": "Tea.Ready", "data": {}}});
        let message = json!({"kind": "command", "type": "Timer.Set", "data": data, "metadata": {"id": format!("set{hours}"), "timestamp": 0}});
        client.send(&message.to_string()).await;
        set.push(client.recv().await["data"]["timerId"].as_str().unwrap().to_owned());
    }
    let list = get(addr, "/timers").await;
    let order = [&list["timers"][0]["timer"], &list["timers"][1]["timer"]];
    assert_eq!(order, [&json!(set[1]), &json!(set[0])], "the next one first: {list}");
    let first = &list["timers"][0];
    assert_eq!(
        (&first["kind"], &first["type"], &first["durable"]),
        (&json!("event"), &json!("Tea.Ready"), &json!(true))
    );
    assert!(first["due"].as_u64().unwrap().abs_diff(now().0 + 3_600_000) < 60_000, "{first}");
    let page = get(addr, "/timers?limit=1").await;
    let next = page["next"].as_str().unwrap();
    assert_eq!(
        get(addr, &format!("/timers?limit=1&after={next}")).await["timers"][0]["timer"],
        json!(set[0])
    );
    let done = ask(addr, "DELETE", &format!("/timers/{}", set[1]), "", 200).await;
    assert_eq!(done["timer"], json!(set[1]));
    ask(addr, "DELETE", &format!("/timers/{}", set[1]), "", 404).await;
    assert_eq!(get(addr, "/timers").await["timers"].as_array().unwrap().len(), 1);
    ask(addr, "GET", "/timers?after=x", "", 400).await;
    drop(client);
    server.stop().await.unwrap();
}
