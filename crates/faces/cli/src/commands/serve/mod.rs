//! `millrace serve`: runs the broker.

mod demo;
mod engine_thread;
mod first_token;
mod followed_leader;
mod lead_watch;
mod otlp;
mod outbox_relay;
mod ready;
mod shared;
mod shared_progress;
mod shared_state;
mod supervisor;

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Command};
use millrace_child::Guard;
use millrace_server::{
    Changed, ClientAuthority, NotReloaded, Proof, Reload, Reloaded, Reloader, ServeError, Server, SocketFile,
    TlsFiles, TokenSettings, default_path,
};
use millrace_store::StoreError;
use millrace_stores::{OpenError, StoreUrl};
use millrace_telemetry::Exporter;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;

use self::first_token::Occasion;
use self::ready::Accepting;
pub(in crate::commands) use self::ready::reachable_from_here;
use crate::commands::opening::{self, Opening};
use crate::commands::{descriptors, file_size, guard, memory};
use crate::exposed;
use crate::failure::Failure;
use crate::log;
use crate::settings::{
    Config, Effective, SOCKET_DEFAULT, SOCKET_NONE, Scope, SettingSource, args, described, described_again,
    resolve,
};

pub(in crate::commands) fn command() -> Command {
    Command::new("serve")
        .about("Run the broker: WebSocket and HTTP on one port, the CQRS loop on a Unix socket beside it")
        .long_about(
            "Run the broker: WebSocket and HTTP on one port, the CQRS loop on a Unix socket beside it.\n\nWhen it accepts, one line of JSON on stdout says where. \
             SIGTERM or SIGINT ends it after what is in hand is finished; SIGHUP makes it read tokens, \
             certificate and capabilities again.\n\nWithout tokens everybody who can reach it may do \
             everything. Tokens are [[auth.tokens]] in the file (token or sha256, agent, scopes, namespaces): see \
             docs/access.md. --first-token FILE makes one.",
        )
        .args(args(&[Scope::Serve, Scope::Store, Scope::Socket, Scope::Bound]))
}

/// How long a stopped server waits until all its threads have closed the store. The last one to close it moves the
/// write-ahead log into the database, so that only one file is left; if closing takes longer, the next start does this.
const LET_GO_MAX: Duration = Duration::from_secs(5);

pub(in crate::commands) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let mut effective = resolve(matches)?;
    let log = log::start_keeping(&effective.config, "info");
    first_token::add(&mut effective.config, Occasion::Start)?;
    warn_of_exposed(&effective);
    let mut plan = ServePlan::of(&effective, matches)?;
    plan.config.server.log = log;
    let exporter = otlp::exporter(&plan.config)?;
    plan.config.server.tracer = exporter.as_ref().and_then(Exporter::tracer);
    descriptors::raise_limit(&plan.config);
    if let Some(warning) = exposed::store(&plan.store) {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    let result = runtime.block_on(async {
        file_size::refuse_instead_of_ending();
        match plan.store.clone() {
            StoreUrl::Shared(url) => plan.serve_shared(url).await,
            StoreUrl::Memory | StoreUrl::Sqlite(_) => plan.serve().await,
        }
    });
    match &result {
        Err(Failure::Interrupted(_)) | Ok(ServeEnd::WhileOpening | ServeEnd::Unwritten(_)) => {
            // Nothing may be waited for: neither threads nor a collector.
            std::mem::forget(exporter);
            runtime.shutdown_background();
        }
        _ => runtime.shutdown_timeout(LET_GO_MAX),
    }
    match result? {
        ServeEnd::Served | ServeEnd::WhileOpening => Ok(()),
        ServeEnd::Unwritten(why) => Err(Failure::Failed(why)),
    }
}

/// How a server ended that was asked to stop.
enum ServeEnd {
    Served,
    /// Asked to stop before the store was open: no client was served, and the thread that opens the store may wait for
    /// ever.
    WhileOpening,
    /// The grace time was over before all commits were written: the threads that wait for the disk may wait for ever.
    Unwritten(String),
}

fn warn_of_exposed(effective: &Effective) {
    for warning in exposed::secrets(effective) {
        tracing::warn!("{warning}");
    }
}

