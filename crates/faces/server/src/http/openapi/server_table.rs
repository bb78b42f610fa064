//! Operations that are about the server itself: its figures, its loop, its connections, its settings, its console.

use millrace_wire::http::{
    CapabilityList, ConnectionList, LogDoc, NamespaceList, OsAccepted, OsMessageDoc, ServerStatsDoc,
    SettingsDoc, StatsHistory, WhoAmI,
};
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::http::openapi::operation::{ApiOperation, Content};
use crate::http::openapi::parts::{
    AFTER_NAMESPACE, NAMESPACE, TOPICS_LIMIT, count, group_name, param, text, whole,
};
use crate::http::openapi::table::{JSON, NONE, PLAIN, answer, json};

const DOCUMENT: Content = Content { kind: JSON, schema: any_object };
const STATUS: Content = Content { kind: JSON, schema: status };
const PAGE_OF_CONSOLE: Content = Content { kind: "text/html", schema: text };
const FILE_KINDS: &[Content] = &[
    Content { kind: "text/javascript", schema: text },
    Content { kind: "text/css", schema: text },
    Content { kind: "image/svg+xml", schema: text },
];

pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        path: "/stats",
        id: "stats",
        summary: "Counters since the start and gauges as of now.",
        answers: &[answer(200, "The figures.", &[json::<ServerStatsDoc>()])],
        ..NONE
    },
    ApiOperation {
        path: "/stats/history",
        id: "statsHistory",
        summary: "Figures over time, from system.metrics: counters as they grew in each step, gauges as their largest value.",
        query: &[
            NAMESPACE,
            param("from", "Since when; an hour before `to` if absent.", whole),
            param("to", "Until when; now if absent.", whole),
            param("step", "Milliseconds from one point to the next; 60,000 if absent.", whole),
            param(
                "series",
                "Names with commas between them: published, lag, lag:TOPIC/GROUP and others.",
                text,
            ),
        ],
        answers: &[answer(200, "The series.", &[json::<StatsHistory>()])],
        ..NONE
    },
    ApiOperation {
        path: "/whoami",
        id: "whoami",
        summary: "What the caller may do.",
        query: &[],
        answers: &[answer(200, "The caller's rights, and bounds of the server.", &[json::<WhoAmI>()])],
        ..NONE
    },
    ApiOperation {
        path: "/namespaces",
        id: "listNamespaces",
        summary: "The namespaces that the caller may use.",
        query: &[AFTER_NAMESPACE, TOPICS_LIMIT],
        answers: &[answer(200, "The namespaces, by name.", &[json::<NamespaceList>()])],
        refusals: &[400],
        ..NONE
    },
    ApiOperation {
        path: "/metrics",
        id: "metrics",
        summary: "The same and more in the Prometheus text format.",
        answers: &[answer(200, "The figures.", &[PLAIN])],
        ..NONE
    },
    ApiOperation {
        path: "/healthz",
        id: "healthz",
        summary: "The process answers.",
        query: &[],
        answers: &[answer(200, "The process answers.", &[STATUS])],
        ..NONE
    },
    ApiOperation {
        path: "/readyz",
        id: "readyz",
        summary: "The process takes work.",
        query: &[],
        answers: &[answer(200, "The process takes work.", &[STATUS])],
        refusals: &[503],
        ..NONE
    },
    ApiOperation {
        path: "/openapi.json",
        id: "openapi",
        summary: "This document.",
        query: &[],
        answers: &[answer(200, "OpenAPI 3.1.", &[DOCUMENT])],
        ..NONE
    },
    ApiOperation {
        path: "/asyncapi.json",
        id: "asyncapi",
        summary: "The WebSocket, described in the same way.",
        query: &[],
        answers: &[answer(200, "AsyncAPI 3.", &[DOCUMENT])],
        ..NONE
    },
    ApiOperation {
        path: "/console",
        id: "consoleSlash",
        summary: "Leads to /console/.",
        query: &[],
        answers: &[answer(307, "Where the console is.", &[])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        path: "/console/",
        id: "console",
        summary: "The web console, a client of this interface.",
        query: &[],
        answers: &[answer(200, "A page.", &[PAGE_OF_CONSOLE])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        path: "/console/a/{digest}/{file}",
        id: "consoleFile",
        summary: "A file of the console.",
        query: &[],
        answers: &[answer(200, "The file.", FILE_KINDS)],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        path: "/console/a/{digest}/{folder}/{file}",
        id: "consoleFileBelow",
        summary: "A file of the console, in a folder.",
        query: &[],
        answers: &[answer(200, "The file.", FILE_KINDS)],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        path: "/capabilities",
        id: "listCapabilities",
        summary: "The capabilities that answer messages of the CQRS loop: health, restarts, mailboxes, their messages.",
        query: &[],
        answers: &[answer(200, "The capabilities, by name.", &[json::<CapabilityList>()])],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/os/messages",
        id: "sendMessage",
        summary: "Sends one message to the CQRS loop and waits for its outcome, which may be an error of the loop.",
        query: &[param("timeoutMs", "How long to wait, up to 60,000; 30,000 if absent.", count)],
        body: &[json::<OsMessageDoc>()],
        answers: &[
            answer(200, "The outcome: a message of kind reply or error.", &[json::<OsMessageDoc>()]),
            answer(202, "An event was taken; it has no outcome.", &[json::<OsAccepted>()]),
        ],
        refusals: &[408, 413, 504],
        ..NONE
    },
    ApiOperation {
        path: "/connections",
        id: "listConnections",
        summary: "Who is connected, and what waits for each; with namespace only its WebSockets.",
        query: &[
            param("namespace", "Only connections of this namespace.", group_name),
            param("after", "Go on behind this: `next` of the page before.", text),
            param("limit", "Most connections of the page; 1,000 if absent.", count),
        ],
        answers: &[answer(200, "The connections.", &[json::<ConnectionList>()])],
        ..NONE
    },
    ApiOperation {
        method: "delete",
        path: "/connections/{connection}",
        id: "closeConnection",
        summary: "Closes a connection. What it holds goes to others; its client may connect again.",
        query: &[],
        answers: &[answer(204, "The connection is told to go.", &[])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        path: "/settings",
        id: "showSettings",
        summary: "Every setting, its value and its source; tokens by agent. No secrets.",
        query: &[],
        answers: &[answer(200, "The settings.", &[json::<SettingsDoc>()])],
        ..NONE
    },
    ApiOperation {
        path: "/log",
        id: "showLog",
        summary: "The last lines of the server's log.",
        query: &[
            param("level", "The least level: `info`, `warn` or `error`; info if absent.", text),
            param("limit", "Most lines; 1,000 if absent.", count),
        ],
        answers: &[answer(200, "The lines, the newest first.", &[json::<LogDoc>()])],
        ..NONE
    },
];

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object"})
}

fn status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "status": {"enum": ["ok", "ready"]},
            "role": {"enum": ["leader", "follower"]},
            "phase": {"enum": ["opening", "following", "taking_over", "leading"]},
            "position": {"type": "integer", "minimum": 0},
            "head_seen": {"type": "integer", "minimum": 0},
            "leader": {"type": ["string", "null"]},
        },
        "required": ["status"],
    })
}
