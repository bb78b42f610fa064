//! `millrace trace`: shows the messages that the CQRS loop saw, as a tree of causes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};
use millrace_client::Timestamp;
use millrace_model::{Namespace, Offset, Partition, Stream, TRACE_TOPIC, TopicKey};
use millrace_store::{ReadLimit, Store};
use serde_json::{Value, json};

use crate::commands::connect::kernel_socket;
use crate::commands::events::open_existing;
use crate::commands::kernel_client::KernelClient;
use crate::commands::{json_flag, text, trace_event};
use crate::failure::Failure;
use crate::log;
use crate::output::Output;
use crate::settings::{Scope, args, resolve};

/// The most events read from the store at a time.
const PAGE: ReadLimit = ReadLimit { events_max: 1000, bytes_max: 4 << 20 };

pub(super) fn command() -> Command {
    let id = |name: &'static str, help: &'static str| Arg::new(name).long(name).value_name("ID").help(help);
    Command::new("trace")
        .about("Show what followed from an event, or from a message of the CQRS loop")
        .long_about(
            "With --event: prints what an event, a dead letter, a message or a timer goes back to, and everything that \
             followed from it over groups, durable handlers, schedules, dead letters and the loop. Asks a server \
             (--url).\n\nWith --correlation or --id: prints the tree of causes of what the loop saw: each message below the one it follows from, with where it \
             came from and what became of it.\n\nThe server keeps the newest records in memory (--trace-records-max); \
             one started with --trace-store keeps all of them in the topic system.router.trace, which --stored reads from the \
             store, also without a server.\n\nEnds with 1 if nothing was seen.",
        )
        .arg(id("correlation", "All messages of this correlation"))
        .arg(id("id", "The message of this id and everything that followed from it"))
        .arg(id("event", "The event, letter, message or timer of this id, with all its causes and consequences"))
        .group(ArgGroup::new("what").args(["correlation", "id", "event"]).required(true))
        .arg(
            Arg::new("stored")
                .long("stored")
                .action(ArgAction::SetTrue)
                .conflicts_with("event")
                .help("Read what a server with --trace-store kept in the store (--store)"),
        )
        .args(args(&[Scope::Socket, Scope::Store, Scope::Client]))
        .arg(json_flag().help("Print each record or node as one line of JSON"))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let query = match (text(matches, "correlation"), text(matches, "id")) {
        (Some(correlation), _) => Query::Correlation(correlation.to_owned()),
        (_, id) => Query::Id(id.unwrap_or_default().to_owned()),
    };
    let config = resolve(matches)?.config;
    if let Some(id) = text(matches, "event") {
        log::start(&config, "warn");
        return trace_event::run(&config, id, matches.get_flag("json"));
    }
    let records = if matches.get_flag("stored") {
        let namespace =
            Namespace::new(&config.namespace).map_err(|error| Failure::Usage(error.to_string()))?;
        let kept = stored(&*open_existing(&config)?.store, &namespace)?;
        if kept.is_empty() {
            let store = millrace_stores::without_secrets(&config.store);
            return Err(Failure::Failed(format!(
                "no trace was kept in {store} for namespace {namespace}: a server started with --trace-store keeps one"
            )));
        }
        query.pick(kept)
    } else {
        let path = kernel_socket(&config)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
        runtime.block_on(asked(path, &config.token, &query))?
    };
    if records.is_empty() {
        return Err(Failure::Failed("nothing was seen of it, or it is forgotten by now".into()));
    }
    let mut out = Output::new();
    if matches.get_flag("json") {
        records.iter().try_for_each(|record| out.json(record))?;
    } else {
        tree(&records).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}

enum Query {
    Correlation(String),
    Id(String),
}

impl Query {
    fn data(&self, after: Option<u64>) -> Value {
        match self {
            Query::Correlation(id) => json!({ "correlation": id, "after": after }),
            Query::Id(id) => json!({ "id": id, "after": after }),
        }
    }

    /// Selects the records of the query. The records must be in the order they were made: a consequence comes after its
    /// cause.
    fn pick(&self, records: Vec<Value>) -> Vec<Value> {
        let mut family = BTreeSet::new();
        let mut keep = |record: &Value| match self {
            Query::Correlation(id) => record["correlation"].as_str() == Some(id),
            Query::Id(root) => {
                let of = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
                let (id, cause) = (of("id"), of("causation"));
                let belongs =
                    id == *root || cause == *root || family.contains(&cause) || family.contains(&id);
                belongs && {
                    family.insert(id);
                    true
                }
            }
        };
        records.into_iter().filter(|record| keep(record)).collect()
    }
}

/// Asks the server for the records, page by page, because an answer is one line.
async fn asked(path: PathBuf, token: &str, query: &Query) -> Result<Vec<Value>, Failure> {
    let client = KernelClient::connect(&path, token).await?;
    let (mut records, mut after) = (Vec::new(), None);
    loop {
        let page = client.query("Syscall.Trace", &query.data(after)).await?;
        records.extend(page["records"].as_array().cloned().unwrap_or_default());
        after = page["next"].as_u64();
        if after.is_none() {
            return Ok(records);
        }
    }
}

fn stored(store: &dyn Store, namespace: &Namespace) -> Result<Vec<Value>, Failure> {
    let unreadable =
        |error: &dyn std::fmt::Display| Failure::Failed(format!("cannot read the trace: {error}"));
    let topic = TopicKey::parse(&format!("{namespace}/{TRACE_TOPIC}")).map_err(|error| unreadable(&error))?;
    let stream = Stream { topic, partition: Partition(0) };
    let (mut records, mut from) = (Vec::new(), Offset(1));
    loop {
        let page = store.read(&stream, from, PAGE).map_err(|error| unreadable(&error))?;
        for event in &page.events {
            records.extend(serde_json::from_str::<Value>(event.body.payload.as_str()).ok());
        }
        if page.through < from {
            return Ok(records);
        }
        from = Offset(page.through.0 + 1);
    }
}

/// Returns one line per record, below the record that caused it.
fn tree(records: &[Value]) -> Vec<String> {
    let ids: BTreeSet<&str> = records.iter().filter_map(|record| record["id"].as_str()).collect();
    let mut children: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut roots = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, record) in records.iter().enumerate() {
        let own = record["id"].as_str().unwrap_or_default();
        // A message that was seen twice appears below its first line.
        let cause = record["causation"].as_str().filter(|cause| ids.contains(cause) && *cause != own);
        match cause {
            Some(cause) if seen.contains(cause) => children.entry(cause).or_default().push(at),
            _ => roots.push(at),
        }
        seen.insert(own);
    }
    let began = records.first().and_then(|record| record["at"].as_u64()).unwrap_or(0);
    let mut lines = Vec::new();
    // With an explicit stack and no recursion: a chain may be as long as the server's ring of records.
    let mut stack: Vec<(usize, String, String)> =
        roots.into_iter().rev().map(|at| (at, String::new(), String::new())).collect();
    while let Some((at, mark, indent)) = stack.pop() {
        let record = &records[at];
        lines.push(format!("{mark}{}", line(record, began)));
        let id = record["id"].as_str().unwrap_or_default();
        let below = children.remove(id).unwrap_or_default();
        let last = below.len().saturating_sub(1);
        for (number, child) in below.into_iter().enumerate().rev() {
            let (branch, bar) = if number == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            stack.push((child, format!("{indent}{branch}"), format!("{indent}{bar}")));
        }
    }
    lines
}

