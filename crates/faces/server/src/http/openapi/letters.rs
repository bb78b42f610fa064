//! Operations on dead letters, and jobs over them.

use millrace_wire::http::{
    ChosenLetters, ChosenReplayed, DeadLetters, EventsPage, HandlerLettersPage, JobDoc, JobList, JobPreview,
    JobRequest, LetterSummary, LettersDeleted, Replay, Replayed,
};
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::http::openapi::operation::{ApiAnswer, ApiOperation, Content, Param};
use crate::http::openapi::parts::{
    FROM, LETTERS_AFTER, LIMIT, MIN_POSITION, NAMESPACE, PARTITION, PAYLOAD_SHA256, SCAN, TS, param, text,
    topic_name,
};
use crate::http::openapi::table::{AT_POSITION, CLOUD_BATCH, JSON, LINES, NONE, PAGE_HEADERS, answer, json};

const DLQ_TOPIC: Param = param("topic", "Only the letters of this topic, as a page of events.", topic_name);
const DLQ_HANDLER: Param =
    param("handler", "Only the letters of this durable handler, the oldest first.", text);

pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        path: "/dead-letters",
        id: "listDeadLetters",
        tag: "dead-letters",
        summary: "The topics with dead letters, and the durable handlers that gave up on events; with `topic` or `handler` the \
                  letters of one, a page at a time.",
        query: &[
            NAMESPACE,
            DLQ_TOPIC,
            DLQ_HANDLER,
            LETTERS_AFTER,
            PARTITION,
            FROM,
            TS,
            LIMIT,
            PAYLOAD_SHA256,
            MIN_POSITION,
        ],
        headers: AT_POSITION,
        answers: &[ApiAnswer {
            status: 200,
            about: "The topics, or the letters.",
            contents: &[Content { kind: JSON, schema: letters_or_page }, LINES, CLOUD_BATCH],
            headers: PAGE_HEADERS,
        }],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/dead-letters/{topic}/replay",
        id: "replayDeadLetters",
        tag: "dead-letters",
        summary: "Publishes letters to their topic again: a run of them, or those that are named, also edited.",
        body: &[Content { kind: JSON, schema: replay_or_chosen }],
        answers: &[answer(
            200,
            "How many, and where to go on.",
            &[Content { kind: JSON, schema: replayed_either }],
        )],
        refusals: &[404, 408, 413, 422, 507],
        ..NONE
    },
    ApiOperation {
        path: "/dead-letters/{topic}/summary",
        id: "letterSummary",
        tag: "dead-letters",
        summary: "Why there are letters: reasons with their counts, of groups and durable handlers.",
        query: &[NAMESPACE, SCAN],
        answers: &[answer(200, "The reasons, the most frequent first.", &[json::<LetterSummary>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/dead-letters/{topic}/delete",
        id: "deleteDeadLetters",
        tag: "dead-letters",
        summary: "Removes the letters that are named.",
        body: &[json::<ChosenLetters>()],
        answers: &[answer(200, "How many were removed.", &[json::<LettersDeleted>()])],
        refusals: &[404, 408, 413],
        ..NONE
    },
    ApiOperation {
        path: "/jobs",
        id: "listJobs",
        tag: "dead-letters",
        summary: "Work over many letters, the newest first.",
        answers: &[answer(200, "The jobs.", &[json::<JobList>()])],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/jobs",
        id: "createJob",
        tag: "dead-letters",
        summary: "Replays or deletes all letters that match a filter, in the server; with dryRun only counts them.",
        body: &[json::<JobRequest>()],
        answers: &[
            answer(200, "How many letters match; nothing was begun.", &[json::<JobPreview>()]),
            answer(202, "The job is durable and runs.", &[json::<JobDoc>()]),
        ],
        refusals: &[404, 408, 413, 507],
        ..NONE
    },
    ApiOperation {
        path: "/jobs/{job}",
        id: "showJob",
        tag: "dead-letters",
        summary: "How far a job is.",
        answers: &[answer(200, "The job.", &[json::<JobDoc>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        method: "delete",
        path: "/jobs/{job}",
        id: "cancelJob",
        tag: "dead-letters",
        summary: "Ends a job after the slice under way. Nothing is undone.",
        answers: &[answer(202, "The job as it was.", &[json::<JobDoc>()])],
        refusals: &[404, 507],
        ..NONE
    },
];

fn replay_or_chosen(generator: &mut SchemaGenerator) -> Schema {
    let (run, chosen) = (generator.subschema_for::<Replay>(), generator.subschema_for::<ChosenLetters>());
    json_schema!({"anyOf": [run, chosen]})
}

fn replayed_either(generator: &mut SchemaGenerator) -> Schema {
    let (run, chosen) = (generator.subschema_for::<Replayed>(), generator.subschema_for::<ChosenReplayed>());
    json_schema!({"anyOf": [run, chosen]})
}

fn letters_or_page(generator: &mut SchemaGenerator) -> Schema {
    let (letters, page) = (generator.subschema_for::<DeadLetters>(), generator.subschema_for::<EventsPage>());
    let of_handler = generator.subschema_for::<HandlerLettersPage>();
    json_schema!({"oneOf": [letters, page, of_handler]})
}
