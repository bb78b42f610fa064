//! Starts the loop's thread and its parts, and defines the handle to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use std::{io, thread};

use bytes::Bytes;
use millrace_model::{CLOCK_SETTLE_MS, JsonText, Namespace, Requester};
use millrace_router::{CapabilityId, ConnId, Counters, Gauges, Router, TimerPlace, TimerView};
use millrace_shell::{RowWriter, SystemClock};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{LocalSet, spawn_local};

use crate::capabilities::capability::{Capability, CapabilityOrigin};
use crate::capabilities::change::{Actors, BusFeed, CapabilityView, ChangeError};
use crate::clients::audit_hook::AuditHook;
use crate::clients::conns::{Account, Conns, SocketConnection};
use crate::clients::credentials::{CheckSender, CheckToken};
use crate::clients::remote::{OsReceiver, OsSender};
use crate::clients::sender_check::SenderCheck;
use crate::kernel_thread::commits::Commits;
use crate::kernel_thread::counts::{AtomicCounts, ShellCounts};
use crate::kernel_thread::inbox::{KernelCommand, KernelEnded, KernelSender, Mint};
use crate::kernel_thread::local_queue::LocalQueue;
use crate::kernel_thread::notes;
use crate::kernel_thread::run::{Alarm, KernelThread};
use crate::kernel_thread::shell::Shell;
use crate::ndjson::Edge;
use crate::settings::KernelSettings;
use crate::syscalls;

/// A request of the loop's own commands to the program that runs the server.
#[derive(Debug)]
pub enum HostRequest {
    /// `Syscall.Shutdown`: stop gracefully.
    Shutdown,
    /// `Syscall.Reload`: read the configuration again and report the result.
    Reload { done: oneshot::Sender<Result<String, NotReloaded>> },
}

/// Why the configuration was not read again, in the words of the program that runs the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotReloaded(pub String);

impl From<String> for NotReloaded {
    fn from(reason: String) -> NotReloaded {
        NotReloaded(reason)
    }
}

impl From<&str> for NotReloaded {
    fn from(reason: &str) -> NotReloaded {
        NotReloaded(reason.to_owned())
    }
}

/// Requests of [`HostRequest`] that wait: more are answered with 503.
const ASKED_MAX: usize = 16;

/// Everything that a loop needs from outside.
pub struct KernelParts {
    pub settings: KernelSettings,
    /// A random number. No two processes may have the same one, because ids are derived from it.
    pub nonce: u64,
    pub clock: SystemClock,
    /// Where handlers run.
    pub runtime: Handle,
    /// Makes timers durable. Without it they are lost with the process.
    pub rows: Option<RowWriter>,
    /// Timers of the previous process: the rows of [`millrace_router::TIMER_PREFIX`], and the row at
    /// [`millrace_model::keys::ROUTER_ELAPSED`]. See [`KernelHandle::begin`].
    pub timers: Vec<(String, Bytes)>,
    pub bus_feed: Option<BusFeed>,
    pub check_token: Option<CheckToken>,
    /// Checks whether an agent may still send a message that it scheduled with a timer. Without it, every agent may.
    pub check_sender: Option<CheckSender>,
    /// Called for clients and timers that were refused, for the audit.
    pub audit_hook: Option<AuditHook>,
    /// Gets every record of the trace as JSON, with the namespace it belongs to. A record that finds the channel full
    /// is dropped.
    pub records: Option<mpsc::Sender<(Namespace, JsonText)>>,
}

impl KernelParts {
    /// A loop on its own, with default bounds, that keeps nothing beyond the process. Handlers run on the current tokio
    /// runtime.
    pub fn volatile() -> KernelParts {
        KernelParts {
            settings: KernelSettings::default(),
            nonce: rand::random(),
            clock: SystemClock::start(CLOCK_SETTLE_MS),
            runtime: Handle::current(),
            rows: None,
            timers: Vec::new(),
            bus_feed: None,
            check_token: None,
            check_sender: None,
            audit_hook: None,
            records: None,
        }
    }
}

impl std::fmt::Debug for KernelParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelParts").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error("the loop's thread could not be started: {0}")]
    Thread(io::Error),
}

/// A handle to the loop for other threads. Cheap to clone. The loop ends by [`KernelHandle::stop`], or as in a crash
/// when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct KernelHandle {
    sender: KernelSender,
    shared: Arc<KernelShared>,
}

#[derive(Debug)]
struct KernelShared {
    settings: Arc<KernelSettings>,
    conns: Arc<AtomicU64>,
    counts: Arc<AtomicCounts>,
    goodbyes: mpsc::UnboundedSender<ConnId>,
    ended: watch::Receiver<bool>,
}

/// Counters and gauges of the loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelView {
    pub counters: Counters,
    pub gauges: Gauges,
    pub shell: ShellCounts,
}

