//! `millrace serve` on a store that several servers share: follows, leads when the lead is free, and follows again
//! when another server has taken it. The listeners stay open all the time.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use millrace_server::{AdvertisedUrl, FollowedStore, Follower, Reload, Reloader, ServeError, Server};
use millrace_store::{Store, StoreError};
use millrace_stores::{
    CopyNumber, JournalStore, OpenError, SharedSettings, SharedStore, SharedUrl, StoreOptions, open_followed,
    open_followed_again,
};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::commands::memory;
use crate::commands::serve::engine_thread::EngineThread;
use crate::commands::serve::followed_leader::FollowedLeader;
use crate::commands::serve::shared_progress::ShownProgress;
use crate::commands::serve::shared_state::SharedState;
use crate::commands::serve::{
    Accepting, ServeEnd, ServePlan, StopSignals, bind, lead_watch, listen_for, outbox_relay, reload,
    reload_for_supervisor, supervisor, tell_stopping,
};
use crate::failure::Failure;

/// How long the lead may take to be given back when the server stops; after that others wait for the lead timeout.
const STEP_DOWN_MAX: Duration = Duration::from_secs(5);
/// The pause before a store that failed is opened again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// The parts of a server that outlive the changes between following and leading.
struct SharedServer {
    plan: ServePlan,
    url: SharedUrl,
    options: StoreOptions,
    state: Arc<SharedState>,
    listener: StdTcpListener,
    probe_listener: Option<StdTcpListener>,
    stopping: watch::Receiver<bool>,
    /// The reloader of whichever part runs now.
    reloader: Arc<Mutex<Option<Reloader>>>,
    is_ready_said: bool,
    /// Remarks of the engine that were logged. Bounded by what the engines have to remark.
    remarks_told: BTreeSet<String>,
    /// The copy that this server has opened before.
    copy: Option<CopyNumber>,
}

/// Why the server does not follow or lead any more.
enum PartEnd {
    Stopped(ServeEnd),
    /// The store has to be opened again.
    Again(String),
}

impl ServePlan {
    pub(super) async fn serve_shared(self, url: SharedUrl) -> Result<ServeEnd, Failure> {
        let (mut first, mut second) = (StopSignals::new()?, StopSignals::new()?);
        let mut hangups = listen_for(SignalKind::hangup())?;
        let listener = bind(self.listen).await?;
        let addr = listener.local_addr().map_err(io_failure)?;
        let probe_listener = match self.probe_listen {
            Some(addr) => Some(bind(addr).await?.into_std().map_err(io_failure)?),
            None => None,
        };
        let (stop, stopping) = watch::channel(false);
        let reloader: Arc<Mutex<Option<Reloader>>> = Arc::default();
        let matches = self.matches.clone();
        let server = SharedServer {
            options: self.shared_options(addr)?,
            url,
            state: Arc::new(SharedState::new()),
            listener: listener.into_std().map_err(io_failure)?,
            probe_listener,
            stopping,
            reloader: reloader.clone(),
            is_ready_said: false,
            remarks_told: BTreeSet::new(),
            copy: None,
            plan: self,
        };
        let reloading = async {
            while hangups.recv().await.is_some() {
                let running = reloader.lock().clone();
                if let Some(running) = running {
                    reload_for_supervisor(&running, matches.clone()).await;
                }
            }
            std::future::pending::<()>().await;
        };
        let stop_asked = async {
            first.next().await;
            tell_stopping();
            stop.send_replace(true);
            std::future::pending::<()>().await;
        };
        let asked_twice = async {
            second.next().await;
            second.next().await;
        };
        tokio::select! {
            ended = server.run() => ended,
            () = asked_twice => Err(Failure::Interrupted(None)),
            () = stop_asked => Ok(ServeEnd::Served),
            () = reloading => Ok(ServeEnd::Served),
        }
    }

