//! Memory.Get, Set, Delete and List: JSON values under paths that outlive the process.

use std::borrow::Cow;
use std::sync::Arc;

use millrace_model::{JsonText, OsFault, OsMessage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::builtin::shelf::Shelf;
use crate::capability::{Capability, Place};

/// On the loop's own thread: a look into a map, or the wait for a commit.
pub fn memory(shelf: &Arc<Shelf>) -> Capability {
    let [get, set, delete, list] = std::array::from_fn(|_| shelf.clone());
    Capability::new("Memory", "Keeps JSON values under paths, durably")
        .place(Place::Loop)
        .query("Memory.Get", "The value under a path, or null if there is none", keyed(false), move |_, message| {
            let shelf = get.clone();
            async move { shelf.get(&read::<Key<'_>>(&message)?.key) }
        })
        .answers(json!({ "description": "The value" }))
        .command("Memory.Set", "Puts a value under a path; the reply comes when it is durable", keyed(true), {
            move |ctx, message| {
                let shelf = set.clone();
                async move {
                    let Set { key, value } = read(&message)?;
                    shelf.set(&key, value).await?;
                    ctx.reply(&json!({ "success": true, "message": format!("Set {key}") }))
                }
            }
        })
        .answers(done())
        .command("Memory.Delete", "Removes what is under a path, if there is something", keyed(false), {
            move |ctx, message| {
                let shelf = delete.clone();
                async move {
                    let Key { key } = read(&message)?;
                    shelf.delete(&key).await?;
                    ctx.reply(&json!({ "success": true, "message": format!("Deleted {key}") }))
                }
            }
        })
        .answers(done())
        .query("Memory.List", "The paths that begin with a prefix, and their values", listed(), move |_, message| {
            let shelf = list.clone();
            async move {
                let List { prefix, after } = read(&message)?;
                shelf.list(prefix.as_deref().unwrap_or_default(), after.as_deref())
            }
        })
        .answers(json!({
            "type": "object",
            "description": "Values by path. A member `next`, which is no path, tells that there are more: give it as \
                            `after` to get them.",
        }))
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
