//! The operations about the work of durable handlers, and about what waits for its time.

use millrace_wire::http::{
    DelayedDone, DelayedList, HandlerForgotten, HandlerLetterChoice, HandlerLettersDone, HandlerList,
    OpenClaims, ScheduleDoc, ScheduleList, SessionList, TimerCancelled, TimerList,
};

use crate::http::openapi::operation::{ApiOperation, Param};
use crate::http::openapi::parts::{LIMIT, NAMESPACE, count, param, text, topic_name};
use crate::http::openapi::table::{NONE, answer, json};

const TAG: &str = "handlers";
const AFTER: Param = param("after", "Go on behind this: `next` of the page before.", text);
const ENTRIES: Param = param("limit", "Most entries of the page; 1,000 if absent.", count);

pub(super) const OPERATIONS: &[ApiOperation] = &[
    ApiOperation {
        path: "/handlers",
        id: "listHandlers",
        tag: TAG,
        summary: "Durable handlers: what each takes, what it owes, what it gave up on.",
        query: &[NAMESPACE, param("handler", "Only this handler.", text), ENTRIES, AFTER],
        answers: &[answer(200, "The handlers, by id.", &[json::<HandlerList>()])],
        ..NONE
    },
    ApiOperation {
        path: "/handlers/{handler}/claims",
        id: "listClaims",
        tag: TAG,
        summary: "What a handler has open: leases, waiting times, attempts, last errors.",
        query: &[NAMESPACE, param("state", "Only `claimed`, `waiting` or `free` ones.", text), LIMIT, AFTER],
        answers: &[answer(200, "The claims, in the order of the log.", &[json::<OpenClaims>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        method: "delete",
        path: "/handlers/{handler}",
        id: "forgetHandler",
        tag: TAG,
        summary: "Forgets a handler that will not come back, so that retention does not wait for it.",
        answers: &[answer(200, "It is forgotten.", &[json::<HandlerForgotten>()])],
        refusals: &[404, 409, 507],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/handlers/{handler}/dead-letters/replay",
        id: "replayHandlerLetters",
        tag: TAG,
        summary: "Gives events back to the handler that gave up on them, under the same ids; no other handler sees anything.",
        body: &[json::<HandlerLetterChoice>()],
        answers: &[answer(200, "What became of the letters.", &[json::<HandlerLettersDone>()])],
        refusals: &[404, 408, 413, 507],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/handlers/{handler}/dead-letters/delete",
        id: "deleteHandlerLetters",
        tag: TAG,
        summary: "Removes dead letters of a handler; their events are not sent again.",
        body: &[json::<HandlerLetterChoice>()],
        answers: &[answer(200, "What became of the letters.", &[json::<HandlerLettersDone>()])],
        refusals: &[404, 408, 413],
        ..NONE
    },
    ApiOperation {
        path: "/sessions",
        id: "listSessions",
        tag: TAG,
        summary: "Programs that run durable handlers, and what they hold.",
        query: &[NAMESPACE, ENTRIES, AFTER],
        answers: &[answer(200, "The sessions, the newest first.", &[json::<SessionList>()])],
        ..NONE
    },
    ApiOperation {
        path: "/schedules",
        id: "listSchedules",
        tag: TAG,
        summary: "Events that sessions send by the clock: when, in words, and the next five.",
        query: &[NAMESPACE, ENTRIES, AFTER],
        answers: &[answer(200, "The schedules, by name.", &[json::<ScheduleList>()])],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/schedules/{schedule}/run",
        id: "runSchedule",
        tag: TAG,
        summary: "Asks for one fire now, beside the planned ones. A session that has the schedule makes it.",
        answers: &[answer(202, "The request is durable.", &[json::<ScheduleDoc>()])],
        refusals: &[404, 409, 507],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/schedules/{schedule}/pause",
        id: "pauseSchedule",
        tag: TAG,
        summary: "Lets a schedule fire no more, in all sessions, also over restarts.",
        answers: &[answer(200, "It is paused.", &[json::<ScheduleDoc>()])],
        refusals: &[404, 409, 507],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/schedules/{schedule}/resume",
        id: "resumeSchedule",
        tag: TAG,
        summary: "Lets a paused schedule go on; fires that it missed meanwhile stay missed.",
        answers: &[answer(200, "It is not paused.", &[json::<ScheduleDoc>()])],
        refusals: &[404, 409, 507],
        ..NONE
    },
    ApiOperation {
        path: "/delayed",
        id: "listDelayed",
        tag: TAG,
        summary: "Events that wait for their time.",
        query: &[NAMESPACE, param("topic", "Only events of this topic.", topic_name), ENTRIES, AFTER],
        answers: &[answer(200, "The events, without their payloads.", &[json::<DelayedList>()])],
        ..NONE
    },
    ApiOperation {
        method: "post",
        path: "/delayed/{entry}/now",
        id: "publishDelayed",
        tag: TAG,
        summary: "Publishes a delayed event now, under the id that it was promised.",
        answers: &[answer(200, "It is published.", &[json::<DelayedDone>()])],
        refusals: &[404, 409, 507],
        ..NONE
    },
    ApiOperation {
        method: "delete",
        path: "/delayed/{entry}",
        id: "cancelDelayed",
        tag: TAG,
        summary: "Removes a delayed event, which is then never published.",
        answers: &[answer(200, "It is cancelled.", &[json::<DelayedDone>()])],
        refusals: &[404],
        ..NONE
    },
    ApiOperation {
        path: "/timers",
        id: "listTimers",
        tag: TAG,
        summary: "Timers of the CQRS loop that wait.",
        query: &[NAMESPACE, LIMIT, AFTER],
        answers: &[answer(200, "The timers, the next one first.", &[json::<TimerList>()])],
        ..NONE
    },
    ApiOperation {
        method: "delete",
        path: "/timers/{timer}",
        id: "cancelTimer",
        tag: TAG,
        summary: "Cancels a timer of a client. Those of capabilities only the capability can cancel.",
        answers: &[answer(200, "It is cancelled.", &[json::<TimerCancelled>()])],
        refusals: &[404, 409],
        ..NONE
    },
];
