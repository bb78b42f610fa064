//! Everything of a trace that the store and the loop's memory hold, as far as one answer goes.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_admin::{Admin, AdminError, ClaimView, FireView};
use millrace_model::{DueRow, Event, EventId, Namespace, Requester, TRACE_TOPIC, Timestamp, TopicKey};
use millrace_router::TraceRecord;
use millrace_store::{FailureCause, Store, StoreError, StreamBounds};

use crate::http::find_event::readable_streams;
use crate::http::trace::cursor::Cursor;
use crate::http::trace::family::{Family, Messages};
use crate::http::trace::origin::{Climb, Origin};
use crate::http::trace::scan::{ScanEnd, ScanStart, each_event};
use crate::http::trace::stored_record;
use crate::http::trace::undecided::Undecided;
use crate::http::trace::waiting::{self, TimerRow};

/// Streams that are walked together.
const STREAMS_MAX: usize = 4096;
/// Messages that one answer holds.
const MESSAGES_MAX: usize = 4000;

/// Which trace is asked for.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Id(String),
    Correlation(String),
}

#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) wanted: Wanted,
    pub(super) namespace: Namespace,
    /// Where to look for the id first.
    pub(super) topic: Option<TopicKey>,
    pub(super) by: Requester,
    pub(super) events_max: usize,
    pub(super) scan_max: u64,
    /// Events that are looked at for the beginning.
    pub(super) look_max: u64,
    pub(super) after: Option<Cursor>,
    pub(super) loop_view: LoopView,
}

/// The messages and timers of the CQRS loop that the caller may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopView {
    Nothing,
    /// Those that clients of the caller's namespaces began.
    Own,
    All,
}

impl LoopView {
    /// Whether the caller may see a timer. Its row does not say whose undertaking it belongs to; the message that set it
    /// does, as long as it is remembered.
    pub(super) fn shows(self, timer: &TimerRow, messages: &Messages) -> bool {
        match self {
            LoopView::Nothing => false,
            LoopView::Own => messages.first(&timer.set_by).is_some(),
            LoopView::All => true,
        }
    }
}

/// A delayed event that is not due yet.
#[derive(Debug)]
pub(super) struct Delayed {
    pub(super) id: EventId,
    pub(super) row: DueRow,
    pub(super) due: Option<Timestamp>,
}

#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) root: String,
    pub(super) events: Vec<Arc<Event>>,
    /// Of each event, its handlers.
    pub(super) claims: Vec<Vec<ClaimView>>,
    pub(super) fires: Vec<(EventId, FireView)>,
    pub(super) messages: Vec<TraceRecord>,
    pub(super) delayed: Vec<Delayed>,
    pub(super) timers: Vec<(String, TimerRow)>,
    pub(super) scanned: u64,
    pub(super) complete: bool,
    pub(super) next: Option<Cursor>,
}

