//! `GET /trace` and `millrace trace --event`: from any event, letter, message or timer to everything that belongs to it.

use std::collections::BTreeSet;
use std::process::Command;

use millrace::{Config, Event, Handler, Session};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::server::{Server, eventually};
use crate::socket::Socket;

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order: u64,
}

#[derive(Event, Serialize, Deserialize)]
struct OrderBilled {
    order: u64,
}

fn trace(server: &Server, id: &str) -> Value {
    let (status, found) = server.get(&format!("/trace?id={id}"));
    assert_eq!(status, 200, "{found}");
    found
}

fn nodes(trace: &Value) -> Vec<Value> {
    trace["nodes"].as_array().expect("nodes").clone()
}

fn ids(trace: &Value) -> BTreeSet<String> {
    nodes(trace).iter().map(|node| text(&node["id"])).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

#[track_caller]
fn one(trace: &Value, what: &str, ty: &str) -> Value {
    let found: Vec<Value> =
        nodes(trace).into_iter().filter(|node| node["what"] == what && node["type"] == ty).collect();
    assert_eq!(found.len(), 1, "{what} {ty} in {trace:#}");
    found[0].clone()
}

#[track_caller]
fn follows(effect: &Value, cause: &Value) {
    assert_eq!(effect["parent"], cause["id"], "{effect} below {cause}");
}

fn publish(server: &Server, topic: &str) -> String {
    let (status, published) = server.post(&format!("/topics/{topic}/events"), &json!({"payload": 1}));
    assert_eq!(status, 200, "{published}");
    text(&published["id"])
}

#[test]
fn a_publish_leads_over_its_group_and_letter_to_its_replay_and_back() {
    let server = Server::with(&["--max-attempts", "2"]);
    let mut socket = server.socket();
    socket.subscribe("jobs", "g", &json!({}));
    let id = publish(&server, "jobs");
    for _ in 0..2 {
        let offset = socket.message();
        socket.send_nack("jobs", "g", offset, &json!({"reason": "boom"}));
    }
    eventually("the letter is there", || nodes(&trace(&server, &id)).len() == 3);
    let letter = text(&one(&trace(&server, &id), "letter", "jobs.DLQ")["id"]);
    assert_eq!(server.post("/dead-letters/jobs/replay", &json!({})).0, 200);
    socket.message();
    let whole = trace(&server, &id);
    assert_eq!((&whole["root"], &whole["complete"]), (&json!(id), &json!(true)), "{whole}");
    let event = one(&whole, "event", "jobs");
    let replay = one(&whole, "replay", "jobs");
    let letter_node = one(&whole, "letter", "jobs.DLQ");
    let deliveries: Vec<Value> =
        nodes(&whole).into_iter().filter(|node| node["what"] == "delivery").collect();
    assert_eq!(deliveries.len(), 2, "{whole:#}");
    let (failed, again) = match deliveries[0]["status"] == "deadLettered" {
        true => (&deliveries[0], &deliveries[1]),
        false => (&deliveries[1], &deliveries[0]),
    };
    follows(failed, &event);
    follows(&letter_node, failed);
    follows(&replay, &letter_node);
    follows(again, &replay);
    assert_eq!((&failed["attempts"], &failed["error"]), (&json!(2), &json!("boom")));
    assert_eq!(failed["endedAt"], letter_node["at"]);
    assert_eq!((&again["status"], &letter_node["status"]), (&json!("inflight"), &json!("replayed")));
    assert_eq!(event["place"], json!({"topic": "jobs", "partition": 0, "offset": 1}));
    for other in [letter, text(&replay["id"])] {
        let same = trace(&server, &other);
        assert_eq!((&same["root"], ids(&same)), (&json!(id), ids(&whole)), "from {other}");
    }
}

#[test]
fn a_publish_leads_over_durable_handlers_and_what_they_emitted() {
    let server = Server::start();
    let config = Config { event_max_attempts: 1, ..Config::default() };
    let session = Session::builder(&server.store_url()).config(config).open().expect("a session");
    session.publish(OrderPlaced { order: 1 }).expect("a publish");
    let bill = Handler::from_fn::<OrderPlaced>("shop:bill", |ctx| {
        let order = ctx.event.order;
        ctx.emit(OrderBilled { order })?;
        Ok(())
    });
    let ship = Handler::from_fn::<OrderBilled>("shop:ship", |_| Err("no lorry".into()));
    session.run_until_idle(vec![bill, ship], vec![]).expect("a run");

    let (_, page) = server.get("/topics/order.billed/events");
    let billed_id = text(&page["events"][0]["id"]);
    let whole = trace(&server, &billed_id);
    let (placed, billed) = (one(&whole, "event", "order.placed"), one(&whole, "event", "order.billed"));
    let (first, second) = (one(&whole, "claim", "shop:bill"), one(&whole, "claim", "shop:ship"));
    assert_eq!((&whole["root"], &whole["complete"]), (&placed["id"], &json!(true)), "{whole}");
    follows(&first, &placed);
    follows(&billed, &first);
    follows(&second, &billed);
    follows(&one(&whole, "event", "event.dead_letter"), &second);
    assert_eq!((&first["status"], &second["status"]), (&json!("acked"), &json!("dead_lettered")));
    assert_eq!((&second["error"], &second["attempts"]), (&json!("no lorry"), &json!(1)));
    assert!(second["endedAt"].as_u64() >= second["at"].as_u64(), "{second}");

    // Without the topic of the first event, the others still name it.
    assert_eq!(server.send_json("DELETE", "/topics/order.placed", &json!(null)).0, 204);
    let rest = trace(&server, &billed_id);
    assert_eq!((&rest["root"], rest["nodes"].as_array().map(Vec::len)), (&placed["id"], Some(3)), "{rest:#}");
    assert_eq!(one(&rest, "event", "order.billed")["parent"], placed["id"], "its cause is still named");
}

#[test]
fn a_trace_of_thousands_comes_in_pages() {
    const EMITTED: usize = 2100;
    let server = Server::start();
    let session = Session::open(&server.store_url()).expect("a session");
    session.publish(OrderPlaced { order: 1 }).expect("a publish");
    let bill = Handler::from_fn::<OrderPlaced>("shop:bill", |ctx| {
        (0..EMITTED as u64).try_for_each(|order| ctx.emit(OrderBilled { order }))?;
        Ok(())
    });
    session.run_until_idle(vec![bill], vec![]).expect("a run");
    // Events of others, between and behind.
    for _ in 0..20 {
        publish(&server, "other");
    }
    let (_, page) = server.get("/topics/order.placed/events");
    let root = text(&page["events"][0]["id"]);
    let pages = |query: &str| {
        let (mut found, mut after, mut rounds) = (BTreeSet::new(), String::new(), 0);
        loop {
            let (status, page) = server.get(&format!("/trace?id={root}&{query}{after}"));
            assert_eq!((status, &page["root"]), (200, &json!(root)), "{page}");
            found.extend(ids(&page));
            rounds += 1;
            let Some(next) = page["next"].as_str() else {
                assert_eq!(page["complete"], true, "{}", page["complete"]);
                return (found, rounds);
            };
            assert_eq!(page["complete"], false);
            after = format!("&after={next}");
        }
    };
    let (by_events, rounds) = pages("limit=500");
    // The event, its claim, and what the handler emitted.
    assert_eq!((by_events.len(), rounds), (EMITTED + 2, 5));
    let (by_scan, rounds) = pages("scan=800&limit=2000");
    assert_eq!((&by_scan, rounds), (&by_events, 3));
}

/// A message of the CQRS loop over `/os`; waits for its answer.
fn say(os: &mut Socket, ty: &str, data: &Value, metadata: &Value) -> Value {
    let mut metadata = metadata.clone();
    metadata["timestamp"] = json!(1);
    os.send(&json!({"kind": "command", "type": ty, "data": data, "metadata": metadata}));
    let answer = os.next();
    assert_eq!(answer["kind"], "reply", "{answer}");
    answer["data"].clone()
}

fn os(server: &Server) -> Socket {
    Socket::open(&(server.ws_url() + "os"))
}

#[test]
fn an_event_leads_over_messages_and_timers_of_the_loop() {
    let server = Server::start();
    let mut os = os(&server);
    let id = publish(&server, "orders");
    let template =
        json!({"kind": "command", "type": "Bus.Publish", "data": {"topic": "reminders", "payload": 2}});
    let cause = json!({"id": "set-1", "causation": id, "correlation": "c-1"});
    say(&mut os, "Timer.Set", &json!({"delayMs": 1, "message": template}), &cause);
    let cause = json!({"id": "set-2", "causation": id});
    let waits = say(&mut os, "Timer.Set", &json!({"delayMs": 3_600_000, "message": template}), &cause);
    let late = json!({"topic": "reminders", "payload": 3, "delay_ms": 3_600_000});
    say(&mut os, "Bus.Publish", &late, &json!({"id": "late-1", "causation": id}));
    eventually("the timer's event is there", || {
        nodes(&trace(&server, &id)).iter().any(|node| node["what"] == "event" && node["type"] == "reminders")
    });
    let whole = trace(&server, &id);
    let by_id = |id: &str| nodes(&whole).into_iter().find(|node| node["id"] == id).expect("the node");
    assert_eq!(by_id("set-1")["parent"], json!(id));
    let fired: Vec<Value> = nodes(&whole)
        .into_iter()
        .filter(|node| {
            node["what"] == "timer" && node["type"] == "Bus.Publish" && node["status"] == "answered"
        })
        .collect();
    assert_eq!(fired.len(), 1, "{whole:#}");
    assert_eq!(fired[0]["parent"], "set-1");
    follows(&one(&whole, "event", "reminders"), &fired[0]);
    let waiting = by_id(waits["timerId"].as_str().expect("a name"));
    assert_eq!((&waiting["parent"], &waiting["status"]), (&json!("set-2"), &json!("waiting")));
    let delayed = one(&whole, "timer", "reminders");
    assert_eq!((&delayed["parent"], &delayed["status"]), (&json!("late-1"), &json!("waiting")), "{whole:#}");
    // From every one of them to the same beginning.
    for other in ["set-1", &text(&waiting["id"]), &text(&delayed["id"]), &text(&fired[0]["id"])] {
        assert_eq!(trace(&server, other)["root"], json!(id), "from {other}");
    }
    let (_, by_correlation) = server.get("/trace?correlation=c-1");
    assert_eq!(by_correlation["root"], "c-1");
    one(&by_correlation, "event", "reminders");
    assert!(!ids(&by_correlation).contains("set-2"), "{by_correlation:#}");
}

#[test]
fn messages_that_are_kept_belong_to_the_trace_after_a_restart() {
    let mut server = Server::with(&["--trace-store"]);
    let id = publish(&server, "orders");
    let mut os = os(&server);
    let mail = json!({"topic": "mails", "payload": 2});
    say(&mut os, "Bus.Publish", &mail, &json!({"id": "m-1", "causation": id}));
    eventually("the answer is kept", || {
        let (_, page) = server.get("/topics/system.router.trace/events?limit=1000");
        let records = page["events"].as_array().cloned().unwrap_or_default();
        records
            .iter()
            .any(|record| record["payload"]["causation"] == "m-1" && record["payload"]["kind"] == "reply")
    });
    server.kill_and_restart();
    let whole = trace(&server, &id);
    let message = one(&whole, "message", "Bus.Publish");
    assert_eq!((&message["parent"], &message["status"]), (&json!(id), &json!("answered")), "{whole:#}");
    follows(&one(&whole, "event", "mails"), &message);
}

#[test]
fn circles_and_nonsense_end() {
    let server = Server::start();
    let mut os = os(&server);
    // Each event says that the other one caused it, and the third that it did so itself.
    for (own, cause) in [("a", "b"), ("b", "a"), ("self", "self")] {
        let data = json!({"topic": "round", "payload": 1, "id": own});
        say(&mut os, "Bus.Publish", &data, &json!({"id": cause}));
    }
    for id in ["a", "b", "self"] {
        let found = trace(&server, id);
        let all = nodes(&found);
        let distinct = ids(&found);
        assert_eq!(distinct.len(), all.len(), "no id twice: {found:#}");
        for node in &all {
            let (mut at, mut steps) = (node.clone(), 0);
            while let Some(up) = all.iter().find(|up| at["parent"] == up["id"]) {
                (at, steps) = (up.clone(), steps + 1);
                assert!(steps <= all.len(), "{node} hangs in a circle: {found:#}");
            }
        }
    }
    let (status, unknown) = server.get("/trace?id=nobody");
    assert_eq!((status, &unknown["code"]), (404, &json!("bad_topic")), "{unknown}");
    assert_eq!(server.get("/trace?correlation=nobody").0, 404);
    let event = publish(&server, "orders");
    assert_eq!(server.get(&format!("/trace?id={event}&namespace=other")).0, 404);
    let last = format!("/trace?id={event}&after=0,0,{},orders,1", (1_u64 << 53) - 1);
    assert_eq!(server.get(&last).0, 200, "an offset behind the end");
    let long = "x".repeat(300);
    for wrong in [
        "",
        "?id=a&correlation=b",
        "?id=a&after=nonsense",
        "?id=a&limit=0",
        "?id=a&limit=2001",
        "?id=a&scan=0",
        &format!("?id={event}&after=0,0,{},orders,1", u64::MAX),
        &format!("?id={event}&after={},0,0,orders,1", 1_u64 << 53),
        &format!("?id={long}"),
    ] {
        let (status, problem) = server.get(&format!("/trace{wrong}"));
        assert_eq!((status, &problem["code"]), (400, &json!("bad_frame")), "{wrong}: {problem}");
    }
}

#[test]
fn messages_are_for_those_who_may_talk_to_the_loop_and_topics_for_their_readers() {
    let config = "[[auth.tokens]]\ntoken = \"root\"\nagent = \"root\"\nscopes = [\"admin\", \"os\", \"publish\", \"subscribe\"]\n\
                  [[auth.tokens]]\ntoken = \"reader\"\nagent = \"reader\"\nscopes = [\"subscribe\"]\n";
    let server = Server::with_config(config, &[]);
    let root = |method: &str, path: &str, body: &Value| server.request_as("root", method, path, body);
    assert_eq!(
        root("POST", "/topics", &json!({"topic": "private", "access": {"subscribe": ["root"]}})).0,
        201
    );
    let (_, published) = root("POST", "/topics/open/events", &json!({"payload": 1}));
    let id = text(&published["id"]);
    let mut os = Socket::open_as(&(server.ws_url() + "os"), "root").expect("it opens");
    for topic in ["open", "private"] {
        let data = json!({"topic": topic, "payload": 2});
        say(&mut os, "Bus.Publish", &data, &json!({"id": format!("m-{topic}"), "causation": id}));
    }
    let seen = |token: &str| {
        let (status, found) = server.request_as(token, "GET", &format!("/trace?id={id}"), &json!(null));
        assert_eq!(status, 200, "{found}");
        let kinds = nodes(&found);
        let of = |what: &str| kinds.iter().filter(|node| node["what"] == what).count();
        (of("event"), of("message"))
    };
    assert_eq!(seen("root"), (3, 2));
    assert_eq!(seen("reader"), (1, 0), "the way from event to event leads over messages that are not shown");
}

#[test]
fn the_terminal_shows_the_same_as_a_tree() {
    let server = Server::with(&["--max-attempts", "1"]);
    let mut socket = server.socket();
    socket.subscribe("jobs", "g", &json!({}));
    let id = publish(&server, "jobs");
    let offset = socket.message();
    socket.send_nack("jobs", "g", offset, &json!({"reason": "boom"}));
    eventually("the letter is there", || nodes(&trace(&server, &id)).len() == 3);
    let run = |id: &str, flags: &[&str]| {
        let url = server.ws_url();
        let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .current_dir(server.folder())
            .args(["trace", "--event", id, "--url", &url])
            .args(flags)
            .output()
            .expect("the binary runs");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), out.into_owned(), err.into_owned())
    };
    let (code, shown, said) = run(&id, &[]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!((code, lines.len()), (Some(0), 3), "{shown} {said}");
    assert!(lines[0].starts_with(&format!("event jobs {id} at 0/1  stored  (")), "{shown}");
    assert!(lines[1].starts_with("└─ group g  deadLettered: boom  ("), "{shown}");
    assert!(lines[2].starts_with("   └─ letter jobs.DLQ "), "{shown}");
    let (_, json, _) = run(&id, &["--json"]);
    let printed: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(printed, nodes(&trace(&server, &id)));
    let (code, _, said) = run("no body & nothing", &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("there is no event, message or timer no body & nothing"), "{said}");
}
