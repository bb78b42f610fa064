//! A connection: reads and writes frames at the same time, neither waiting for the other. If both sides only wrote to
//! each other, both would block for ever.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{Sink, SinkExt, StreamExt};
use millrace_wire::{About, ErrorCode, ServerFrame};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use crate::command::ClientCommand;
use crate::dial::Socket;
use crate::ledger::Ledger;
use crate::request_queue::RequestQueue;

/// Most frames that wait for the socket; at this number no more commands are taken.
const OUTGOING_MAX: usize = 4096;
/// Most frames that are handled before anybody learns what they brought.
const BURST_FRAMES_MAX: usize = 128;
/// How long closing the connection may take.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// Why a connection ended, if the server did not say more.
const CLOSED: &str = "the server closed the connection";

pub(crate) enum SessionEnd {
    /// Closed on request, or because every handle is gone.
    Closed(Option<oneshot::Sender<()>>),
    Lost(ConnectionLoss),
}

/// How a connection ended that was not closed on request.
#[derive(Debug)]
pub(crate) struct ConnectionLoss {
    pub(crate) reason: String,
    /// A frame other than ERROR `moved` was received.
    pub(crate) heard: bool,
    /// The server does not lead its store, or leads no longer.
    pub(crate) moved: bool,
    /// The URL of the leader as the server wrote it, if it named one.
    pub(crate) leader: Option<Box<str>>,
}

impl ConnectionLoss {
    fn new(reason: impl Into<String>) -> ConnectionLoss {
        ConnectionLoss { reason: reason.into(), heard: false, moved: false, leader: None }
    }
}

type Writer = SplitSink<Socket, Message>;

pub(crate) async fn run(
    socket: Socket,
    commands: &mut RequestQueue,
    ledger: &mut Ledger,
    idle_timeout: Duration,
) -> SessionEnd {
    let mut received = Received::default();
    match exchange(socket, commands, ledger, idle_timeout, &mut received).await {
        Ok(done) => SessionEnd::Closed(done),
        Err(loss) => {
            let loss = received.moved.filter(|_| !loss.moved).unwrap_or(loss);
            SessionEnd::Lost(ConnectionLoss { heard: received.heard, ..loss })
        }
    }
}

/// The facts that received frames leave behind.
#[derive(Default)]
struct Received {
    /// A frame of a server that leads.
    heard: bool,
    /// A request was refused with `moved`. The server answers the others, too, and then closes the connection.
    moved: Option<ConnectionLoss>,
}

/// Exchanges frames until the connection is closed on request or lost.
async fn exchange(
    socket: Socket,
    commands: &mut RequestQueue,
    ledger: &mut Ledger,
    idle_timeout: Duration,
    received: &mut Received,
) -> Result<Option<oneshot::Sender<()>>, ConnectionLoss> {
    let (mut writer, mut reader) = socket.split();
    let mut unflushed = false;
    let mut last_heard = Instant::now();
    let beat = (idle_timeout / 3).max(Duration::from_millis(10));
    let mut ticks = interval_at(Instant::now() + beat, beat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let room = ledger.outgoing().len() < OUTGOING_MAX;
        unflushed |= !ledger.outgoing().is_empty();
        tokio::select! {
            frame = reader.next() => {
                last_heard = Instant::now();
                unflushed |= take_frames(frame, &mut reader, ledger, received).await?;
            }
            written = write_all(&mut writer, ledger.outgoing()), if unflushed => match written {
                Ok(()) => unflushed = false,
                Err(error) => return Err(ConnectionLoss::new(error.to_string())),
            },
            command = commands.next(), if room => {
                if let Some(done) = take_commands(command, commands, ledger) {
                    close(writer, reader, ledger).await;
                    return Ok(done);
                }
            }
            now = ticks.tick() => {
                if now.duration_since(last_heard) >= idle_timeout {
                    let reason = format!("nothing was heard for {} s", idle_timeout.as_secs_f32());
                    return Err(ConnectionLoss::new(reason));
                }
                // The server should have closed the connection long ago.
                if let Some(moved) = received.moved.take() {
                    return Err(moved);
                }
                ledger.subscribe_again();
                // Any frame proves that the server is alive; a PING is needed only when nothing was received.
                if now.duration_since(last_heard) >= beat {
                    ledger.beat();
                }
            }
        }
    }
}

