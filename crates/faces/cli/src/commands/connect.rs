//! Shared by the commands that talk to a server: a runtime, a connection, and the end on Ctrl-C and SIGTERM.

use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use millrace_client::{Client, ClientCertificate, ClientOptions, check_socket, default_socket};
use millrace_model::Namespace;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::log;
use crate::settings::{Config, SOCKET_DEFAULT, SOCKET_NONE, resolve};

/// Runs `work` with a connected client until `work` is done or interrupted. In both cases the requests made of the
/// client before are still written to the socket.
pub(super) fn with_client<W>(matches: &ArgMatches, work: impl FnOnce(Client) -> W) -> Result<(), Failure>
where
    W: Future<Output = Result<(), Failure>>,
{
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    let result = runtime.block_on(async {
        let client = tokio::select! {
            client = Client::connect(client_options(&config)?) => client?,
            () = interrupted() => return Err(Failure::Interrupted(None)),
        };
        let result = tokio::select! {
            result = work(client.clone()) => result,
            () = interrupted() => Err(Failure::Interrupted(None)),
        };
        client.close().await;
        result
    });
    // A thread may still be waiting for a line of stdin that never comes.
    runtime.shutdown_background();
    result
}

pub(super) fn client_options(config: &Config) -> Result<ClientOptions, Failure> {
    let mut options = ClientOptions::new(&config.url);
    options.follow_leader = config.follow_leader;
    options.token = (!config.token.is_empty()).then(|| config.token.clone());
    options.tls_ca = (!config.tls_ca.is_empty()).then(|| config.tls_ca.clone().into());
    options.client_certificate = client_certificate(config)?;
    options.namespace =
        Namespace::new(&config.namespace).map_err(|error| Failure::Usage(error.to_string()))?;
    options.reconnect = config.reconnect_ms > 0;
    options.give_up_after = Some(Duration::from_millis(config.reconnect_ms));
    options.frame_bytes_max = config.server.frame_bytes_max;
    Ok(options)
}

/// Returns the certificate and key of `--client-cert` and `--client-key`, if given.
pub(crate) fn client_certificate(config: &Config) -> Result<Option<ClientCertificate>, Failure> {
    match (config.client_cert.as_str(), config.client_key.as_str()) {
        ("", "") => Ok(None),
        ("", _) => Err(Failure::Usage("client-key is given without client-cert: give both".into())),
        (_, "") => Err(Failure::Usage("client-cert is given without client-key: give both".into())),
        (cert, key) => Ok(Some(ClientCertificate { cert: cert.into(), key: key.into() })),
    }
}

/// Returns the path of the CQRS loop's socket of a server with the same settings.
pub(super) fn kernel_socket(config: &Config) -> Result<PathBuf, Failure> {
    match config.socket.as_str() {
        SOCKET_DEFAULT => {
            let path = default_socket();
            check_socket(&path).map_err(|error| Failure::Failed(format!("{error} with --socket PATH")))?;
            Ok(path)
        }
        SOCKET_NONE => {
            Err(Failure::Usage("socket is none: give the path of a server's socket, or default".into()))
        }
        path => Ok(path.into()),
    }
}

/// Waits for SIGINT (from the user) or SIGTERM (from a supervisor). If a signal's handler cannot be installed, that
/// signal is not waited for: the system then ends the process itself.
pub(super) async fn interrupted() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => {
            if pressed.is_err() {
                std::future::pending::<()>().await;
            }
        }
        () = terminated => {}
    }
}
