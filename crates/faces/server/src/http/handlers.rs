//! `/handlers`: durable handlers, what they have open, and acts on their dead letters. Sessions in other processes run
//! the handlers; everything here is about their rows in the store.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_admin::{
    Admin, ChangeError, ClaimQuery, ClaimStanding, HandlerQuery, HandlerView, LetterChoice, LettersDone,
    OpenClaim,
};
use millrace_model::{EventId, HandlerId, Offset, Partition, Timestamp};
use millrace_store::Store;
use millrace_wire::ErrorCode;
use millrace_wire::http::{
    HandlerDoc, HandlerForgotten, HandlerLetterChoice, HandlerLettersDone, HandlerList, LETTERS_CHOSEN_MAX,
    LetterRefused, OpenClaimDoc, OpenClaims,
};

use crate::access::Caller;
use crate::app::{App, SharedApp};
use crate::body::read_text;
use crate::http::actions::not_found;
use crate::http::durable_handlers::{Readers, unreadable};
use crate::http::{document, withheld};
use crate::params::{AtHandler, Params};
use crate::refusal::Refusal;

/// Claims of a page: each is looked up in the log for its id.
const CLAIMS_MAX: u64 = 1000;
const CLAIMS_DEFAULT: u64 = 100;

pub(crate) async fn list(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    let (namespace, by) = (params.namespace()?, caller.by_unless_admin());
    let limit = params.list_limit(app.edge.settings.list_max)?;
    let text = |name| params.text(name).map(str::to_owned);
    let (only, after) = (text("handler"), text("after"));
    let (store, now) = (app.store.clone(), app.broker.clock().now().wall);
    let read = app.read(move |reader| {
        let mut readers = Readers::new(reader, &namespace, by);
        let mut may_see = |topic: &str| Ok(readers.may_read(topic)?);
        let query = HandlerQuery { only: only.as_deref(), after: after.as_deref(), max: limit };
        Admin::new(store).handler_page(&namespace, query, now, &mut may_see).map_err(unreadable)
    });
    let page = read.await?;
    let handlers: Vec<HandlerDoc> =
        page.handlers.into_iter().map(|(view, oldest)| shown(view, oldest, now)).collect();
    let next = handlers.last().filter(|_| page.more).map(|last| last.handler.clone());
    Ok(document(StatusCode::OK, &HandlerList { handlers, next }))
}

fn shown(view: HandlerView, oldest: Option<Timestamp>, now: Timestamp) -> HandlerDoc {
    HandlerDoc {
        handler: view.handler_id,
        topic: view.event_type,
        registered: view.registered_at.0,
        paused: view.paused,
        pending: view.pending,
        claimed: view.claimed,
        waiting: view.waiting,
        next_due: view.next_due.map(|due| due.0),
        retrying: view.retrying,
        dead_letters: view.dead_letters,
        oldest_ms: oldest.map(|oldest| now.0.saturating_sub(oldest.0)),
        sessions: view.sessions,
    }
}

pub(crate) async fn claims(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtHandler,
) -> Result<Response, Refusal> {
    let AtHandler { handler, params } = at;
    let (namespace, by, reads_as) = (params.namespace()?, caller.by_unless_admin(), caller.by());
    let standing = params.text("state").map(state).transpose()?;
    let limit = params.number("limit", 1..=CLAIMS_MAX)?.unwrap_or(CLAIMS_DEFAULT) as usize;
    let after = params.text("after").map(place).transpose()?;
    let (store, now) = (app.store.clone(), app.broker.clock().now().wall);
    let id = handler.clone();
    let read = app.read(move |reader| {
        let query = ClaimQuery { handler: &id, standing, after, max: limit };
        let page = Admin::new(store).open_claims(&namespace, &query, now).map_err(unreadable)?;
        let Some(page) = page else { return Ok(None) };
        let may_see = Readers::new(reader, &namespace, by).may_read(&page.event_type)?;
        let may_read = Readers::new(reader, &namespace, reads_as).may_read(&page.event_type)?;
        Ok(may_see.then_some((page, may_read)))
    });
    let (page, may_read) = read.await?.ok_or_else(|| no_handler(&handler))?;
    let next = page.claims.last().filter(|_| page.more);
    let next = next.map(|last| format!("{}:{}", last.partition, last.offset));
    let claims = page.claims.into_iter().map(claim).collect();
    let (handler, topic) = (handler.to_string(), page.event_type);
    let mut doc = OpenClaims { handler, topic, claims, next, withheld: false };
    if caller.is_withheld() || !may_read {
        withheld::open_claims(&mut doc);
    }
    Ok(document(StatusCode::OK, &doc))
}

fn no_handler(handler: &HandlerId) -> Refusal {
    not_found(format!("there is no handler {handler:.200} in this namespace: GET /handlers lists them"))
}

fn state(text: &str) -> Result<ClaimStanding, Refusal> {
    text.parse().map_err(|()| {
        let detail = format!("state is {text:.40?}: it must be claimed, waiting or free");
        Refusal::new(ErrorCode::BadFrame, detail)
    })
}

