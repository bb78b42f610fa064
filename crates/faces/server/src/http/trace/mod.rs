//! `GET /trace`: from any event, letter, message or timer up to where it began, and down to everything that followed.
//!
//! There is no index of causes (`docs/decisions/0062-traces-are-looked-for.md`): the
//! trace is looked for in the topics that the caller may read, from the time of its beginning on. `origin.rs` goes up,
//! `scan.rs` walks over the streams, `family.rs` says what belongs to the trace, `gather.rs` puts these together and
//! `nodes.rs` makes the answer.

mod cursor;
mod family;
mod gather;
mod nodes;
mod origin;
mod scan;
mod stored_record;
mod undecided;
mod waiting;

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_bus::{Reply, Request};
use millrace_model::{OsId, Requester, TopicKey};
use millrace_router::TraceRecord;
use millrace_wire::ErrorCode;
use millrace_wire::http::{Trace, TraceNode};

use crate::access::{Caller, Scope};
use crate::app::{App, SharedApp};
use crate::http::trace::cursor::Cursor;
use crate::http::trace::gather::{Gathered, LoopView, Question, Wanted, gather};
use crate::http::{damaged_name, document, event_story, withheld};
use crate::params::{Params, topic_key};
use crate::refusal::Refusal;

/// Events of one page; each is shown with its deliveries and claims.
const EVENTS_MAX: u64 = 2000;
const EVENTS_DEFAULT: u64 = 1000;

pub(crate) async fn show(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    let question = question(&app, &caller, &params)?;
    let records = match question.loop_view {
        LoopView::Nothing => Vec::new(),
        LoopView::Own | LoopView::All => records(&app, &caller).await,
    };
    let (store, now, wanted) = (app.store.clone(), app.broker.clock().now().wall, question.wanted.clone());
    let read = app.read(move |_| gather(&store, &question, records, now));
    let gathered = read.await?.map_err(|scanned| not_found(&wanted, scanned))?;
    let mut nodes = nodes::nodes(&gathered, now).map_err(|error| damaged_name(&error))?;
    if nodes.is_empty() && gathered.complete && params.text("after").is_none() {
        return Err(not_found(&wanted, gathered.scanned));
    }
    add_deliveries(&app, &gathered, &mut nodes).await?;
    nodes::break_circles(&mut nodes);
    nodes.sort_by_key(|node| node.at);
    let Gathered { root, complete, scanned, next, .. } = gathered;
    let next = next.map(|cursor| cursor.text());
    let mut trace = Trace { root, nodes, complete, scanned, next, withheld: false };
    if caller.is_withheld() {
        withheld::trace(&mut trace);
    }
    Ok(document(StatusCode::OK, &trace))
}

fn question(app: &App, caller: &Caller, params: &Params) -> Result<Question, Refusal> {
    let bad = |detail: String| Refusal::new(ErrorCode::BadFrame, detail);
    let (name, text) = match (params.text("id"), params.text("correlation")) {
        (Some(id), None) => ("id", id),
        (None, Some(correlation)) => ("correlation", correlation),
        _ => return Err(bad("give either id or correlation".to_owned())),
    };
    OsId::new(text).map_err(|error| bad(format!("{name} is refused: {error}")))?;
    let text = text.to_owned();
    let wanted = if name == "id" { Wanted::Id(text) } else { Wanted::Correlation(text) };
    let namespace = params.namespace()?;
    let scan_max = app.edge.settings.scan_events_max as u64;
    Ok(Question {
        wanted,
        topic: params.text("topic").map(|topic| topic_key(params, topic)).transpose()?,
        by: caller.by(),
        events_max: params.number("limit", 1..=EVENTS_MAX)?.unwrap_or(EVENTS_DEFAULT) as usize,
        look_max: scan_max,
        scan_max: params.number("scan", 1..=scan_max)?.unwrap_or(scan_max),
        after: params.text("after").map(|after| Cursor::parse(after, &namespace)).transpose()?,
        namespace,
        loop_view: loop_view(caller),
    })
}

fn loop_view(caller: &Caller) -> LoopView {
    match caller.grant.as_deref() {
        Some(grant) if !grant.has(Scope::Os) => LoopView::Nothing,
        Some(grant) if grant.principal.namespaces.is_some() => LoopView::Own,
        _ => LoopView::All,
    }
}

fn not_found(wanted: &Wanted, scanned: u64) -> Refusal {
    let detail = match wanted {
        Wanted::Id(id) => format!(
            "there is no event, message or timer {id:.80} among the {scanned} events that were looked at and the \
             messages that are remembered: name its topic with topic=, or it was removed"
        ),
        Wanted::Correlation(id) => format!(
            "nothing of correlation {id:.80} is among the {scanned} events that were looked at and the messages that \
             are remembered"
        ),
    };
    Refusal::new(ErrorCode::BadTopic, detail).status(StatusCode::NOT_FOUND)
}

/// The messages that the loop remembers and the caller may see; none when the loop has ended.
async fn records(app: &App, caller: &Caller) -> Vec<TraceRecord> {
    let from = caller.by().principal().and_then(|by| by.namespaces.clone());
    let read = app.kernel.sender().with_router(move |router| router.trace_outline(&from));
    read.await.unwrap_or_default()
}

/// Asks the engine how far the groups are with each event. A delivery that became a letter is known from the letter.
async fn add_deliveries(
    app: &SharedApp,
    gathered: &Gathered,
    nodes: &mut Vec<TraceNode>,
) -> Result<(), Refusal> {
    let known: BTreeSet<String> = nodes.iter().map(|node| node.id.clone()).collect();
    let mut without_groups: BTreeSet<&TopicKey> = BTreeSet::new();
    for event in &gathered.events {
        let topic = &event.stream.topic;
        if without_groups.contains(topic) {
            continue;
        }
        let request = Request::EventStandings {
            topic: topic.clone(),
            partition: event.stream.partition,
            offset: event.offset,
        };
        // Whether the caller may read the topic was checked before its events were read.
        let standings = match app.request(Requester::Trusted, request).await? {
            Reply::EventStandings(standings) => standings,
            other => return Err(Refusal::unexpected(&other)),
        };
        if standings.is_empty() {
            without_groups.insert(topic);
        }
        for standing in standings {
            let standing = event_story::group_of(app, standing, &[]);
            let node = nodes::delivery(event, standing).map_err(|error| damaged_name(&error))?;
            if !known.contains(&node.id) {
                nodes.push(node);
            }
        }
    }
    Ok(())
}
