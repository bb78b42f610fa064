//! The context of a handler while it works on an event.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use millrace_claims::{CommitError, HandlerRun, Input, OutEvent, PLANNED_AT, RunError, RunId, StateChanges};
use millrace_model::{
    EventId, Headers, Identity, Lineage, Offset, Partition, Priority, Space, StateCommit, Timestamp, keys,
};
use millrace_state::{
    Declared, Entity, IntoIntents, Key, Pending, Query, Relation, State, StateError, Stateful, Stored,
    entity_identity, relation_identity,
};

use crate::draft::Draft;
use crate::error::{Result, SessionError};
use crate::imperative::out_event;
use crate::session::Session;
use crate::shell::simulated::{SimulatedWorkerId, SimulatedWorld};
use crate::shell::{Mail, Mailbox};
use crate::traces::TraceHeaders;
use crate::typed::{Event, Handler, IntoOutgoing, Outgoing};

/// Everything about an event besides its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct EventMeta {
    pub id: EventId,
    pub event_type: String,
    pub created_at: Timestamp,
    pub priority: Priority,
    /// The event that began the chain; the event's own id if no handler caused it.
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
    /// The moment for which a schedule's fire was planned; `created_at` is later by jitter and by any delay of the
    /// session. `None` for events that come from no schedule.
    pub planned_at: Option<Timestamp>,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// The handler that is called.
    pub handler: String,
}

impl EventMeta {
    fn of(run: &HandlerRun, handler: &str) -> EventMeta {
        let event = &run.event;
        let Lineage { root, depth, causation, correlation } = event.body.lineage.clone();
        let headers = event.body.headers.as_ref().map(Headers::to_map).unwrap_or_default();
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
            planned_at: headers.get(PLANNED_AT).and_then(|ms| ms.parse().ok()).map(Timestamp),
            headers,
            attempt: run.attempt,
            handler: handler.to_owned(),
        }
    }
}

/// The way by which a handler's commit reaches the engine: the loop of a session, or the world of a simulation.
#[derive(Debug)]
pub(crate) enum CommitPath {
    Loop(Arc<Mailbox>),
    SimulatedWorld(Arc<SimulatedWorld>, SimulatedWorkerId),
}

/// The part of a context that does not depend on the event's type. The loop makes it, the handler fills it, and the
/// loop gets it back with the result.
#[derive(Debug)]
pub struct Core {
    session: Session,
    /// Remembers what this run reads.
    state: State,
    commit_path: CommitPath,
    run: RunId,
    meta: EventMeta,
    lease_until: Timestamp,
    pending: Pending,
    commit_meta: BTreeMap<String, String>,
    emitted: Vec<Outgoing>,
    /// Given to emitted events, if the event that is handled is traced.
    trace: Option<TraceHeaders>,
    /// Set when a commit failed in a way that ends this attempt, whatever the handler returns.
    failed: Option<String>,
    /// Set when that was a conflict: the run has read state that has changed since, so it may write nothing more.
    conflict: Option<Identity>,
    /// The last commit has been made.
    acked: bool,
}

impl Core {
    pub(crate) fn new(
        session: Session,
        handler: &Handler,
        run: &HandlerRun,
        commit_path: CommitPath,
        trace: Option<TraceHeaders>,
    ) -> Core {
        Core {
            state: session.state().tracked(),
            session,
            commit_path,
            run: run.run,
            meta: EventMeta::of(run, &handler.id),
            lease_until: run.lease_until,
            pending: Pending::default(),
            commit_meta: BTreeMap::new(),
            emitted: Vec::new(),
            trace,
            failed: None,
            conflict: None,
            acked: false,
        }
    }

    /// Returns the emitted events of a handler that returned without an error. Intents that it did not commit are
    /// dropped.
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

    /// Refuses to declare, emit or commit anything for an event that is acknowledged.
    fn allow_more(&self) -> Result<()> {
        if self.acked { Err(SessionError::Acknowledged) } else { Ok(()) }
    }

    fn declare(&mut self, declared: Declared) -> Result<()> {
        self.allow_more()?;
        Ok(self.pending.push(declared)?)
    }

    fn update<T, R>(
        &mut self,
        identity: Identity,
        change: impl Fn(Option<T>) -> R + Send + Sync + 'static,
    ) -> Result<()>
    where
        T: Stateful,
        R: Into<Option<T>>,
    {
        self.allow_more()?;
        Ok(self.pending.update(identity, change)?)
    }

    fn continue_trace(&self, event: &mut Outgoing) {
        if let Some(trace) = &self.trace {
            trace.add_to(&mut event.headers);
        }
    }

    fn emit(&mut self, mut event: Outgoing) -> Result<()> {
        self.allow_more()?;
        self.session.know_event(event.name)?;
        if let Err(error) = self.allow_event() {
            return Err(self.fail(error));
        }
        self.continue_trace(&mut event);
        self.emitted.push(event);
        Ok(())
    }