struct ServePlan {
    config: Config,
    listen: SocketAddr,
    probe_listen: Option<SocketAddr>,
    store: StoreUrl,
    /// Whether the durability was set explicitly and is not just the default.
    durability_asked: bool,
    /// Kept for reading the settings again.
    matches: ArgMatches,
}

impl ServePlan {
    fn of(effective: &Effective, matches: &ArgMatches) -> Result<ServePlan, Failure> {
        let mut config = effective.config.clone();
        let listen = address("listen", &config)?;
        let probe_listen = match config.probe_listen.is_empty() {
            true => None,
            false => Some(address("probe-listen", &config)?),
        };
        let others_reach = [Some(listen), probe_listen].iter().flatten().any(|addr| !addr.ip().is_loopback());
        if config.server.kernel.require_auth && config.server.tokens.is_empty() {
            // A reload cannot add the first token: closing an open server takes a restart.
            return Err(Failure::Usage(
                "require-auth is set and no token is configured, so nobody could enter: add one to the file of --config, \
                 [[auth.tokens]] with token = \"...\", agent = \"NAME\" and scopes = [\"os\"], or leave require-auth out"
                    .into(),
            ));
        }
        config.cluster.check().map_err(Failure::Usage)?;
        config.server.tls = tls_files(&config)?;
        config.server.described = described(effective).into();
        config.server.child.guard = Guard::this_program([guard::NAME]);
        if others_reach && config.server.tls.is_none() && !config.server.tokens.is_empty() {
            tracing::warn!(
                "tokens and events cross the network in plain text: give --tls-cert and --tls-key"
            );
        }
        let store = config.store.parse().map_err(|error| Failure::Usage(format!("store is {error}")))?;
        if config.demo && matches!(store, StoreUrl::Shared(_)) {
            return Err(Failure::Usage(format!(
                "demo is set and store is {store}, which other servers share: give a file (sqlite:///FILE) or memory:"
            )));
        }
        let durability_asked = *effective.source("durability") != SettingSource::Default;
        Ok(ServePlan { config, listen, probe_listen, store, durability_asked, matches: matches.clone() })
    }

    async fn serve(mut self) -> Result<ServeEnd, Failure> {
        // Before anything else, so that a signal during the start is not lost.
        let (mut first, mut second) = (StopSignals::new()?, StopSignals::new()?);
        let mut hangups = listen_for(SignalKind::hangup())?;
        // Before opening the store, so that a port in use does not leave a new store behind. Clients that connect now
        // wait.
        let listener = bind(self.listen).await?;
        let probe_listener = match self.probe_listen {
            Some(addr) => Some(bind(addr).await?),
            None => None,
        };
        let socket = self.socket()?;
        let opening = opening::open(&self.store, self.config.store_options.clone(), first.next()).await;
        let opened = match opening.map_err(|error| Failure::Failed(error.to_string()))? {
            Opening::Done(opened) => opened.map_err(|error| self.store_failure(&error))?,
            Opening::Stopped => {
                tracing::info!("stopped while the store was being opened");
                return Ok(ServeEnd::WhileOpening);
            }
        };
        if self.config.demo {
            let store = opened.store.clone();
            let checked = spawn_blocking(move || demo::refuse_foreign_topics(&*store)).await;
            checked.map_err(|error| Failure::Failed(error.to_string()))??;
        }
        let limits = &mut self.config.limits;
        if limits.durability > opened.durability_max {
            let (wanted, max) = (limits.durability.as_str(), opened.durability_max.as_str());
            if self.durability_asked {
                return Err(Failure::Usage(format!(
                    "durability is {wanted}: the store {} can promise {max} at most",
                    self.store
                )));
            }
            tracing::warn!("the store {} promises no more than durability {max}", self.store);
            limits.durability = opened.durability_max;
        }
        let mut accepting = Accepting::of(&self);
        let mut server =
            Server::start(self.config.server, opened.store.clone(), self.config.limits, listener)
                .await
                .map_err(|error| Failure::Failed(error.to_string()))?;
        accepting.addr = server.addr();
        if let Some(listener) = probe_listener {
            let addr = server.listen_probes(listener).map_err(|error| Failure::Failed(error.to_string()))?;
            accepting.probe = Some(addr);
        }
        if let Some((place, listener)) = socket {
            accepting.socket = Some(place.path().display().to_string());
            server
                .listen_socket(place, listener)
                .await
                .map_err(|error| Failure::Failed(error.to_string()))?;
        }
        let (reloader, matches) = (server.reloader(), self.matches);
        let (asked, with) = (reloader.clone(), matches.clone());
        server.on_reload(move || {
            let (reloader, matches) = (asked.clone(), with.clone());
            Box::pin(async move { reload(&reloader, matches).await })
        });
        let _demo = match self.config.demo {
            true => Some(demo::start(server.handle()).await?),
            false => None,
        };
        accepting.tell(self.store.to_string())?;
        supervisor::ready(format_args!("serves {} at {}", self.store, accepting.addr));
        let reloading = async {
            while hangups.recv().await.is_some() {
                reload_for_supervisor(&reloader, matches.clone()).await;
            }
            std::future::pending::<()>().await;
        };
        let asked_to_stop = async {
            first.next().await;
            tell_stopping();
        };
        let asked_twice = async {
            second.next().await;
            second.next().await;
        };
        let giving_back = memory::give_back_after_crowds(server.connections());
        tokio::select! {
            ran = server.run_until(asked_to_stop) => match ran {
                // Nothing confirmed is lost, so this is not a failure.
                Err(cut @ ServeError::CutShort { .. }) => {
                    tracing::warn!("{cut}");
                    Ok(ServeEnd::Served)
                }
                Err(unwritten @ ServeError::Unwritten { .. }) => Ok(ServeEnd::Unwritten(unwritten.to_string())),
                ran => ran.map(|()| ServeEnd::Served).map_err(|error| Failure::Failed(error.to_string())),
            },
            () = asked_twice => Err(Failure::Interrupted(None)),
            () = reloading => Ok(ServeEnd::Served),
            () = giving_back => Ok(ServeEnd::Served),
        }
    }

