//! The calls of a program outside of handlers: it declares state, commits it, publishes events.

use millrace_claims::{CommitChecks, OutEvent, OwnEvent, StateChanges, imperative_events};
use millrace_model::{
    Appended, Batch, DeliverAt, Durability, Elapsed, EventId, Offset, Outcome, Partition, StateCommit,
    Timestamp,
};
use millrace_state::{
    Declared, Entity, IntoIntents, Key, Migrated, Migration, Query, Relation, State, Stateful, Stored,
    entity_identity,
};
use millrace_store::StoreError;

use crate::draft::Draft;
use crate::error::{Result, SessionError};
use crate::session::{Commits, Queued, Session};
use crate::typed::{IntoOutgoing, Outgoing};

/// The name that the metadata of every commit contains.
pub(crate) const META_NAMESPACE: &str = "namespace";

/// Where a published event is stored, or when it will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub id: EventId,
    pub partition: Partition,
    /// Zero, which no event has, while the event is delayed.
    pub offset: Offset,
    /// An event with this id was there already, and this one was not stored.
    pub duplicate: bool,
    /// The event with this id is delayed, and will be stored at this time if the wall clock does not step.
    pub due: Option<Timestamp>,
}

impl From<&Appended> for Published {
    fn from(appended: &Appended) -> Published {
        let Appended { partition, offset, ref id, duplicate, due, .. } = *appended;
        Published { id: id.clone(), partition, offset, duplicate, due }
    }
}

impl Session {
    /// Declares the full state of an entity or relation, or of many. Nothing is written before `commit`; of several
    /// declarations for an identity the last one counts.
    pub fn ensure<How>(&self, state: impl IntoIntents<How>) -> Result<()> {
        Ok(self.queued().pending.push(state.into_intents()?)?)
    }

    /// Declares that the entity does not exist. Its history stays.
    pub fn retract<T: Entity>(&self, key: impl Key) -> Result<()> {
        Ok(self.queued().pending.push(Declared::without_entity::<T>(key)?)?)
    }

    /// Declares that the relation does not exist. The instance key is `""` for types that declare none.
    pub fn retract_relation<R: Relation>(
        &self,
        left: impl Key,
        right: impl Key,
        instance: impl Key,
    ) -> Result<()> {
        let declared = Declared::without_relation::<R>(left, right, instance)?;
        Ok(self.queued().pending.push(declared)?)
    }

    /// Declares the new state of an entity as a function of its present state, `None` if the entity does not exist. The
    /// function returns the new state, or an `Option` of it, where `None` retracts the entity.
    ///
    /// The commit calls the function with the state that is stored then, and again if another commit was faster (at
    /// most `update_retries_max` times, then the commit fails with [`SessionError::Conflict`]), so no change of others
    /// is lost.
    pub fn update<T, R>(
        &self,
        key: impl Key,
        change: impl Fn(Option<T>) -> R + Send + Sync + 'static,
    ) -> Result<()>
    where
        T: Entity,
        R: Into<Option<T>>,
    {
        let identity = entity_identity::<T>(key);
        Ok(self.queued().pending.update(identity, change)?)
    }

    /// Attaches a text to the next commit.
    pub fn add_commit_meta(&self, name: impl Into<String>, value: impl Into<String>) {
        self.queued().meta.insert(name.into(), value.into());
    }

    /// Makes the queued state durable. Returns the number of the commit, or `None` when nothing differs from what is
    /// stored.
    ///
    /// After an error everything is still queued. Reads of the session are not checked: its clones share the queue, and
    /// a declaration does not say whose read it follows from. To check reads, use [`Session::update`] or
    /// [`Session::transaction`].
    pub fn commit(&self) -> Result<Option<u64>> {
        self.commit_queued(&[])
    }

    /// Commits the same together with an event: both are stored, or neither. The event is stored even if no state
    /// changes.
    pub fn commit_with(&self, event: impl IntoOutgoing) -> Result<Option<u64>> {
        self.commit_queued(&[event.into_outgoing()?])
    }

