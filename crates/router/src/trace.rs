//! What the loop saw, in a ring of bounded size: enough to draw the tree of causes of a recent undertaking.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use millrace_model::{OsId, OsKind, OsMessage, OsType, Timestamp};

use crate::input::ConnId;

/// Where a message came from, or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Party {
    Client(ConnId),
    Capability(Arc<str>),
    /// The loop itself.
    Loop,
    Timer,
    Bus,
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was put into mailboxes, or answered by the loop itself.
    Routed { to: Vec<Arc<str>> },
    /// The loop answered the request with this error.
    Refused { code: u16 },
    /// An outcome that reached its requester.
    Answered { to: Party },
    /// An outcome nobody waits for.
    Orphan,
    /// What it should not be: an actor's mistake.
    Faulty,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// Rising, without gaps.
    pub number: u64,
    pub at: Timestamp,
    pub from: Party,
    pub step: Step,
    pub kind: OsKind,
    pub ty: OsType,
    pub id: OsId,
    pub causation: Option<OsId>,
    pub correlation: Option<OsId>,
}

/// What to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceQuery {
    Correlation(OsId),
    /// The message of this id and everything that followed from it.
    Id(OsId),
}

#[derive(Debug)]
pub(crate) struct Trace {
    ring: VecDeque<TraceRecord>,
    max: usize,
    next: u64,
}

impl Trace {
    pub(crate) fn new(max: usize) -> Trace {
        Trace { ring: VecDeque::new(), max, next: 1 }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.max > 0
    }

    pub(crate) fn add(
        &mut self,
        at: Timestamp,
        from: Party,
        step: Step,
        message: &OsMessage,
    ) -> &TraceRecord {
        if self.ring.len() >= self.max.max(1) {
            self.ring.pop_front();
        }
        let metadata = &message.metadata;
        self.ring.push_back(TraceRecord {
            number: self.next,
            at,
            from,
            step,
            kind: message.kind,
            ty: message.ty.clone(),
            id: metadata.id.clone(),
            causation: metadata.causation.clone(),
            correlation: metadata.correlation.clone(),
        });
        self.next += 1;
        &self.ring[self.ring.len() - 1]
    }

    /// Oldest first, at most `max` of those with a number above `after`.
    pub(crate) fn find(&self, query: &TraceQuery, after: u64, max: usize) -> Vec<TraceRecord> {
        let hits: Vec<&TraceRecord> = match query {
            TraceQuery::Correlation(id) => {
                self.ring.iter().filter(|record| record.correlation.as_ref() == Some(id)).collect()
            }
            TraceQuery::Id(id) => self.descendants(id),
        };
        hits.into_iter().filter(|record| record.number > after).take(max).cloned().collect()
    }

    /// One pass is enough: a consequence is seen after its cause.
    fn descendants(&self, root: &OsId) -> Vec<&TraceRecord> {
        let mut family = BTreeSet::from([root]);
        let mut hits = Vec::new();
        for record in &self.ring {
            if record.causation.as_ref().is_some_and(|cause| family.contains(cause)) {
                family.insert(&record.id);
            }
            if family.contains(&record.id) {
                hits.push(record);
            }
        }
        hits
    }
}
