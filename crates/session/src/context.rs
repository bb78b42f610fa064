//! What a handler holds while it works on one event.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use millrace_claims::{CommitError, OutEvent, Run, RunError, RunId, StateChanges};
use millrace_model::{EventId, Headers, Lineage, Offset, Partition, Priority, Space, Timestamp, keys};

use crate::error::{Result, SessionError};
use crate::imperative::{META_NAMESPACE, SCHEMA_TRIES, out_event};
use crate::session::Session;
use crate::shell::simulated::{ActorId, World};
use crate::shell::{Mail, Mailbox};
use crate::state::{Pending, Query, State, Stored};
use crate::typed::{
    Declared, Entity, Event, Handler, IntoIntents, IntoOutgoing, Key, Outgoing, Relation, Stateful,
};

/// What is known about an event besides its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct EventMeta {
    pub id: EventId,
    pub event_type: String,
    pub created_at: Timestamp,
    pub priority: Priority,
    /// The event that began the chain: this one's own id for an event that no handler caused.
    pub root: EventId,
    /// How many handlers lie between the root and this event.
    pub depth: u32,
    /// The event whose handler sent this one.
    pub causation: Option<EventId>,
    pub correlation: Option<EventId>,
    pub partition: Partition,
    pub offset: Offset,
    pub key: Option<String>,
    pub headers: BTreeMap<String, String>,
    /// 1 for the first try.
    pub attempt: u32,
    /// The handler that is called.
    pub handler: String,
}

impl EventMeta {
    fn of(run: &Run, handler: &str) -> EventMeta {
        let event = &run.event;
        let Lineage { root, depth, causation, correlation } = event.body.lineage.clone();
        EventMeta {
            id: event.id.clone(),
            event_type: event.stream.topic.topic().to_owned(),
            created_at: event.ts,
            priority: event.body.priority,
            root: root.unwrap_or_else(|| event.id.clone()),
            depth,
            causation,
            correlation,
            partition: event.stream.partition,
            offset: event.offset,
            key: event.body.key.as_deref().map(str::to_owned),
            headers: event.body.headers.as_ref().map(Headers::to_map).unwrap_or_default(),
            attempt: run.attempt,
            handler: handler.to_owned(),
        }
    }
}

/// How a handler's commit reaches the engine.
#[derive(Debug)]
pub(crate) enum Link {
    Loop(Arc<Mailbox>),
    World(Arc<World>, ActorId),
}

/// The part of a context that does not depend on the event's type. The loop makes it, the handler fills it, the loop
/// gets it back with the result.
#[derive(Debug)]
pub struct Core {
    session: Session,
    link: Link,
    run: RunId,
    meta: EventMeta,
    lease_until: Timestamp,
    pending: Pending,
    commit_meta: BTreeMap<String, String>,
    emitted: Vec<Outgoing>,
    /// A commit failed in a way that ends this try, whatever the handler makes of it.
    failed: Option<String>,
}

impl Core {
    pub(crate) fn new(session: Session, handler: &Handler, run: &Run, link: Link) -> Core {
        Core {
            session,
            link,
            run: run.run,
            meta: EventMeta::of(run, &handler.id),
            lease_until: run.lease_until,
            pending: Pending::default(),
            commit_meta: BTreeMap::new(),
            emitted: Vec::new(),
            failed: None,
        }
    }

    /// What a handler that returned without an error leaves behind. Intents it did not commit are dropped here.
    pub(crate) fn into_emitted(self) -> Result<Vec<OutEvent>, RunError> {
        match self.failed {
            Some(error) => Err(RunError::Failed(error)),
            None => Ok(self.emitted.into_iter().map(out_event).collect()),
        }
    }

    fn allow_event(&self) -> Result<()> {
        let (depth, limit) =
            (self.meta.depth.saturating_add(1), self.session.settings().max_event_chain_depth);
        if depth > limit {
            return Err(SessionError::EventLoopLimit { depth, limit });
        }
        Ok(())
    }

    fn emit(&mut self, event: Outgoing) -> Result<()> {
        self.session.know_event(event.name)?;
        if let Err(error) = self.allow_event() {
            return Err(self.fail(error));
        }
        self.emitted.push(event);
        Ok(())
    }

