//! Parts that several operations share: parameters, headers, refusals.

use millrace_wire::http::{PROBLEM_CONTENT_TYPE, Problem};
use millrace_wire::{ErrorCode, LEADER_HEADER};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::http::openapi::operation::{Maker, Param, headers};

pub(super) const fn param(name: &'static str, about: &'static str, schema: Maker) -> Param {
    Param { name, about, schema }
}

pub(super) const PATH_PARAMS: &[Param] = &[
    param("topic", "The topic's name.", topic_name),
    param("group", "The group's name.", group_name),
    param("id", "The event's id.", text),
    param("job", "The job's number.", whole),
    param("handler", "The id of the durable handler.", text),
    param("schedule", "The schedule's name.", text),
    param("entry", "`entry` of GET /delayed.", text),
    param("timer", "The timer's id.", text),
    param("connection", "The connection: ws-N, os-N or socket-N.", text),
    param("digest", "Changes with the files of the console.", text),
    param("folder", "A folder of the console.", text),
    param("file", "A file of the console.", text),
];

pub(super) const PARTITION_OR_ALL: Param = param(
    "partition",
    "Which partition, or `all`, merged by time; 0 if absent, of a tail all.",
    partition_or_all,
);
pub(super) const ORDER: Param = param("order", "`asc` or `desc`: the newest first.", order);
pub(super) const CURSOR: Param =
    param("cursor", "Go on where the search before ended; instead of from and ts.", text);
pub(super) const KEY: Param = param("key", "Only events with this key.", text);
pub(super) const HEADER: Param = param("header", "Only events with this header: `NAME:VALUE`.", text);
pub(super) const CONTAINS: Param = param(
    "contains",
    "Only those with this text: of events in payload, key or headers, of topics in the name.",
    text,
);
pub(super) const PATH: Param = param(
    "path",
    "Only events with this value in the payload: `$.a.b:VALUE`; a step into an array is a number.",
    text,
);
pub(super) const LINEAGE: Param =
    param("lineage", "`true` adds to every envelope what caused the event.", flag);
pub(super) const SCAN: Param = param("scan", "Most events to look at; 10,000 if absent.", whole);
pub(super) const WAIT: Param = param("wait", "Milliseconds to wait for an event if none is found.", whole);
pub(super) const SORT: Param =
    param("sort", "`name`, or the largest first of events, bytes, lastTs, lag, deadLetters.", sort);
pub(super) const AFTER_NAMESPACE: Param =
    param("after", "List namespaces that come after this one: `next` of the page before.", group_name);

pub(super) const NAMESPACE: Param =
    param("namespace", "Where the names are looked up; `default` if absent.", group_name);
pub(super) const PARTITION: Param = param("partition", "Which partition; 0 if absent.", whole);
pub(super) const FROM: Param = param("from", "The first offset to read; not together with ts.", whole);
pub(super) const TS: Param = param("ts", "Read from the first event at or after this time.", whole);
pub(super) const PAYLOAD_SHA256: Param = param(
    "payload_sha256",
    "`true` adds the SHA-256 of its payload to every envelope; `false` if absent.",
    flag,
);
pub(super) const LIMIT: Param = param("limit", "Most events of the page; 100 if absent.", count);

pub(super) const AFTER: Param =
    param("after", "List topics whose names come after this one: `next` of the page before.", topic_name);
pub(super) const LETTERS_AFTER: Param = param(
    "after",
    "Go on behind this: `next` of the page before. A topic's name, or with `handler` what that page gave.",
    text,
);
pub(super) const TOPICS_LIMIT: Param = param("limit", "Most topics of the page; 1,000 if absent.", count);

pub(super) const FORCE: Param =
    param("force", "`true` sets a schema that retained events do not match; `false` if absent.", flag);
pub(super) const VERSION: Param = param("version", "Only this version.", whole);

pub(super) const NEXT_HEADER: Param = param("millrace-next", "The offset at which to go on.", whole);
pub(super) const DAMAGED_HEADER: Param = param(
    "millrace-damaged",
    "Offsets of this page whose events are damaged, with commas between them.",
    text,
);

