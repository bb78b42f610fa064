//! What a program does outside of handlers: declare state, commit it, publish events.

use millrace_claims::{OutEvent, StateChanges, imperative};
use millrace_model::{Appended, Batch, Done, Durability, EventId, Offset, Outcome, Partition};
use millrace_store::StoreError;

use crate::error::{Result, SessionError};
use crate::session::{Commits, Queued, Session};
use crate::state::{Migrated, Migration, Query, Stored};
use crate::typed::{Declared, Entity, IntoIntents, IntoOutgoing, Key, Outgoing, Relation, Stateful};

/// How often a commit is tried again when somebody else changed a schema in between.
pub(crate) const SCHEMA_TRIES: usize = 8;
/// What a commit's metadata always holds.
pub(crate) const META_NAMESPACE: &str = "namespace";

/// Where a published event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub id: EventId,
    pub partition: Partition,
    pub offset: Offset,
    /// An event with this id was there already; this one was not stored.
    pub duplicate: bool,
}

impl From<&Appended> for Published {
    fn from(appended: &Appended) -> Published {
        let Appended { partition, offset, ref id, duplicate, .. } = *appended;
        Published { id: id.clone(), partition, offset, duplicate }
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

    /// Attaches text to the next commit.
    pub fn add_commit_meta(&self, name: impl Into<String>, value: impl Into<String>) {
        self.queued().meta.insert(name.into(), value.into());
    }

    /// Makes what is queued durable. The number of the commit, or `None` when nothing differs from what is stored.
    ///
    /// When it fails, everything is still queued.
    pub fn commit(&self) -> Result<Option<u64>> {
        self.commit_queued(None)
    }

    /// The same together with an event: both are stored, or neither. The event is stored even if no state changes.
    pub fn commit_with(&self, event: impl IntoOutgoing) -> Result<Option<u64>> {
        self.commit_queued(Some(&event.into_outgoing()?))
    }

    /// Stores an event, and nothing of what is queued. Durable when this returns.
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
        self.batch(&Queued::default(), Some(event))
    }

    fn commit_queued(&self, event: Option<&Outgoing>) -> Result<Option<u64>> {
        // Taken out, so that others may queue meanwhile; given back if it is not written.
        let taken = std::mem::take(&mut *self.queued());
        let written = self.write(&taken, event);
        if written.is_err() {
            let mut queued = self.queued();
            let newer = std::mem::replace(&mut *queued, taken);
            queued.meta.extend(newer.meta);
            queued.pending.append(newer.pending)?;
        }
        Ok(written?.and_then(|done| done.state).map(|commit| commit.0))
    }

    fn write(&self, queued: &Queued, event: Option<&Outgoing>) -> Result<Option<Done>> {
        if queued.pending.is_empty() && event.is_none() {
            if !queued.meta.is_empty() {
                // For the next commit that is one.
                self.queued().meta.extend(queued.meta.clone());
            }
            return Ok(None);
        }
        for _ in 0..SCHEMA_TRIES {
            let batch = self.batch(queued, event.cloned())?;
            match self.commit_batch(batch)? {
                Outcome::Done(done) => return Ok(Some(done)),
                // The only checks are those on schemas.
                Outcome::Refused(_) => self.book().forget(),
            }
        }
        Err(SessionError::SchemaChanging)
    }

    fn batch(&self, queued: &Queued, event: Option<Outgoing>) -> Result<Batch> {
        if let Some(event) = &event {
            self.know_event(event.name)?;
        }
        let admitted = self.book().admit(self.state(), &queued.pending)?;
        let mut meta = queued.meta.clone();
        meta.insert(META_NAMESPACE.to_owned(), self.namespace_name().to_string());
        let changes = StateChanges {
            intents: admitted.intents,
            meta,
            checks: admitted.checks,
            ops: admitted.ops,
            event: event.map(out_event),
        };
        let (topics, now) = (self.topics()?, self.now());
        Ok(imperative(self.settings(), self.namespace_name(), &topics, changes, now, self.draw())?)
    }
}

pub(crate) fn out_event(event: Outgoing) -> OutEvent {
    let Outgoing { topic, priority, payload, key, headers, .. } = event;
    OutEvent { topic, payload, priority, key, headers: (!headers.is_empty()).then_some(headers) }
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
