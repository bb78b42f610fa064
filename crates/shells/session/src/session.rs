//! The session: a program's access to a namespace of a store.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use millrace_claims::{CommitError, Topics, WorkerIdentity};
use millrace_model::{
    Batch, Elapsed, ElapsedRow, EventId, Namespace, Outcome, SessionId, Space, Timestamp, keys,
};
use millrace_state::{Pending, SchemaBook, State};
use millrace_store::{KeyRange, Store, StoreError};
use millrace_telemetry::Tracer;
use parking_lot::{Mutex, MutexGuard};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::Config;
use crate::builder::{SessionBuilder, SessionSettings};
use crate::error::{Result, SessionError};
use crate::shell::simulated::SimulatedStore;
use crate::shell::{Clock, Committer};
use crate::typed::{EventName, EventNames};

/// The most rows of topics that are read to know their partitions. Topics beyond that count as having one partition.
const TOPICS_MAX: usize = 10_000;

/// A namespace of a store: state to declare and to read, events to publish, handlers to run.
///
/// Clones are the same session and may be used from many threads: they share the state that `ensure` has queued, and
/// their commits share syncs. Sessions of other processes, and `millrace serve`, may use the same file at the same time;
/// a shared store has one process that leads it, and [`Session::to_builder`] makes further sessions in this process.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<SessionShared>,
    settings: SessionSettings,
    namespace: Namespace,
    id: SessionId,
    state: State,
    queued: Mutex<Queued>,
    book: Mutex<SchemaBook>,
    topics: Mutex<Option<(u64, Arc<Topics>)>>,
}

/// The parts that sessions of a process share when one was made from the other.
pub(crate) struct SessionShared {
    store: Arc<dyn Store>,
    clock: Clock,
    commits: Commits,
    draws: Mutex<SmallRng>,
    names: EventNames,
}

/// The part that makes batches durable: the committer thread, or the store of a simulation.
pub(crate) enum Commits {
    Threaded(Arc<Committer>),
    Inline(Arc<SimulatedStore>),
}

/// The declarations and metadata that wait for the next commit.
#[derive(Debug, Default)]
pub(crate) struct Queued {
    pub(crate) pending: Pending,
    pub(crate) meta: BTreeMap<String, String>,
}

impl Session {
    /// Opens a store, and makes it if it does not exist: `sqlite:///app.db` (relative), `sqlite:////var/lib/app.db`
    /// (absolute), `memory:`, or a shared store (`docs/engines.md`): `postgres://…`, `s3://…`, `mongodb://…`,
    /// `dir:///folder`. The session is in the default namespace; [`Session::builder`] has more to choose.
    ///
    /// # Errors
    ///
    /// A shared store is used by one process at a time, which leads it: if another one does, the error is
    /// [`StoreError::InUse`] with that one's address.
    pub fn open(url: &str) -> Result<Session> {
        Session::builder(url).open()
    }

    /// Returns a builder for a session with settings of its own.
    ///
    /// ```no_run
    /// # fn main() -> millrace_session::Result<()> {
    /// use millrace_session::{Config, Session};
    /// let session = Session::builder("sqlite:///app.db")
    ///     .namespace("orders")
    ///     .config(Config { handler_concurrency: 8, ..Config::default() })
    ///     .metadata("version", "1.4.2")
    ///     .open()?;
    /// # Ok(()) }
    /// ```
    pub fn builder(url: &str) -> SessionBuilder {
        SessionBuilder::of_url(url)
    }

    /// Returns a builder for another session on the same store, with this session's settings.
    pub fn to_builder(&self) -> SessionBuilder {
        SessionBuilder::of_shared(self.inner.shared.clone(), self.inner.settings.clone())
    }

    /// Returns a new session like this one. Nothing is queued in it.
    #[must_use]
    pub fn beside(&self) -> Session {
        Session::make(self.inner.shared.clone(), self.inner.settings.clone())
    }

    pub(crate) fn make(shared: Arc<SessionShared>, settings: SessionSettings) -> Session {
        let namespace = settings.chosen.clone().unwrap_or_else(|| settings.config.default_namespace.clone());
        let (state, id) = (State::new(shared.store.clone(), namespace.clone()), shared.new_id());
        let inner = Inner {
            shared,
            settings,
            namespace,
            id,
            state,
            queued: Mutex::default(),
            book: Mutex::default(),
            topics: Mutex::default(),
        };
        Session { inner: Arc::new(inner) }
    }

    /// Returns the value of that type that was given to [`SessionBuilder::with`].
    pub fn data<T: Any + Send + Sync>(&self) -> Result<Arc<T>> {
        self.inner.settings.data.get()
    }

    pub fn id(&self) -> &SessionId {
        &self.inner.id
    }

    pub fn namespace_name(&self) -> &Namespace {
        &self.inner.namespace
    }

    pub fn settings(&self) -> &Config {
        &self.inner.settings.config
    }