    fn shared_options(&self, addr: SocketAddr) -> Result<StoreOptions, Failure> {
        let cluster = &self.config.cluster;
        let advertised = match cluster.advertise.as_str() {
            "" => AdvertisedUrl::of_listener(addr, self.config.server.tls.is_some()),
            given => given.parse().map_err(|error| Failure::Usage(format!("advertise is {error}")))?,
        };
        if let Some(doubt) = advertised.doubt() {
            tracing::warn!("{doubt}");
        }
        let given = |value: u64| (value > 0).then_some(value);
        let shared = SharedSettings {
            cache: cluster.cache.clone().into(),
            advertise: advertised.to_string(),
            lead_timeout_ms: given(cluster.lead_timeout_ms),
            follow_ms: given(cluster.follow_ms),
            commit_interval_ms: given(cluster.commit_interval_ms),
            store_wait_ms: given(cluster.store_wait_ms),
            snapshot_bytes: None,
        };
        Ok(StoreOptions { shared, ..self.config.store_options.clone() })
    }
}

fn io_failure(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

impl SharedServer {
    async fn run(mut self) -> Result<ServeEnd, Failure> {
        loop {
            let follower = self.start_follower()?;
            let shared = match self.open().await {
                Ok(Some(shared)) => shared,
                Ok(None) => return self.stopped_opening(follower).await,
                // The store has worked before: whatever is wrong with the engine now may be mended by its operator.
                Err(error) if self.copy.is_some() => {
                    self.wait_before_opening(&error.to_string()).await;
                    self.end_follower(follower).await;
                    if *self.stopping.borrow() {
                        return Ok(ServeEnd::Served);
                    }
                    continue;
                }
                Err(error) => return Err(self.plan.store_failure(&error)),
            };
            self.copy = Some(shared.copy);
            self.refuse_durability(&shared)?;
            self.tell_remarks(&shared.store);
            self.state.open(shared.store.clone(), false);
            let ended = match self.follow(&shared.store).await {
                None => {
                    self.state.open(shared.store.clone(), true);
                    self.lead(follower, &shared).await?
                }
                Some(ended) => {
                    self.end_follower(follower).await;
                    ended
                }
            };
            match ended {
                PartEnd::Stopped(ended) => {
                    give_lead_back(shared.store).await;
                    return Ok(ended);
                }
                PartEnd::Again(reason) => {
                    tracing::warn!("the shared store is opened again: {reason}");
                    self.state.cannot_open(reason);
                    // A leader whose copy is lost still knows the end of the journal: others need not wait for the timeout.
                    give_lead_back(shared.store.clone()).await;
                    shared.store.close();
                    drop(shared);
                    sleep(REOPEN_PAUSE).await;
                }
            }
        }
    }

    /// Takes over what the last reload of the part that ends has brought: a token that was removed stays removed,
    /// whichever part this server plays next.
    fn keep_reloaded(&mut self) -> Option<Reload> {
        let reloaded = self.reloader.lock().as_ref().and_then(Reloader::reloaded)?;
        let server = &mut self.plan.config.server;
        server.described = reloaded.described_after(&server.described);
        let Reload { tokens, tls, capabilities, .. } = reloaded.clone();
        (server.tokens, server.tls, server.capabilities) = (tokens, tls, capabilities);
        Some(reloaded)
    }

    fn start_follower(&mut self) -> Result<Follower, Failure> {
        self.keep_reloaded();
        let config = &self.plan.config;
        let listener = clone_listener(&self.listener)?;
        let mut follower =
            Follower::start(config.server.clone(), self.state.clone(), &config.limits, listener)
                .map_err(serve_failure)?;
        let mut accepting = Accepting { addr: follower.addr(), ..Accepting::of(&self.plan) };
        if let Some(listener) = &self.probe_listener {
            accepting.probe = Some(follower.listen_probes(clone_listener(listener)?).map_err(serve_failure)?);
        }
        if let Some((place, listener)) = self.plan.socket()? {
            accepting.socket = Some(place.path().display().to_string());
            follower.listen_socket(place, listener).map_err(serve_failure)?;
        }
        *self.reloader.lock() = Some(follower.reloader());
        if !self.is_ready_said {
            accepting.tell(self.plan.store.to_string())?;
            self.is_ready_said = true;
        }
        supervisor::ready(format_args!("follows {} at {}", self.plan.store, accepting.addr));
        Ok(follower)
    }

    /// Opens the store, as long as that takes; `None` when the server is to stop.
    async fn open(&mut self) -> Result<Option<SharedStore>, OpenError> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (url, options, copy) = (self.url.clone(), self.options.clone(), self.copy);
        let (state, stop) = (self.state.clone(), is_stopped.clone());
        let mut opening = spawn_blocking(move || {
            let mut progress = ShownProgress::new(state, stop);
            match copy {
                None => open_followed(&url, &options, &mut progress),
                Some(copy) => open_followed_again(&url, &options, copy, &mut progress),
            }
        });
        let opened = tokio::select! {
            opened = &mut opening => opened,
            () = stop_asked(&mut self.stopping) => {
                is_stopped.store(true, Relaxed);
                return Ok(None);
            }
        };
        match opened {
            Ok(opened) => opened.map(Some),
            Err(error) => Err(OpenError::Address(error.to_string())),
        }
    }

    async fn stopped_opening(self, follower: Follower) -> Result<ServeEnd, Failure> {
        tracing::info!("stopped while the shared store was being opened");
        self.end_follower(follower).await;
        Ok(ServeEnd::WhileOpening)
    }

    async fn wait_before_opening(&mut self, reason: &str) {
        tracing::error!("the shared store cannot be opened, the next attempt follows: {reason}");
        self.state.cannot_open(reason.to_owned());
        tokio::select! {
            () = sleep(REOPEN_PAUSE) => {}
            () = stop_asked(&mut self.stopping) => {}
        }
    }

    async fn end_follower(&self, follower: Follower) {
        drop(follower.stop().await);
    }

    /// Logs what an operator should know about the engine, once for each text.
    fn tell_remarks(&mut self, store: &JournalStore) {
        for remark in &store.fitness().remarks {
            if self.remarks_told.insert(remark.clone()) {
                tracing::warn!(store = %self.url, "{remark}");
            }
        }
    }

    /// Every commit of a shared store reaches the same level: a server that was told to wait for more must not start.
    fn refuse_durability(&mut self, shared: &SharedStore) -> Result<(), Failure> {
        let limits = &mut self.plan.config.limits;
        if limits.durability > shared.durability && self.plan.durability_asked {
            let (wanted, max) = (limits.durability.as_str(), shared.durability.as_str());
            return Err(Failure::Usage(format!(
                "durability is {wanted}: the store {} can promise {max} at most",
                self.url
            )));
        }
        limits.durability = shared.durability;
        Ok(())
    }

    /// Follows until the lead is free and this server has taken it: `None`.
    async fn follow(&mut self, store: &Arc<JournalStore>) -> Option<PartEnd> {
        let pause = Duration::from_millis(store.settings().follow_ms.max(10));
        let engine = match EngineThread::start("millrace-follow") {
            Ok(engine) => engine,
            Err(error) => return Some(PartEnd::Again(format!("no thread could be started: {error}"))),
        };
        let mut followed = FollowedLeader::default();
        loop {
            let candidate = store.clone();
            let led = tokio::select! {
                led = engine.call(move || candidate.try_lead()) => led,
                () = stop_asked(&mut self.stopping) => {
                    store.close();
                    return Some(PartEnd::Stopped(ServeEnd::Served));
                }
            };
            match led {
                Some(Ok(true)) => return None,
                Some(Ok(false)) => followed.tell(&store.status(), &store.settings().url),
                // A full disk under the copy, for example: the next round tries again.
                Some(Err(error)) if error.may_be_retried() => tracing::warn!("cannot follow: {error}"),
                Some(Err(error)) => return Some(PartEnd::Again(error.to_string())),
                None => return Some(PartEnd::Again("following ended unexpectedly".to_owned())),
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = stop_asked(&mut self.stopping) => {
                    store.close();
                    return Some(PartEnd::Stopped(ServeEnd::Served));
                }
            }
        }
    }

    async fn lead(&mut self, follower: Follower, shared: &SharedStore) -> Result<PartEnd, Failure> {
        let kept = self.keep_reloaded();
        let mut config = self.plan.config.clone();
        let event_bytes_max = config.server.frame_bytes_max;
        // A commit waits for the network: no connection's task may do it, and a record has an upper size.
        config.server.broker.inline_commits = false;
        config.server.broker.commit_bytes_max =
            config.server.broker.commit_bytes_max.min(millrace_model::BATCH_BYTES_MAX);
        follower.stop_accepting();
        let store: Arc<dyn Store> = shared.store.clone();
        let started =
            Server::start(config.server, store, config.limits, clone_listener(&self.listener)?).await;
        let mut server = match started {
            Ok(server) => server,
            Err(error) => {
                self.end_follower(follower).await;
                // The lead may have been lost while the engine's state was read.
                return match shared.store.ended() {
                    Some(ended) => Ok(PartEnd::Again(ended.to_string())),
                    None => Err(serve_failure(error)),
                };
            }
        };
        server.share_store(self.state.clone() as Arc<dyn FollowedStore>);
        if let Some(listener) = &self.probe_listener {
            server.listen_probes(clone_listener(listener)?).map_err(serve_failure)?;
        }
        // The socket's name is free only when the follower has given it up.
        self.end_follower(follower).await;
        if let Some((place, listener)) = self.plan.socket()? {
            server.listen_socket(place, listener).await.map_err(serve_failure)?;
        }
        let (asked, with) = (server.reloader(), self.plan.matches.clone());
        let before = self.reloader.lock().replace(asked.clone());
        let missed = before.and_then(|before| before.reloaded()).filter(|last| Some(last) != kept.as_ref());
        if let Some(missed) = missed
            && let Err(error) = asked.reload(missed).await
        {
            tracing::error!("what was reloaded while this server took the lead is not in force: {error}");
        }
        server.on_reload(move || {
            let (reloader, matches) = (asked.clone(), with.clone());
            Box::pin(async move { reload(&reloader, matches).await })
        });
        self.state.open(shared.store.clone(), false);
        tracing::info!("this server leads: it serves everything");
        supervisor::status(format_args!("leads {} at {}", self.plan.store, server.addr()));
        let relay = outbox_relay::start(shared.store.clone(), server.handle(), event_bytes_max);
        let giving_back = memory::give_back_after_crowds(server.connections());
        let watching = lead_watch::watch(shared.store.clone(), server.deposer(), server.lead_doubter());
        let mut stopping = self.stopping.clone();
        let ran = tokio::select! {
            ran = server.run_until(async move { stop_asked(&mut stopping).await }) => ran,
            () = watching => Ok(()),
            () = giving_back => Ok(()),
        };
        relay.stop();
        let is_stopping = *self.stopping.borrow();
        match ran {
            Ok(()) => Ok(PartEnd::Stopped(ServeEnd::Served)),
            Err(cut @ ServeError::CutShort { .. }) if is_stopping => {
                tracing::warn!("{cut}");
                Ok(PartEnd::Stopped(ServeEnd::Served))
            }
            Err(unwritten @ ServeError::Unwritten { .. }) if is_stopping => {
                shared.store.close();
                Ok(PartEnd::Stopped(ServeEnd::Unwritten(unwritten.to_string())))
            }
            Err(ServeError::Fallen) => Err(serve_failure(ServeError::Fallen)),
            Err(error) => Ok(PartEnd::Again(error.to_string())),
        }
    }
}

/// Gives the lead back, so that another server takes it at once. A server that cannot reach its engine just ends.
async fn give_lead_back(store: Arc<JournalStore>) {
    if !store.leads() {
        return;
    }
    let leader = store.clone();
    let gave = tokio::time::timeout(STEP_DOWN_MAX, spawn_blocking(move || leader.step_down())).await;
    match gave {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(StoreError::Closed(_)))) => {}
        // Told when the handle ended: the engine refuses, or has lost records.
        Ok(Ok(Err(error))) if store.ended().as_ref() == Some(&error) => {}
        Ok(Ok(Err(error))) => tracing::warn!("the lead could not be given back: {error}"),
        _ => tracing::warn!("the lead could not be given back in time: others take it after the timeout"),
    }
    store.close();
}

async fn stop_asked(stopping: &mut watch::Receiver<bool>) {
    // The sender lives as long as the server runs.
    let _ = stopping.wait_for(|is_asked| *is_asked).await;
}

fn clone_listener(listener: &StdTcpListener) -> Result<TcpListener, Failure> {
    let clone = listener.try_clone().and_then(|clone| {
        clone.set_nonblocking(true)?;
        TcpListener::from_std(clone)
    });
    clone.map_err(io_failure)
}

fn serve_failure(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}
