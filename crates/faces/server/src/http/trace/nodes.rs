//! The nodes of a trace: from events, claims, messages and what waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_admin::{ClaimView, made_by};
use millrace_model::{Event, NameError, OsId, OsKind, Timestamp, TraceId};
use millrace_router::{Party, TraceRecord, TraceStep};
use millrace_wire::http::{GroupStanding, TraceNode, TracePlace, TraceWhat};

use crate::http::dead_letters::{DLQ_ID_HEADER, REPLAYED_FROM, REPLAYED_LETTER};
use crate::http::find_event::{header, made_at};
use crate::http::trace::gather::{Delayed, Gathered};
use crate::http::trace::waiting::TimerRow;
use crate::to_wire;

const DLQ_GROUP: &str = "x-dlq-group";
const DLQ_ATTEMPTS: &str = "x-dlq-attempts";
const DLQ_REASON: &str = "x-dlq-reason";
const TIMER_SET: &str = "Timer.Set";

/// Makes the nodes of everything that was gathered, the groups' deliveries excepted.
pub(super) fn nodes(gathered: &Gathered, now: Timestamp) -> Result<Vec<TraceNode>, NameError> {
    let replayed: BTreeSet<String> =
        gathered.events.iter().filter_map(|event| header(event, REPLAYED_LETTER)).collect();
    let mut nodes = Vec::new();
    for (id, fire) in &gathered.fires {
        let name = format!("{id}/schedule/{}", fire.schedule);
        nodes.push(TraceNode {
            status: "fired".to_owned(),
            ..node(name, TraceWhat::Schedule, &fire.schedule, fire.planned)
        });
    }
    // A client may give a message the id of an event.
    let names = Names {
        used: gathered.events.iter().map(|event| event.id.to_string()).collect(),
        ..Names::default()
    };
    messages(&gathered.messages, names, &mut nodes);
    let makers = Makers::new(gathered);
    for event in &gathered.events {
        event_nodes(event, &makers, &replayed, &mut nodes)?;
    }
    for (event, claims) in gathered.events.iter().zip(&gathered.claims) {
        for view in claims {
            nodes.push(TraceNode { place: Some(place(event)?), ..claim(event, view) });
        }
    }
    nodes.extend(gathered.delayed.iter().map(|delayed| waiting_event(delayed, now)));
    nodes.extend(gathered.timers.iter().map(|(name, row)| waiting_timer(name, row)));
    Ok(nodes)
}

fn node(id: String, what: TraceWhat, ty: &str, at: Timestamp) -> TraceNode {
    TraceNode {
        id,
        parent: None,
        what,
        ty: ty.to_owned(),
        at,
        ended_at: None,
        from: None,
        to: None,
        status: String::new(),
        attempts: None,
        error: None,
        place: None,
        trace_id: None,
    }
}

pub(super) fn place(event: &Event) -> Result<TracePlace, NameError> {
    Ok(TracePlace {
        topic: to_wire::topic_name(&event.stream.topic)?,
        partition: event.stream.partition,
        offset: event.offset,
    })
}

fn delivery_id(event: &str, group: &str) -> String {
    format!("{event}/group/{group}")
}

fn claim_id(event: &str, handler: &str) -> String {
    format!("{event}/handler/{handler}")
}

/// The makers of events, as far as this page tells.
struct Makers<'a> {
    events: BTreeMap<String, (&'a Event, &'a [ClaimView])>,
    fires: BTreeMap<String, String>,
}

impl Makers<'_> {
    fn new(gathered: &Gathered) -> Makers<'_> {
        let all = gathered.events.iter().zip(&gathered.claims);
        Makers {
            events: all
                .map(|(event, claims)| (event.id.to_string(), (&**event, claims.as_slice())))
                .collect(),
            fires: gathered
                .fires
                .iter()
                .map(|(id, fire)| (id.to_string(), format!("{id}/schedule/{}", fire.schedule)))
                .collect(),
        }
    }

    /// The node that caused an event: the claim of the handler that made it, if that is known.
    fn parent(&self, event: &Event) -> Option<String> {
        let id = event.id.to_string();
        let Some(cause) = event.body.lineage.causation.as_ref().map(ToString::to_string) else {
            return self.fires.get(&id).cloned().or_else(|| header(event, REPLAYED_FROM));
        };
        let maker = self.events.get(&cause).and_then(|(of, claims)| {
            claims.iter().find(|claim| made_by(&event.id, &of.id, &claim.handler_id))
        });
        Some(maker.map_or_else(|| cause.clone(), |claim| claim_id(&cause, &claim.handler_id)))
    }
}

