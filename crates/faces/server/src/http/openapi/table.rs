//! Operations on topics, events and groups, in the order of `routes.rs`; the parts that all tables share.

use millrace_wire::http::{
    EventStory, EventsFound, EventsPage, GroupList, GroupPage, GroupPaused, InflightList, PublishBody,
    SchemaList, Seek, Sought, TopicBody, TopicDoc, TopicList, TopicOffsets, Trace,
};
use millrace_wire::schema::{Done, TopicPatchBody};
use millrace_wire::{CLOUD_EVENT, CLOUD_EVENTS, CloudEvent};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::http::openapi::operation::{ApiAnswer, ApiOperation, Content, Param};
use crate::http::openapi::parts::{
    AFTER, CONTAINS, CURSOR, DAMAGED_HEADER, FORCE, FROM, HEADER, KEY, LIMIT, LINEAGE, MIN_POSITION,
    MIN_POSITION_HEADER, NAMESPACE, NEXT_HEADER, ORDER, PARTITION_OR_ALL, PATH, PAYLOAD_SHA256,
    POSITION_HEADER, SCAN, SORT, TOPICS_LIMIT, TS, VERSION, WAIT, count, param, text, topic_name, whole,
};

pub(super) const TAGS: &[(&str, &str)] = &[
    ("topics", "Topics and their settings."),
    ("events", "Publishing and reading."),
    ("groups", "How far consumers are."),
    ("dead-letters", "Events that used up their attempts."),
    ("handlers", "Durable handlers, their sessions and schedules; what waits for its time."),
    ("server", "How the server is doing, and what it speaks."),
];

pub(super) const JSON: &str = "application/json";

pub(super) const NONE: ApiOperation = ApiOperation {
    method: "get",
    path: "",
    id: "",
    tag: "server",
    summary: "",
    query: &[NAMESPACE],
    headers: &[],
    body: &[],
    answers: &[],
    refusals: &[],
};

pub(super) const fn json<T: JsonSchema>() -> Content {
    Content { kind: JSON, schema: SchemaGenerator::subschema_for::<T> }
}

pub(super) const fn answer(status: u16, about: &'static str, contents: &'static [Content]) -> ApiAnswer {
    ApiAnswer { status, about, contents, headers: &[] }
}

/// An answer that says how far its server's copy of a shared store was.
pub(super) const fn read(status: u16, about: &'static str, contents: &'static [Content]) -> ApiAnswer {
    ApiAnswer { status, about, contents, headers: &[POSITION_HEADER] }
}

pub(super) const PLAIN: Content = Content { kind: "text/plain", schema: text };
pub(super) const LINES: Content = Content { kind: "application/x-ndjson", schema: text };
const CLOUD_ONE: Content =
    Content { kind: CLOUD_EVENT, schema: SchemaGenerator::subschema_for::<CloudEvent> };
pub(super) const CLOUD_BATCH: Content =
    Content { kind: CLOUD_EVENTS, schema: SchemaGenerator::subschema_for::<Vec<CloudEvent>> };
/// The data of a CloudEvent in binary mode.
const ANY: Content = Content { kind: "*/*", schema: anything };
const CLOUD_HEADERS: &[Param] = &[
    param("ce-specversion", "Binary mode: 1.0. With it, ce-id, ce-source and ce-type are needed.", text),
    param("ce-id", "Binary mode: the CloudEvent's id.", text),
    param("ce-source", "Binary mode: its source.", text),
    param("ce-type", "Binary mode: its type. Other attributes follow the same pattern.", text),
];
const TRACE_QUERY: &[Param] = &[
    NAMESPACE,
    param("id", "The id of any event, letter, message or timer of the trace.", text),
    param("correlation", "Instead of `id`: all that has this correlation.", text),
    param("topic", "Look for the id in this topic first.", topic_name),
    param("limit", "Most events of the page, each with its deliveries and claims; 1,000 if absent.", count),
    param("scan", "Most events to look at; 100,000 if absent, or what the server allows.", whole),
    param("after", "Go on behind this: `next` of the page before.", text),
];

