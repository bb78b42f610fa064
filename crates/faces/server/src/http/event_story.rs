//! `GET /events/{id}`: one event, wherever it is: its causes, its groups, its handlers, its letters, its replays.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_admin::{Admin, AdminError, ClaimView};
use millrace_bus::{BusError, EventStanding, Reply, Request, StandingState};
use millrace_model::{Event, EventId, Requester, Timestamp, TraceId};
use millrace_store::{FailureCause, Store, StoreError};
use millrace_wire::ErrorCode;
use millrace_wire::http::{
    ClaimDoc, EventPlace, EventStory, GroupStanding, LetterPlace, LineageDoc, mark_withheld, write_found,
};
use serde_json::value::RawValue;

use crate::access::Caller;
use crate::app::{App, SharedApp};
use crate::http::dead_letters::{DLQ_ID_HEADER, REPLAYED_LETTER};
use crate::http::find_event::{Lookup, header, scan};
use crate::http::topic_access::may_read;
use crate::http::{damaged_name, document, withheld};
use crate::observe::ContentRead;
use crate::params::{AtEvent, topic_key};
use crate::refusal::Refusal;
use crate::to_wire;

/// Events that are looked at for letters of the event, and for replays of these letters.
const CONSEQUENCES_SCAN_MAX: u64 = 20_000;

pub(crate) async fn show(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtEvent,
) -> Result<Response, Refusal> {
    let AtEvent { id, params } = at;
    let namespace = params.namespace()?;
    let topic = params.text("topic").map(|topic| topic_key(&params, topic)).transpose()?;
    let lookup = Lookup { id, topic, scan_max: app.edge.settings.scan_events_max as u64 };
    let (by, store, now) = (caller.by(), app.store.clone(), app.broker.clock().now().wall);
    let read = app.read(move |reader| {
        let found = match lookup.find(reader, &by, namespace.as_str())? {
            Ok(event) => event,
            Err(scanned) => return Ok(Err((lookup.id.clone(), scanned))),
        };
        let claims = Admin::new(store).claims_of(&found, now).map_err(unreadable)?;
        let consequences = Consequences::find(reader, &by, &found)?;
        Ok(Ok((found, claims, consequences)))
    });
    let (event, claims, consequences) = read.await?.map_err(|(id, scanned)| not_found(&id, scanned))?;
    let mut story = story(&app, &caller, &event, &claims, consequences).await?;
    if caller.is_withheld() {
        withheld::story(&mut story);
    } else {
        app.edge.content_read(&caller, &ContentRead::one(&event));
    }
    Ok(document(StatusCode::OK, &story))
}

fn unreadable(error: AdminError) -> StoreError {
    match error {
        AdminError::Store(error) => error,
        other => StoreError::Unreadable(FailureCause::of(other)),
    }
}

fn not_found(id: &EventId, scanned: u64) -> Refusal {
    let detail = format!(
        "there is no event {id:.80} among the {scanned} events that were looked at: name its topic with ?topic=, or it \
         was removed"
    );
    Refusal::new(ErrorCode::BadTopic, detail).status(StatusCode::NOT_FOUND)
}

/// Letters of an event, and events that were published again from them.
struct Consequences {
    letters: Vec<Event>,
    replays: Vec<Event>,
    complete: bool,
}

impl Consequences {
    fn find(store: &dyn Store, by: &Requester, event: &Event) -> Result<Consequences, StoreError> {
        let topic = &event.stream.topic;
        let mut found = Consequences { letters: Vec::new(), replays: Vec::new(), complete: true };
        let Some(dlq) = topic.dead_letters() else { return Ok(found) };
        // The dead-letter topic may have a list of its own.
        if !may_read(store, by, &dlq)? {
            return Ok(found);
        }
        let id = event.id.to_string();
        let mut left = CONSEQUENCES_SCAN_MAX;
        let streams = store.streams()?;
        for bounds in streams.iter().filter(|bounds| bounds.stream.topic == dlq) {
            let from = store.seek(&bounds.stream, event.ts)?;
            scan(store, (&bounds.stream, from), None, &mut left, |letter| {
                if header(letter, DLQ_ID_HEADER).as_deref() == Some(&id) {
                    found.letters.push(letter.clone());
                }
                false
            })?;
        }
        found.complete = left > 0;
        let Some(first) = found.letters.iter().map(|letter| letter.ts).min() else { return Ok(found) };
        let ids: Vec<String> = found.letters.iter().map(|letter| letter.id.to_string()).collect();
        let mut left = CONSEQUENCES_SCAN_MAX;
        for bounds in streams.iter().filter(|bounds| bounds.stream.topic == *topic) {
            let from = store.seek(&bounds.stream, first)?;
            scan(store, (&bounds.stream, from), None, &mut left, |replay| {
                if header(replay, REPLAYED_LETTER).is_some_and(|letter| ids.contains(&letter)) {
                    found.replays.push(replay.clone());
                }
                false
            })?;
        }
        found.complete &= left > 0;
        Ok(found)
    }
}