    /// Returns the socket of the CQRS loop. The default path may be in use by another server: then this server has no
    /// socket. With an explicit path this is an error.
    fn socket(&self) -> Result<Option<(SocketFile, UnixListener)>, Failure> {
        let path = match self.config.socket.as_str() {
            SOCKET_NONE => return Ok(None),
            SOCKET_DEFAULT => default_path(),
            path => PathBuf::from(path),
        };
        match SocketFile::bind(&path) {
            Ok(taken) => Ok(Some(taken)),
            Err(error) if self.config.socket == SOCKET_DEFAULT => {
                tracing::warn!("no NDJSON socket: {error} (--socket PATH, or --socket none)");
                Ok(None)
            }
            Err(error) => Err(Failure::Failed(error.to_string())),
        }
    }

    /// Returns exit code 1 for a store that exists but that another server uses or that is poisoned, else exit code 3
    /// (unreachable).
    fn store_failure(&self, error: &OpenError) -> Failure {
        let message = format!("store {}: {error}", self.store);
        match error {
            OpenError::Store(StoreError::InUse(_)) => Failure::Failed(message),
            OpenError::Store(StoreError::Poisoned(_)) => Failure::Failed(format!(
                "{message}; look at the disk, end every process that has the store open, and start again"
            )),
            _ => Failure::Unreachable(message),
        }
    }
}

/// Reloads tokens, certificate and capabilities from the files. If anything is wrong with them, the old ones stay in
/// force.
async fn reload(reloader: &Reloader, matches: ArgMatches) -> Result<String, NotReloaded> {
    let read = move || -> Result<Reload, NotReloaded> {
        let said = |failure: Failure| NotReloaded::from(failure.message().unwrap_or_default());
        let mut effective = resolve(&matches).map_err(said)?;
        first_token::add(&mut effective.config, Occasion::Reload).map_err(said)?;
        warn_of_exposed(&effective);
        let described = described_again(&effective);
        let config = effective.config;
        let tls = tls_files(&config).map_err(said)?;
        let (tokens, capabilities) = (config.server.tokens, config.server.capabilities);
        Ok(Reload { tokens, tls, capabilities, described })
    };
    let read = spawn_blocking(read).await.unwrap_or_else(|error| Err(NotReloaded(error.to_string())));
    let reloaded = match read {
        Ok(to) => reloader.reload(to).await.map_err(|error| NotReloaded(error.to_string())),
        Err(why) => Err(why),
    };
    match reloaded {
        Ok(Reloaded { tokens, revoked, capabilities }) => {
            tracing::info!(tokens, revoked, "tokens and certificate were read again");
            let Changed { added, replaced, removed } = capabilities;
            if !(added.is_empty() && replaced.is_empty() && removed.is_empty()) {
                tracing::info!(?added, ?replaced, ?removed, "capabilities were read again");
            }
            let list =
                |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Ok(format!(
                "{tokens} tokens, {revoked} revoked; capabilities added: {}; replaced: {}; removed: {}",
                list(added),
                list(replaced),
                list(removed)
            ))
        }
        Err(why) => {
            tracing::error!("not reloaded, everything stays as it was: {why}");
            Err(why)
        }
    }
}

