//! Sends finished events again: a dead letter to the handler that gave up, or an event to all handlers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use millrace_claims::{DeadLetter, ReplayError, Topics, publish_again};
use millrace_model::{
    DeadLetterRow, Event, EventId, HandlerId, Namespace, Offset, Space, Stream, Timestamp, keys, lane_of,
};
use millrace_store::{KeyRange, ReadLimit, Row};

use super::standing::Standing;
use super::{Admin, AdminError, ChangeError};

/// A dead letter whose event is open again for its handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    pub event_id: EventId,
    pub handler_id: HandlerId,
}

/// An event that was published again, and the id of its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedAgain {
    pub event_id: EventId,
    pub new_event_id: EventId,
}

/// The results for several letters. Letters that could not be sent again are still there.
#[derive(Debug)]
pub struct Resent<T> {
    pub done: Vec<T>,
    pub refused: Vec<ReplayError>,
}

/// Handlers and their progress, read before any letter was.
pub(super) struct Handlers {
    rows: BTreeMap<String, Bytes>,
    standings: Vec<Standing>,
}

impl Admin {
    /// Publishes a copy of the event under a new id: every handler of its type gets it.
    pub fn publish_again(
        &self,
        namespace: &Namespace,
        id: &EventId,
        now: Timestamp,
    ) -> Result<PublishedAgain, ChangeError> {
        let event = self.find(Some(namespace), id)?.ok_or_else(|| ChangeError::NoEvent(id.clone()))?;
        let topics = self.topics(namespace)?;
        let (new, batch) = publish_again(namespace, &topics, &event, now, rand::random())?;
        self.write(batch)?;
        Ok(PublishedAgain { event_id: id.clone(), new_event_id: new })
    }

    /// Opens the events of dead letters again for the handlers that gave up on them, of one event or of all there are:
    /// the same events under the same ids, with all their attempts. Each letter is hidden, and is removed when its
    /// handler has ended the event. Nothing is published, and no other handler sees anything. A letter that another
    /// process takes meanwhile is left to that process.
    pub fn replay_dead_letters(
        &self,
        namespace: &Namespace,
        only: Option<&EventId>,
        now: Timestamp,
    ) -> Result<Resent<Replayed>, ChangeError> {
        let handlers = self.known_handlers(namespace)?;
        self.resend(namespace, only, |letter| {
            let replayed =
                Replayed { event_id: letter.row.event_id.clone(), handler_id: letter.row.handler.clone() };
            Ok(self.replay_letter(namespace, &handlers, letter, now)?.then_some(replayed))
        })
    }

