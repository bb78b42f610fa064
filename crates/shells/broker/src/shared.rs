//! The state that handles, connections, the owner and the workers share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use millrace_model::Durability;
use millrace_shell::SystemClock;
use tokio::sync::watch;

use crate::backlog::Backlog;
use crate::command::BrokerInbox;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::notes::NotesEnd;
use crate::readers::ReadQueue;
use crate::schemas::Schemas;
use crate::settings::BrokerSettings;
use crate::watcher::NewsBell;

#[derive(Debug)]
pub(crate) struct BrokerShared {
    pub(crate) settings: BrokerSettings,
    pub(crate) clock: SystemClock,
    pub(crate) inbox: Arc<BrokerInbox>,
    pub(crate) bell: NewsBell,
    pub(crate) backlog: Arc<Backlog>,
    pub(crate) reads: Arc<ReadQueue>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Arc<Health>,
    pub(crate) notes: NotesEnd,
    pub(crate) schemas: Arc<Schemas>,
    pub(crate) conns: AtomicU64,
    /// The durability of commits that ask for none of their own.
    pub(crate) durability: Durability,
    /// Turns true when the owner has been dropped.
    pub(crate) ended: watch::Sender<bool>,
}