fn event_nodes(
    event: &Arc<Event>,
    makers: &Makers<'_>,
    replayed: &BTreeSet<String>,
    nodes: &mut Vec<TraceNode>,
) -> Result<(), NameError> {
    let id = event.id.to_string();
    let made = TraceNode {
        parent: makers.parent(event).filter(|parent| *parent != id),
        status: "stored".to_owned(),
        place: Some(place(event)?),
        trace_id: TraceId::of(event.body.headers.as_ref()).map(|trace| trace.as_str().to_owned()),
        ..node(id.clone(), TraceWhat::Event, event.stream.topic.topic(), event.ts)
    };
    let of = header(event, DLQ_ID_HEADER).filter(|_| event.stream.topic.is_dead_letter());
    if let (Some(of), Some(group)) = (of, header(event, DLQ_GROUP)) {
        let delivery = delivery_id(&of, &group);
        let attempts = header(event, DLQ_ATTEMPTS).and_then(|text| text.parse().ok());
        let error = header(event, DLQ_REASON);
        let began = makers.events.get(&of).map_or(event.ts, |(event, _)| event.ts);
        let held = makers.events.get(&of).map(|(event, _)| place(event)).transpose()?;
        nodes.push(TraceNode {
            parent: Some(of),
            status: "deadLettered".to_owned(),
            ended_at: Some(event.ts.0),
            attempts,
            error: error.clone(),
            place: held,
            ..node(delivery.clone(), TraceWhat::Delivery, &group, began)
        });
        let status = if replayed.contains(&id) { "replayed" } else { "kept" };
        let (parent, status) = (Some(delivery), status.to_owned());
        nodes.push(TraceNode { what: TraceWhat::Letter, parent, status, attempts, error, ..made });
    } else if header(event, REPLAYED_FROM).is_some() {
        nodes.push(TraceNode { what: TraceWhat::Replay, ..made });
    } else {
        nodes.push(made);
    }
    Ok(())
}

/// The node of an event and a group, from the group's own view of it.
pub(super) fn delivery(event: &Event, standing: GroupStanding) -> Result<TraceNode, NameError> {
    let id = event.id.to_string();
    let holder = standing.agent.or_else(|| standing.connection.map(|conn| format!("connection {conn}")));
    Ok(TraceNode {
        parent: Some(id.clone()),
        to: holder,
        status: standing.state,
        attempts: (standing.attempts > 0).then_some(standing.attempts),
        error: standing.reason,
        place: Some(place(event)?),
        ..node(
            delivery_id(&id, standing.group.as_str()),
            TraceWhat::Delivery,
            standing.group.as_str(),
            event.ts,
        )
    })
}

fn claim(event: &Event, view: &ClaimView) -> TraceNode {
    let id = event.id.to_string();
    let ended = view.ack_at.or(view.dead_lettered_at).or(view.discarded_at);
    let due = view.lease_until.or(view.available_at);
    TraceNode {
        parent: Some(id.clone()),
        ended_at: ended.or(due).map(|at| at.0),
        to: view.session_id.clone(),
        status: view.status.as_str().to_owned(),
        attempts: Some(view.attempts).filter(|attempts| *attempts > 0),
        error: view.last_error.clone(),
        ..node(
            claim_id(&id, &view.handler_id),
            TraceWhat::Claim,
            &view.handler_id,
            view.claimed_at.unwrap_or(event.ts),
        )
    }
}

fn waiting_event(delayed: &Delayed, now: Timestamp) -> TraceNode {
    let Delayed { id, row, due } = delayed;
    let topic = row.topic.rsplit('/').next().unwrap_or_default();
    TraceNode {
        parent: row.lineage.causation.as_ref().map(ToString::to_string),
        ended_at: due.map(|due| due.0),
        status: "waiting".to_owned(),
        ..node(id.to_string(), TraceWhat::Timer, topic, made_at(id).unwrap_or(now))
    }
}

fn waiting_timer(name: &str, row: &TimerRow) -> TraceNode {
    TraceNode {
        parent: Some(row.set_by.clone()),
        ended_at: Some(row.due.0),
        from: row.actor.clone(),
        status: "waiting".to_owned(),
        ..node(name.to_owned(), TraceWhat::Timer, &row.ty, row.set_at().unwrap_or(row.due))
    }
}