/// Parses `PARTITION:OFFSET`.
fn place(text: &str) -> Result<(Partition, Offset), Refusal> {
    let parsed = text.split_once(':').and_then(|(partition, offset)| {
        Some((Partition(partition.parse().ok()?), Offset(offset.parse().ok()?)))
    });
    parsed.ok_or_else(|| {
        let detail = format!("after is {text:.40?}: it must be `next` of the page before, as in 0:17");
        Refusal::new(ErrorCode::BadFrame, detail)
    })
}

fn claim(claim: OpenClaim) -> OpenClaimDoc {
    let OpenClaim { partition, offset, event_id, standing, row } = claim;
    let due = |of: ClaimStanding| (standing == of).then_some(row.due.0);
    OpenClaimDoc {
        partition,
        offset,
        id: event_id.map(|id| id.to_string()),
        ts: row.ts,
        state: standing.as_str().to_owned(),
        attempts: row.attempts,
        snoozes: row.snoozes,
        lease_until: due(ClaimStanding::Claimed),
        due: due(ClaimStanding::Waiting),
        // A claim that was never leased waits behind an earlier event of its key.
        claimed_at: (row.generation > 0).then_some(row.claimed_at.0),
        session: row.session.map(String::from),
        error: row.error,
    }
}

/// Forgets a handler that will not come back: retention no longer waits for it.
pub(crate) async fn forget(
    State(app): State<SharedApp>,
    _: Caller,
    at: AtHandler,
) -> Result<Response, Refusal> {
    let (namespace, handler) = (at.params.namespace()?, at.handler);
    let (of, id, forgotten) = (namespace.clone(), handler.clone(), handler.clone());
    let record = move |app: &App, (): &()| app.acted("handler_forgotten", &namespace, forgotten.as_str());
    app.act(move |admin, _, now| admin.forget_handler(&of, &id, now), record).await?;
    Ok(document(StatusCode::OK, &HandlerForgotten { handler: handler.to_string() }))
}

/// Gives events of dead letters back to the handler that gave up on them.
pub(crate) async fn replay_letters(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtHandler,
    body: Body,
) -> Result<Response, Refusal> {
    letters(&app, &caller, at, body, LettersAct::Replay).await
}

pub(crate) async fn delete_letters(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtHandler,
    body: Body,
) -> Result<Response, Refusal> {
    letters(&app, &caller, at, body, LettersAct::Delete).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LettersAct {
    Replay,
    Delete,
}

async fn letters(
    app: &SharedApp,
    caller: &Caller,
    at: AtHandler,
    body: Body,
    act: LettersAct,
) -> Result<Response, Refusal> {
    let body = read_text(&app.edge, body, app.edge.settings.frame_bytes_max).await?;
    let HandlerLetterChoice { events, after, limit } = HandlerLetterChoice::parse(&body.text)?;
    let events = events.map(|ids| ids.iter().map(|id| event_id(id)).collect()).transpose()?;
    let max = limit.unwrap_or(LETTERS_CHOSEN_MAX);
    caller.charge_rest(events.as_ref().map_or(max, BTreeSet::len))?;
    let (namespace, by) = (at.params.namespace()?, caller.by_unless_admin());
    let choice = LetterChoice { handler: at.handler.clone(), events: events.clone(), after, max };
    let (of, handler) = (namespace.clone(), at.handler.clone());
    let carry_out = move |admin: &Admin, store: &dyn Store, now: Timestamp| {
        let mut readers = Readers::new(store, &of, by);
        let mut may_see = |topic: &str| Ok(readers.may_read(topic)?);
        let done = match act {
            LettersAct::Replay => admin.replay_letters(&of, &choice, now, &mut may_see)?,
            LettersAct::Delete => admin.delete_letters(&of, &choice, now, &mut may_see)?,
        };
        let found_none = done.done.is_empty() && done.refused.is_empty() && done.after.is_none();
        if found_none && !admin.knows_handler(&of, choice.handler.as_str(), &mut may_see)? {
            return Err(ChangeError::NoHandler(choice.handler));
        }
        Ok(done)
    };
    let record = move |app: &App, done: &LettersDone| {
        let kind = match act {
            LettersAct::Replay => "handler_letters_replayed",
            LettersAct::Delete => "handler_letters_deleted",
        };
        if !done.done.is_empty() {
            app.acted(kind, &namespace, handler.as_str());
        }
    };
    let done = app.act(carry_out, record).await?;
    Ok(document(StatusCode::OK, &told(&at.handler, done, events)))
}

fn event_id(text: &str) -> Result<EventId, Refusal> {
    EventId::parse(text)
        .map_err(|error| Refusal::new(ErrorCode::BadFrame, format!("the id {text:.80?} is refused: {error}")))
}

fn told(handler: &HandlerId, done: LettersDone, named: Option<BTreeSet<EventId>>) -> HandlerLettersDone {
    let mut missing = named.unwrap_or_default();
    for id in done.done.iter().chain(done.refused.iter().map(|(id, _)| id)) {
        missing.remove(id);
    }
    let refused = done.refused.into_iter();
    HandlerLettersDone {
        handler: handler.to_string(),
        done: done.done.iter().map(ToString::to_string).collect(),
        refused: refused
            .map(|(id, why)| LetterRefused { id: id.to_string(), detail: ChangeError::from(why).to_string() })
            .collect(),
        missing: missing.iter().map(ToString::to_string).collect(),
        next: done.after,
    }
}