    pub(crate) fn tracer(&self) -> Option<&Tracer> {
        self.inner.settings.tracer.as_ref()
    }

    /// Returns the state of this namespace, for reading.
    pub fn state(&self) -> &State {
        &self.inner.state
    }

    /// Returns how often this process has written to the store, over all sessions made from the same `open`: concurrent
    /// commits, publishes and handlers share a write and its sync. Always 0 in a simulation.
    pub fn commits_made(&self) -> u64 {
        match &self.inner.shared.commits {
            Commits::Threaded(committer) => committer.commits_made(),
            Commits::Inline(_) => 0,
        }
    }

    pub fn now(&self) -> Timestamp {
        self.inner.shared.clock.now().wall
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.inner.shared.clock
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.inner.shared.store
    }

    pub(crate) fn commits(&self) -> &Commits {
        &self.inner.shared.commits
    }

    pub(crate) fn queued(&self) -> MutexGuard<'_, Queued> {
        self.inner.queued.lock()
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, SchemaBook> {
        self.inner.book.lock()
    }

    pub(crate) fn draw(&self) -> u64 {
        self.inner.shared.draw()
    }

    /// Registers an event name. Refuses two types of the program that have the same event name by accident.
    pub(crate) fn know_event(&self, name: EventName) -> Result<()> {
        Ok(self.inner.shared.names.know(name)?)
    }

    pub(crate) fn commit_batch(&self, batch: Batch) -> Result<Outcome, StoreError> {
        match &self.inner.shared.commits {
            Commits::Threaded(committer) => committer.commit(batch),
            Commits::Inline(simulated) => simulated.commit_outside(batch),
        }
    }

    /// Returns the error of a commit of a handler. The engine knows a failure of the store by its text only.
    pub(crate) fn told(&self, error: CommitError) -> SessionError {
        match (&error, &self.inner.shared.commits) {
            (CommitError::StorageFailed { .. }, Commits::Threaded(committer)) => {
                committer.failure().map_or_else(|| error.into(), SessionError::Store)
            }
            _ => error.into(),
        }
    }

    /// Returns the elapsed time on which a delay that begins now is counted. Reads it from the store each time: the
    /// process that will move the event has written it there, or continues from what is written with this event.
    pub(crate) fn elapsed(&self) -> Result<Elapsed> {
        let row = self.state().row(Space::Kv, keys::ELAPSED)?;
        let row = row.map(|row| ElapsedRow::decode(keys::ELAPSED, &row)).transpose()?;
        Ok(Elapsed::restore(row, self.clock().boot(), self.clock().now()))
    }

    /// Returns the topics of the namespace, as they were at most `refresh_interval_ms` ago.
    pub(crate) fn topics(&self) -> Result<Arc<Topics>> {
        let now = self.clock().now().mono.0;
        let mut known = self.inner.topics.lock();
        if let Some((read_at, topics)) = &*known
            && now < read_at.saturating_add(self.settings().refresh_interval_ms)
        {
            return Ok(topics.clone());
        }
        let range = KeyRange::prefix(&format!("{}/", self.inner.namespace));
        let rows = self.store().scan(Space::Topics, &range, TOPICS_MAX)?;
        let rows: Vec<_> = rows.into_iter().map(|row| (row.key, row.value)).collect();
        let topics = Arc::new(Topics::from_rows(&rows));
        *known = Some((now, topics.clone()));
        Ok(topics)
    }

    pub(crate) fn identity(&self) -> WorkerIdentity {
        let mut metadata = BTreeMap::from([
            ("hostname".to_owned(), hostname()),
            ("pid".to_owned(), std::process::id().to_string()),
            ("namespace".to_owned(), self.inner.namespace.to_string()),
        ]);
        metadata.extend(self.inner.settings.metadata.clone());
        let (namespace, session) = (self.inner.namespace.clone(), self.inner.id.clone());
        WorkerIdentity { namespace, session, metadata, boot: self.clock().boot() }
    }
}

impl SessionShared {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        commits: Commits,
        seed: u64,
    ) -> Arc<SessionShared> {
        let draws = Mutex::new(SmallRng::seed_from_u64(seed));
        Arc::new(SessionShared { store, clock, commits, draws, names: EventNames::default() })
    }

    fn draw(&self) -> u64 {
        self.draws.lock().random()
    }

    /// Returns a UUID of version 7, which is always a valid session id.
    fn new_id(&self) -> SessionId {
        let id = EventId::mint(self.clock.now().wall, self.draw(), 0).to_string();
        SessionId::new(&id).unwrap_or_else(|_| unreachable!("a UUID is a legal session id"))
    }
}

fn hostname() -> String {
    let from_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let found = from_kernel.or_else(|| std::env::var("HOSTNAME").ok());
    found.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).unwrap_or("unknown".to_owned())
}

impl fmt::Debug for SessionShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionShared").finish_non_exhaustive()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.inner.id)
            .field("namespace", &self.inner.namespace)
            .finish_non_exhaustive()
    }
}