impl KernelHandle {
    /// Starts the thread, boots the engine with the built-ins and these capabilities, and returns when every actor
    /// listens. The receiver gets the requests of the loop's own commands.
    pub async fn start(
        parts: KernelParts,
        capabilities: Vec<Capability>,
    ) -> Result<(KernelHandle, mpsc::Receiver<HostRequest>), KernelError> {
        let settings = Arc::new(parts.settings.clone());
        let (commands_in, commands) = mpsc::channel(settings.inbox_max.max(1));
        let (goodbyes_in, goodbyes) = mpsc::unbounded_channel();
        let (asked_in, asked) = mpsc::channel(ASKED_MAX);
        let (ended_in, ended) = watch::channel(false);
        let (booted_in, booted) = oneshot::channel();
        // The engine derives ids from the nonce itself: the same nonce here would make the same ids again.
        let sender = KernelSender {
            commands: commands_in,
            mint: Arc::new(Mint::new(!parts.nonce, parts.clock.clone())),
        };
        let counts = Arc::new(AtomicCounts::default());
        let conns = Arc::new(AtomicU64::new(1));
        let boot = Boot {
            parts,
            settings: settings.clone(),
            capabilities,
            sender: sender.clone(),
            counts: counts.clone(),
            conns: conns.clone(),
            commands,
            goodbyes,
            asked: asked_in,
            booted: booted_in,
        };
        let run = move || {
            boot.run();
            // A panic drops the sender, which the receivers see as the same.
            let _ = ended_in.send(true);
        };
        thread::Builder::new().name("millrace-loop".into()).spawn(run).map_err(KernelError::Thread)?;
        booted.await.map_err(|_| ChangeError::from(KernelEnded))??;
        let shared = KernelShared { settings, conns, counts, goodbyes: goodbyes_in, ended };
        Ok((KernelHandle { sender, shared: Arc::new(shared) }, asked))
    }

    pub fn sender(&self) -> &KernelSender {
        &self.sender
    }

    pub fn settings(&self) -> &KernelSettings {
        &self.shared.settings
    }

    /// Opens a new connection.
    pub async fn open(&self, by: Requester) -> Result<(OsSender, OsReceiver), KernelEnded> {
        let conn = ConnId(self.shared.conns.fetch_add(1, Ordering::Relaxed));
        let (lines_in, lines) = mpsc::unbounded_channel();
        let account = Arc::new(Account {
            permits: AtomicUsize::new(self.shared.settings.router.conn_messages_max),
            unsent_bytes: AtomicUsize::new(0),
            changed: Notify::new(),
        });
        let own_lines = lines_in.downgrade();
        self.sender.send(KernelCommand::Open { conn, by, lines: lines_in, account: account.clone() }).await?;
        let sender = OsSender {
            conn,
            kernel: self.sender.clone(),
            account: account.clone(),
            lines: own_lines,
            unsent_bytes_max: self.shared.settings.unsent_bytes_max,
            permits_max: self.shared.settings.router.conn_messages_max,
            goodbyes: self.shared.goodbyes.clone(),
        };
        Ok((sender, OsReceiver { lines, account }))
    }

    /// Removes the capabilities `gone`, after they have finished the messages they have, and installs `come`: all of it
    /// or nothing.
    pub async fn change(
        &self,
        gone: Vec<CapabilityId>,
        come: Vec<Capability>,
    ) -> Result<Vec<CapabilityId>, ChangeError> {
        let (done, is_done) = oneshot::channel();
        self.sender.send(KernelCommand::Change { gone, come, done }).await?;
        is_done.await.map_err(|_| KernelEnded)?
    }

    /// All capabilities of the start are installed: timers of the previous process may fire from now on. Further calls
    /// do nothing; [`KernelHandle::listen`] calls this, too.
    pub async fn begin(&self) -> Result<(), KernelEnded> {
        self.sender.send(KernelCommand::Begin).await
    }

    /// Accepts connections on the socket from now on.
    pub async fn listen(&self, listener: std::os::unix::net::UnixListener) -> Result<(), KernelEnded> {
        self.begin().await?;
        self.sender.send(KernelCommand::Listen { listener }).await?;
        // This command is behind `Listen` in the queue: once it is answered, the loop listens.
        self.sender.with_router(|_| ()).await
    }

    pub async fn view(&self) -> Result<KernelView, KernelEnded> {
        let (counters, gauges) =
            self.sender.with_router(|router| (*router.counters(), router.gauges())).await?;
        Ok(KernelView { counters, gauges, shell: self.shared.counts.view() })
    }

    /// Returns up to `max` timers that wait and that `by` may see, behind a place, the next one first.
    pub async fn timers(
        &self,
        by: Requester,
        after: Option<TimerPlace>,
        max: usize,
    ) -> Result<Vec<TimerView>, KernelEnded> {
        let mint = self.sender.mint.clone();
        self.sender.with_router(move |router| router.timer_page(mint.instant(), &by, after, max)).await
    }

