//! Actions of people: removing old events and dead letters, forgetting a handler. The `claims` engine builds the
//! batches. Sending events again is in `replay.rs`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use millrace_claims::{
    Forget, ForgetStep, ReadResult, ReplayError, Sweep, SweepRule, SweepStep, Swept, set_handler_paused,
};
use millrace_model::{
    Batch, ClaimRow, DeadLetterRow, Durability, EventId, HandlerId, HandlerRow, NameError, Namespace, Op,
    Space, Timestamp, keys,
};
use millrace_store::{KeyRange, StoreError};

use super::handlers::is_leased;
use super::{Admin, AdminError};
use crate::read::read;
use crate::sessions::{Liveness, SESSION_TTL_MS};

/// Rows read or removed per commit, so that other writers never wait long.
const SLICE_ROWS: usize = 512;
/// Rows of sessions that were alive within this time are kept.
const SESSION_KEPT_MS: u64 = 24 * 3600 * 1000;

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    Read(#[from] AdminError),
    #[error("there is no event {0} in this namespace")]
    NoEvent(EventId),
    #[error("there is no dead letter of event {0} in this namespace")]
    NoDeadLetter(EventId),
    #[error("there is no handler {0} in this namespace")]
    NoHandler(HandlerId),
    #[error(
        "session {session} is alive and holds events of handler {handler}: stop it first, then forget the handler"
    )]
    Held { handler: HandlerId, session: String },
    #[error("there is no schedule {0:?} in this namespace")]
    NoSchedule(String),
    #[error("there is no delayed event {0:?} in this namespace: it was published meanwhile, or cancelled")]
    NotDelayed(String),
    #[error(
        "topic {0} was deleted after the event was delayed: the event is never published, and can only be cancelled"
    )]
    TopicGone(String),
    #[error("others keep changing this: nothing was done, try again")]
    Busy,
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Name(#[from] NameError),
}