/// Appends the nodes of messages. The outcome of a request is no node of its own: it ends the request's.
fn messages<'a>(records: &'a [TraceRecord], mut names: Names<'a>, nodes: &mut Vec<TraceNode>) {
    let mut at_node: BTreeMap<&OsId, usize> = BTreeMap::new();
    for record in records {
        let request = record.causation.as_ref().and_then(|cause| at_node.get(cause).copied());
        if let (TraceStep::Answered { .. }, Some(request)) =
            (&record.step, request.and_then(|at| nodes.get_mut(at)))
        {
            request.ended_at = Some(record.at.0);
            request.status = if record.kind == OsKind::Error { "failed" } else { "answered" }.to_owned();
            request.error = (record.kind == OsKind::Error).then(|| fault(record));
            names.outcome(record, &request.id);
            continue;
        }
        let name = names.of(record);
        let parent = match (&record.from, &record.causation) {
            (Party::Bus, _) => Some(record.id.as_str().to_owned()),
            (_, Some(cause)) => Some(names.parent(cause)),
            (_, None) => None,
        };
        if record.from != Party::Bus {
            at_node.insert(&record.id, nodes.len());
        }
        nodes.push(message(record, name, parent));
    }
}

fn message(record: &TraceRecord, id: String, parent: Option<String>) -> TraceNode {
    let what = match record.from == Party::Timer && record.ty.as_str() != TIMER_SET {
        true => TraceWhat::Timer,
        false => TraceWhat::Message,
    };
    let to = match &record.step {
        TraceStep::Routed { to } => to.join(", "),
        TraceStep::Answered { to } => to.to_string(),
        TraceStep::Refused { .. } | TraceStep::Orphan | TraceStep::Faulty => String::new(),
    };
    let failed = matches!(record.step, TraceStep::Refused { .. }) || record.kind == OsKind::Error;
    TraceNode {
        parent: parent.filter(|parent| *parent != id),
        from: Some(record.from.to_string()),
        to: (!to.is_empty()).then_some(to),
        status: record.step.as_str().to_owned(),
        error: failed.then(|| fault(record)),
        ..node(id, what, record.ty.as_str(), record.at)
    }
}

fn fault(record: &TraceRecord) -> String {
    let code = match record.step {
        TraceStep::Refused { code } => Some(code),
        _ => record.code,
    };
    code.map_or_else(|| "an error without a code".to_owned(), |code| format!("code {code}"))
}

/// The names of messages as nodes: an id that occurs again gets the number of its record.
#[derive(Default)]
struct Names<'a> {
    used: BTreeSet<String>,
    /// Outcomes, with the name of the request that they ended.
    outcomes: BTreeMap<&'a OsId, String>,
}

impl<'a> Names<'a> {
    fn of(&mut self, record: &'a TraceRecord) -> String {
        // A message that brings an event to a capability has the event's id, which is the name of the event.
        if record.from != Party::Bus && self.used.insert(record.id.as_str().to_owned()) {
            return record.id.as_str().to_owned();
        }
        format!("{}#{}", record.id, record.number)
    }

    fn outcome(&mut self, record: &'a TraceRecord, request: &str) {
        self.outcomes.insert(&record.id, request.to_owned());
    }

    fn parent(&self, cause: &OsId) -> String {
        self.outcomes.get(cause).cloned().unwrap_or_else(|| cause.as_str().to_owned())
    }
}

/// Takes the parent from one node of every circle, so that each node hangs below a beginning.
pub(super) fn break_circles(nodes: &mut [TraceNode]) {
    let at: BTreeMap<String, usize> =
        (0..).zip(nodes.iter()).map(|(at, node)| (node.id.clone(), at)).collect();
    let parents: Vec<Option<usize>> =
        nodes.iter().map(|node| node.parent.as_ref().and_then(|parent| at.get(parent).copied())).collect();
    // The walk up from each node marks what it passes; what this same walk has marked already closes a circle.
    let mut marks = vec![0; nodes.len()];
    for start in 0..nodes.len() {
        let (walk, mut here, mut before) = (start + 1, Some(start), start);
        while let Some(place) = here {
            match marks.get_mut(place) {
                Some(mark) if *mark == 0 => *mark = walk,
                Some(mark) if *mark == walk => {
                    if let Some(node) = nodes.get_mut(before) {
                        node.parent = None;
                    }
                    break;
                }
                _ => break,
            }
            before = place;
            here = parents.get(place).copied().flatten();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_broken_and_chains_stay() {
        let with = |id: &str, parent: Option<&str>| TraceNode {
            parent: parent.map(str::to_owned),
            ..node(id.to_owned(), TraceWhat::Event, "t", Timestamp(1))
        };
        let mut nodes = vec![
            with("a", None),
            with("b", Some("a")),
            with("x", Some("z")),
            with("y", Some("x")),
            with("z", Some("y")),
            with("w", Some("y")),
            with("g", Some("gone")),
        ];
        break_circles(&mut nodes);
        let parents: Vec<Option<&str>> = nodes.iter().map(|node| node.parent.as_deref()).collect();
        assert_eq!(parents, [None, Some("a"), Some("z"), None, Some("y"), Some("y"), Some("gone")]);
    }
}