    /// Returns a timer that waits, by its name, if `by` may see it.
    pub async fn timer(&self, by: Requester, name: String) -> Result<Option<TimerView>, KernelEnded> {
        let mint = self.sender.mint.clone();
        self.sender.with_router(move |router| router.timer_named(mint.instant(), &by, &name)).await
    }

    /// All capabilities, in the order in which they were installed.
    pub async fn capabilities(&self) -> Result<Vec<CapabilityView>, KernelEnded> {
        let (found, is_found) = oneshot::channel();
        self.sender.send(KernelCommand::Capabilities { found }).await?;
        is_found.await.map_err(|_| KernelEnded)
    }

    /// The open connections of the socket.
    pub async fn socket_connections(&self) -> Result<Vec<SocketConnection>, KernelEnded> {
        let (found, is_found) = oneshot::channel();
        self.sender.send(KernelCommand::SocketConnections { found }).await?;
        is_found.await.map_err(|_| KernelEnded)
    }

    /// Closes a connection of the socket at once. Its requests are carried out, but nobody gets the answers. Returns
    /// false if there is no such connection.
    pub async fn disconnect(&self, number: u64) -> Result<bool, KernelEnded> {
        let (done, is_done) = oneshot::channel();
        self.sender.send(KernelCommand::Disconnect { conn: ConnId(number), done }).await?;
        is_done.await.map_err(|_| KernelEnded)
    }

    /// Stops the loop: new messages are answered with 503, and after `grace` so is every request that still waits.
    /// Returns when every answer is written and the thread has ended.
    pub async fn stop(&self, grace: Duration) {
        if self.sender.send(KernelCommand::Stop { grace }).await.is_ok() {
            self.ended().await;
        }
    }

    /// Waits until the loop has ended: stopped, or by a panic.
    pub async fn ended(&self) {
        // An error means that the sender was dropped, and so the thread has ended.
        let _ = self.shared.ended.clone().wait_for(|ended| *ended).await;
    }
}

/// Everything that moves to the loop's thread.
struct Boot {
    parts: KernelParts,
    settings: Arc<KernelSettings>,
    capabilities: Vec<Capability>,
    sender: KernelSender,
    counts: Arc<AtomicCounts>,
    conns: Arc<AtomicU64>,
    commands: mpsc::Receiver<KernelCommand>,
    goodbyes: mpsc::UnboundedReceiver<ConnId>,
    asked: mpsc::Sender<HostRequest>,
    booted: oneshot::Sender<Result<(), KernelError>>,
}

impl Boot {
    fn run(self) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(self.booted.send(Err(KernelError::Thread(error)))),
        };
        let local = LocalSet::new();
        local.block_on(&runtime, self.boot());
        // Dropping the runtime drops the tasks that have not ended by themselves.
    }

    /// Boots in the order of RFC 0032, section 15. The socket is accepted on when [`KernelHandle::listen`] is called.
    async fn boot(self) {
        let Boot { parts, settings, capabilities, sender, counts, conns, commands, goodbyes, asked, booted } =
            self;
        let clock = parts.clock;
        let (local_queue, conns, commits) = (LocalQueue::new(), Conns::new(conns), Commits::default());
        let mut limits = settings.router.clone();
        limits.durable_timers &= parts.rows.is_some();
        limits.trace_effects = parts.records.is_some();
        let mut router = Router::new(limits, parts.nonce);
        let mut actors = Actors::new(
            local_queue.clone(),
            sender.clone(),
            parts.runtime,
            parts.bus_feed,
            settings.handover_ms,
        );
        let mut all = syscalls::all(&settings, parts.check_token.clone(), &asked);
        all.extend(capabilities);
        let all = all.into_iter().map(|one| one.of_origin(CapabilityOrigin::BuiltIn)).collect();
        let now = clock.now();
        if let Err(error) = actors.change(&mut router, now, &[], all) {
            notes::boot_failed(&error);
            return drop(booted.send(Err(error.into())));
        }
        spawn_local(commits.clone().run(parts.rows, local_queue.clone(), settings.commit_ops_max));
        let edge = Edge::new(
            settings.clone(),
            local_queue.clone(),
            conns.clone(),
            sender.mint.clone(),
            counts.clone(),
            parts.check_token,
            parts.audit_hook.clone(),
        );
        let timers = Some(parts.timers);
        let mut shell = Shell::new(settings, router, actors, conns, commits, counts, parts.records);
        shell.sender_check = SenderCheck { check_sender: parts.check_sender, audit_hook: parts.audit_hook };
        let (accepting, stop_now_at, alarm) = (None, None, Alarm::new());
        let run = KernelThread {
            shell,
            local_queue,
            edge,
            clock,
            commands,
            goodbyes,
            accepting,
            stop_now_at,
            alarm,
            timers,
        };
        // An error means that the caller of `start` is gone: nobody would stop the loop, so it does not run.
        if booted.send(Ok(())).is_ok() {
            run.run().await;
        }
    }
}
