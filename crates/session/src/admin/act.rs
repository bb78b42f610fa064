//! What people do by hand: send an event again, remove old ones, forget a handler. The engine builds the batches.

use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_claims::{
    Forget, ForgetStep, ReplayError, Seen, Sweep, SweepRule, SweepStep, Swept, Topics, replay_dead_letter,
    replay_event,
};
use millrace_model::{
    Batch, DeadLetterRow, Durability, Event, EventId, HandlerId, NameError, Namespace, Op, Outcome,
    Partition, Space, Timestamp, TopicKey, TopicName, keys,
};
use millrace_store::{KeyRange, ReadLimit, StoreError};

use super::{Admin, AdminError};
use crate::shell::looks;

/// Rows looked at or removed per commit, so that writers beside us never wait long.
const SLICE_ROWS: usize = 512;
/// Rows of sessions that were alive within this time stay.
const SESSION_KEPT_MS: u64 = 24 * 3600 * 1000;

#[derive(Debug, thiserror::Error)]
pub enum ActError {
    #[error(transparent)]
    Look(#[from] AdminError),
    #[error("there is no event {0} in this namespace")]
    NoEvent(EventId),
    #[error("there is no dead letter of event {0} in this namespace")]
    NoDeadLetter(EventId),
    #[error("there is no handler {0} in this namespace")]
    NoHandler(HandlerId),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Name(#[from] NameError),
}

impl From<StoreError> for ActError {
    fn from(error: StoreError) -> ActError {
        ActError::Look(error.into())
    }
}

/// An event that was sent again, and the id of its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    pub event_id: EventId,
    pub new_event_id: EventId,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub events: u64,
    pub dead_letters: u64,
    pub sessions: u64,
}

impl Admin {
    /// Appends a copy of the event: every handler of its type gets it.
    pub fn replay(&self, namespace: &Namespace, id: &EventId, now: Timestamp) -> Result<Replayed, ActError> {
        let event = self.find(Some(namespace), id)?.ok_or_else(|| ActError::NoEvent(id.clone()))?;
        let topics = self.topics(namespace)?;
        let (new, batch) = replay_event(namespace, &topics, &event, now, rand::random())?;
        self.write(batch)?;
        Ok(Replayed { event_id: id.clone(), new_event_id: new })
    }

    /// Sends the events of dead letters again, of one event or of all there are; the letters go. A letter that
    /// somebody else takes meanwhile is left to them.
    pub fn replay_dead_letters(
        &self,
        namespace: &Namespace,
        only: Option<&EventId>,
        now: Timestamp,
    ) -> Result<Vec<Replayed>, ActError> {
        let topics = self.topics(namespace)?;
        let mut replayed = Vec::new();
        self.each_row(Space::DeadLetters, &KeyRange::prefix(&format!("{namespace}/")), |row| {
            let letter = DeadLetterRow::decode(&row.key, &row.value).map_err(AdminError::from)?;
            if only.is_none_or(|only| *only == letter.event_id) {
                let event = self.event_of(namespace, &letter)?;
                let (event, nonce) = (event.as_deref(), rand::random());
                let (new, batch) =
                    replay_dead_letter(namespace, &topics, &row.key, &row.value, event, now, nonce)?;
                if self.write(batch)? {
                    replayed.push(Replayed { event_id: letter.event_id, new_event_id: new });
                }
            }
            Ok::<_, ActError>(ControlFlow::Continue(()))
        })?;
        match only {
            Some(id) if replayed.is_empty() => Err(ActError::NoDeadLetter(id.clone())),
            _ => Ok(replayed),
        }
    }

    /// The event itself, if the letter has no copy of it and it is still there.
    fn event_of(
        &self,
        namespace: &Namespace,
        letter: &DeadLetterRow,
    ) -> Result<Option<Arc<Event>>, ActError> {
        if letter.payload.is_some() {
            return Ok(None);
        }
        let topic = TopicKey::new(namespace, &TopicName::new(&letter.event_type)?);
        let limit = ReadLimit { events_max: 1, bytes_max: 0 };
        let page = self.store.read(&topic.stream(Partition(letter.partition)), letter.offset, limit)?;
        Ok(page.events.into_iter().find(|event| event.id == letter.event_id))
    }