    /// Commits the same together with many events: state and events are stored together, or nothing is. To put events
    /// of different types into one list, turn them into [`Outgoing`]:
    ///
    /// ```
    /// # use millrace_session::{Event, IntoOutgoing, Result, Session};
    /// # fn commit(session: &Session, placed: impl IntoOutgoing, mailed: impl IntoOutgoing) -> Result<()> {
    /// session.commit_with_all([placed.into_outgoing()?, mailed.into_outgoing()?])?;
    /// # Ok(()) }
    /// ```
    pub fn commit_with_all<E: IntoOutgoing>(
        &self,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Option<u64>> {
        let events = events.into_iter().map(IntoOutgoing::into_outgoing);
        self.commit_queued(&events.collect::<Result<Vec<_>, _>>()?)
    }

    /// Stores an event, and nothing of what is queued. The event is durable when this returns. An event with an id of
    /// its own ([`Event::with_id`](crate::Event::with_id)) that is stored already is not stored again: see
    /// [`Published::duplicate`]. A delayed event ([`Event::with_delay`](crate::Event::with_delay)) waits durably until
    /// [`Published::due`].
    pub fn publish(&self, event: impl IntoOutgoing) -> Result<Published> {
        let batch = self.event_batch(event.into_outgoing()?)?;
        published(self.commit_batch(batch)?)
    }

    /// Stores many events, each on its own but with as few syncs as possible. Returns the first error; the events
    /// before it are stored.
    pub fn publish_all<E: IntoOutgoing>(
        &self,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Vec<Published>> {
        let batches = events.into_iter().map(|event| self.event_batch(event.into_outgoing()?));
        let batches = batches.collect::<Result<Vec<_>>>()?;
        match self.commits() {
            Commits::Threaded(committer) => {
                committer.commit_all(batches).into_iter().map(|answer| published(answer?)).collect()
            }
            Commits::Inline(simulated) => {
                batches.into_iter().map(|batch| published(simulated.commit_outside(batch)?)).collect()
            }
        }
    }

    /// Returns the entity with this key as it is now.
    pub fn get<T: Entity>(&self, key: impl Key) -> Result<Option<Stored<T>>> {
        Ok(self.state().get(key)?)
    }

    /// Begins a query of the entities or relations of a type.
    pub fn query<T: Stateful>(&self) -> Query<T> {
        self.state().query()
    }

    /// Returns the changes of a commit; empty if there is no such commit.
    pub fn list_commit_changes(&self, commit: u64) -> Result<Vec<millrace_model::StateChange>> {
        Ok(self.state().list_commit_changes(millrace_model::StateCommit(commit))?)
    }

    /// Begins a migration of types of this program that have drifted from the stored schema. Apply it with
    /// [`Session::migrate`].
    pub fn migration(&self) -> Migration {
        Migration::new(self.state().clone())
    }

    /// Rewrites the rows of drifted types. `token` is that of the plan that was examined: if the store has changed
    /// since, nothing happens.
    pub fn migrate(&self, migration: &Migration, token: &str) -> Result<Migrated> {
        let migrated = migration.apply(token, &mut |checks, ops| {
            let (nonce, now, durability) = (self.draw(), self.now(), Durability::Fsync);
            self.commit_batch(Batch { nonce, now, durability, checks, ops })
        });
        self.book().forget();
        Ok(migrated?)
    }

    fn event_batch(&self, event: Outgoing) -> Result<Batch> {
        self.know_event(event.name)?;
        let mut changes = StateChanges::default();
        changes.meta.insert(META_NAMESPACE.to_owned(), self.namespace_name().to_string());
        self.batch(changes, &[event])
    }

    fn commit_queued(&self, events: &[Outgoing]) -> Result<Option<u64>> {
        // Takes the queue, so that other threads may queue meanwhile; puts it back if it is not written.
        let taken = std::mem::take(&mut *self.queued());
        let written = self.write(self.state(), &taken, events);
        if written.is_err() {
            let mut queued = self.queued();
            let newer = std::mem::replace(&mut *queued, taken);
            queued.meta.extend(newer.meta);
            queued.pending.append(newer.pending)?;
        }
        Ok(written?.map(|commit| commit.0))
    }

    pub(crate) fn write(
        &self,
        state: &State,
        queued: &Queued,
        events: &[Outgoing],
    ) -> Result<Option<StateCommit>> {
        if queued.pending.is_empty() && events.is_empty() {
            if !queued.meta.is_empty() {
                // Kept for the next commit that writes something.
                self.queued().meta.extend(queued.meta.clone());
            }
            return Ok(None);
        }
        for event in events {
            self.know_event(event.name)?;
        }
        // The events are not part of the draft: there may be many, with ids of their own.
        Draft { session: self, state, pending: &queued.pending, meta: &queued.meta, event: None }
            .commit(|changes| self.send(changes, events))
    }

    /// Makes a single attempt to commit.
    fn send(&self, changes: StateChanges, events: &[Outgoing]) -> Result<Option<StateCommit>> {
        let checks = CommitChecks::of(&changes);
        match self.commit_batch(self.batch(changes, events)?)? {
            Outcome::Done(done) => Ok(done.state),
            Outcome::Refused(refusal) => Err(checks.error(refusal).into()),
        }
    }

    fn batch(&self, changes: StateChanges, events: &[Outgoing]) -> Result<Batch> {
        let own = |event: &Outgoing| OwnEvent { id: event.id.clone(), event: out_event(event.clone()) };
        let for_a_while = |event: &Outgoing| matches!(event.deliver_at, Some(DeliverAt::AfterMs(_)));
        let mut elapsed = if events.iter().any(for_a_while) { self.elapsed()? } else { Elapsed::default() };
        let (topics, events) = (self.topics()?, events.iter().map(own).collect());
        let (namespace, clock) = (self.namespace_name(), (self.clock().now(), &mut elapsed));
        Ok(imperative_events(self.settings(), namespace, &topics, changes, events, clock, self.draw())?)
    }
}

pub(crate) fn out_event(event: Outgoing) -> OutEvent {
    let Outgoing { topic, priority, payload, key, headers, deliver_at, .. } = event;
    OutEvent { topic, payload, priority, key, headers: (!headers.is_empty()).then_some(headers), deliver_at }
}

fn published(outcome: Outcome) -> Result<Published> {
    match outcome {
        Outcome::Done(done) => done.appended.first().map(Published::from).ok_or_else(lost),
        Outcome::Refused(_) => Err(lost()),
    }
}

/// A batch that appends an event and checks nothing always returns that event, so this does not happen.
fn lost() -> SessionError {
    SessionError::Store(StoreError::Poisoned("a commit gave no answer".into()))
}