/// Handles a frame and those that have arrived behind it, and then hands over what they brought: whoever waits for
/// several of them is woken once. Returns whether there is something to flush. When it fails, the caller reports the
/// loss to the ledger, which hands over, too.
async fn take_frames(
    first: Option<Result<Message, Error>>,
    reader: &mut SplitStream<Socket>,
    ledger: &mut Ledger,
    received: &mut Received,
) -> Result<bool, ConnectionLoss> {
    let (mut next, mut unflushed) = (first, false);
    for left in (0..BURST_FRAMES_MAX).rev() {
        match next {
            Some(Ok(Message::Text(text))) => on_frame(ledger, &text, received)?,
            Some(Ok(Message::Close(close))) => return Err(said_goodbye(close, ledger)),
            // tungstenite queues the pong itself; it leaves with the next flush.
            Some(Ok(Message::Ping(_))) => unflushed = true,
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(ConnectionLoss::new(error.to_string())),
            None => return Err(ConnectionLoss::new(CLOSED)),
        }
        if left == 0 {
            break;
        }
        match poll_fn(|context| Poll::Ready(reader.poll_next_unpin(context))).await {
            Poll::Ready(frame) => next = frame,
            Poll::Pending => break,
        }
    }
    ledger.hand_over();
    Ok(unflushed)
}

/// Handles a frame. Fails if the frame says that the server does not lead: it carries out nothing more, and closes the
/// connection next.
fn on_frame(ledger: &mut Ledger, text: &str, received: &mut Received) -> Result<(), ConnectionLoss> {
    match ServerFrame::parse(text) {
        Ok(ServerFrame::Error(error)) if error.code == ErrorCode::Moved => {
            let is_of_request = error.rid.is_some() || error.about != About::default();
            let (reason, leader) = (error.message.clone(), error.leader.clone());
            let loss = ConnectionLoss { moved: true, leader, ..ConnectionLoss::new(reason) };
            ledger.answer(ServerFrame::Error(error));
            if !is_of_request {
                return Err(loss);
            }
            received.moved = Some(loss);
        }
        Ok(frame) => {
            received.heard = true;
            ledger.answer(frame);
        }
        // A newer server may send frames that this client does not know.
        Err(error) => tracing::warn!(%error, "a frame of the server was not understood and is ignored"),
    }
    Ok(())
}

fn said_goodbye(close: Option<CloseFrame>, ledger: &mut Ledger) -> ConnectionLoss {
    let Some(close) = close else { return ConnectionLoss::new(CLOSED) };
    match close.code {
        CloseCode::Size => ledger.oversize(),
        // Usually ERROR `moved` came before. A proxy may close with this code, too, and with any text.
        CloseCode::Restart => {
            let leader = Some(close.reason.as_str()).filter(|reason| reason.contains("://")).map(Into::into);
            return ConnectionLoss { moved: true, leader, ..ConnectionLoss::new("the server does not lead") };
        }
        _ => {}
    }
    match close.reason.as_str() {
        "" => ConnectionLoss::new(CLOSED),
        reason => ConnectionLoss::new(format!("the server said: {reason}")),
    }
}

/// Handles the command and those that were taken together with it; their frames are sent with one flush. Returns `Some`
/// when the session is to end.
fn take_commands(
    first: Option<ClientCommand>,
    commands: &mut RequestQueue,
    ledger: &mut Ledger,
) -> Option<Option<oneshot::Sender<()>>> {
    let mut next = first;
    loop {
        match next {
            None => return Some(None),
            Some(ClientCommand::Close { done }) => return Some(Some(done)),
            Some(command) => ledger.command(command),
        }
        next = Some(commands.next_taken()?);
    }
}

/// Writes all queued frames. Cancel-safe: a frame leaves the queue only when the socket has taken it.
async fn write_all(writer: &mut Writer, outgoing: &mut VecDeque<Utf8Bytes>) -> Result<(), Error> {
    while !outgoing.is_empty() {
        poll_fn(|context| Pin::new(&mut *writer).poll_ready(context)).await?;
        if let Some(frame) = outgoing.pop_front() {
            writer.start_send_unpin(Message::Text(frame))?;
        }
    }
    writer.flush().await
}

/// Writes all queued frames, closes the WebSocket and waits for the server's close frame: then the server has read
/// everything.
async fn close(mut writer: Writer, mut reader: SplitStream<Socket>, ledger: &mut Ledger) {
    let goodbye = async {
        write_all(&mut writer, ledger.outgoing()).await?;
        writer.send(Message::Close(None)).await?;
        while let Some(Ok(frame)) = reader.next().await {
            match frame {
                Message::Text(text) => {
                    drop(on_frame(ledger, &text, &mut Received::default()));
                    ledger.hand_over();
                }
                Message::Close(_) => break,
                _ => {}
            }
        }
        Ok::<_, Error>(())
    };
    drop(tokio::time::timeout(CLOSE_MAX, goodbye).await);
}
