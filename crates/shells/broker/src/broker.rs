//! The lifecycle: start the threads, stop the engine, end the threads.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millrace_bus::{Bus, BusLimits};
use millrace_model::RowError;
use millrace_shell::SystemClock;
use millrace_store::{Pace, Store, StoreError};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::backlog::{Backlog, BoundedBacklog};
use crate::command::{BrokerInbox, Command};
use crate::dispatch::Dispatch;
use crate::handle::BrokerHandle;
use crate::health::Health;
use crate::inbox::{Inbox, InboxLimits};
use crate::metrics::Metrics;
use crate::monitor::{self, Monitor};
use crate::owner::Owner;
use crate::readers::{ReadQueue, StoreReader};
use crate::schedule::ScheduleLimits;
use crate::settings::BrokerSettings;
use crate::shared::BrokerShared;
use crate::watcher::{NewsBell, NewsWatcher};
use crate::workers::{self, Workers};
use crate::writer::{CommitWriter, Receiver};
use crate::{boot, jobs, notes};

/// How often a stop checks whether the last rows are written.
const WRITTEN_POLL: Duration = Duration::from_millis(5);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be read; the text says why.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store holds a row that this version does not understand.
    #[error(transparent)]
    Row(#[from] RowError),
    #[error("a thread could not be started: {0}")]
    Thread(io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// Everything begun was finished and is durable.
    Finished,
    /// The grace ran out, or the store had failed. Events that were confirmed are durable all the same.
    CutShort,
    /// The grace ran out while batches waited for the disk: their publishers get no answer.
    Unwritten { batches: usize },
}

/// Owns the threads. Dropping it ends them without waiting for them.
#[derive(Debug)]
pub struct Broker {
    shared: Arc<BrokerShared>,
    /// Weak: the threads alone keep the store open.
    workers: Weak<Workers>,
    reads: Arc<ReadQueue>,
    monitor: Arc<monitor::Control>,
    threads: Vec<JoinHandle<()>>,
}

impl Broker {
    /// Reads the engine's state from the store and starts the threads. Blocks while it reads.
    pub fn start(
        settings: BrokerSettings,
        store: &Arc<dyn Store>,
        limits: BusLimits,
    ) -> Result<Broker, StartError> {
        let clock = SystemClock::start(limits.clock_settle_ms);
        let backlog: Arc<Backlog> = Arc::default();
        let inbox = Arc::new(inbox(&settings, BoundedBacklog::new(backlog.clone(), &settings)));
        // Before the snapshot: commits of other processes in between are then reported twice instead of never.
        let ms = Duration::from_millis;
        let pace = Pace::new(ms(settings.watch_interval_ms), ms(settings.watch_idle_ms_max));
        let bell = NewsBell::new(inbox.clone());
        let watcher = NewsWatcher::new(&**store, pace, bell.clone())?;
        let durability = limits.durability;
        let bus = Bus::restore(limits, boot::snapshot(&**store, clock.boot())?, clock.now())?;
        let metrics = Arc::new(Metrics::default());
        let (notes, notes_end) = notes::channel(settings.notes_max, metrics.clone());
        let reads = Arc::new(ReadQueue::default());
        let shared = Arc::new(BrokerShared {
            clock,
            inbox,
            bell,
            backlog,
            reads: reads.clone(),
            metrics,
            notes: notes_end,
            schemas: Arc::default(),
            health: Arc::new(Health::new(settings.commit_stall_ms_max)),
            conns: AtomicU64::new(1),
            durability,
            ended: watch::Sender::new(false),
            settings,
        });
        let monitor = Arc::default();
        let mut broker = Broker {
            shared: shared.clone(),
            workers: Weak::new(),
            reads: reads.clone(),
            monitor,
            threads: Vec::new(),
        };
        let dispatch = Dispatch::new(shared.backlog.clone(), reads, notes, shared.schemas.clone());
        let owner = Owner::new(shared, bus, dispatch);
        broker.start_workers(store, owner, watcher)?;
        broker.start_readers(store)?;
        broker.start_monitor(store)?;
        Ok(broker)
    }

    fn start_workers(
        &mut self,
        store: &Arc<dyn Store>,
        owner: Owner,
        watcher: NewsWatcher,
    ) -> Result<(), StartError> {
        let BrokerShared { settings, inbox, backlog, metrics, health, .. } = &*self.shared;
        let receiver = Receiver {
            backlog: backlog.clone(),
            inbox: inbox.clone(),
            metrics: metrics.clone(),
            health: health.clone(),
            monitor: self.monitor.clone(),
        };
        let writer = CommitWriter::new(store.clone(), receiver, settings, watcher);
        let owner = Mutex::new(Some(Box::new(owner)));
        let workers = Arc::new(Workers { shared: self.shared.clone(), owner, writer });
        self.workers = Arc::downgrade(&workers);
        for _ in 0..workers::THREADS {
            let workers = workers.clone();
            self.threads.push(spawn("workers", move || jobs::run_worker(&*workers))?);
        }
        Ok(())
    }

    fn start_readers(&mut self, store: &Arc<dyn Store>) -> Result<(), StartError> {
        let BrokerShared { settings, inbox, metrics, .. } = &*self.shared;
        for _ in 0..settings.readers.max(1) {
            let reader = StoreReader {
                store: store.clone(),
                jobs: self.reads.clone(),
                inbox: inbox.clone(),
                metrics: metrics.clone(),
            };
            self.threads.push(spawn("reader", move || reader.run())?);
        }
        Ok(())
    }

    fn start_monitor(&mut self, store: &Arc<dyn Store>) -> Result<(), StartError> {
        let BrokerShared { settings, inbox, health, .. } = &*self.shared;
        let monitor = Monitor {
            store: store.clone(),
            health: health.clone(),
            inbox: inbox.clone(),
            control: self.monitor.clone(),
            disk_interval: Duration::from_millis(settings.disk_interval_ms),
        };
        self.threads.push(spawn("monitor", move || monitor.run())?);
        Ok(())
    }

    pub fn handle(&self) -> BrokerHandle {
        BrokerHandle::new(self.shared.clone(), self.workers.clone())
    }

    /// Tells the engine to stop, behind all earlier requests, and waits until it has given back all deliveries. The
    /// owner still answers (that it is shutting down) until [`Broker::end`].
    pub async fn stop(&self, grace: Duration) -> StopOutcome {
        self.shared.health.set_stopping();
        let (stopped, has_stopped) = oneshot::channel();
        if self.shared.inbox.tell(Command::Stop { stopped }).is_err() {
            return StopOutcome::CutShort;
        }
        let written = async {
            let stopped = has_stopped.await;
            // The engine has waited for its own commits; rows of others may still be on their way.
            while self.shared.backlog.batches() > 0 && self.shared.health.storage_failed().is_none() {
                tokio::time::sleep(WRITTEN_POLL).await;
            }
            stopped
        };
        match tokio::time::timeout(grace, written).await {
            Ok(Ok(())) if self.shared.health.storage_failed().is_none() => StopOutcome::Finished,
            Err(_) if self.shared.backlog.batches() > 0 => {
                StopOutcome::Unwritten { batches: self.shared.backlog.batches() }
            }
            _ => StopOutcome::CutShort,
        }
    }

    /// Ends the threads and waits for them. Batches that the writer already has are still committed, but nobody is
    /// told.
    pub fn end(mut self) {
        self.finish();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the broker had panicked");
            }
        }
    }

    fn finish(&self) {
        // The backlog first: a row that it accepted is then seen by the workers before they end.
        self.shared.backlog.end();
        self.shared.inbox.end();
        self.reads.end();
        self.monitor.end();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.finish();
    }
}

fn inbox(settings: &BrokerSettings, backlog: BoundedBacklog) -> BrokerInbox {
    let limits =
        InboxLimits { room_max: settings.request_units_max, turn_requests_max: settings.turn_requests_max };
    let schedule = ScheduleLimits {
        threads: workers::THREADS,
        sleep_max: Duration::from_millis(settings.wait_ms_max),
        inline_commits: settings.inline_commits,
    };
    Inbox::new(limits, schedule, backlog)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    thread::Builder::new().name(format!("millrace-{name}")).spawn(run).map_err(StartError::Thread)
}
