//! The background task: makes one connection after another, and handles commands between them.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{self, http};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_tls_with_config};

use crate::backoff::Backoff;
use crate::command::ClientCommand;
use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::ledger::Ledger;
use crate::options::ClientOptions;
use crate::session::{self, SessionEnd};
use crate::tls;

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Most bytes of a refusal's body that are shown.
const DETAIL_BYTES_MAX: usize = 300;

struct Task {
    endpoint: Endpoint,
    options: ClientOptions,
    commands: mpsc::Receiver<ClientCommand>,
    ledger: Ledger,
}

/// Why the task ends.
enum Stop {
    Closed(Option<oneshot::Sender<()>>),
    Failed(ClientError),
}

/// Connects, then runs the task in the background.
pub(crate) async fn start(
    endpoint: Endpoint,
    options: ClientOptions,
    commands: mpsc::Receiver<ClientCommand>,
    ended: Arc<OnceLock<ClientError>>,
) -> Result<(), ClientError> {
    let socket = connect(&endpoint, &options).await?;
    let ledger = Ledger::new(options.resend, options.frame_bytes_max);
    let mut task = Task { endpoint, options, commands, ledger };
    tokio::spawn(async move {
        let (error, done) = match task.run(socket).await {
            Stop::Closed(done) => (ClientError::Closed, done),
            Stop::Failed(error) => (error, None),
        };
        // Set before the queue is closed, so that a caller who finds it closed finds the reason.
        ended.get_or_init(|| error.clone());
        task.ledger.fail_all(&error);
        task.refuse_queued(&error);
        if let Some(done) = done {
            let _ = done.send(());
        }
    });
    Ok(())
}

impl Task {
    async fn run(&mut self, mut socket: Socket) -> Stop {
        let mut backoff = Backoff::new(self.options.backoff_start, self.options.backoff_max);
        loop {
            self.ledger.connected();
            let idle_timeout = self.options.idle_timeout;
            let reason = match session::run(socket, &mut self.commands, &mut self.ledger, idle_timeout).await
            {
                SessionEnd::Closed(done) => return Stop::Closed(done),
                SessionEnd::Lost(reason) => reason,
            };
            self.ledger.lost(&reason);
            if !self.options.reconnect {
                return Stop::Failed(ClientError::Disconnected(reason));
            }
            tracing::warn!("connection lost ({reason}), connecting again");
            backoff.reset();
            let lost = Instant::now();
            socket = match self.reconnect(&mut backoff, lost).await {
                Ok(socket) => socket,
                Err(stop) => return stop,
            };
            tracing::warn!("connected again after {:.1} s", lost.elapsed().as_secs_f32());
        }
    }

    async fn reconnect(&mut self, backoff: &mut Backoff, lost: Instant) -> Result<Socket, Stop> {
        loop {
            // The last attempt is made when `give_up_after` is over, not one delay later.
            let left = self.options.give_up_after.map(|max| max.saturating_sub(lost.elapsed()));
            let delay = backoff.next(rand::random()).min(left.unwrap_or(Duration::MAX));
            self.meanwhile(tokio::time::sleep(delay)).await?;
            let (endpoint, options) = (self.endpoint.clone(), self.options.clone());
            match self.meanwhile(async move { connect(&endpoint, &options).await }).await? {
                Ok(socket) => return Ok(socket),
                // Waiting does not correct a wrong token, origin or path. Any other status may come from a proxy.
                Err(error @ ClientError::Rejected { status: 401 | 403 | 404, .. }) => {
                    return Err(Stop::Failed(error));
                }
                Err(error) if self.options.give_up_after.is_some_and(|max| lost.elapsed() >= max) => {
                    return Err(Stop::Failed(gave_up(error, lost.elapsed())));
                }
                Err(error) => tracing::info!(%error, "cannot connect yet"),
            }
        }
    }

    /// Runs `work` and takes commands meanwhile, so that no caller hangs on a full queue.
    async fn meanwhile<F: Future>(&mut self, work: F) -> Result<F::Output, Stop> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                output = &mut work => return Ok(output),
                command = self.commands.recv() => match command {
                    Some(ClientCommand::Close { done }) => return Err(Stop::Closed(Some(done))),
                    Some(command) => self.ledger.command(command),
                    None => return Err(Stop::Closed(None)),
                },
            }
        }
    }

    fn refuse_queued(&mut self, error: &ClientError) {
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            self.ledger.command(command);
            self.ledger.fail_all(error);
        }
    }
}

async fn connect(endpoint: &Endpoint, options: &ClientOptions) -> Result<Socket, ClientError> {
    let url = endpoint.ws_url(&options.namespace);
    let bad = |reason: String| ClientError::BadUrl { url: options.url.clone(), reason };
    let mut request = url.as_str().into_client_request().map_err(|error| bad(error.to_string()))?;
    if let Some(token) = &options.token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| bad("the token holds characters that no header may hold".into()))?;
        value.set_sensitive(true);
        request.headers_mut().insert(http::header::AUTHORIZATION, value);
    }
    let connector = endpoint.tls.then(|| tls::connector(options)).transpose()?;
    let disable_nagle = true;
    let unreachable = |reason| Err(ClientError::Unreachable { url: options.url.clone(), reason });
    let connecting = connect_async_tls_with_config(request, None, disable_nagle, connector);
    match tokio::time::timeout(options.connect_timeout, connecting).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(tungstenite::Error::Http(response))) => Err(rejected(&options.url, &response)),
        Ok(Err(error)) => unreachable(reason_of(&error)),
        Err(_) => unreachable(format!("no answer within {} s", options.connect_timeout.as_secs_f32())),
    }
}

/// Adds to the error of the last attempt how long reconnecting was tried.
fn gave_up(error: ClientError, tried: Duration) -> ClientError {
    match error {
        ClientError::Unreachable { url, reason } => {
            let reason =
                format!("{reason} (gave up after trying to reconnect for {:.1} s)", tried.as_secs_f32());
            ClientError::Unreachable { url, reason }
        }
        error => error,
    }
}

fn rejected(url: &str, response: &http::Response<Option<Vec<u8>>>) -> ClientError {
    let body = response.body().as_deref().unwrap_or_default();
    let detail = serde_json::from_slice::<millrace_wire::http::Problem>(body)
        .map(|problem| problem.detail)
        .unwrap_or_else(|_| String::from_utf8_lossy(&body[..body.len().min(DETAIL_BYTES_MAX)]).into_owned());
    ClientError::Rejected { url: url.into(), status: response.status().as_u16(), detail }
}

fn reason_of(error: &tungstenite::Error) -> String {
    tls::in_plain_words(match error {
        tungstenite::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    })
}
