//! The events that one handler has open: claimed, waiting for their next attempt, or free to be claimed again.

use std::str::FromStr;

use millrace_model::{ClaimRow, EventId, HandlerId, Namespace, Offset, Partition, Stream, Timestamp};
use millrace_store::ReadLimit;

use super::handlers::{is_leased, is_waiting};
use super::standing::Standing;
use super::{Admin, AdminError};

/// How an open claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStanding {
    /// A session holds the event; its lease has not expired.
    Claimed,
    /// The event waits for a time: for its next attempt, or until a snooze is over.
    Waiting,
    /// Any session may take the event: its lease has expired, or its time has come.
    Free,
}

impl ClaimStanding {
    const ALL: [ClaimStanding; 3] = [ClaimStanding::Claimed, ClaimStanding::Waiting, ClaimStanding::Free];

    pub fn as_str(self) -> &'static str {
        match self {
            ClaimStanding::Claimed => "claimed",
            ClaimStanding::Waiting => "waiting",
            ClaimStanding::Free => "free",
        }
    }

    fn of(row: &ClaimRow, now: Timestamp) -> ClaimStanding {
        match () {
            () if is_leased(row, now) => ClaimStanding::Claimed,
            () if is_waiting(row, now) => ClaimStanding::Waiting,
            () => ClaimStanding::Free,
        }
    }
}

impl FromStr for ClaimStanding {
    type Err = ();

    fn from_str(text: &str) -> Result<ClaimStanding, ()> {
        ClaimStanding::ALL.into_iter().find(|one| one.as_str() == text).ok_or(())
    }
}

/// An event that a handler has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenClaim {
    pub partition: Partition,
    pub offset: Offset,
    /// `None` if the event is gone from the log.
    pub event_id: Option<EventId>,
    pub standing: ClaimStanding,
    pub row: ClaimRow,
}

#[derive(Clone, Debug)]
pub struct ClaimQuery<'a> {
    pub handler: &'a HandlerId,
    /// Only claims that stand like this.
    pub standing: Option<ClaimStanding>,
    /// Claims behind this place, in the order of partitions and offsets.
    pub after: Option<(Partition, Offset)>,
    pub max: usize,
}

/// A page of claims, in the order of partitions and offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPage {
    pub event_type: String,
    pub claims: Vec<OpenClaim>,
    pub more: bool,
}

impl Admin {
    /// Returns a page of what a handler has open; `None` if there is no such handler.
    pub fn open_claims(
        &self,
        namespace: &Namespace,
        query: &ClaimQuery<'_>,
        now: Timestamp,
    ) -> Result<Option<ClaimPage>, AdminError> {
        let standings = self.standings(namespace)?;
        let Some(standing) = standings.into_iter().find(|one| one.id == *query.handler) else {
            return Ok(None);
        };
        let Standing { topic, open, .. } = standing;
        let mut page = ClaimPage { event_type: topic.topic().to_owned(), claims: Vec::new(), more: false };
        for ((stream, offset), row) in open {
            let place = (stream.partition, offset);
            let standing = ClaimStanding::of(&row, now);
            if query.after.is_some_and(|after| place <= after)
                || query.standing.is_some_and(|wanted| wanted != standing)
            {
                continue;
            }
            if page.claims.len() == query.max {
                page.more = true;
                break;
            }
            let event_id = self.id_at(&stream, offset)?;
            let (partition, offset) = place;
            page.claims.push(OpenClaim { partition, offset, event_id, standing, row });
        }
        Ok(Some(page))
    }

    fn id_at(&self, stream: &Stream, offset: Offset) -> Result<Option<EventId>, AdminError> {
        let page = self.store.read(stream, offset, ReadLimit { events_max: 1, bytes_max: 0 })?;
        let found = page.events.into_iter().find(|event| event.offset == offset);
        Ok(found.map(|event| event.id.clone()))
    }
}
