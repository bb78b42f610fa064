//! The capability Memory: `Memory.Get`, `Set`, `Delete` and `List` keep JSON values under paths, durably. The values
//! are in `memory_values.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use millrace_model::{JsonText, Namespace, OsFault, OsKind, OsMessage, OsMetadata, OsType, Principal};
use millrace_router::DeliveryId;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::builtin::memory_values::{Share, ValueCache, Write, committed};
use crate::builtin::namespace_of;
use crate::capabilities::capability::Capability;
use crate::capabilities::handlers;
use crate::capabilities::port::{Delivery, Port};

/// Messages whose commit is under way, and those behind them. The rest waits in the mailbox.
const UNDER_WAY_MAX: usize = 256;

const GET: &str = "Memory.Get";
const SET: &str = "Memory.Set";
const DELETE: &str = "Memory.Delete";
const LIST: &str = "Memory.List";
const CHANGED: &str = "Memory.Changed";

pub fn memory(values_cache: ValueCache) -> Capability {
    let (query, command) = (OsKind::Query, OsKind::Command);
    let about = "Keeps JSON values under paths, durably";
    Capability::actor("Memory", about, move |port| Box::pin(work(port, values_cache)))
        .takes(query, GET, "The value under a path, or null if there is none", Some(keyed(false)))
        .answers(json!({ "description": "The value" }))
        .takes(command, SET, "Puts a value under a path; the reply comes when it is durable", Some(keyed(true)))
        .answers(done())
        .takes(command, DELETE, "Removes what is under a path, if there is something", Some(keyed(false)))
        .answers(done())
        .takes(query, LIST, "The values below a path", Some(listed()))
        .answers(json!({
            "type": "object",
            "description": "Values by path. A member `next`, which is no path, tells that there are more: give it as \
                            `after` to get them.",
        }))
}

/// Messages are begun in order and answered in order, and each sees the changes of those before it. The next message is
/// begun before the commit of the previous one is done, so that several commits share a sync.
async fn work(port: Port, mut values_cache: ValueCache) {
    let mut under_way = FuturesOrdered::new();
    loop {
        tokio::select! {
            delivery = port.next(), if under_way.len() < UNDER_WAY_MAX => match delivery {
                Some(delivery) => {
                    let namespace = namespace(&delivery);
                    let step = namespace.clone().and_then(|at| begin(&mut values_cache, &at, &delivery));
                    // Handed over here and not in the future, because the order in which futures are polled is not
                    // defined.
                    let call = match &step {
                        Ok(MemoryStep::Write(write)) => Some(write.hand_over(values_cache.rows()).await),
                        _ => None,
                    };
                    under_way.push_back(async move {
                        let committed = match call {
                            Some(call) => committed(call).await,
                            None => Ok(()),
                        };
                        (delivery, namespace, step, committed)
                    });
                }
                None => return,
            },
            Some((delivery, namespace, step, committed)) = under_way.next() => {
                let Delivery { id, message, .. } = delivery;
                let begun = namespace.and_then(|at| Ok((at, step?)));
                let changed = match &begun {
                    Ok((at, MemoryStep::Write(_))) => Some(at.clone()),
                    _ => None,
                };
                let result = begun.and_then(|(at, step)| finish(&mut values_cache, &at, &message, step, committed));
                match result {
                    Ok(data) => {
                        if let Some(at) = changed {
                            tell_change(&port, id, &message, &at);
                        }
                        port.answer(id, handlers::reply(&port, &message, data));
                        port.done(id, Ok(()));
                    }
                    Err(fault) => port.done(id, Err(fault)),
                }
            }
        }
    }
}

/// Emits `Memory.Changed`, before the reply (RFC 0032, 18). Without the value: a subscriber that wants it asks for it
/// and gets the newest.
fn tell_change(port: &Port, delivery: DeliveryId, request: &OsMessage, at: &Namespace) {
    let Some(key) = DataMembers::of(request).ok().and_then(|members| members.key().ok()) else { return };
    let Ok(ty) = OsType::new(CHANGED) else { return };
    let change = if request.ty.as_str() == SET { "set" } else { "deleted" };
    let data = json!({ "key": key, "change": change, "namespace": at.as_str() });
    let (Ok(data), (id, timestamp)) = (JsonText::from_value(&data), port.kernel().stamp()) else { return };
    let metadata = OsMetadata {
        id,
        timestamp,
        correlation: request.metadata.correlation.clone(),
        causation: Some(request.metadata.id.clone()),
        other: None,
    };
    // Each message in hand leads to one such event, so these events are bounded like answers.
    port.answer(delivery, OsMessage { kind: OsKind::Event, ty, data, metadata });
}

