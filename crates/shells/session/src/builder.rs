//! How a session is made: the store, the namespace, the configuration, and what handlers are given.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::{CLOCK_SETTLE_MS, Namespace};
use millrace_shell::SystemClock;
use millrace_stores::{SharedSettings, StoreOptions, StoreUrl, open_shared};
use millrace_telemetry::Tracer;
use rand::Rng;

use crate::Config;
use crate::data::SessionData;
use crate::error::{Result, SessionError};
use crate::session::{Commits, Session, SessionShared};
use crate::shell::{Clock, Committer};

/// Makes a [`Session`]. Mistakes in what it was given are reported by [`SessionBuilder::open`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `open`"]
pub struct SessionBuilder {
    store: StoreChoice,
    settings: SessionSettings,
    /// The namespace as it was given; checked at the end.
    namespace: Option<String>,
    /// Of a store that several processes share.
    shared: SharedSettings,
}

#[derive(Clone, Debug)]
enum StoreChoice {
    Url(String),
    /// The store, the clock and the committer of another session.
    Shared(Arc<SessionShared>),
}

/// The settings of a session, besides its store.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionSettings {
    /// The namespace that the program chose; without one the configuration's default is used.
    pub(crate) chosen: Option<Namespace>,
    pub(crate) config: Config,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) data: SessionData,
    pub(crate) tracer: Option<Tracer>,
}

impl SessionBuilder {
    pub(crate) fn of_url(url: &str) -> SessionBuilder {
        let store = StoreChoice::Url(url.to_owned());
        SessionBuilder {
            store,
            settings: SessionSettings::default(),
            namespace: None,
            shared: SharedSettings::default(),
        }
    }

    pub(crate) fn of_shared(shared: Arc<SessionShared>, settings: SessionSettings) -> SessionBuilder {
        SessionBuilder {
            store: StoreChoice::Shared(shared),
            settings,
            namespace: None,
            shared: SharedSettings::default(),
        }
    }

    /// The namespace of the session. Without one, the configuration's `default_namespace` is used.
    pub fn namespace(mut self, namespace: &str) -> SessionBuilder {
        self.namespace = Some(namespace.to_owned());
        self
    }

    pub fn config(mut self, config: Config) -> SessionBuilder {
        self.settings.config = config;
        self
    }

    /// Adds metadata of the session, besides host, process and namespace. `millrace events sessions` shows it.
    pub fn metadata(mut self, name: &str, value: &str) -> SessionBuilder {
        self.settings.metadata.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Gives handlers a value, which they get by `ctx.data()`: a pool, a client, settings. A session has at most one
    /// value per type.
    pub fn with<T: Any + Send + Sync>(mut self, value: T) -> SessionBuilder {
        self.settings.data = self.settings.data.with(value);
        self
    }

    /// Reports the runs of handlers whose event carries a sampled trace, and continues that trace in the events that
    /// they emit.
    pub fn tracer(mut self, tracer: Tracer) -> SessionBuilder {
        self.settings.tracer = Some(tracer);
        self
    }

    /// The settings of a store that several processes share: the folder of the local copy, the address that others are
    /// told, timeouts. Other stores ignore them.
    pub fn shared(mut self, shared: SharedSettings) -> SessionBuilder {
        self.shared = shared;
        self
    }

    /// Opens the store, and makes it if it does not exist. A builder of [`Session::to_builder`] uses the open store of
    /// that session.
    pub fn open(mut self) -> Result<Session> {
        if let Some(namespace) = self.namespace {
            self.settings.chosen = Some(Namespace::new(&namespace)?);
        }
        let shared = match self.store {
            StoreChoice::Shared(shared) => shared,
            StoreChoice::Url(url) => {
                let options = StoreOptions { shared: self.shared, ..StoreOptions::default() };
                let opened = open_shared(&url.parse::<StoreUrl>()?, &options)?;
                let store = opened.store.clone();
                let committer = Committer::start(opened).map_err(SessionError::Thread)?;
                let (clock, seed) = (SystemClock::start(CLOCK_SETTLE_MS), rand::rng().random());
                SessionShared::new(store, Clock::System(clock), Commits::Threaded(Arc::new(committer)), seed)
            }
        };
        Ok(Session::make(shared, self.settings))
    }
}
