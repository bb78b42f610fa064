//! Reads the contents of a store: through the store port, or through a server started on it.

use std::collections::BTreeSet;
use std::path::Path;

use millrace_model::{CursorRow, DueRow, Namespace, Offset, Space};
use millrace_state::State;
use millrace_store::{KeyRange, ReadLimit, Store};
use millrace_stores::{StoreOptions, StoreUrl, open_shared};
use serde_json::{Value, json};

use crate::client::Client;
use crate::facts::Seen;
use crate::server::Server;
use crate::session::Order;

const PAGE: ReadLimit = ReadLimit { events_max: 1000, bytes_max: 1 << 20 };
const ROWS_MAX: usize = 100_000;

/// Opens the store as any process would, and reads it. The error says why it cannot be read.
pub fn through_store(path: &Path) -> Result<Seen, String> {
    let url = StoreUrl::Sqlite(path.to_owned());
    let opened = open_shared(&url, &StoreOptions::default()).map_err(|error| error.to_string())?;
    let store = opened.store;
    let mut seen = Seen::default();
    events(&*store, &mut seen)?;
    rows(&*store, &mut seen)?;
    let orders = State::new(store, Namespace::default()).query::<Order>().collect();
    let orders = orders.map_err(|error| error.to_string())?;
    seen.orders = Some(orders.into_iter().map(|order| order.into_inner().order_id).collect());
    Ok(seen)
}

fn events(store: &dyn Store, seen: &mut Seen) -> Result<(), String> {
    for bounds in store.streams().map_err(|error| error.to_string())? {
        let (topic, partition) =
            (bounds.stream.topic.topic().to_owned(), u64::from(bounds.stream.partition.0));
        let mut from = bounds.start;
        while from < bounds.next {
            let page = store.read(&bounds.stream, from, PAGE).map_err(|error| error.to_string())?;
            if !page.damaged.is_empty() {
                return Err(format!("{topic}/{partition}: offsets {:?} are damaged", page.damaged));
            }
            for event in &page.events {
                let payload = event.body.payload.as_str().to_owned();
                seen.events.insert((topic.clone(), partition, event.offset.0), payload);
            }
            from = Offset(page.through.0 + 1);
        }
    }
    Ok(())
}

fn rows(store: &dyn Store, seen: &mut Seen) -> Result<(), String> {
    let scan = |space| store.scan(space, &KeyRange::all(), ROWS_MAX).map_err(|error| error.to_string());
    for row in scan(Space::Topics)? {
        let config: Value = serde_json::from_slice(&row.value).map_err(|error| error.to_string())?;
        let name = row.key.rsplit('/').next().unwrap_or_default().to_owned();
        seen.topics.insert(name, config["maxAttempts"].as_u64());
    }
    for row in scan(Space::Cursors)? {
        let cursor = CursorRow::decode(&row.key, &row.value).map_err(|error| error.to_string())?;
        let mut parts = row.key.rsplitn(4, '/');
        let mut part = || parts.next().unwrap_or_default().to_owned();
        let (partition, group, topic) = (part().parse().unwrap_or(u64::MAX), part(), part());
        seen.committed.insert((topic, group, partition), cursor.committed.0);
    }
    let mut delayed = BTreeSet::new();
    for row in scan(Space::Due)? {
        let due = DueRow::decode(&row.key, &row.value).map_err(|error| error.to_string())?;
        delayed.insert((due.topic.rsplit('/').next().unwrap_or_default().to_owned(), due.payload));
    }
    seen.delayed = Some(delayed);
    for row in scan(Space::Kv)? {
        if let Some(id) = row.key.strip_prefix("router/timer/") {
            seen.timers.insert(id.to_owned());
        }
        // The key continues with the namespace that the memory belongs to.
        if let Some((_, path)) = row.key.strip_prefix("router/memory/").and_then(|key| key.split_once('/')) {
            seen.values.insert(format!("/{path}"), String::from_utf8_lossy(&row.value).into_owned());
        }
    }
    Ok(())
}

/// Reads the contents over HTTP and over the server's socket. Timers cannot be listed: those in `timers` are cancelled,
/// to find out whether they existed.
pub fn through_server(server: &Server, timers: &BTreeSet<String>) -> Seen {
    let mut seen = Seen::default();
    let (_, list) = server.get("/topics");
    for config in list["topics"].as_array().expect("topics") {
        let topic = config["topic"].as_str().expect("a name").to_owned();
        seen.topics.insert(topic.clone(), config["maxAttempts"].as_u64());
        if !topic.starts_with("system.") {
            topic_through(server, &topic, &mut seen);
        }
    }
    let mut client = Client::of(server);
    let mut after = Value::Null;
    loop {
        let page = client.reply("query", "Memory.List", &json!({"prefix": "/", "after": after}));
        let mut page = page.as_object().expect("an object").clone();
        after = page.remove("next").unwrap_or_default();
        seen.values.extend(page.into_iter().map(|(path, value)| (path, value.to_string())));
        if after.is_null() {
            break;
        }
    }
    for id in timers {
        let answer = client.reply("command", "Timer.Cancel", &json!({"timerId": id}));
        if answer["cancelled"] == true {
            seen.timers.insert(id.clone());
        }
    }
    seen
}

fn topic_through(server: &Server, topic: &str, seen: &mut Seen) {
    let (_, offsets) = server.get(&format!("/topics/{topic}/offsets"));
    for row in offsets["partitions"].as_array().expect("partitions") {
        let partition = row["partition"].as_u64().expect("a number");
        for (group, place) in row["groups"].as_object().into_iter().flatten() {
            let committed = place["committed"].as_u64().expect("a number");
            seen.committed.insert((topic.to_owned(), group.clone(), partition), committed);
        }
        let mut from = 1;
        loop {
            let path = format!("/topics/{topic}/events?partition={partition}&from={from}&limit=1000");
            let (_, page) = server.get(&path);
            let events = page["events"].as_array().expect("events");
            if events.is_empty() {
                break;
            }
            for event in events {
                let offset = event["offset"].as_u64().expect("a number");
                seen.events.insert((topic.to_owned(), partition, offset), event["payload"].to_string());
                from = offset + 1;
            }
        }
    }
}