pub(super) const POSITION_HEADER: Param = param(
    "x-millrace-position",
    "Of a shared store: the record up to which this read saw everything.",
    whole,
);
pub(super) const MIN_POSITION_HEADER: Param =
    param("x-millrace-min-position", "Of a shared store: wait until this server has come this far.", whole);
pub(super) const MIN_POSITION: Param =
    param("min_position", "The same as x-millrace-min-position; the larger one counts.", whole);

const ALLOW: Param = param("allow", "With 405: what is possible.", text);
const RETRY_AFTER: Param = param("retry-after", "Seconds after which to try again.", whole);
const LEADER: Param =
    param(LEADER_HEADER, "With code moved: the URL of the server that leads, if any does.", text);
const CHALLENGE: Param = param("www-authenticate", "`Bearer`, and what was wrong with the token.", text);

/// Status, name and meaning of every refusal an operation can give.
const REFUSALS: &[(u16, &str, &str, &[Param])] = &[
    (400, "BadRequest", "Something in the request is wrong; the detail says what would be right.", &[]),
    (401, "Unauthorized", "No token, or not a known one.", &[CHALLENGE]),
    (403, "Forbidden", "The token, the topic's access list or the page's origin does not allow it.", &[]),
    (404, "NotFound", "There is no such topic, group or partition.", &[]),
    (408, "TimedOut", "The body did not arrive in time.", &[]),
    (409, "Conflict", "The request does not fit the present state.", &[]),
    (412, "PreconditionFailed", "The topic exists already, and was to be created only if it did not.", &[]),
    (413, "TooLarge", "The body is above the limit.", &[]),
    (415, "UnsupportedMedia", "The body is of a kind this operation does not read.", &[]),
    (422, "Mismatch", "The payload does not match the schema of the topic; the detail says where.", &[]),
    (426, "UpgradeRequired", "This address speaks WebSocket.", &[ALLOW]),
    (429, "TooMany", "Too fast, or a limit is reached.", &[RETRY_AFTER]),
    (
        503,
        "Unavailable",
        "The store has failed, the server is stopping, too many are connected, or another server leads.",
        &[RETRY_AFTER, LEADER],
    ),
    (504, "NoOutcome", "The request went on, and had no outcome in time.", &[]),
    (507, "NoSpace", "The store's disk has too little room: nothing is added until there is more.", &[]),
];

pub(super) fn refusal_name(status: u16) -> &'static str {
    REFUSALS.iter().find(|(of, ..)| *of == status).map_or("BadRequest", |(_, name, ..)| name)
}

/// Writes the responses for refusals. All of them are problem details with the protocol's code.
pub(super) fn refusals(generator: &mut SchemaGenerator) -> Value {
    let schema = generator.subschema_for::<Problem>();
    let mut written = Map::new();
    for (status, name, about, with) in REFUSALS {
        let codes: Vec<&str> = ErrorCode::ALL
            .iter()
            .filter(|code| code.http_status() == *status)
            .map(|code| code.as_str())
            .collect();
        let codes =
            if codes.is_empty() { String::new() } else { format!(" Usual codes: {}.", codes.join(", ")) };
        let mut response = json!({
            "description": format!("{about}{codes}"),
            "content": {PROBLEM_CONTENT_TYPE: {"schema": schema}},
        });
        if !with.is_empty() {
            response["headers"] = headers(with, generator);
        }
        written.insert((*name).to_owned(), response);
    }
    Value::Object(written)
}

pub(super) fn topic_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 255})
}

pub(super) fn group_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 255})
}

pub(super) fn whole(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "minimum": 0})
}

pub(super) fn count(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "minimum": 1, "maximum": 10_000})
}

fn flag(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "boolean"})
}

pub(super) fn text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string"})
}

fn partition_or_all(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"type": "integer", "minimum": 0}, {"const": "all"}]})
}

fn order(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": ["asc", "desc"]})
}

fn sort(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": ["name", "events", "bytes", "lastTs", "lag", "deadLetters"]})
}