pub(super) const PAGE_HEADERS: &[Param] = &[NEXT_HEADER, DAMAGED_HEADER, POSITION_HEADER];
/// Of reads that a server which does not lead answers, too.
pub(super) const AT_POSITION: &[Param] = &[MIN_POSITION_HEADER];
const SEARCH_HEADERS: &[Param] = &[
    NEXT_HEADER,
    DAMAGED_HEADER,
    POSITION_HEADER,
    param("millrace-cursor", "Of a search: send it as cursor to go on.", text),
    param("millrace-scanned", "Of a search: events that were looked at.", whole),
    param("millrace-more", "Of a search: whether there are events that were not looked at.", text),
];
const SWITCHING: ApiAnswer = answer(101, "The connection is a WebSocket now.", &[]);

pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        path: "/",
        id: "root",
        summary: "Opens a WebSocket if the request asks for the upgrade; otherwise a hint for people.",
        answers: &[SWITCHING, answer(200, "Where to go from here.", &[PLAIN])],
        refusals: &[426, 503],
        ..NONE
    },
    ApiOperation {
        path: "/ws",
        id: "openSocket",
        summary: "Opens a WebSocket; /asyncapi.json says what it speaks.",
        answers: &[SWITCHING],
        refusals: &[426, 503],
        ..NONE
    },
    ApiOperation {
        path: "/os",
        id: "openLoop",
        summary: "Opens a WebSocket to the CQRS loop: one OsMessage in each text frame.",
        answers: &[SWITCHING],
        refusals: &[426, 503],
        ..NONE
    },
    ApiOperation {
        path: "/topics",
        id: "listTopics",
        tag: "topics",
        summary: "The topics of a namespace, a page at a time.",
        query: &[NAMESPACE, AFTER, TOPICS_LIMIT, CONTAINS, SORT, MIN_POSITION],
        headers: AT_POSITION,
        answers: &[read(200, "The topics, by name or by a figure.", &[json::<TopicList>()])],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/topics",
        id: "putTopic",
        tag: "topics",
        summary: "Creates a topic. An existing topic gets the settings that are given and keeps the others, unless only a new one was wanted.",
        headers: &[param("if-none-match", "`*`: only if there is no such topic yet.", text)],
        body: &[json::<TopicBody>()],
        answers: &[
            answer(200, "The topic existed and has these settings now.", &[json::<TopicDoc>()]),
            answer(201, "The topic was created.", &[json::<TopicDoc>()]),
        ],
        refusals: &[408, 409, 412, 413],
        ..NONE
    },
    ApiOperation {
        path: "/topics/{topic}",
        id: "showTopic",
        tag: "topics",
        summary: "A topic: what was set for it, its partitions, its groups.",
        query: &[NAMESPACE, MIN_POSITION],
        headers: AT_POSITION,
        answers: &[read(200, "The topic.", &[json::<TopicDoc>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        method: "patch",
        path: "/topics/{topic}",
        id: "patchTopic",
        tag: "topics",
        summary: "Changes settings: what is absent stays, what is null goes back to its default.",
        query: &[NAMESPACE, FORCE],
        body: &[json::<TopicPatchBody>()],
        answers: &[answer(200, "The topic as it is now.", &[json::<TopicDoc>()])],
        refusals: &[404, 408, 409, 413],
        ..NONE
    },
    ApiOperation {
        method: "delete",
        path: "/topics/{topic}",
        id: "deleteTopic",
        tag: "topics",
        summary: "Deletes a topic with its events and groups.",
        answers: &[answer(204, "The topic is deleted.", &[])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        path: "/topics/{topic}/offsets",
        id: "topicOffsets",
        tag: "groups",
        summary: "How far the groups of a topic are, by partition.",
        answers: &[answer(200, "The offsets.", &[json::<TopicOffsets>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        path: "/topics/{topic}/schemas",
        id: "topicSchemas",
        tag: "topics",
        summary: "The versions of the topic's schema that are kept, oldest first.",
        query: &[NAMESPACE, VERSION, MIN_POSITION],
        headers: AT_POSITION,
        answers: &[read(200, "The versions.", &[json::<SchemaList>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        path: "/topics/{topic}/events",
        id: "readEvents",
        tag: "events",
        summary: "A page of one partition; with order, a filter or partition=all a search. Nothing is leased and no group moves.",
        query: &[
            NAMESPACE,
            PARTITION_OR_ALL,
            FROM,
            TS,
            LIMIT,
            PAYLOAD_SHA256,
            ORDER,
            CURSOR,
            KEY,
            HEADER,
            CONTAINS,
            PATH,
            LINEAGE,
            SCAN,
            WAIT,
            MIN_POSITION,
        ],
        headers: AT_POSITION,
        answers: &[ApiAnswer {
            status: 200,
            about: "The events, as one document, one per line, or as CloudEvents.",
            contents: &[Content { kind: JSON, schema: page_or_found }, LINES, CLOUD_BATCH],
            headers: SEARCH_HEADERS,
        }],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/topics/{topic}/events",
        id: "publish",
        tag: "events",
        summary: "Publishes one event, or an array that is stored whole or not at all; also as CloudEvents.",
        headers: CLOUD_HEADERS,
        body: &[json::<PublishBody>(), CLOUD_ONE, CLOUD_BATCH, ANY],
        answers: &[answer(200, "The events are as durable as the answer says.", &[json::<Done>()])],
        refusals: &[404, 408, 413, 415, 422, 507],
        ..NONE
    },
    ApiOperation {
        path: "/topics/{topic}/groups",
        id: "listGroups",
        tag: "groups",
        summary: "The groups of a topic.",
        answers: &[answer(200, "The groups, by name.", &[json::<GroupList>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        path: "/topics/{topic}/tail",
        id: "tailEvents",
        tag: "events",
        summary: "Events as they are published, one per line and without end; no group. Between them {\"skipped\":n} where events were left out, and {\"beat\":ts} every 5 s.",
        query: &[
            NAMESPACE,
            PARTITION_OR_ALL,
            param("from", "`latest`, `offset:N` (with partition) or `ts:N`; latest if absent.", text),
            param("rate", "Most events per second; 200 if absent.", count),
            KEY,
            HEADER,
            CONTAINS,
            PATH,
            LINEAGE,
        ],
        answers: &[answer(200, "Lines of JSON.", &[LINES])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        path: "/topics/{topic}/groups/{group}",
        id: "showGroup",
        tag: "groups",
        summary: "A group: its members, and how far it is, in events and in time.",
        answers: &[answer(200, "The group.", &[json::<GroupPage>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        method: "delete",
        path: "/topics/{topic}/groups/{group}",
        id: "deleteGroup",
        tag: "groups",
        summary: "Forgets a group that has no members.",
        answers: &[answer(204, "The group is deleted.", &[])],
        refusals: &[404, 409],
        ..NONE
    },
    ApiOperation {
        path: "/topics/{topic}/groups/{group}/inflight",
        id: "groupInflight",
        tag: "groups",
        summary: "Events that the group was sent and that are not done.",
        query: &[NAMESPACE, LIMIT],
        answers: &[answer(200, "The events, by partition and offset.", &[json::<InflightList>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/topics/{topic}/groups/{group}/pause",
        id: "pauseGroup",
        tag: "groups",
        summary: "Holds the group's deliveries back, also over a restart. Leases and acks go on.",
        answers: &[answer(200, "The group is paused.", &[json::<GroupPaused>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/topics/{topic}/groups/{group}/resume",
        id: "resumeGroup",
        tag: "groups",
        summary: "Lets the group's deliveries go on.",
        answers: &[answer(200, "The group is not paused.", &[json::<GroupPaused>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/topics/{topic}/groups/{group}/seek",
        id: "seekGroup",
        tag: "groups",
        summary: "Moves a group, in one partition or all of them.",
        body: &[json::<Seek>()],
        answers: &[answer(200, "Where it stands now.", &[json::<Sought>()])],
        refusals: &[404, 408, 409, 413],
        ..NONE
    },
    ApiOperation {
        path: "/events/{id}",
        id: "showEvent",
        tag: "events",
        summary: "One event: its causes, how far its groups and handlers are with it, its letters and replays.",
        query: &[NAMESPACE, param("topic", "Only look in this topic.", topic_name)],
        answers: &[answer(200, "The event and its story.", &[json::<EventStory>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        path: "/trace",
        id: "showTrace",
        tag: "events",
        summary: "What an event, letter, message or timer goes back to, and everything that followed from it.",
        query: TRACE_QUERY,
        answers: &[answer(200, "The nodes, in order of time.", &[json::<Trace>()])],
        refusals: &[404],
        ..NONE
    },
];

fn page_or_found(generator: &mut SchemaGenerator) -> Schema {
    let (page, found) = (generator.subschema_for::<EventsPage>(), generator.subschema_for::<EventsFound>());
    json_schema!({"anyOf": [page, found]})
}

fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({})
}
