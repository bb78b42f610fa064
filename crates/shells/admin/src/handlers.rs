//! Handlers: which events each takes, how many it has not finished, and how many it gave up on.

use std::collections::{BTreeMap, BTreeSet};

use millrace_model::{ClaimRow, ClaimState, Namespace, Timestamp};
use millrace_store::{ReadLimit, StreamBounds};

use super::standing::Standing;
use super::{Admin, AdminError};

/// Partitions in which the oldest event of one handler is looked up.
const OLDEST_LOOKUPS_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerView {
    pub handler_id: String,
    /// The event type that the handler takes.
    pub event_type: String,
    pub registered_at: Timestamp,
    /// Events that the handler has not finished, including those of the counts below.
    pub pending: u64,
    /// Pending events with a lease that has not expired.
    pub claimed: u64,
    /// Pending events with at least one failed attempt.
    pub retrying: u64,
    /// Pending events that wait for a time: for their next attempt, or until a snooze is over.
    pub waiting: u64,
    /// When the first of the waiting events is due.
    pub next_due: Option<Timestamp>,
    pub dead_letters: u64,
    /// Sessions that hold events of the handler, with a lease that has not expired.
    pub sessions: u64,
    /// The handler was paused from outside, in all sessions, and claims nothing. A pause in a program's own settings is
    /// not visible here.
    pub paused: bool,
}

/// Which handlers a page holds.
#[derive(Clone, Copy, Debug)]
pub struct HandlerQuery<'a> {
    /// Only the handler with this id.
    pub only: Option<&'a str>,
    /// Those after this id.
    pub after: Option<&'a str>,
    pub max: usize,
}

/// A page of handlers, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandlerPage {
    /// Each with the time of its oldest unfinished event, as far as that was looked up.
    pub handlers: Vec<(HandlerView, Option<Timestamp>)>,
    pub more: bool,
}

impl Admin {
    /// Returns every handler of the namespace, by id.
    pub fn handlers(&self, namespace: &Namespace, now: Timestamp) -> Result<Vec<HandlerView>, AdminError> {
        let mut letters = self.letter_counts(namespace)?;
        let streams = self.store.streams()?;
        let standings = self.standings(namespace)?;
        standings.iter().map(|standing| self.handler_view(standing, &streams, &mut letters, now)).collect()
    }

    /// Returns a page of the handlers whose event types `may_see` allows.
    pub fn handler_page(
        &self,
        namespace: &Namespace,
        query: HandlerQuery<'_>,
        now: Timestamp,
        may_see: &mut dyn FnMut(&str) -> Result<bool, AdminError>,
    ) -> Result<HandlerPage, AdminError> {
        let mut letters = self.letter_counts(namespace)?;
        let streams = self.store.streams()?;
        let mut page = HandlerPage::default();
        for standing in self.standings(namespace)? {
            let id = standing.id.as_str();
            let is_left_out =
                query.after.is_some_and(|after| id <= after) || query.only.is_some_and(|only| id != only);
            if is_left_out || !may_see(standing.topic.topic())? {
                continue;
            }
            if page.handlers.len() == query.max {
                page.more = true;
                break;
            }
            let view = self.handler_view(&standing, &streams, &mut letters, now)?;
            let oldest = if view.pending == 0 { None } else { self.oldest(&standing, &streams)? };
            page.handlers.push((view, oldest));
        }
        Ok(page)
    }

    fn letter_counts(&self, namespace: &Namespace) -> Result<BTreeMap<String, u64>, AdminError> {
        let mut letters: BTreeMap<String, u64> = BTreeMap::new();
        for of in self.letters_by_handler(namespace)? {
            *letters.entry(of.handler_id).or_default() += of.count;
        }
        Ok(letters)
    }

    fn handler_view(
        &self,
        standing: &Standing,
        streams: &[StreamBounds],
        letters: &mut BTreeMap<String, u64>,
        now: Timestamp,
    ) -> Result<HandlerView, AdminError> {
        let open = || standing.open.values();
        let waiting = || open().filter(|row| is_waiting(row, now));
        let holders: BTreeSet<_> =
            open().filter(|row| is_leased(row, now)).filter_map(|row| row.session.as_ref()).collect();
        Ok(HandlerView {
            handler_id: standing.id.to_string(),
            event_type: standing.topic.topic().to_owned(),
            registered_at: standing.registered,
            pending: self.owed(standing, streams)?,
            claimed: open().filter(|row| is_leased(row, now)).count() as u64,
            retrying: open().filter(|row| row.attempts > 0).count() as u64,
            waiting: waiting().count() as u64,
            next_due: waiting().map(|row| row.due).min(),
            dead_letters: letters.remove(standing.id.as_str()).unwrap_or(0),
            sessions: holders.len() as u64,
            paused: standing.paused,
        })
    }

    /// Returns the time of the oldest event that the handler has not finished: the first of the open ones and of those
    /// that it has not come to. Events of another priority than the usual one count once they are claimed.
    fn oldest(&self, standing: &Standing, streams: &[StreamBounds]) -> Result<Option<Timestamp>, AdminError> {
        let mut oldest = standing.open.values().map(|row| row.ts).min();
        let of_topic = streams.iter().filter(|bounds| bounds.stream.topic == standing.topic);
        for bounds in of_topic.take(OLDEST_LOOKUPS_MAX) {
            let next = standing.next(bounds.stream.partition, None).max(bounds.start);
            if next >= bounds.next {
                continue;
            }
            let first = self.store.read(&bounds.stream, next, ReadLimit { events_max: 1, bytes_max: 0 })?;
            let ts = first.events.first().map(|event| event.ts);
            oldest = oldest.into_iter().chain(ts).min();
        }
        Ok(oldest)
    }
}

pub(super) fn is_leased(row: &ClaimRow, now: Timestamp) -> bool {
    row.state == ClaimState::Leased && now < row.due
}

pub(super) fn is_waiting(row: &ClaimRow, now: Timestamp) -> bool {
    row.state == ClaimState::Waiting && now < row.due
}
