//! Memory.Get, Set, Delete and List: JSON values under paths that outlive the process.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use millrace_model::{JsonText, OsFault, OsKind, OsMessage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::builtin::shelf::{Shelf, Write, committed};
use crate::capability::Capability;
use crate::handlers;
use crate::port::{Delivery, Port};

/// Messages whose commit is under way, and those behind them: the rest waits in the mailbox.
const UNDER_WAY_MAX: usize = 256;

const GET: &str = "Memory.Get";
const SET: &str = "Memory.Set";
const DELETE: &str = "Memory.Delete";
const LIST: &str = "Memory.List";

pub fn memory(shelf: Shelf) -> Capability {
    let (query, command) = (OsKind::Query, OsKind::Command);
    let about = "Keeps JSON values under paths, durably";
    Capability::actor("Memory", about, move |port| Box::pin(work(port, shelf)))
        .takes(query, GET, "The value under a path, or null if there is none", Some(keyed(false)))
        .answers(json!({ "description": "The value" }))
        .takes(command, SET, "Puts a value under a path; the reply comes when it is durable", Some(keyed(true)))
        .answers(done())
        .takes(command, DELETE, "Removes what is under a path, if there is something", Some(keyed(false)))
        .answers(done())
        .takes(query, LIST, "The paths that begin with a prefix, and their values", Some(listed()))
        .answers(json!({
            "type": "object",
            "description": "Values by path. A member `next`, which is no path, tells that there are more: give it as \
                            `after` to get them.",
        }))
}

/// Messages are begun in order and answered in order, and each sees what those before it have left. But the commit of
/// one is not waited for before the next is asked for: so that they share a sync.
async fn work(port: Port, mut shelf: Shelf) {
    let mut under_way = FuturesOrdered::new();
    loop {
        tokio::select! {
            delivery = port.next(), if under_way.len() < UNDER_WAY_MAX => match delivery {
                Some(delivery) => {
                    let step = begin(&mut shelf, &delivery.message);
                    // Handed over here and not in the future: those are not polled in any order.
                    let call = match &step {
                        Ok(Step::Write(write)) => Some(write.hand_over(shelf.bus()).await),
                        _ => None,
                    };
                    under_way.push_back(async move {
                        let committed = match call {
                            Some(call) => committed(call).await,
                            None => Ok(()),
                        };
                        (delivery, step, committed)
                    });
                }
                None => return,
            },
            Some((delivery, step, committed)) = under_way.next() => {
                let Delivery { id, message, .. } = delivery;
                let result = step.and_then(|step| finish(&mut shelf, &message, step, committed));
                match result {
                    Ok(data) => {
                        port.answer(id, handlers::reply(&port, &message, data));
                        port.done(id, Ok(()));
                    }
                    Err(fault) => port.done(id, Err(fault)),
                }
            }
        }
    }
}

/// What a message has become.
enum Step {
    Write(Write),
    /// What was to be deleted is not there.
    Nothing,
    /// Looks when everything before it is settled.
    Look,
}

fn begin(shelf: &mut Shelf, message: &OsMessage) -> Result<Step, OsFault> {
    Ok(match message.ty.as_str() {
        SET => {
            let Set { key, value } = read(message)?;
            Step::Write(shelf.set(&key, value)?)
        }
        DELETE => shelf.delete(&read::<Key<'_>>(message)?.key)?.map_or(Step::Nothing, Step::Write),
        _ => Step::Look,
    })
}

fn finish(
    shelf: &mut Shelf,
    message: &Arc<OsMessage>,
    step: Step,
    committed: Result<(), OsFault>,
) -> Result<JsonText, OsFault> {
    if let Step::Write(write) = step {
        shelf.settle(write, committed.is_ok());
        committed?;
    }
    match message.ty.as_str() {
        GET => shelf.get(&read::<Key<'_>>(message)?.key),
        LIST => {
            let List { prefix, after } = read(message)?;
            shelf.list(prefix.as_deref().unwrap_or_default(), after.as_deref())
        }
        ty => {
            let Key { key } = read(message)?;
            let word = if ty == SET { "Set" } else { "Deleted" };
            let data = json!({ "success": true, "message": format!("{word} {key}") });
            JsonText::from_value(&data).map_err(|error| OsFault::new(500, error.to_string()))
        }
    }
}

#[derive(Deserialize)]
struct Key<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Set<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow)]
    value: &'a RawValue,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    prefix: Option<Cow<'a, str>>,
    #[serde(borrow)]
    after: Option<Cow<'a, str>>,
}

/// Not by way of a JSON tree: the value's bytes are to stay as they are.
fn read<'a, T: Deserialize<'a>>(message: &'a OsMessage) -> Result<T, OsFault> {
    let data: &JsonText = &message.data;
    serde_json::from_str(data.as_str())
        .map_err(|error| OsFault::new(422, format!("Schema validation failed: {error}")))
}

fn keyed(with_value: bool) -> Value {
    let key = json!({ "type": "string", "description": "A path such as /settings/colour" });
    if !with_value {
        return json!({ "type": "object", "required": ["key"], "properties": { "key": key } });
    }
    json!({
        "type": "object",
        "required": ["key", "value"],
        "properties": { "key": key, "value": { "description": "Any JSON value, null included" } },
    })
}

fn listed() -> Value {
    json!({
        "type": "object",
        "properties": {
            "prefix": { "type": ["string", "null"], "description": "Only paths that begin with it" },
            "after": { "type": ["string", "null"], "description": "Only paths after this one: the `next` of a page" },
        },
    })
}

fn done() -> Value {
    json!({
        "type": "object",
        "required": ["success", "message"],
        "properties": { "success": { "const": true }, "message": { "type": "string" } },
    })
}