/// The work to be done for a message.
enum MemoryStep {
    Write(Write),
    /// A deletion of a path that has no value.
    Nothing,
    /// A read, done when every message before it is settled.
    Read,
}

/// The namespace of a message: the one it names, which an edge has checked, or that of its sender. Messages of
/// capabilities that name none belong to `default`.
fn namespace(delivery: &Delivery) -> Result<Namespace, OsFault> {
    match namespace_of(&delivery.message.data)? {
        None => Ok(delivery.by.principal().map(Principal::home).unwrap_or_default()),
        Some(named) => Namespace::new(&named)
            .map_err(|error| OsFault::new(422, format!("Schema validation failed: {error}"))),
    }
}

fn begin(values_cache: &mut ValueCache, at: &Namespace, delivery: &Delivery) -> Result<MemoryStep, OsFault> {
    let message = &delivery.message;
    let share = match delivery.by.principal() {
        Some(by) if !by.is_administrator() => Share::Half(&by.namespaces),
        _ => Share::Whole,
    };
    Ok(match message.ty.as_str() {
        SET => {
            let members = DataMembers::of(message)?;
            MemoryStep::Write(values_cache.set(at, &members.key()?, members.value()?, share)?)
        }
        DELETE => values_cache
            .delete(at, &DataMembers::of(message)?.key()?)?
            .map_or(MemoryStep::Nothing, MemoryStep::Write),
        _ => MemoryStep::Read,
    })
}

fn finish(
    values_cache: &mut ValueCache,
    at: &Namespace,
    message: &Arc<OsMessage>,
    step: MemoryStep,
    committed: Result<(), OsFault>,
) -> Result<JsonText, OsFault> {
    if let MemoryStep::Write(write) = step {
        values_cache.settle(write, committed.is_ok());
        committed?;
    }
    match message.ty.as_str() {
        GET => values_cache.get(at, &DataMembers::of(message)?.key()?),
        LIST => {
            let members = DataMembers::of(message)?;
            let (prefix, after) = (members.text("prefix")?, members.text("after")?);
            values_cache.list(at, prefix.as_deref().unwrap_or_default(), after.as_deref())
        }
        ty => {
            let key = DataMembers::of(message)?.key()?;
            let word = if ty == SET { "Set" } else { "Deleted" };
            let data = json!({ "success": true, "message": format!("{word} {key}") });
            JsonText::from_value(&data).map_err(|error| OsFault::new(500, error.to_string()))
        }
    }
}

/// The members of a message's data. Not a JSON tree, because the bytes of the value must not change. A map, because if
/// a member is given twice the last one counts.
struct DataMembers<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> DataMembers<'a> {
    fn of(message: &'a OsMessage) -> Result<DataMembers<'a>, OsFault> {
        let members = serde_json::from_str(message.data.as_str());
        members.map(DataMembers).map_err(|_| unfit("data is no object"))
    }

    /// A string member; `None` if it is absent or null.
    fn text(&self, name: &str) -> Result<Option<String>, OsFault> {
        let Some(raw) = self.0.get(name) else { return Ok(None) };
        serde_json::from_str(raw.get()).map_err(|_| unfit(&format!("{name} is no string")))
    }

    fn key(&self) -> Result<String, OsFault> {
        self.text("key")?.ok_or_else(|| unfit("key is missing: give a path such as /settings/colour"))
    }

    fn value(&self) -> Result<&'a RawValue, OsFault> {
        self.0.get("value").copied().ok_or_else(|| unfit("value is missing: give any JSON value"))
    }
}

fn unfit(why: &str) -> OsFault {
    OsFault::new(422, format!("Schema validation failed: {why}"))
}

fn keyed(with_value: bool) -> Value {
    let key = json!({ "type": "string", "description": "A path such as /settings/colour" });
    if !with_value {
        let properties = json!({ "key": key, "namespace": namespace_schema() });
        return json!({ "type": "object", "required": ["key"], "properties": properties });
    }
    json!({
        "type": "object",
        "required": ["key", "value"],
        "properties": {
            "key": key,
            "value": { "description": "Any JSON value, null included" },
            "namespace": namespace_schema(),
        },
    })
}

fn listed() -> Value {
    json!({
        "type": "object",
        "properties": {
            "prefix": { "type": ["string", "null"], "description": "Only this path and those below it; with / at its end only those below it" },
            "after": { "type": ["string", "null"], "description": "Only paths after this one: the `next` of a page" },
            "namespace": namespace_schema(),
        },
    })
}

fn namespace_schema() -> Value {
    json!({ "type": ["string", "null"], "description": "Default: that of the token, or default" })
}

fn done() -> Value {
    json!({
        "type": "object",
        "required": ["success", "message"],
        "properties": { "success": { "const": true }, "message": { "type": "string" } },
    })
}
