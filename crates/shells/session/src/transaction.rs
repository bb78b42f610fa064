//! Read, decide and write outside of handlers: a commit that checks what was read.

use millrace_state::{
    Declared, Entity, IntoIntents, Key, Query, Relation, State, Stateful, Stored, entity_identity,
};

use crate::error::{Result, SessionError};
use crate::session::{Queued, Session};
use crate::typed::{IntoOutgoing, Outgoing};

/// The reads and declarations of a single caller, separate from the session's queue. The commit checks that every
/// identity which it declares and has read before is unchanged; identities that were read but not declared are not
/// checked.
///
/// Nothing is locked meanwhile, and a transaction that is dropped has written nothing.
///
/// ```
/// # use millrace_session::{Result, Session, SessionError};
/// # use millrace_state::Entity;
/// # fn debit<Account: Entity + Clone>(session: &Session, less: fn(Account) -> Account) -> Result<()> {
/// let mut transaction = session.transaction();
/// loop {
///     let Some(account) = transaction.get::<Account>("a1")? else { return Ok(()) };
///     transaction.ensure(less(account.into_inner()))?;
///     match transaction.commit() {
///         // Somebody was faster: read again.
///         Err(SessionError::Conflict { .. }) => {}
///         other => return other.map(|_| ()),
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Transaction {
    session: Session,
    state: State,
    queued: Queued,
}

impl Session {
    /// Begins a transaction: its declarations are committed together, and only if the state that they were read from is
    /// unchanged.
    pub fn transaction(&self) -> Transaction {
        Transaction { state: self.state().tracked(), session: self.clone(), queued: Queued::default() }
    }
}

impl Transaction {
    /// Like [`Session::get`]; this counts as read, even if there is no such entity.
    pub fn get<T: Entity>(&self, key: impl Key) -> Result<Option<Stored<T>>> {
        Ok(self.state.get(key)?)
    }

    /// Like [`State::get_relation`]; this counts as read, even if there is no such relation.
    pub fn get_relation<R: Relation>(
        &self,
        left: impl Key,
        right: impl Key,
        instance: impl Key,
    ) -> Result<Option<Stored<R>>> {
        Ok(self.state.get_relation(left, right, instance)?)
    }

    /// Like [`Session::query`]; the rows that it returns count as read.
    pub fn query<T: Stateful>(&self) -> Query<T> {
        self.state.query()
    }

    /// Returns the committed state. Reads through it count.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Like [`Session::ensure`].
    pub fn ensure<How>(&mut self, state: impl IntoIntents<How>) -> Result<()> {
        Ok(self.queued.pending.push(state.into_intents()?)?)
    }

    /// Like [`Session::retract`].
    pub fn retract<T: Entity>(&mut self, key: impl Key) -> Result<()> {
        Ok(self.queued.pending.push(Declared::without_entity::<T>(key)?)?)
    }

    /// Like [`Session::retract_relation`].
    pub fn retract_relation<R: Relation>(
        &mut self,
        left: impl Key,
        right: impl Key,
        instance: impl Key,
    ) -> Result<()> {
        Ok(self.queued.pending.push(Declared::without_relation::<R>(left, right, instance)?)?)
    }

    /// Like [`Session::update`].
    pub fn update<T, R>(
        &mut self,
        key: impl Key,
        change: impl Fn(Option<T>) -> R + Send + Sync + 'static,
    ) -> Result<()>
    where
        T: Entity,
        R: Into<Option<T>>,
    {
        let identity = entity_identity::<T>(key);
        Ok(self.queued.pending.update(identity, change)?)
    }

    /// Attaches a text to the next commit.
    pub fn add_commit_meta(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.queued.meta.insert(name.into(), value.into());
    }

    /// Makes the declared state durable, if what was read of it is unchanged. Returns the number of the commit, or
    /// `None` when nothing differs from what is stored.
    ///
    /// # Errors
    ///
    /// After [`SessionError::Conflict`] the transaction is empty: read and declare again. After any other error
    /// everything is still declared.
    pub fn commit(&mut self) -> Result<Option<u64>> {
        self.write(&[])
    }

    /// Commits the same together with an event: both are stored, or neither.
    pub fn commit_with(&mut self, event: impl IntoOutgoing) -> Result<Option<u64>> {
        self.write(&[event.into_outgoing()?])
    }

    fn write(&mut self, events: &[Outgoing]) -> Result<Option<u64>> {
        if self.queued.pending.is_empty() && events.is_empty() {
            return Ok(None);
        }
        let written = self.session.write(&self.state, &self.queued, events);
        match &written {
            Ok(_) => self.queued = Queued::default(),
            Err(SessionError::Conflict { .. }) => {
                self.queued = Queued::default();
                self.state.forget_reads();
            }
            Err(_) => {}
        }
        Ok(written?.map(|commit| commit.0))
    }
}