    fn commit(&mut self, event: Option<&Outgoing>) -> Result<Option<u64>> {
        // With renewal only the engine knows how long the lease holds.
        if !self.session.settings().lease_renewal && self.session.now() >= self.lease_until {
            return Err(self.fail(SessionError::LeaseExpired));
        }
        if self.pending.is_empty() && event.is_none() {
            return Ok(None);
        }
        match self.write(event) {
            Ok(commit) => {
                self.pending.clear();
                self.commit_meta.clear();
                Ok(commit)
            }
            // Nothing is lost: the handler may split it.
            Err(error @ (SessionError::BatchSizeExceeded { .. } | SessionError::TooLarge { .. })) => {
                Err(error)
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    fn write(&mut self, event: Option<&Outgoing>) -> Result<Option<u64>> {
        for _ in 0..SCHEMA_TRIES {
            let admitted = self.session.book().admit(self.session.state(), &self.pending)?;
            let mut meta = self.commit_meta.clone();
            meta.insert(META_NAMESPACE.to_owned(), self.session.namespace_name().to_string());
            let changes = StateChanges {
                intents: admitted.intents,
                meta,
                checks: admitted.checks,
                ops: admitted.ops,
                event: event.cloned().map(out_event),
            };
            match self.ask(changes) {
                Ok(commit) => return Ok(commit.map(|commit| commit.0)),
                // The only checks of ours are those on schemas.
                Err(CommitError::Refused { .. }) => self.session.book().forget(),
                Err(error) => return Err(error.into()),
            }
        }
        Err(SessionError::SchemaChanging)
    }

    fn ask(&self, changes: StateChanges) -> Result<Option<millrace_model::StateCommit>, CommitError> {
        match &self.link {
            Link::Loop(mailbox) => {
                let (reply, answer) = sync_channel(1);
                mailbox.push(Mail::Commit { run: self.run, changes, reply });
                answer.recv().unwrap_or(Err(CommitError::Stopped))
            }
            Link::World(world, worker) => world.handler_commit(*worker, self.run, changes),
        }
    }

    /// The try is over, whatever the handler returns: what it emitted goes with it.
    fn fail(&mut self, error: SessionError) -> SessionError {
        self.failed = Some(error.to_string());
        self.pending.clear();
        self.emitted.clear();
        error
    }
}

/// The event, and everything the handler may do about it.
#[derive(Debug)]
pub struct HandlerContext<E: Event> {
    pub event: E,
    core: Core,
}

impl<E: Event> HandlerContext<E> {
    pub(crate) fn new(event: E, core: Core) -> HandlerContext<E> {
        HandlerContext { event, core }
    }

    pub(crate) fn into_core(self) -> Core {
        self.core
    }

    /// Declares the full state of an entity or relation, or of many. Nothing is written before `commit`, and what is
    /// not committed when the handler returns is dropped.
    pub fn ensure<How>(&mut self, state: impl IntoIntents<How>) -> Result<()> {
        Ok(self.core.pending.push(state.into_intents()?)?)
    }

    /// Declares that there is no such entity. Its history stays.
    pub fn retract<T: Entity>(&mut self, key: impl Key) -> Result<()> {
        Ok(self.core.pending.push(Declared::without_entity::<T>(key)?)?)
    }

    /// Declares that there is no such relation. The instance key is `""` for types that declare none.
    pub fn retract_relation<R: Relation>(
        &mut self,
        left: impl Key,
        right: impl Key,
        instance: impl Key,
    ) -> Result<()> {
        Ok(self.core.pending.push(Declared::without_relation::<R>(left, right, instance)?)?)
    }

    /// Enqueues the event if and when the handler succeeds, together with the acknowledgement.
    pub fn emit(&mut self, event: impl IntoOutgoing) -> Result<()> {
        let event = event.into_outgoing()?;
        self.core.emit(event)
    }

    /// Attaches text to the next commit.
    pub fn add_commit_meta(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.core.commit_meta.insert(name.into(), value.into());
    }

    /// Makes what was declared durable. The number of the commit, or `None` when nothing differs from what is stored.
    ///
    /// After an error the try is over, whatever the handler returns, and what it emitted is dropped; except when the
    /// commit was too large, which leaves everything queued.
    pub fn commit(&mut self) -> Result<Option<u64>> {
        self.core.commit(None)
    }

    /// The same together with an event: both are stored, or neither. A retry does not store the event again.
    pub fn commit_with(&mut self, event: impl IntoOutgoing) -> Result<Option<u64>> {
        let event = event.into_outgoing()?;
        self.core.session.know_event(event.name)?;
        if let Err(error) = self.core.allow_event() {
            return Err(self.core.fail(error));
        }
        self.core.commit(Some(&event))
    }

    pub fn meta(&self) -> &EventMeta {
        &self.core.meta
    }

    /// The commit of state the event was stored with by `commit_with`, if that changed anything.
    pub fn commit_id(&self) -> Result<Option<u64>> {
        let key = keys::commit_of_event(self.state().namespace(), &self.core.meta.id);
        let Some(value) = self.state().row(Space::Kv, &key)? else { return Ok(None) };
        let parsed = serde_json::from_slice(&value);
        Ok(Some(parsed.map_err(|source| millrace_model::RowError { key, source })?))
    }

    /// From this moment on commits are refused, unless `lease_renewal` is on.
    pub fn lease_until(&self) -> Timestamp {
        self.core.lease_until
    }

    /// What the session's clock says: virtual time in a simulation.
    pub fn now(&self) -> Timestamp {
        self.core.session.now()
    }

    /// What is committed, to be read; what this handler has only declared is not in it.
    pub fn state(&self) -> &State {
        self.core.session.state()
    }

    /// The entity with this key as it is now.
    pub fn get<T: Entity>(&self, key: impl Key) -> Result<Option<Stored<T>>> {
        Ok(self.state().get(key)?)
    }

    /// Entities or relations of one type.
    pub fn query<T: Stateful>(&self) -> Query<T> {
        self.state().query()
    }
}
