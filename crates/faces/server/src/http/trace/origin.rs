//! From any event, letter, message or timer up to what all of it goes back to.

use std::cell::Cell;
use std::collections::BTreeSet;

use millrace_model::{DueRow, Event, EventId, OsId, Timestamp, TopicKey};
use millrace_router::{Party, TraceRecord};
use millrace_store::{Store, StoreError, StreamBounds};

use crate::http::dead_letters::REPLAYED_FROM;
use crate::http::find_event::{Lookup, header, made_at};
use crate::http::trace::family::Messages;
use crate::http::trace::gather::Question;
use crate::http::trace::waiting::{self, TimerRow};

/// Steps up that are taken, and roots without a time in their ids that are searched for.
const CLIMB_MAX: usize = 64;
const LONG_LOOKS_MAX: usize = 3;

/// Where a trace begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) id: String,
    pub(super) correlation: Option<String>,
    /// The walk over the streams begins here; `None` if nothing tells the time.
    pub(super) at: Option<Timestamp>,
}

/// An event, message or timer on the way up.
struct Ancestor {
    id: String,
    at: Option<Timestamp>,
    correlation: Option<String>,
    /// The event that began the chain, as the event itself says.
    root: Option<String>,
    /// The ids of its direct causes.
    causes: Vec<String>,
}

/// The places in which the way up is looked for.
pub(super) struct Climb<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) streams: &'a [StreamBounds],
    pub(super) question: &'a Question,
    pub(super) messages: &'a Messages,
    /// Events that the whole way up may still look at around the times in ids.
    pub(super) left: Cell<u64>,
}

impl Climb<'_> {
    /// Returns the origin of `id`. `Err` says how many events were looked at without finding it.
    pub(super) fn origin(&self, id: &str) -> Result<Result<Origin, u64>, StoreError> {
        let mut at = match self.start(id)? {
            Ok(found) => found,
            Err(scanned) => return Ok(Err(scanned)),
        };
        let mut origin = Origin { id: at.id.clone(), correlation: at.correlation.clone(), at: at.at };
        let mut seen = BTreeSet::from([at.id.clone()]);
        let mut long_looks = 0;
        for _ in 0..CLIMB_MAX {
            let mut next = None;
            if let Some(root) = at.root.take().filter(|root| seen.insert(root.clone())) {
                next = self.look(&root)?;
                if next.is_none() && long_looks < LONG_LOOKS_MAX {
                    long_looks += 1;
                    next = self.long_look(&root, None)?.ok();
                }
                // The root was removed, but everything that goes back to it still names it.
                next = next.or_else(|| Some(gone(&root, at.at)));
            }
            for cause in &at.causes {
                if next.is_none() && seen.insert(cause.clone()) {
                    // Most causes of messages are messages, and finding those costs nothing.
                    next = match self.message(cause) {
                        Some(found) => Some(found),
                        None => self.look(cause)?,
                    };
                }
            }
            let Some(found) = next else { break };
            origin.id.clone_from(&found.id);
            origin.correlation = found.correlation.clone().or(origin.correlation);
            // Clocks of several processes may differ: the walk begins with the earliest time that was seen.
            origin.at = [origin.at, found.at].into_iter().flatten().min();
            at = found;
        }
        Ok(Ok(origin))
    }

    fn start(&self, id: &str) -> Result<Result<Ancestor, u64>, StoreError> {
        if let Some(found) = self.look(id)? {
            return Ok(Ok(found));
        }
        let Question { namespace, by, topic, loop_view, .. } = self.question;
        if let Some(row) = waiting::timer(self.store, id)?.filter(|row| loop_view.shows(row, self.messages)) {
            return Ok(Ok(of_timer(id, row)));
        }
        if let Ok(wanted) = EventId::parse(id)
            && let Some(row) = waiting::delayed_with(self.store, namespace, by, &wanted)?
        {
            return Ok(Ok(of_delayed(&wanted, &row)));
        }
        self.long_look(id, topic.clone())
    }

    /// Looks where an id leads by itself: among the messages, and around the time in it.
    fn look(&self, id: &str) -> Result<Option<Ancestor>, StoreError> {
        if let Ok(wanted) = EventId::parse(id) {
            let lookup = Lookup { id: wanted, topic: None, scan_max: self.question.look_max };
            let streams: Vec<&StreamBounds> = self.streams.iter().collect();
            let mut left = self.left.get();
            let found = lookup.by_time(self.store, &streams, &mut left)?;
            self.left.set(left);
            if let Some(event) = found {
                return Ok(Some(of_event(&event)));
            }
        }
        Ok(self.messages.first(id).map(of_message))
    }

    /// A message that is not an event on its way to a capability: such a message has the event's id.
    fn message(&self, id: &str) -> Option<Ancestor> {
        self.messages.first(id).filter(|record| record.from != Party::Bus).map(of_message)
    }

    fn long_look(&self, id: &str, topic: Option<TopicKey>) -> Result<Result<Ancestor, u64>, StoreError> {
        let Ok(id) = EventId::parse(id) else { return Ok(Err(0)) };
        let lookup = Lookup { id, topic, scan_max: self.question.look_max };
        Ok(lookup.find_in(self.store, self.streams)?.map(|event| of_event(&event)))
    }
}

fn text(id: &Option<EventId>) -> Option<String> {
    id.as_ref().map(ToString::to_string)
}

fn of_event(event: &Event) -> Ancestor {
    let lineage = &event.body.lineage;
    let again = header(event, REPLAYED_FROM);
    Ancestor {
        id: event.id.to_string(),
        at: Some(event.ts),
        correlation: text(&lineage.correlation),
        root: text(&lineage.root),
        causes: text(&lineage.causation).into_iter().chain(again).collect(),
    }
}

fn of_delayed(id: &EventId, row: &DueRow) -> Ancestor {
    Ancestor {
        id: id.to_string(),
        at: made_at(id),
        correlation: text(&row.lineage.correlation),
        root: text(&row.lineage.root),
        causes: text(&row.lineage.causation).into_iter().collect(),
    }
}

fn of_message(record: &TraceRecord) -> Ancestor {
    let text = |id: &Option<OsId>| id.as_ref().map(|id| id.as_str().to_owned());
    Ancestor {
        id: record.id.as_str().to_owned(),
        at: Some(record.at),
        correlation: text(&record.correlation),
        root: None,
        causes: text(&record.causation).into_iter().collect(),
    }
}

fn of_timer(name: &str, row: TimerRow) -> Ancestor {
    Ancestor {
        id: name.to_owned(),
        at: row.set_at(),
        correlation: row.correlation,
        root: None,
        causes: vec![row.set_by],
    }
}

fn gone(id: &str, known: Option<Timestamp>) -> Ancestor {
    let made = EventId::parse(id).ok().and_then(|id| made_at(&id));
    Ancestor { id: id.to_owned(), at: made.or(known), correlation: None, root: None, causes: Vec::new() }
}
