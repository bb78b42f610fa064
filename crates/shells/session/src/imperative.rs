//! What a program does outside of handlers: declare state, commit it, publish events.

use millrace_claims::{CommitChecks, OutEvent, OwnEvent, StateChanges, imperative_events};
use millrace_model::{
    Appended, Batch, DeliverAt, Durability, Elapsed, EventId, Offset, Outcome, Partition, StateCommit,
    Timestamp,
};
use millrace_store::StoreError;

use crate::draft::Draft;
use crate::error::{Result, SessionError};
use crate::session::{Commits, Queued, Session};
use crate::state::{Migrated, Migration, Query, State, Stored};
use crate::typed::{
    Declared, Entity, IntoIntents, IntoOutgoing, Key, Outgoing, Relation, Stateful, apply_to, entity_identity,
};

/// What a commit's metadata always holds.
pub(crate) const META_NAMESPACE: &str = "namespace";

/// Where a published event is, or when it will be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub id: EventId,
    pub partition: Partition,
    /// Zero, which no event has, while the event waits.
    pub offset: Offset,
    /// An event with this id was there already; this one was not stored.
    pub duplicate: bool,
    /// The event of this id waits, and is stored at this time if the wall clock does not step.
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
    /// declarations for one identity the last counts.
    pub fn ensure<How>(&self, state: impl IntoIntents<How>) -> Result<()> {
        Ok(self.queued().pending.push(state.into_intents()?)?)
    }

    /// Declares that there is no such entity. Its history stays.
    pub fn retract<T: Entity>(&self, key: impl Key) -> Result<()> {
        Ok(self.queued().pending.push(Declared::without_entity::<T>(key)?)?)
    }

    /// Declares that there is no such relation. The instance key is `""` for types that declare none.
    pub fn retract_relation<R: Relation>(
        &self,
        left: impl Key,
        right: impl Key,
        instance: impl Key,
    ) -> Result<()> {
        let declared = Declared::without_relation::<R>(left, right, instance)?;
        Ok(self.queued().pending.push(declared)?)
    }

    /// Declares what an entity becomes, as a function of what it is: `None` if there is none. The function gives back
    /// the new state, or an `Option` of it to retract the entity with `None`.
    ///
    /// It is called by the commit, on what stands then, and again if somebody else was faster (at most
    /// `update_retries_max` times, then the commit is [`SessionError::Conflict`]), so no change of others is lost.
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
        let apply = apply_to(identity.clone(), change)?;
        Ok(self.queued().pending.update(&T::schema(), identity, apply)?)
    }

    /// Attaches text to the next commit.
    pub fn add_commit_meta(&self, name: impl Into<String>, value: impl Into<String>) {
        self.queued().meta.insert(name.into(), value.into());
    }

    /// Makes what is queued durable. The number of the commit, or `None` when nothing differs from what is stored.
    ///
    /// When it fails, everything is still queued. What the session has read is not checked: clones of it share the queue,
    /// and nobody knows whose read a declaration comes from. For that there are [`Session::update`] and
    /// [`Session::transaction`].
    pub fn commit(&self) -> Result<Option<u64>> {
        self.commit_queued(&[])
    }

    /// The same together with an event: both are stored, or neither. The event is stored even if no state changes.
    pub fn commit_with(&self, event: impl IntoOutgoing) -> Result<Option<u64>> {
        self.commit_queued(&[event.into_outgoing()?])
    }

    /// The same with many events: state and events are stored together, or nothing is. Events of different types go into
    /// one list as [`Outgoing`]:
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

    /// Stores an event, and nothing of what is queued. Durable when this returns. An event with an id of its own
    /// ([`Event::with_id`](crate::Event::with_id)) that is stored already is not stored again: `duplicate` says so. One that is
    /// delayed ([`Event::with_delay`](crate::Event::with_delay)) waits durably: `due` says until when.
    pub fn publish(&self, event: impl IntoOutgoing) -> Result<Published> {
        let batch = self.event_batch(event.into_outgoing()?)?;
        published(self.commit_batch(batch)?)
    }

    /// Many events, each stored on its own but with as few syncs as it takes. The first that fails is reported; those
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
            Commits::Inline(ground) => {
                batches.into_iter().map(|batch| published(ground.commit_outside(batch)?)).collect()
            }
        }
    }

    /// The entity with this key as it is now.
    pub fn get<T: Entity>(&self, key: impl Key) -> Result<Option<Stored<T>>> {
        Ok(self.state().get(key)?)
    }

    /// Entities or relations of one type.
    pub fn query<T: Stateful>(&self) -> Query<T> {
        self.state().query()
    }

    /// What a commit changed; nothing for a commit there is not.
    pub fn list_commit_changes(&self, commit: u64) -> Result<Vec<millrace_model::StateChange>> {
        Ok(self.state().list_commit_changes(millrace_model::StateCommit(commit))?)
    }

    /// How types of this program that have drifted from what is stored become current again. Apply it with
    /// [`Session::migrate`].
    pub fn migration(&self) -> Migration {
        Migration::new(self.state().clone())
    }

    /// Rewrites what has drifted. The token is that of the plan that was looked at: if the store has changed since, nothing
    /// happens.
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
        // Taken out, so that others may queue meanwhile; given back if it is not written.
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
                // For the next commit that is one.
                self.queued().meta.extend(queued.meta.clone());
            }
            return Ok(None);
        }
        for event in events {
            self.know_event(event.name)?;
        }
        // Its events are not of the draft: they may be many, and have ids of their own.
        Draft { session: self, state, pending: &queued.pending, meta: &queued.meta, event: None }
            .commit(|changes| self.send(changes, events))
    }

    /// One attempt.
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

/// A batch that appends one event and checks nothing always answers with that event.
fn lost() -> SessionError {
    SessionError::Store(StoreError::Poisoned("a commit gave no answer".to_owned()))
}