impl From<StoreError> for ChangeError {
    fn from(error: StoreError) -> ChangeError {
        ChangeError::Read(error.into())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub events: u64,
    pub dead_letters: u64,
    pub sessions: u64,
}

impl Admin {
    /// Removes dead letters, of one event or all there are; their events are not sent again. Returns how many. Works in
    /// slices, so a letter that is replayed meanwhile is counted, too.
    pub fn delete_dead_letters(
        &self,
        namespace: &Namespace,
        only: Option<&EventId>,
        now: Timestamp,
    ) -> Result<u64, ChangeError> {
        let (space, mut deleted, mut ops) = (Space::DeadLetters, 0, Vec::new());
        let replaying = self.replaying(&format!("{namespace}/"))?;
        self.each_row(space, &KeyRange::prefix(&format!("{namespace}/")), |row| {
            let wanted = match only {
                // The letter is kept: its event is being replayed, and its handler has not ended it yet.
                _ if replaying.contains(&row.key) => false,
                // Does not decode the row: unreadable letters must go, too.
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
            Ok::<_, ChangeError>(ControlFlow::Continue(()))
        })?;
        if !ops.is_empty() {
            self.write_ops(now, ops)?;
        }
        match only {
            Some(id) if deleted == 0 => Err(ChangeError::NoDeadLetter(id.clone())),
            _ => Ok(deleted),
        }
    }

    /// Removes events older than `before` that every handler has finished and every group has committed, or with
    /// `unfinished_too` all of them; in slices. Topics with a retention of their own keep it. With `dead_letters` also
    /// removes letters from before then.
    pub fn cleanup(
        &self,
        namespace: &Namespace,
        before: Timestamp,
        unfinished_too: bool,
        dead_letters: bool,
        now: Timestamp,
    ) -> Result<Cleaned, ChangeError> {
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
                SweepStep::Read(query) => {
                    let result = read(&*self.store, &query)?;
                    sweep.on_read(result);
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

    /// Removes the open claims and lanes of a handler that will not come back, so that retention no longer waits for
    /// it. Also those that are left of a handler whose row is gone.
    ///
    /// # Errors
    ///
    /// `Held` while a live session works on events of the handler: they would be executed again, and the session would
    /// write rows of a handler that nobody knows any more.
    pub fn forget_handler(
        &self,
        namespace: &Namespace,
        handler: &HandlerId,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        if self.row(Space::Handlers, &keys::handler(namespace, handler))?.is_none()
            && !self.has_work(namespace, handler)?
        {
            return Err(ChangeError::NoHandler(handler.clone()));
        }
        if let Some(session) = self.live_holder(namespace, handler, now)? {
            return Err(ChangeError::Held { handler: handler.clone(), session });
        }
        let mut forget = Forget::new(namespace.clone(), handler.clone(), SLICE_ROWS);
        loop {
            match forget.step() {
                ForgetStep::Read(query) => {
                    let rows = match read(&*self.store, &query)? {
                        ReadResult::Rows(rows) => rows,
                        ReadResult::Streams(_) | ReadResult::Start(_) => Vec::new(),
                    };
                    let ops = forget.on_read(&rows);
                    if !ops.is_empty() {
                        self.write_ops(now, ops)?;
                    }
                }
                ForgetStep::Commit(ops) => self.write_ops(now, ops)?,
                ForgetStep::Done => return Ok(()),
            }
        }
    }

    /// Whether the namespace knows the handler, or keeps letters of it, about events of a type for which `may_see` holds.
    pub fn knows_handler(
        &self,
        namespace: &Namespace,
        handler: &str,
        may_see: &mut dyn FnMut(&str) -> Result<bool, AdminError>,
    ) -> Result<bool, AdminError> {
        if let Ok(id) = HandlerId::new(handler)
            && let Some(row) = self.row(Space::Handlers, &keys::handler(namespace, &id))?
            && may_see(&HandlerRow::decode(&row.key, &row.value)?.topic)?
        {
            return Ok(true);
        }
        for letters in self.letters_by_handler(namespace)? {
            if letters.handler_id == handler && may_see(&letters.event_type)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether there are claims or lanes of the handler.
    fn has_work(&self, namespace: &Namespace, handler: &HandlerId) -> Result<bool, ChangeError> {
        let range = KeyRange::prefix(&keys::claims_of(namespace.as_str(), handler));
        for space in [Space::Claims, Space::Lanes] {
            if !self.store.scan(space, &range, 1)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns a session that is alive and works on an event of the handler.
    fn live_holder(
        &self,
        namespace: &Namespace,
        handler: &HandlerId,
        now: Timestamp,
    ) -> Result<Option<String>, ChangeError> {
        let sessions = self.sessions(namespace, now, SESSION_TTL_MS)?;
        let alive: BTreeSet<String> = sessions
            .into_iter()
            .filter(|session| session.liveness == Liveness::Alive)
            .map(|session| session.session_id)
            .collect();
        let mut holder = None;
        let range = KeyRange::prefix(&keys::claims_of(namespace.as_str(), handler));
        self.each_row(Space::Claims, &range, |row| {
            // A claim that cannot be read must not keep its handler for ever.
            let claim = ClaimRow::decode(&row.key, &row.value).ok().filter(|claim| is_leased(claim, now));
            let session = claim.and_then(|claim| claim.session).map(String::from);
            holder = session.filter(|session| alive.contains(session));
            Ok::<_, ChangeError>(match holder {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            })
        })?;
        Ok(holder)
    }

    /// Pauses a handler in all sessions of the namespace, or resumes it. A pause in a program's own settings stays.
    pub fn set_handler_paused(
        &self,
        namespace: &Namespace,
        handler: &HandlerId,
        paused: bool,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        let key = keys::handler(namespace, handler);
        loop {
            let row = self.row(Space::Handlers, &key)?;
            let row = row.ok_or_else(|| ChangeError::NoHandler(handler.clone()))?;
            let batch = set_handler_paused(namespace, handler, &row.value, paused, now, rand::random())
                .map_err(AdminError::from)?;
            // Refused only if another process wrote the row since it was read.
            if self.write(batch)? {
                return Ok(());
            }
        }
    }

    pub(super) fn write_ops(&self, now: Timestamp, ops: Vec<Op>) -> Result<(), ChangeError> {
        let (nonce, durability) = (rand::random(), Durability::Fsync);
        self.write(Batch { nonce, now, durability, checks: Vec::new(), ops })?;
        Ok(())
    }

    /// Returns false if a check failed: another process was faster.
    pub(super) fn write(&self, batch: Batch) -> Result<bool, ChangeError> {
        Ok(self.commits.commit(batch)?)
    }
}