/// Gathers a page of the trace. `Err` says how many events were looked at without finding its beginning.
pub(super) fn gather(
    store: &Arc<dyn Store>,
    question: &Question,
    records: Vec<TraceRecord>,
    now: Timestamp,
) -> Result<Result<Gathered, u64>, StoreError> {
    let Question { namespace, by, .. } = question;
    let mut streams = readable_streams(&**store, by, namespace.as_str())?;
    // The server's own topics hold copies and figures, except for the loop's trace.
    streams.retain(|bounds| !bounds.stream.topic.is_system() || bounds.stream.topic.topic() == TRACE_TOPIC);
    let mut complete =
        question.after.as_ref().is_none_or(|after| after.whole) && streams.len() <= STREAMS_MAX;
    streams.truncate(STREAMS_MAX);
    let mut messages = Messages::new(records);
    let origin = match origin(&**store, question, &streams, &messages)? {
        Ok(origin) => origin,
        Err(scanned) => return Ok(Err(scanned)),
    };
    let mut family = Family::new(&origin.id, origin.correlation.as_deref(), &messages);
    for head in question.after.iter().flat_map(|after| &after.heads) {
        family.heads.push(head.clone());
        family.join(head.clone(), &messages);
    }
    let start = match (&question.after, origin.at) {
        (Some(after), _) => ScanStart::After(after.position.clone()),
        (None, Some(at)) => ScanStart::At(at),
        (None, None) => {
            // The part before these events was not looked at.
            let part = question.scan_max / (streams.len().max(1) as u64);
            complete &= streams.iter().all(|bounds| bounds.next.0.saturating_sub(bounds.start.0) <= part);
            ScanStart::Newest(part)
        }
    };
    let mut walk = Walk {
        family: &mut family,
        messages: &mut messages,
        events: Vec::new(),
        undecided: Undecided::default(),
    };
    let ScanEnd { scanned, last, finished } =
        each_event(&**store, &streams, &start, question.scan_max, |event| {
            walk.look_at(event);
            if walk.events.len() < question.events_max {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
    let events = walk.events;
    let (mut delayed, mut timers) = (Vec::new(), Vec::new());
    if finished {
        complete &= waiting::each_delayed(&**store, namespace, by, |id, row, due| {
            if family.claims(&row.lineage) || family.has(id) {
                delayed.push(Delayed { id: id.clone(), row, due });
            }
            ControlFlow::Continue(())
        })?;
        complete &= waiting::each_timer(&**store, |name, row| {
            let belongs = family.knows(&row.set_by) || family.knows(name);
            if belongs && question.loop_view.shows(&row, &messages) {
                timers.push((name.to_owned(), row));
            }
        })?;
    }
    let since = question.after.as_ref().map(|after| after.position.ts);
    let mut found: Vec<TraceRecord> = family
        .messages
        .iter()
        .filter_map(|at| messages.get(*at))
        // Those before were on an earlier page.
        .filter(|record| since.is_none_or(|since| record.at >= since))
        .cloned()
        .collect();
    found.sort_by_key(|record| (record.at, record.number));
    complete &= found.len() <= MESSAGES_MAX;
    found.truncate(MESSAGES_MAX);
    let next = last.filter(|_| !finished).map(|position| Cursor::new(position, &family.heads, complete));
    complete &= next.is_none();
    let admin = Admin::new(store.clone());
    let claims = admin.claims_of_each(namespace, &events, now).map_err(unreadable)?;
    let fires = fires(&admin, namespace, &events)?;
    let root = match &question.wanted {
        Wanted::Id(_) => origin.id,
        Wanted::Correlation(correlation) => correlation.clone(),
    };
    let messages = found;
    Ok(Ok(Gathered { root, events, claims, fires, messages, delayed, timers, scanned, complete, next }))
}

fn unreadable(error: AdminError) -> StoreError {
    match error {
        AdminError::Store(error) => error,
        other => StoreError::Unreadable(FailureCause::of(other)),
    }
}

fn origin(
    store: &dyn Store,
    question: &Question,
    streams: &[StreamBounds],
    messages: &Messages,
) -> Result<Result<Origin, u64>, StoreError> {
    match &question.wanted {
        Wanted::Id(id) => {
            let climb = Climb { store, streams, question, messages, left: Cell::new(question.look_max) };
            climb.origin(id)
        }
        Wanted::Correlation(correlation) => Ok(Ok(Origin {
            id: correlation.clone(),
            correlation: Some(correlation.clone()),
            at: messages.began(correlation),
        })),
    }
}

fn fires(
    admin: &Admin,
    namespace: &Namespace,
    events: &[Arc<Event>],
) -> Result<Vec<(EventId, FireView)>, StoreError> {
    let mut fires = Vec::new();
    // A fire begins a chain, so at most the first events are fires.
    for event in events.iter().filter(|event| event.body.lineage.root.is_none()) {
        if let Some(fire) = admin.fire_of(namespace, event).map_err(unreadable)? {
            fires.push((event.id.clone(), fire));
        }
    }
    Ok(fires)
}

/// The walk over the streams: decides of each event whether it belongs to the trace.
struct Walk<'a> {
    family: &'a mut Family,
    messages: &'a mut Messages,
    events: Vec<Arc<Event>>,
    undecided: Undecided,
}

impl Walk<'_> {
    fn look_at(&mut self, event: &Arc<Event>) {
        if event.stream.topic.topic() == TRACE_TOPIC {
            self.look_at_record(event);
        } else if self.family.owns(event) {
            self.take(event);
        } else {
            self.undecided.add(event);
        }
        // Whatever joined may be the cause of events before it.
        loop {
            let fresh = self.family.take_fresh();
            if fresh.is_empty() {
                return;
            }
            for id in fresh {
                self.undecided.caused_by(&id).iter().for_each(|event| self.take(event));
            }
        }
    }

    fn look_at_record(&mut self, event: &Event) {
        if let Some(record) = stored_record::read(event.body.payload.as_str())
            && let Some(at) = self.messages.add(record)
        {
            self.family.join_found(at, self.messages);
        }
    }

    fn take(&mut self, event: &Arc<Event>) {
        self.family.join_event(event, self.messages);
        self.events.push(event.clone());
    }
}