    fn commit(&mut self, event: Option<&Outgoing>, last: bool) -> Result<Option<u64>> {
        self.allow_more()?;
        if let Some(identity) = &self.conflict {
            return Err(SessionError::Conflict { identity: identity.clone() });
        }
        // With lease renewal only the engine knows how long the lease holds.
        if !self.session.settings().lease_renewal && self.session.now() >= self.lease_until {
            return Err(self.fail(SessionError::LeaseExpired));
        }
        if self.pending.is_empty() && event.is_none() && !last {
            return Ok(None);
        }
        match self.write(event, last) {
            Ok(commit) => {
                self.pending.clear();
                self.commit_meta.clear();
                if last {
                    self.emitted.clear();
                    self.acked = true;
                }
                Ok(commit.map(|commit| commit.0))
            }
            // Nothing is lost: the handler may split its commit, or repeat the read that was forgotten.
            Err(
                error @ (SessionError::BatchSizeExceeded { .. }
                | SessionError::TooLarge { .. }
                | SessionError::State(StateError::ReadForgotten { .. })),
            ) => Err(error),
            Err(error) => Err(self.fail(error)),
        }
    }

    fn write(&self, event: Option<&Outgoing>, last: bool) -> Result<Option<StateCommit>> {
        let Core { session, state, pending, commit_meta: meta, .. } = self;
        Draft { session, state, pending, meta, event }.commit(|changes| {
            self.send_commit(self.input(changes, last)).map_err(|error| session.told(error))
        })
    }

    fn input(&self, commit: StateChanges, last: bool) -> Input {
        let run = self.run;
        if !last {
            return Input::Commit { run, commit };
        }
        Input::CommitAndAck { run, commit, emitted: self.emitted.iter().cloned().map(out_event).collect() }
    }

    fn send_commit(&self, input: Input) -> Result<Option<StateCommit>, CommitError> {
        match &self.commit_path {
            CommitPath::Loop(mailbox) => {
                let (reply, answer) = sync_channel(1);
                mailbox.push(Mail::Commit { run: self.run, input, reply });
                answer.recv().unwrap_or(Err(CommitError::Stopped))
            }
            CommitPath::SimulatedWorld(world, worker) => world.handler_commit(*worker, self.run, input),
        }
    }

    /// Ends the attempt, whatever the handler returns: what it declared and emitted is dropped.
    fn fail(&mut self, error: SessionError) -> SessionError {
        self.failed = Some(error.to_string());
        if let SessionError::Conflict { identity } = &error {
            self.conflict = Some(identity.clone());
        }
        self.pending.clear();
        self.emitted.clear();
        error
    }
}