async fn story(
    app: &SharedApp,
    caller: &Caller,
    event: &Event,
    claims: &[ClaimView],
    consequences: Consequences,
) -> Result<EventStory, Refusal> {
    let request = Request::EventStandings {
        topic: event.stream.topic.clone(),
        partition: event.stream.partition,
        offset: event.offset,
    };
    // Whether the caller may read the topic was checked where the event was found.
    let standings = match app.request(Requester::Trusted, request).await? {
        Reply::EventStandings(standings) => standings,
        other => return Err(Refusal::unexpected(&other)),
    };
    let mut text = String::new();
    let shown = if caller.is_withheld() { &withheld::event(event) } else { event };
    write_found(&mut text, shown, false);
    if caller.is_withheld() {
        mark_withheld(&mut text);
    }
    let envelope = RawValue::from_string(text).map_err(|error| {
        app.refusal(&BusError::Unreadable(format!("the event has no JSON form: {error}")))
    })?;
    let Consequences { letters, replays, complete } = consequences;
    let groups = standings.into_iter().map(|standing| group_of(app, standing, &letters)).collect();
    let lineage = &event.body.lineage;
    let text_of = |id: &Option<EventId>| id.as_ref().map(ToString::to_string);
    Ok(EventStory {
        event: envelope,
        lineage: LineageDoc {
            root: text_of(&lineage.root),
            depth: lineage.depth,
            causation: text_of(&lineage.causation),
            correlation: text_of(&lineage.correlation),
        },
        trace_id: TraceId::of(shown.body.headers.as_ref()).map(|trace| trace.as_str().to_owned()),
        claims: claims.iter().map(claim_of).collect(),
        groups,
        letters: letters.iter().map(letter_of).collect::<Result<_, _>>()?,
        replays: replays.iter().map(place_of).collect::<Result<_, _>>()?,
        complete,
        withheld: false,
    })
}

pub(crate) fn group_of(app: &App, standing: EventStanding, letters: &[Event]) -> GroupStanding {
    let EventStanding { group, state, attempts, reason } = standing;
    let gave_up =
        || letters.iter().any(|letter| header(letter, "x-dlq-group").as_deref() == Some(group.as_str()));
    let (state, connection) = match state {
        StandingState::Waiting => ("waiting", None),
        StandingState::InFlight(conn) => ("inflight", Some(conn.0)),
        StandingState::Done if gave_up() => ("deadLettered", None),
        StandingState::Done => ("done", None),
    };
    let agent = connection.and_then(|conn| app.edge.connections.of_bus(conn)).and_then(|facts| facts.agent);
    GroupStanding { state: state.to_owned(), group, attempts, connection, agent, reason }
}

fn claim_of(view: &ClaimView) -> ClaimDoc {
    let ended_at = view.ack_at.or(view.dead_lettered_at).or(view.discarded_at);
    let ms = |ts: Option<Timestamp>| ts.map(|ts| ts.0);
    ClaimDoc {
        handler: view.handler_id.clone(),
        status: view.status.as_str().to_owned(),
        session: view.session_id.clone(),
        attempts: view.attempts,
        error: view.last_error.clone(),
        claimed_at: ms(view.claimed_at),
        lease_until: ms(view.lease_until),
        available_at: ms(view.available_at),
        ended_at: ms(ended_at),
    }
}

fn letter_of(letter: &Event) -> Result<LetterPlace, Refusal> {
    Ok(LetterPlace {
        dlq: to_wire::topic_name(&letter.stream.topic).map_err(|error| damaged_name(&error))?,
        partition: letter.stream.partition,
        offset: letter.offset,
        id: letter.id.to_string(),
        ts: letter.ts,
        group: header(letter, "x-dlq-group"),
        reason: header(letter, "x-dlq-reason"),
    })
}

fn place_of(event: &Event) -> Result<EventPlace, Refusal> {
    Ok(EventPlace {
        topic: to_wire::topic_name(&event.stream.topic).map_err(|error| damaged_name(&error))?,
        partition: event.stream.partition,
        offset: event.offset,
        id: event.id.to_string(),
        ts: event.ts,
    })
}