fn line(record: &Value, began: u64) -> String {
    let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
    let at = record["at"].as_u64().unwrap_or(0);
    let when =
        if at == began { Timestamp(at).to_string() } else { format!("+{} ms", at.saturating_sub(began)) };
    let to: Vec<&str> = record["to"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fate = match record["step"].as_str().unwrap_or_default() {
        "routed" if to.is_empty() => "nobody listens".to_owned(),
        "answered" if record["code"].is_u64() => format!("{} -> {}", record["code"], to.join(", ")),
        "routed" | "answered" => format!("-> {}", to.join(", ")),
        "refused" => format!("refused with {}", record["code"]),
        other => other.to_owned(),
    };
    let data = match record["data"].as_str() {
        Some(data) if !data.is_empty() => format!("  {data}"),
        _ => String::new(),
    };
    format!("{} {} {}  {} {fate}  ({when}){data}", text("kind"), text("type"), text("id"), text("from"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, cause: Option<&str>) -> Value {
        json!({ "number": 1, "at": 5, "from": "client 1", "kind": "event", "type": "A.B", "id": id,
            "causation": cause, "step": "routed", "to": ["X"] })
    }

    #[test]
    fn each_message_stands_below_the_one_it_follows_from() {
        let records = [
            record("a", None),
            record("b", Some("a")),
            record("c", Some("b")),
            record("d", Some("a")),
            record("e", Some("?")),
        ];
        let shown: Vec<String> =
            tree(&records).iter().map(|line| line.split("  client").next().unwrap().to_owned()).collect();
        assert_eq!(
            shown,
            ["event A.B a", "├─ event A.B b", "│  └─ event A.B c", "└─ event A.B d", "event A.B e"]
        );
    }

    #[test]
    fn circles_and_repetitions_end() {
        let records =
            [record("a", Some("b")), record("b", Some("a")), record("a", Some("b")), record("c", Some("c"))];
        assert_eq!(tree(&records).len(), 4);
    }

    #[test]
    fn the_family_of_an_id_is_found_in_the_order_of_time() {
        let all = vec![
            record("x", None),
            record("a", None),
            record("b", Some("a")),
            record("c", Some("b")),
            record("y", Some("x")),
        ];
        let picked = Query::Id("a".to_owned()).pick(all);
        let ids: Vec<&str> = picked.iter().filter_map(|record| record["id"].as_str()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
    }
}