/// The event, and everything that the handler may do about it.
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

    /// Declares the full state of an entity or relation, or of many. Nothing is written before `commit`; state that is
    /// not committed when the handler returns is dropped.
    pub fn ensure<How>(&mut self, state: impl IntoIntents<How>) -> Result<()> {
        self.core.declare(state.into_intents()?)
    }

    /// Declares that the entity does not exist. Its history stays.
    pub fn retract<T: Entity>(&mut self, key: impl Key) -> Result<()> {
        self.core.declare(Declared::without_entity::<T>(key)?)
    }

    /// Declares that the relation does not exist. The instance key is `""` for types that declare none.
    pub fn retract_relation<R: Relation>(
        &mut self,
        left: impl Key,
        right: impl Key,
        instance: impl Key,
    ) -> Result<()> {
        self.core.declare(Declared::without_relation::<R>(left, right, instance)?)
    }

    /// Declares the new state of an entity as a function of its present state, `None` if the entity does not exist. The
    /// function returns the new state, or an `Option` of it, where `None` retracts the entity.
    ///
    /// The commit calls the function with the state that is stored then, and again if another commit was faster (at
    /// most `update_retries_max` times), so no change of others is lost. Changes declared earlier for the same entity
    /// are applied first.
    ///
    /// ```
    /// # use millrace_session::{Event, HandlerContext, Result};
    /// # use millrace_state::Entity;
    /// # fn count<E: Event, Counter: Entity>(ctx: &mut HandlerContext<E>, next: fn(Option<Counter>) -> Counter) -> Result<()> {
    /// ctx.update("visits", move |old: Option<Counter>| next(old))?;
    /// ctx.commit_and_ack()?;
    /// # Ok(()) }
    /// ```
    pub fn update<T, R>(
        &mut self,
        key: impl Key,
        change: impl Fn(Option<T>) -> R + Send + Sync + 'static,
    ) -> Result<()>
    where
        T: Entity,
        R: Into<Option<T>>,
    {
        self.core.update(entity_identity::<T>(key), change)
    }

    /// Declares the new state of a relation in the same way. The instance key is `""` for types that declare none.
    pub fn update_relation<R, N>(
        &mut self,
        left: impl Key,
        right: impl Key,
        instance: impl Key,
        change: impl Fn(Option<R>) -> N + Send + Sync + 'static,
    ) -> Result<()>
    where
        R: Relation,
        N: Into<Option<R>>,
    {
        self.core.update(relation_identity::<R>(left, right, instance), change)
    }

    /// Publishes the event if and when the handler succeeds, together with the acknowledgement.
    pub fn emit(&mut self, event: impl IntoOutgoing) -> Result<()> {
        let event = event.into_outgoing()?.without_own_id()?;
        self.core.emit(event)
    }

    /// Attaches a text to the next commit.
    pub fn add_commit_meta(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.core.commit_meta.insert(name.into(), value.into());
    }

    /// Makes the declared state durable. Returns the number of the commit, or `None` when nothing differs from what is
    /// stored.
    ///
    /// A run that fails after this is repeated, and its commits with it. Where that would count something twice, use
    /// [`HandlerContext::commit_and_ack`].
    ///
    /// # Errors
    ///
    /// If this run has read state that it declares and another commit has changed it since, nothing is written: the
    /// error is [`SessionError::Conflict`], and the event is run again without counting an attempt.
    ///
    /// After an error the attempt is over, whatever the handler returns, and what it declared and emitted is dropped.
    /// There are two exceptions, which leave everything queued: a commit that was too large, and
    /// [`StateError::ReadForgotten`].
    pub fn commit(&mut self) -> Result<Option<u64>> {
        self.core.commit(None, false)
    }

    /// Commits the same together with an event: both are stored, or neither. A retry does not store the event again.
    pub fn commit_with(&mut self, event: impl IntoOutgoing) -> Result<Option<u64>> {
        let mut event = event.into_outgoing()?.without_own_id()?;
        self.core.allow_more()?;
        self.core.session.know_event(event.name)?;
        if let Err(error) = self.core.allow_event() {
            return Err(self.core.fail(error));
        }
        self.core.continue_trace(&mut event);
        self.core.commit(Some(&event), false)
    }

    /// Makes the last commit: the declared state, the emitted events and the acknowledgement of the event become
    /// durable together, or none of them does. The event is then done: it is not run again, even if the handler fails
    /// later, panics, or its process dies.
    ///
    /// Afterwards nothing more can be declared, emitted or committed ([`SessionError::Acknowledged`]); an error that
    /// the handler returns is only logged.
    pub fn commit_and_ack(&mut self) -> Result<Option<u64>> {
        self.core.commit(None, true)
    }

    pub fn meta(&self) -> &EventMeta {
        &self.core.meta
    }

    /// Returns the commit of state with which `commit_with` or `commit_and_ack` stored this event, if that changed any
    /// state.
    pub fn commit_id(&self) -> Result<Option<u64>> {
        let key = keys::commit_of_event(self.state().namespace(), &self.core.meta.id);
        let Some(value) = self.state().row(Space::Kv, &key)? else { return Ok(None) };
        let parsed = serde_json::from_slice(&value);
        Ok(Some(parsed.map_err(|source| millrace_model::RowError { key, source })?))
    }

    /// Returns the time from which commits are refused, unless `lease_renewal` is on.
    pub fn lease_until(&self) -> Timestamp {
        self.core.lease_until
    }

    /// Returns the time of the session's clock: virtual time in a simulation.
    pub fn now(&self) -> Timestamp {
        self.core.session.now()
    }

    /// Returns the value of that type that the program gave the session by [`Session::with`]: a pool, a client,
    /// settings.
    pub fn data<T: Any + Send + Sync>(&self) -> Result<Arc<T>> {
        self.core.session.data()
    }

    /// Returns the committed state for reading, without what this handler has only declared.
    ///
    /// Reads through the context count: a commit that declares an identity which this run has read (or found missing,
    /// by `get`) checks that it is unchanged. [`State::unchecked`] reads without that.
    pub fn state(&self) -> &State {
        &self.core.state
    }

    /// Returns the entity with this key as it is now.
    pub fn get<T: Entity>(&self, key: impl Key) -> Result<Option<Stored<T>>> {
        Ok(self.state().get(key)?)
    }

    /// Returns the relation between two entities, by the keys of both. The instance key is `""` for types that declare
    /// none.
    pub fn get_relation<R: Relation>(
        &self,
        left: impl Key,
        right: impl Key,
        instance: impl Key,
    ) -> Result<Option<Stored<R>>> {
        Ok(self.state().get_relation(left, right, instance)?)
    }

    /// Begins a query of the entities or relations of a type.
    pub fn query<T: Stateful>(&self) -> Query<T> {
        self.state().query()
    }
}
