//! Operations that are about the server itself: its loop, its connections, its settings.

use millrace_wire::http::{CapabilityList, ConnectionList, LogDoc, OsAccepted, OsMessageDoc, SettingsDoc};

use crate::http::openapi::operation::ApiOperation;
use crate::http::openapi::parts::{count, group_name, param, text};
use crate::http::openapi::table::{NONE, answer, json};

pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        path: "/capabilities",
        id: "listCapabilities",
        summary: "Who answers the messages of the CQRS loop: health, restarts, what waits, which messages.",
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
