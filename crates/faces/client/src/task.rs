//! The background task: makes one connection after another, and handles commands between them.

use std::future::Future;

use tokio::sync::{oneshot, watch};

use crate::command::ClientCommand;
use crate::dial::{Socket, dial};
use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::ledger::Ledger;
use crate::options::ClientOptions;
use crate::outage::{NextStep, Outage};
use crate::request_queue::RequestQueue;
use crate::servers::ServerList;
use crate::session::{self, ConnectionLoss, SessionEnd};

struct Task {
    servers: ServerList,
    options: ClientOptions,
    commands: RequestQueue,
    ledger: Ledger,
    /// The server that the client is connected to.
    connected_to: watch::Sender<Option<Endpoint>>,
}

/// Why the task ends.
enum Stop {
    Closed(Option<oneshot::Sender<()>>),
    Failed(ClientError),
}

/// Connects to the first server that accepts, then runs the task in the background.
pub(crate) async fn start(
    options: ClientOptions,
    commands: RequestQueue,
    connected_to: watch::Sender<Option<Endpoint>>,
) -> Result<(), ClientError> {
    let servers = ServerList::parse(&options.urls)?.follow(options.follow_leader, options.token.is_some());
    let mut outage = Outage::first(servers.clone(), &options);
    let (endpoint, socket) = loop {
        let endpoint = outage.next_in_round()?;
        match dial(&endpoint, &options).await {
            Ok(socket) => break (endpoint, socket),
            Err(error) => outage.failed(error),
        }
    };
    connected_to.send_replace(Some(endpoint.clone()));
    let ledger = Ledger::new(options.resend, options.frame_bytes_max, commands.mailbox().clone());
    let mut task = Task { servers, options, commands, ledger, connected_to };
    tokio::spawn(async move {
        let (error, done) = match task.run(outage, endpoint, socket).await {
            Stop::Closed(done) => (ClientError::Closed, done),
            Stop::Failed(error) => (error, None),
        };
        task.connected_to.send_replace(None);
        task.end(&error);
        if let Some(done) = done {
            let _ = done.send(());
        }
    });
    Ok(())
}

impl Task {
    async fn run(&mut self, mut outage: Outage, mut endpoint: Endpoint, mut socket: Socket) -> Stop {
        loop {
            self.connected_to.send_replace(Some(endpoint.clone()));
            self.ledger.connected();
            let idle_timeout = self.options.idle_timeout;
            let ended = session::run(socket, &mut self.commands, &mut self.ledger, idle_timeout).await;
            self.connected_to.send_replace(None);
            let loss = match ended {
                SessionEnd::Closed(done) => return Stop::Closed(done),
                SessionEnd::Lost(loss) => loss,
            };
            self.ledger.lost(&loss.reason);
            // A server that answers nothing but `moved` belongs to connecting: the search for the leader goes on.
            let searching = loss.moved && !loss.heard;
            if !self.options.reconnect && !searching {
                return Stop::Failed(ClientError::Disconnected(loss.reason));
            }
            if loss.heard {
                outage = Outage::after(self.servers.clone(), &endpoint, &self.options);
            } else if !loss.moved {
                outage.restart_clock();
            }
            let leader = self.note(&loss, &endpoint, &mut outage);
            (endpoint, socket) = match self.reconnect(&mut outage).await {
                Ok(connected) => connected,
                Err(stop) => return stop,
            };
            let is_named = leader.as_ref() == Some(&endpoint);
            let waited = outage.elapsed().as_secs_f32();
            // Finding the leader at the start, and asking servers that may not lead, is no news.
            if outage.is_initial() || (searching && !is_named) {
                tracing::info!("connected after {waited:.1} s, to {endpoint}");
            } else {
                tracing::warn!("connected again after {waited:.1} s, to {endpoint}");
            }
        }
    }

    /// Logs why a connection ended. Returns the leader that the server at `by` named, if it may be followed.
    fn note(&self, loss: &ConnectionLoss, by: &Endpoint, outage: &mut Outage) -> Option<Endpoint> {
        if !loss.moved {
            tracing::warn!("connection lost ({}) to {by}, connecting again", loss.reason);
            return None;
        }
        let why = match loss.leader.as_deref().map(|named| (named, self.servers.leader(named, by))) {
            Some((_, Ok(leader))) => {
                tracing::info!("{by} does not lead its store, {leader} does");
                outage.moved(by, Some(&leader));
                return Some(leader);
            }
            Some((named, Err(refused))) => format!("names {named:?}, which is not followed: {refused}"),
            None => "names no server that does".to_owned(),
        };
        if outage.warn_once() {
            tracing::warn!("{by} does not lead its store and {why}; looking for the leader");
        } else {
            tracing::info!("{by} does not lead its store and {why}");
        }
        outage.moved(by, None);
        None
    }

    async fn reconnect(&mut self, outage: &mut Outage) -> Result<(Endpoint, Socket), Stop> {
        loop {
            let endpoint = match outage.next_step(&self.options, rand::random()) {
                NextStep::Try(endpoint) => endpoint,
                NextStep::Wait(delay) => {
                    self.meanwhile(tokio::time::sleep(delay)).await?;
                    continue;
                }
                NextStep::GiveUp(error) => return Err(Stop::Failed(error)),
            };
            let (target, options) = (endpoint.clone(), self.options.clone());
            match self.meanwhile(async move { dial(&target, &options).await }).await? {
                Ok(socket) => return Ok((endpoint, socket)),
                Err(error) => {
                    tracing::info!(%error, "cannot connect yet");
                    outage.failed(error);
                }
            }
        }
    }

    /// Runs `work` and takes commands meanwhile, so that no caller hangs on a full queue.
    async fn meanwhile<F: Future>(&mut self, work: F) -> Result<F::Output, Stop> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                output = &mut work => return Ok(output),
                command = self.commands.next() => match command {
                    Some(ClientCommand::Close { done }) => return Err(Stop::Closed(Some(done))),
                    Some(command) => self.ledger.command(command),
                    None => return Err(Stop::Closed(None)),
                },
            }
        }
    }

    /// Fails everything that waits, and everything that was queued and not handled.
    fn end(&mut self, error: &ClientError) {
        let unhandled = self.commands.end(error);
        self.ledger.fail_all(error);
        for command in unhandled {
            self.ledger.command(command);
            self.ledger.fail_all(error);
        }
    }
}