    /// Removes dead letters, of one event or all there are; their events are not sent again. Answers how many, in slices:
    /// one that somebody replays meanwhile is counted, too.
    pub fn delete_dead_letters(
        &self,
        namespace: &Namespace,
        only: Option<&EventId>,
        now: Timestamp,
    ) -> Result<u64, ActError> {
        let (space, mut deleted, mut ops) = (Space::DeadLetters, 0, Vec::new());
        self.each_row(space, &KeyRange::prefix(&format!("{namespace}/")), |row| {
            let wanted = match only {
                // Whatever can be read of them: the unreadable must go, too.
                None => true,
                Some(only) => {
                    let letter = DeadLetterRow::decode(&row.key, &row.value).map_err(AdminError::from)?;
                    letter.event_id == *only
                }
            };
            if wanted {
                deleted += 1;
                ops.push(Op::Delete { space, key: row.key });
            }
            if ops.len() == SLICE_ROWS {
                self.write_ops(now, std::mem::take(&mut ops))?;
            }
            Ok::<_, ActError>(ControlFlow::Continue(()))
        })?;
        if !ops.is_empty() {
            self.write_ops(now, ops)?;
        }
        match only {
            Some(id) if deleted == 0 => Err(ActError::NoDeadLetter(id.clone())),
            _ => Ok(deleted),
        }
    }

    /// Removes events older than `before` that every handler has finished and every group has committed, or all of
    /// them; in slices. Topics with a retention of their own keep it. With `dead_letters` also the letters from before then.
    pub fn cleanup(
        &self,
        namespace: &Namespace,
        before: Timestamp,
        unfinished_too: bool,
        dead_letters: bool,
        now: Timestamp,
    ) -> Result<Cleaned, ActError> {
        let mut sweep = Sweep::new(SweepRule {
            namespace: namespace.clone(),
            now,
            events_before: before,
            unfinished_too,
            own_retention: false,
            dead_letters_before: dead_letters.then_some(before),
            // A session that may still be alive keeps its row, however recent `before` is.
            sessions_before: before.min(now.saturating_sub(SESSION_KEPT_MS)),
            rows_max: SLICE_ROWS,
        });
        loop {
            match sweep.step() {
                SweepStep::Look(look) => {
                    let seen = looks::try_look(&*self.store, &look)?;
                    sweep.seen(seen);
                }
                SweepStep::Commit(batch) => {
                    if !self.write(Batch { nonce: rand::random(), ..batch })? {
                        sweep.refused();
                    }
                }
                SweepStep::Done(Swept { events, dead_letters, sessions }) => {
                    return Ok(Cleaned { events, dead_letters, sessions });
                }
            }
        }
    }

    /// Removes what a handler that will not come back left open, so that retention no longer waits for it.
    pub fn forget_handler(
        &self,
        namespace: &Namespace,
        handler: &HandlerId,
        now: Timestamp,
    ) -> Result<(), ActError> {
        if self.row(Space::Handlers, &keys::handler(namespace, handler))?.is_none() {
            return Err(ActError::NoHandler(handler.clone()));
        }
        let mut forget = Forget::new(namespace.clone(), handler.clone(), SLICE_ROWS);
        loop {
            match forget.step() {
                ForgetStep::Look(look) => {
                    let rows = match looks::try_look(&*self.store, &look)? {
                        Seen::Rows(rows) => rows,
                        Seen::Streams(_) | Seen::Start(_) => Vec::new(),
                    };
                    let ops = forget.seen(&rows);
                    if !ops.is_empty() {
                        self.write_ops(now, ops)?;
                    }
                }
                ForgetStep::Commit(ops) => self.write_ops(now, ops)?,
                ForgetStep::Done => return Ok(()),
            }
        }
    }

    fn write_ops(&self, now: Timestamp, ops: Vec<Op>) -> Result<(), ActError> {
        let (nonce, durability) = (rand::random(), Durability::Fsync);
        self.write(Batch { nonce, now, durability, checks: Vec::new(), ops })?;
        Ok(())
    }

    /// False if a check failed: somebody was faster.
    fn write(&self, batch: Batch) -> Result<bool, ActError> {
        Ok(matches!(self.store.commit(&[batch])?.first(), Some(Outcome::Done(_))))
    }

    fn topics(&self, namespace: &Namespace) -> Result<Topics, ActError> {
        let mut rows = Vec::new();
        self.each_row(Space::Topics, &KeyRange::prefix(&format!("{namespace}/")), |row| {
            rows.push((row.key, row.value));
            Ok::<_, ActError>(ControlFlow::Continue(()))
        })?;
        Ok(Topics::from_rows(&rows))
    }
}