    /// The rows are read first: each replay checks that they are unchanged, and an unchanged row proves that the handler
    /// was not forgotten and registered anew, so its lanes have not gone back.
    pub(super) fn known_handlers(&self, namespace: &Namespace) -> Result<Handlers, ChangeError> {
        let mut rows = BTreeMap::new();
        self.each_row::<AdminError>(Space::Handlers, &KeyRange::prefix(&format!("{namespace}/")), |row| {
            rows.insert(row.key, row.value);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Handlers { rows, standings: self.standings(namespace)? })
    }

    /// Opens the event of one letter again. Returns false if another process was faster.
    pub(super) fn replay_letter(
        &self,
        namespace: &Namespace,
        handlers: &Handlers,
        letter: &mut DeadLetter,
        now: Timestamp,
    ) -> Result<bool, ChangeError> {
        self.look_up(namespace, handlers, letter)?;
        let batch = letter.replay(namespace, now, rand::random())?;
        let done = self.write(batch.clone())?;
        if done && self.event_of(letter)?.is_none() {
            self.write(letter.undo(now, rand::random(), &batch))?;
            let (event, handler) = (letter.row.event_id.clone(), letter.row.handler.clone());
            return Err(ReplayError::EventGone { event, handler }.into());
        }
        Ok(done)
    }

    /// Publishes copies of the events of dead letters under new ids, of one event or of all there are: every handler of
    /// their types gets them. The letters are removed. A letter that another process takes meanwhile is left to that
    /// process.
    pub fn publish_dead_letters_again(
        &self,
        namespace: &Namespace,
        only: Option<&EventId>,
        now: Timestamp,
    ) -> Result<Resent<PublishedAgain>, ChangeError> {
        let topics = self.topics(namespace)?;
        self.resend(namespace, only, |letter| {
            letter.event = self.event_of(letter)?;
            let (new, batch) = letter.publish_again(namespace, &topics, now, rand::random())?;
            let published = PublishedAgain { event_id: letter.row.event_id.clone(), new_event_id: new };
            Ok(self.write(batch)?.then_some(published))
        })
    }

    fn resend<T>(
        &self,
        namespace: &Namespace,
        only: Option<&EventId>,
        mut one: impl FnMut(&mut DeadLetter) -> Result<Option<T>, ChangeError>,
    ) -> Result<Resent<T>, ChangeError> {
        let (mut resent, mut found) = (Resent { done: Vec::new(), refused: Vec::new() }, false);
        let replaying = self.replaying(&format!("{namespace}/"))?;
        self.each_row(
            Space::DeadLetters,
            &KeyRange::prefix(&format!("{namespace}/")),
            |Row { key, value }| {
                let row = DeadLetterRow::decode(&key, &value).map_err(AdminError::from)?;
                if only.is_some_and(|only| *only != row.event_id) || replaying.contains(&key) {
                    return Ok::<_, ChangeError>(ControlFlow::Continue(()));
                }
                found = true;
                let stream = DeadLetter::stream_of(namespace, &row)?;
                let (event, handler, finished, is_open) = (None, None, None, false);
                let mut letter = DeadLetter { key, value, row, stream, event, handler, finished, is_open };
                match one(&mut letter) {
                    Ok(done) => resent.done.extend(done),
                    Err(ChangeError::Replay(refused)) => resent.refused.push(refused),
                    Err(error) => return Err(error),
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        match only {
            Some(id) if !found => Err(ChangeError::NoDeadLetter(id.clone())),
            _ => Ok(resent),
        }
    }

    /// Fills in what the store says about a letter.
    fn look_up(
        &self,
        namespace: &Namespace,
        handlers: &Handlers,
        letter: &mut DeadLetter,
    ) -> Result<(), ChangeError> {
        letter.event = self.event_of(letter)?;
        let id = &letter.row.handler;
        letter.handler = handlers.rows.get(&keys::handler(namespace, id)).cloned();
        let place = (letter.stream.clone(), letter.row.offset);
        let standing = handlers.standings.iter().find(|standing| standing.id == *id);
        letter.is_open = standing.is_some_and(|standing| is_open(standing, &place, letter));
        let key = keys::finished(&letter.stream, letter.row.offset, id);
        letter.finished = self.row(Space::Finished, &key)?.map(|row| row.value);
        Ok(())
    }

    /// Returns the event itself, if it is still there.
    fn event_of(&self, letter: &DeadLetter) -> Result<Option<Arc<Event>>, ChangeError> {
        let limit = ReadLimit { events_max: 1, bytes_max: 0 };
        let page = self.store.read(&letter.stream, letter.row.offset, limit)?;
        Ok(page.events.into_iter().find(|event| event.id == letter.row.event_id))
    }

    fn topics(&self, namespace: &Namespace) -> Result<Topics, ChangeError> {
        let mut rows = Vec::new();
        self.each_row(Space::Topics, &KeyRange::prefix(&format!("{namespace}/")), |row| {
            rows.push((row.key, row.value));
            Ok::<_, ChangeError>(ControlFlow::Continue(()))
        })?;
        Ok(Topics::from_rows(&rows))
    }
}

/// Returns whether the handler will run the event without a replay: it was forgotten and came back, so that it has the
/// event open or still ahead.
fn is_open(standing: &Standing, place: &(Stream, Offset), letter: &DeadLetter) -> bool {
    let next = standing.next(place.0.partition, lane_of(letter.row.priority));
    standing.open.contains_key(place) || letter.row.offset >= next
}
