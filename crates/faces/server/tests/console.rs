//! The endpoints that the console lives on, and the console's own files.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::net::SocketAddr;

use millrace_bus::BusLimits;
use millrace_server::{ConsoleFiles, ServerSettings};
use serde_json::{Value, json};
use support::{Client, http, http_with, start, start_with};

async fn get(addr: SocketAddr, path: &str) -> Value {
    let answer = http(addr, "GET", path, "").await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

async fn publish(addr: SocketAddr, topic: &str, body: &Value) -> Value {
    let answer = http(addr, "POST", &format!("/topics/{topic}/events"), &body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn offsets(page: &Value) -> Vec<(u64, u64)> {
    let events = page["events"].as_array().unwrap().iter();
    events.map(|event| (event["partition"].as_u64().unwrap(), event["offset"].as_u64().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_is_led_to_the_console_and_gets_its_files() {
    let server = start().await;
    let addr = server.addr();
    let led = http_with(addr, "GET", "/", &[("accept", "text/html,*/*;q=0.8")], b"").await;
    assert_eq!((led.status, led.header("location")), (307, Some("console/")));
    assert_eq!(http(addr, "GET", "/", "").await.status, 200, "others get the hint");
    assert_eq!(http(addr, "GET", "/console", "").await.header("location"), Some("console/"));
    let page = http(addr, "GET", "/console/", "").await;
    assert_eq!((page.status, page.header("cache-control")), (200, Some("no-cache")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(!page.body.contains("__digest__") && !page.body.contains("__DIGEST__"));
    let modules: Vec<&str> = page.body.split('"').filter(|text| text.starts_with("a/")).collect();
    assert!(modules.len() > 5, "{modules:?}");
    for module in modules {
        let file = http(addr, "GET", &format!("/console/{module}"), "").await;
        assert_eq!(file.status, 200, "{module}");
        assert!(file.header("cache-control").unwrap().contains("immutable"), "{module}");
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
    }
    for path in ["/console/a/0/main.js", "/console/a/x/../../secret", "/console/nothing"] {
        assert_eq!(http(addr, "GET", path, "").await.status, 404, "{path}");
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_can_be_left_out() {
    let settings = ServerSettings { console: ConsoleFiles::Off, ..ServerSettings::default() };
    let server = start_with(settings, BusLimits::default()).await;
    let addr = server.addr();
    assert_eq!(http(addr, "GET", "/console/", "").await.status, 404);
    assert_eq!(http_with(addr, "GET", "/", &[("accept", "text/html")], b"").await.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_merge_partitions_in_both_orders_and_go_on() {
    let server = start().await;
    let addr = server.addr();
    http(addr, "POST", "/topics", r#"{"topic":"t","partitions":3}"#).await;
    let mut published = Vec::new();
    for at in 0..25 {
        let done =
            publish(addr, "t", &json!({"payload": {"at": at, "odd": at % 2 == 1}, "key": format!("k{at}")}))
                .await;
        published.push((done["partition"].as_u64().unwrap(), done["offset"].as_u64().unwrap()));
    }
    let by_partition = |mut list: Vec<(u64, u64)>| {
        list.sort_unstable();
        list
    };
    for order in ["asc", "desc"] {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        for _ in 0..10 {
            let path = format!("/topics/t/events?order={order}&partition=all&limit=4{cursor}");
            let page = get(addr, &path).await;
            let ts: Vec<u64> =
                page["events"].as_array().unwrap().iter().map(|one| one["ts"].as_u64().unwrap()).collect();
            assert!(
                if order == "asc" { ts.is_sorted() } else { ts.iter().rev().is_sorted() },
                "{order}: {ts:?}"
            );
            found.extend(offsets(&page));
            cursor = format!("&cursor={}", page["cursor"].as_str().unwrap());
            if page["more"] == json!(false) {
                break;
            }
        }
        assert_eq!(by_partition(found), by_partition(published.clone()), "{order}: each once");
    }
    let odd = get(addr, "/topics/t/events?order=desc&partition=all&path=$.odd:true&limit=100").await;
    assert_eq!((offsets(&odd).len(), &odd["scanned"]), (12, &json!(25)));
    let one = get(addr, "/topics/t/events?partition=all&key=k7").await;
    assert_eq!(one["events"][0]["payload"]["at"], 7);
    let cut = get(addr, "/topics/t/events?partition=all&contains=nothing&scan=10").await;
    assert_eq!((offsets(&cut).len(), &cut["scanned"], &cut["more"]), (0, &json!(10), &json!(true)));
    let until = odd["events"][0]["ts"].as_u64().unwrap();
    let before = get(addr, &format!("/topics/t/events?order=desc&partition=all&ts={until}")).await;
    assert!(before["events"].as_array().unwrap().iter().all(|one| one["ts"].as_u64().unwrap() < until));
    for query in [
        "order=up",
        "from=1&partition=all",
        "cursor=x",
        "path=a:1",
        "header=h",
        "wait=1&order=desc",
        "scan=0",
    ] {
        let refused = http(addr, "GET", &format!("/topics/t/events?{query}"), "").await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "bad_frame"), "{query}");
    }
    assert_eq!(http(addr, "GET", "/topics/none/events?order=desc", "").await.status, 404);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_waits_for_what_is_published_meanwhile() {
    let server = start().await;
    let addr = server.addr();
    publish(addr, "t", &json!({"payload": 1})).await;
    let seen = get(addr, "/topics/t/events?order=asc").await;
    let cursor = seen["cursor"].as_str().unwrap().to_owned();
    let waiting =
        tokio::spawn(async move { get(addr, &format!("/topics/t/events?cursor={cursor}&wait=9000")).await });
    publish(addr, "t", &json!({"payload": 2})).await;
    let page = waiting.await.unwrap();
    assert_eq!(offsets(&page), [(0, 2)]);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_shown_paused_moved_in_thought_and_resumed() {
    let server = start().await;
    let addr = server.addr();
    for at in 0..4 {
        publish(addr, "t", &json!({"payload": at})).await;
    }
    let mut client = Client::connect(addr).await;
    client
        .send(&json!({"type": "SUBSCRIBE", "topic": "t", "group": "g", "from": {"kind": "earliest"}, "max_inflight": 2}).to_string())
        .await;
    assert_eq!(client.recv().await["type"], "OK");
    assert_eq!(client.recv().await["offset"], 1);
    assert_eq!(client.recv().await["offset"], 2);
    let shown = get(addr, "/topics/t/groups/g").await;
    assert_eq!(
        (&shown["lag"], &shown["inflight"], &shown["members"][0]["maxInflight"]),
        (&json!(4), &json!(2), &json!(2))
    );
    assert!(shown["lagMs"].is_u64() && shown["members"][0]["peer"].is_string(), "{shown}");
    let held = get(addr, "/topics/t/groups/g/inflight").await;
    let states: Vec<_> = held["inflight"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, [&json!("leased"), &json!("leased")], "{held}");
    assert_eq!(get(addr, "/topics/t/groups/g/inflight?limit=1").await["more"], json!(true));

    let paused = http(addr, "POST", "/topics/t/groups/g/pause", "").await;
    assert_eq!((paused.status, &paused.json()["paused"]), (200, &json!(true)));
    client
        .send(
            &json!({"type": "ACK", "topic": "t", "group": "g", "partition": 0, "offset": 2, "rid": 7})
                .to_string(),
        )
        .await;
    assert_eq!(client.recv().await["rid"], 7, "an ack is taken, and nothing else is sent");
    assert_eq!(get(addr, "/topics/t/groups/g").await["paused"], json!(true));
    assert_eq!(get(addr, "/stats").await["byGroup"]["t"]["g"]["paused"], json!(true));

    let seek = r#"{"from":{"kind":"earliest"},"dryRun":true}"#;
    let preview = http(addr, "POST", "/topics/t/groups/g/seek", seek).await.json();
    assert_eq!((&preview["dryRun"], &preview["partitions"][0]["next"]), (&json!(true), &json!(1)));
    let offsets = get(addr, "/topics/t/offsets").await;
    assert_eq!(offsets["partitions"][0]["groups"]["g"]["committed"], 2, "nothing has moved");

    assert_eq!(http(addr, "POST", "/topics/t/groups/g/resume", "").await.status, 200);
    assert_eq!(client.recv().await["offset"], 3);
    assert_eq!(http(addr, "POST", "/topics/t/groups/nobody/pause", "").await.status, 404);
    assert_eq!(http(addr, "GET", "/topics/t/groups/nobody", "").await.status, 404);
    drop(client);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_tells_its_story() {
    let server = start().await;
    let addr = server.addr();
    http(addr, "POST", "/topics", r#"{"topic":"t","maxAttempts":1}"#).await;
    let done = publish(addr, "t", &json!({"payload": 1})).await;
    let id = done["id"].as_str().unwrap().to_owned();
    let fresh = get(addr, &format!("/events/{id}")).await;
    assert_eq!((&fresh["event"]["offset"], &fresh["groups"]), (&json!(1), &json!([])));
    let mut client = Client::connect(addr).await;
    client
        .send(
            &json!({"type": "SUBSCRIBE", "topic": "t", "group": "g", "from": {"kind": "earliest"}})
                .to_string(),
        )
        .await;
    assert_eq!(client.recv().await["type"], "OK");
    assert_eq!(client.recv().await["offset"], 1);
    let held = get(addr, &format!("/events/{id}?topic=t")).await;
    assert_eq!(
        (&held["groups"][0]["state"], &held["groups"][0]["attempts"]),
        (&json!("inflight"), &json!(1))
    );
    let mut letters = Client::connect(addr).await;
    letters
        .send(
            &json!({"type": "SUBSCRIBE", "topic": "t.DLQ", "group": "w", "from": {"kind": "earliest"}})
                .to_string(),
        )
        .await;
    assert_eq!(letters.recv().await["type"], "OK");
    client
        .send(
            &json!({"type": "NACK", "topic": "t", "group": "g", "partition": 0, "offset": 1, "reason": "no"})
                .to_string(),
        )
        .await;
    assert_eq!(letters.recv().await["offset"], 1);
    assert_eq!(http(addr, "POST", "/dead-letters/t/replay", "{}").await.status, 200);
    let story = get(addr, &format!("/events/{id}")).await;
    assert_eq!(story["groups"][0]["state"], "deadLettered");
    assert_eq!((&story["letters"][0]["reason"], &story["letters"][0]["group"]), (&json!("no"), &json!("g")));
    assert_eq!((&story["replays"][0]["offset"], &story["complete"]), (&json!(2), &json!(true)));
    let unknown = http(addr, "GET", "/events/order-7", "").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.json()["detail"].as_str().unwrap().contains("looked at"), "{unknown:?}");
    drop((client, letters));
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_figures_say_how_much_there_is() {
    let server = start().await;
    let addr = server.addr();
    publish(addr, "b.small", &json!({"payload": 1})).await;
    for at in 0..3 {
        publish(addr, "a.large", &json!({"payload": at})).await;
    }
    let list = get(addr, "/topics?sort=events&contains=.").await;
    let first = &list["topics"][0];
    assert_eq!(
        (&first["topic"], &first["events"], &first["published"]),
        (&json!("a.large"), &json!(3), &json!(3))
    );
    assert!(first["bytes"].as_u64().unwrap() > 0 && first["lastTs"].as_u64().unwrap() > 0, "{first}");
    let some = get(addr, "/topics?contains=SMALL").await;
    assert_eq!((some["topics"].as_array().unwrap().len(), some.get("next")), (1, None));
    assert_eq!(http(addr, "GET", "/topics?sort=x", "").await.status, 400);
    let me = get(addr, "/whoami").await;
    assert_eq!((&me["open"], &me["namespaces"], me.get("agent")), (&json!(true), &json!(["*"]), None));
    let there = http(addr, "POST", "/topics/t/events?namespace=other", r#"{"payload":1}"#).await;
    assert_eq!(there.status, 200, "{there:?}");
    let spaces = get(addr, "/namespaces").await;
    let names: Vec<_> =
        spaces["namespaces"].as_array().unwrap().iter().map(|one| &one["namespace"]).collect();
    assert_eq!(names, [&json!("default"), &json!("other")]);
    assert_eq!(get(addr, "/namespaces?limit=1").await["next"], "default");
    assert_eq!(get(addr, "/namespaces?after=default").await["namespaces"][0]["topics"], 1);
    let stats = get(addr, "/stats").await;
    assert!(stats["server"]["commits"].as_u64().unwrap() > 0, "{stats}");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_read_from_the_recorded_metrics() {
    let settings = ServerSettings { metrics_interval_ms: 50, ..ServerSettings::default() };
    let server = start_with(settings, BusLimits::default()).await;
    let addr = server.addr();
    publish(addr, "t", &json!({"payload": 1})).await;
    loop {
        let doc = get(addr, "/stats/history?step=3600000&series=published,connections,published:t").await;
        let sums: Vec<Option<f64>> =
            doc["series"].as_array().unwrap().iter().map(|one| one["points"][0][1].as_f64()).collect();
        // The first record has nothing before it; the event shows up as growth if it came after.
        if sums.iter().all(Option::is_some) {
            assert_eq!(doc["complete"], json!(true));
            break;
        }
        publish(addr, "t", &json!({"payload": 2})).await;
    }
    for query in
        ["from=5&to=5", "step=0", "from=0&to=100000000&step=1", "series=lag:a", "namespace=x&series=lag:t/g"]
    {
        assert_eq!(http(addr, "GET", &format!("/stats/history?{query}"), "").await.status, 400, "{query}");
    }
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tails_are_bounded() {
    let settings = ServerSettings { tails_max: 0, ..ServerSettings::default() };
    let server = start_with(settings, BusLimits::default()).await;
    let addr = server.addr();
    publish(addr, "t", &json!({"payload": 1})).await;
    let refused = http(addr, "GET", "/topics/t/tail", "").await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "limit_reached"));
    for query in ["from=offset:1", "from=x", "rate=0", "from=ts:x"] {
        let refused = http(addr, "GET", &format!("/topics/t/tail?{query}"), "").await;
        assert_eq!(refused.status, 400, "{query}");
    }
    server.stop().await.unwrap();
}

/// A topic whose group gives up on everything at once, and its letters.
async fn with_letters(addr: SocketAddr, reasons: &[&str]) -> (Client, Client) {
    http(addr, "POST", "/topics", r#"{"topic":"t","maxAttempts":1}"#).await;
    let mut client = Client::connect(addr).await;
    let subscribe = json!({"type": "SUBSCRIBE", "topic": "t", "group": "g", "from": {"kind": "earliest"}});
    client.send(&subscribe.to_string()).await;
    assert_eq!(client.recv().await["type"], "OK");
    let mut letters = Client::connect(addr).await;
    let subscribe =
        json!({"type": "SUBSCRIBE", "topic": "t.DLQ", "group": "w", "from": {"kind": "earliest"}});
    letters.send(&subscribe.to_string()).await;
    assert_eq!(letters.recv().await["type"], "OK");
    for (at, reason) in reasons.iter().enumerate() {
        publish(addr, "t", &json!({"payload": at, "key": "k", "headers": {"a": "b"}})).await;
        let offset = client.recv().await["offset"].clone();
        let nack = json!({"type": "NACK", "topic": "t", "group": "g", "partition": 0, "offset": offset, "reason": reason});
        client.send(&nack.to_string()).await;
        assert_eq!(letters.recv().await["offset"], at + 1);
    }
    (client, letters)
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_summed_up_by_reason() {
    let server = start().await;
    let addr = server.addr();
    let clients = with_letters(addr, &["late", "broken", "late"]).await;
    let summary = get(addr, "/dead-letters/t/summary").await;
    assert_eq!((&summary["scanned"], &summary["complete"]), (&json!(3), &json!(true)));
    let first = &summary["reasons"][0];
    assert_eq!(
        (&first["reason"], &first["count"], &first["sample"]),
        (&json!("late"), &json!(2), &json!([0, 3]))
    );
    assert_eq!(get(addr, "/dead-letters/t.DLQ/summary?scan=1").await["complete"], json!(false));
    assert_eq!(http(addr, "GET", "/dead-letters/none/summary", "").await.status, 404);
    drop(clients);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn named_letters_are_replayed_edited_and_deleted() {
    let server = start().await;
    let addr = server.addr();
    let clients = with_letters(addr, &["a", "b", "c"]).await;
    let replay = |body: Value| async move {
        let answer = http(addr, "POST", "/dead-letters/t/replay", &body.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let plain = replay(json!({"letters": [[0, 1], [0, 99]]})).await;
    assert_eq!((&plain["replayed"], &plain["missing"]), (&json!(1), &json!([[0, 99]])));
    let twice = replay(json!({"letters": [[0, 1]]})).await;
    assert_eq!(
        (&twice["replayed"], &twice["duplicates"], &twice["published"]),
        (&json!(0), &json!(1), &plain["published"])
    );
    let edit = json!({"edited": [{"partition": 0, "offset": 2, "payload": {"n": 1}, "key": null, "headers": {"c": "d", "x-dlq-id": "no"}}]});
    let done = replay(edit.clone()).await;
    assert_eq!(done["replayed"], 1);
    assert_eq!(replay(edit).await["duplicates"], 1, "the same edit is stored once");
    let offset = done["published"][0][1].as_u64().unwrap();
    let page = get(addr, &format!("/topics/t/events?from={offset}&limit=1")).await;
    let event = &page["events"][0];
    assert_eq!((&event["payload"], event.get("key")), (&json!({"n": 1}), None));
    let headers = event["headers"].as_object().unwrap();
    assert_eq!((&headers["x-replayed-edited"], &headers["c"]), (&json!("true"), &json!("d")));
    assert!(
        headers.contains_key("x-replayed-from")
            && !headers.contains_key("x-dlq-id")
            && !headers.contains_key("a")
    );

    let body = json!({"letters": [[0, 1], [0, 2], [0, 2], [0, 50]]}).to_string();
    let deleted = http(addr, "POST", "/dead-letters/t/delete", &body).await;
    assert_eq!((deleted.status, &deleted.json()["deleted"]), (200, &json!(2)), "{deleted:?}");
    assert_eq!(deleted.json()["missing"], json!([[0, 50]]));
    let left = get(addr, "/topics/t.DLQ/events").await;
    assert_eq!(offsets(&left), [(0, 3)]);
    for body in
        ["{}", "", r#"{"letters":[]}"#, r#"{"letters":[[0]]}"#, r#"{"edited":[{"partition":0,"offset":3}]}"#]
    {
        assert_eq!(http(addr, "POST", "/dead-letters/t/delete", body).await.status, 400, "{body}");
    }
    let many = json!({"letters": vec![(0, 1); 501]}).to_string();
    assert_eq!(http(addr, "POST", "/dead-letters/t/delete", &many).await.status, 400);
    drop(clients);
    server.stop().await.unwrap();
}

async fn ended(addr: SocketAddr, id: &str) -> Value {
    loop {
        let job = get(addr, &format!("/jobs/{id}")).await;
        if job["state"] != "running" {
            return job;
        }
    }
}

async fn begin(addr: SocketAddr, job: &Value) -> String {
    let begun = http(addr, "POST", "/jobs", &job.to_string()).await;
    assert_eq!(begun.status, 202, "{begun:?}");
    begun.json()["job"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_replays_and_deletes_what_matches_and_nothing_else() {
    let server = start().await;
    let addr = server.addr();
    let clients = with_letters(addr, &["late", "broken", "late"]).await;
    let late = json!({"group": "g", "reason": "late"});
    let preview = json!({"kind": "replay", "topic": "t", "filter": late, "dryRun": true});
    let preview = http(addr, "POST", "/jobs", &preview.to_string()).await;
    assert_eq!((preview.status, preview.json()), (200, json!({"total": 2, "complete": true})));
    let replay = json!({"kind": "replay", "topic": "t", "filter": late});
    let done = ended(addr, &begin(addr, &replay).await).await;
    let counts = (&done["state"], &done["done"], &done["replayed"], &done["total"]);
    assert_eq!(counts, (&json!("done"), &json!(2), &json!(2), &json!(2)), "{done}");
    let twice = ended(addr, &begin(addr, &replay).await).await;
    assert_eq!((&twice["replayed"], &twice["duplicates"]), (&json!(0), &json!(2)), "{twice}");
    let delete = json!({"kind": "delete", "topic": "t", "filter": {"reason": "late"}, "ratePerSecond": 1000});
    let deleted = ended(addr, &begin(addr, &delete).await).await;
    assert_eq!(deleted["deleted"], 2, "{deleted}");
    assert_eq!(offsets(&get(addr, "/topics/t.DLQ/events").await), [(0, 2)]);
    assert_eq!(get(addr, "/jobs").await["jobs"].as_array().unwrap().len(), 3);
    assert_eq!(get(addr, "/jobs?namespace=other").await["jobs"], json!([]));
    for body in [
        "",
        "{}",
        r#"{"kind":"replay","topic":"t"}"#,
        r#"{"kind":"replay","topic":"t","filter":{}}"#,
        r#"{"kind":"mend","topic":"t","filter":{"group":"g"}}"#,
        r#"{"kind":"replay","topic":"t","filter":{"group":"g"},"ratePerSecond":0}"#,
    ] {
        assert_eq!(http(addr, "POST", "/jobs", body).await.status, 400, "{body}");
    }
    let none = r#"{"kind":"replay","topic":"none","filter":{"group":"g"}}"#;
    assert_eq!(http(addr, "POST", "/jobs", none).await.status, 404);
    assert_eq!(http(addr, "GET", "/jobs/x", "").await.status, 400);
    drop(clients);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_after_a_restart_and_can_be_cancelled() {
    let store = std::sync::Arc::new(millrace_store::MemoryStore::new());
    let server = support::start_on(ServerSettings::default(), BusLimits::default(), store.clone()).await;
    let addr = server.addr();
    let clients = with_letters(addr, &["a", "a", "a", "a"]).await;
    // A letter a second: the job is still running when the server stops.
    let slow = json!({"kind": "replay", "topic": "t", "filter": {"reason": "a"}, "ratePerSecond": 1});
    let id = begin(addr, &slow).await;
    while get(addr, &format!("/jobs/{id}")).await["done"] == json!(0) {}
    drop(clients);
    server.stop().await.unwrap();

    let server = support::start_on(ServerSettings::default(), BusLimits::default(), store).await;
    let addr = server.addr();
    let job = get(addr, &format!("/jobs/{id}")).await;
    assert_eq!(job["state"], "running", "{job}");
    while get(addr, &format!("/jobs/{id}")).await["done"].as_u64().unwrap() < 2 {}
    assert_eq!(http(addr, "DELETE", &format!("/jobs/{id}"), "").await.status, 202);
    let job = ended(addr, &id).await;
    assert_eq!(job["state"], "cancelled", "{job}");
    assert!(job["done"].as_u64().unwrap() < 4 && job["endedAt"].is_u64(), "{job}");
    server.stop().await.unwrap();
}