/// Reloads as SIGHUP asks, and tells the supervisor, which may wait for the end of the reload that it asked for.
async fn reload_for_supervisor(reloader: &Reloader, matches: ArgMatches) {
    supervisor::reloading();
    // `reload` has logged the result.
    match reload(reloader, matches).await {
        Ok(changed) => supervisor::ready(changed),
        Err(why) => supervisor::ready(format_args!("not reloaded, everything stays as it was: {why}")),
    }
}

fn tell_stopping() {
    tracing::info!("stopping: a second signal ends it at once");
    supervisor::stopping();
}

/// Checks an address: one that other machines can reach needs access control, or the flag `--insecure`.
fn address(name: &str, config: &Config) -> Result<SocketAddr, Failure> {
    let text = if name == "listen" { &config.listen } else { &config.probe_listen };
    let addr: SocketAddr =
        text.parse().map_err(|error| Failure::Usage(format!("{name} is {text:?}: {error}")))?;
    if !addr.ip().is_loopback() && config.server.tokens.is_empty() && !config.server.insecure {
        return Err(Failure::Usage(format!(
            "{name} is {addr}, which others can reach, and no access control is configured: configure \
             [[auth.tokens]], let --first-token FILE make a token, give a loopback address such as 127.0.0.1:{}, or --insecure \
             if this is meant",
            addr.port()
        )));
    }
    Ok(addr)
}

async fn bind(addr: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(addr).await;
    bound.map_err(|error| Failure::Failed(format!("cannot listen on {addr}: {error}")))
}

fn tls_files(config: &Config) -> Result<Option<TlsFiles>, Failure> {
    match (config.tls_cert.as_str(), config.tls_key.as_str()) {
        ("", "") => match client_authority(config)? {
            None => Ok(None),
            Some(_) => Err(Failure::Usage(
                "tls-client-ca is given without tls-cert and tls-key: client certificates need TLS".into(),
            )),
        },
        ("", _) => Err(Failure::Usage("tls-key is given without tls-cert: give both".into())),
        (_, "") => Err(Failure::Usage("tls-cert is given without tls-key: give both".into())),
        (cert, key) => {
            Ok(Some(TlsFiles { cert: cert.into(), key: key.into(), client_ca: client_authority(config)? }))
        }
    }
}

/// Returns the authority of client certificates. Both settings are needed: the authority that signs them, and whom each
/// certificate stands for.
fn client_authority(config: &Config) -> Result<Option<ClientAuthority>, Failure> {
    let is_certificate = |token: &TokenSettings| matches!(token.proof, Proof::Certificate(_));
    let certificates = config.server.tokens.iter().filter(|token| is_certificate(token)).count();
    match (config.tls_client_ca.as_str(), certificates) {
        ("", 0) => Ok(None),
        ("", _) => Err(Failure::Usage(
            "auth.certificates is given without tls-client-ca: name the authority that signs them".into(),
        )),
        (_, 0) => Err(Failure::Usage(
            "tls-client-ca is given without auth.certificates: say whom each certificate stands for".into(),
        )),
        (file, _) => {
            let optional = certificates < config.server.tokens.len();
            Ok(Some(ClientAuthority { file: file.into(), optional }))
        }
    }
}

fn listen_for(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::Failed(format!("cannot listen for signals: {error}")))
}

struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> Result<StopSignals, Failure> {
        Ok(StopSignals {
            terminate: listen_for(SignalKind::terminate())?,
            interrupt: listen_for(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
