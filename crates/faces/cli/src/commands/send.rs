//! `millrace send`: sends lines to the CQRS loop's socket and prints every outcome as it arrives.
//!
//! Lines are sent unchanged, also those that are no valid message: the server says what is wrong with them. Only
//! missing metadata is added, so that a message can be typed by hand.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use millrace_client::{EventId, JsonText, OsId, OsKind, OsMessage, Timestamp};
use millrace_wire::os::{Lenient, Line, LineSplitter, encode, parse};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, stdin, stdout};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;

use crate::commands::connect::{interrupted, kernel_socket};
use crate::commands::send_typed::{self, Typed};
use crate::commands::{json_flag, now, text};
use crate::failure::Failure;
use crate::log;
use crate::settings::{Scope, args, resolve};

/// The longest line of stdin or of the server that is buffered.
const LINE_BYTES_MAX: usize = 16 << 20;
const READ_BYTES: usize = 64 << 10;

pub(super) fn command() -> Command {
    Command::new("send")
        .about("Send messages to the CQRS loop and print the outcomes")
        .long_about(
            "Sends one OsMessage, or one per line of stdin, to the server's NDJSON socket and prints every outcome \
             as one line, in order of arrival.\n\nLines go as they are. Metadata that is absent is added: an id (UUID) and \
             the time; so '{\"kind\":\"query\",\"type\":\"Syscall.Ping\",\"data\":{\"payload\":1}}' is enough.\n\n\
             Or give a TYPE such as Memory.Get, and its DATA: the rest is made. The server says of \
             which kind a request is; --kind event sends an event.\n\nEnds with 0 when every request got a reply, with 1 if an outcome was an error or is missing.",
        )
        .arg(
            Arg::new("message")
                .value_name("JSON|TYPE|-")
                .help("The message, or its type; - or nothing: one message per line of stdin"),
        )
        .args(send_typed::args())
        .arg(
            Arg::new("wait-ms")
                .long("wait-ms")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..))
                .default_value("60000")
                .help("How long to wait for outcomes after the last line was sent"),
        )
        .arg(token_arg())
        .arg(json_flag().help("Accepted for symmetry: outcomes are JSON anyway"))
        .args(args(&[Scope::Socket]))
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let typed = Typed::of(matches)?;
    let message = match text(matches, "message") {
        None if std::io::stdin().is_terminal() => {
            return Err(Failure::Usage(
                "the message is missing: give JSON, or - to read one message per line".into(),
            ));
        }
        None | Some("-") => None,
        Some(text) => Some(one_line_if_json(text)),
    };
    let config = resolve(matches)?.config;
    log::start(&config, "warn");
    let path = kernel_socket(&config)?;
    let wait = Duration::from_millis(matches.get_one::<u64>("wait-ms").copied().unwrap_or_default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    let result = runtime.block_on(async {
        tokio::select! {
            result = async {
                let message = match typed {
                    Some(typed) => Some(typed.message(&path, &config.token).await?),
                    None => message,
                };
                exchange(&path, &config.token, message, wait).await
            } => result,
            () = interrupted() => Err(Failure::Interrupted(None)),
        }
    });
    // A thread may still be waiting for a line of stdin that never comes.
    runtime.shutdown_background();
    result
}

/// Joins a message given over several lines. Text that is no JSON is sent unchanged, so that the server judges it.
fn one_line_if_json(text: &str) -> String {
    JsonText::parse(text.trim()).map_or_else(|_| text.into(), |json| json.as_str().into())
}

async fn exchange(path: &Path, token: &str, message: Option<String>, wait: Duration) -> Result<(), Failure> {
    let stream = UnixStream::connect(path)
        .await
        .map_err(|error| Failure::Unreachable(format!("cannot reach {}: {error}", path.display())))?;
    let (mut reader, mut writer) = stream.into_split();
    let mut early = Vec::new();
    if !token.is_empty() {
        let greeted = tokio::time::timeout(wait, greet(token, &mut reader, &mut writer)).await;
        let silent = |_| {
            let waited = wait.as_millis();
            Failure::Failed(format!(
                "the server said nothing to the token within {waited} ms; nothing was sent"
            ))
        };
        early = greeted.map_err(silent)??;
    }
    let tally = RefCell::new(RequestTally::default());
    let sending = async {
        match message {
            Some(text) => send(text.as_bytes(), writer, &tally).await,
            None => send(stdin(), writer, &tally).await,
        }
    };
    let receiving = receive(early.as_slice().chain(reader), &tally);
    tokio::pin!(sending, receiving);
    let mut deadline = None;
    let end = loop {
        let due = deadline.unwrap_or_else(Instant::now);
        tokio::select! {
            sent = &mut sending, if deadline.is_none() => {
                sent?;
                deadline = Some(Instant::now() + wait);
            }
            received = &mut receiving => {
                received?;
                break "the server closed the connection".to_owned();
            }
            () = tokio::time::sleep_until(due), if deadline.is_some() => {
                break format!("no more came within {} ms", wait.as_millis());
            }
        }
    };
    tally.borrow().verdict(&end)
}

/// Sends the token and waits for the server's answer. After a refused token nothing else is sent: a client that has a
/// token must not act anonymously. Returns the bytes that came after the answer.
async fn greet(
    token: &str,
    reader: &mut OwnedReadHalf,
    writer: &mut OwnedWriteHalf,
) -> Result<Vec<u8>, Failure> {
    let (line, id) = greeting(token)?;
    // A write error is ignored: if the server is gone, reading its answer fails below.
    let _ = writer.write_all(&line).await;
    let mut splitter = LineSplitter::new(LINE_BYTES_MAX);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let bytes = reader.read(&mut buffer).await.unwrap_or(0);
        let mut rest = &buffer[..bytes];
        while let Some(line) = splitter.next(&mut rest) {
            let Line::Whole(line) = line else { continue };
            let Ok(message) = parse(line, None) else { continue };
            let causation = message.metadata.causation.as_ref();
            if message.kind == OsKind::Error && causation.is_none_or(|causation| *causation == id) {
                return Err(Failure::Failed(format!("{}; nothing was sent", said(&message))));
            }
            if causation == Some(&id) {
                return Ok(rest.to_vec());
            }
        }
        if bytes == 0 {
            let why = "the server closed the connection when it saw the token; nothing was sent";
            return Err(Failure::Failed(why.into()));
        }
    }
}

/// Returns the text of an error, in the form in which the other commands show a refusal.
fn said(error: &OsMessage) -> String {
    let data: serde_json::Value = serde_json::from_str(error.data.as_str()).unwrap_or_default();
    match (data["message"].as_str(), data["code"].as_u64()) {
        (Some(message), Some(code)) => format!("{message} ({code})"),
        _ => error.data.as_str().to_owned(),
    }
}

/// Sends everything, then closes the sending half. If the server has closed the connection, sending ends early, and
/// `RequestTally::verdict` reports the missing outcomes.
async fn send(
    mut input: impl AsyncRead + Unpin,
    mut socket: OwnedWriteHalf,
    tally: &RefCell<RequestTally>,
) -> Result<(), Failure> {
    let mut splitter = LineSplitter::new(LINE_BYTES_MAX);
    let mut buffer = vec![0; READ_BYTES];
    let mut out = Vec::new();
    loop {
        let read = input.read(&mut buffer).await;
        let bytes = read.map_err(|error| Failure::Failed(format!("cannot read stdin: {error}")))?;
        out.clear();
        let mut rest = &buffer[..bytes];
        while let Some(line) = splitter.next(&mut rest) {
            tally.borrow_mut().line(line, &mut out)?;
        }
        if bytes == 0
            && let Some(line) = splitter.finish()
        {
            tally.borrow_mut().line(line, &mut out)?;
        }
        if socket.write_all(&out).await.is_err() {
            return Ok(());
        }
        if bytes == 0 {
            // Fails only if the server is gone.
            let _ = socket.shutdown().await;
            return Ok(());
        }
    }
}

/// Prints what the server sends. Does not use `Output`, which would block everything else, including signals, while
/// nobody reads stdout.
async fn receive(mut socket: impl AsyncRead + Unpin, tally: &RefCell<RequestTally>) -> Result<(), Failure> {
    let mut out = stdout();
    let mut lines = Vec::new();
    let mut splitter = LineSplitter::new(LINE_BYTES_MAX);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        // A connection reset counts as a close: `RequestTally::verdict` reports the missing outcomes.
        let bytes = socket.read(&mut buffer).await.unwrap_or(0);
        let mut rest = &buffer[..bytes];
        while let Some(line) = splitter.next(&mut rest) {
            let Line::Whole(line) = line else {
                return Err(Failure::Failed(format!(
                    "the server sent a line of more than {LINE_BYTES_MAX} bytes"
                )));
            };
            tally.borrow_mut().outcome(line);
            lines.extend_from_slice(line);
            lines.push(b'\n');
        }
        out.write_all(&lines).await.map_err(|error| Failure::output(&error))?;
        out.flush().await.map_err(|error| Failure::output(&error))?;
        lines.clear();
        if bytes == 0 {
            return Ok(());
        }
    }
}

/// Counts the requests sent and the outcomes received.
#[derive(Default)]
struct RequestTally {
    /// Requests without an outcome, by id; the same id may have been sent twice.
    open: BTreeMap<OsId, u64>,
    requests: u64,
    outcomes: u64,
    errors: u64,
    /// Errors that name no request, because the server could not read the line, for example one that is too long.
    nameless: u64,
}

impl RequestTally {
    /// Appends the line to the bytes to send, with metadata if it has none.
    fn line(&mut self, line: Line<'_>, out: &mut Vec<u8>) -> Result<(), Failure> {
        let Line::Whole(line) = line else {
            return Err(Failure::Failed(format!("a line of stdin is longer than {LINE_BYTES_MAX} bytes")));
        };
        let now = now();
        let Some(id) = new_id(now) else {
            return Err(Failure::Failed("cannot make an id".into()));
        };
        let make = || id.clone();
        let whole = parse(line, None);
        let message = match &whole {
            Ok(_) => whole.clone().ok(),
            Err(_) => parse(line, Some(Lenient { id: &make, timestamp: now })).ok(),
        };
        match &message {
            Some(message) if whole.is_err() => encode(message, out),
            // The server will report what is wrong with the line; missing metadata is added, so that this is not among
            // it.
            None if let Some(filled) = with_metadata(line, &id, now) => out.extend_from_slice(&filled),
            _ => {
                out.extend_from_slice(line);
                out.push(b'\n');
            }
        }
        if let Some(message) = message.filter(|message| message.kind.is_request()) {
            self.requests += 1;
            *self.open.entry(message.metadata.id).or_default() += 1;
        }
        Ok(())
    }

    fn outcome(&mut self, line: &[u8]) {
        self.outcomes += 1;
        let Ok(message) = parse(line, None) else {
            self.errors += 1;
            return;
        };
        if message.kind == OsKind::Error {
            self.errors += 1;
        }
        let Some(causation) = message.metadata.causation else {
            self.nameless += u64::from(message.kind == OsKind::Error);
            return;
        };
        if let Some(count) = self.open.get_mut(&causation) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&causation);
            }
        }
    }

    fn verdict(&self, end: &str) -> Result<(), Failure> {
        // An error without a request id is the outcome of a line that the server could not read, so it counts for one
        // of the open requests.
        let missing = self.open.values().sum::<u64>().saturating_sub(self.nameless);
        let (requests, errors, outcomes) = (self.requests, self.errors, self.outcomes);
        if missing > 0 {
            return Err(Failure::Failed(format!("{missing} of {requests} requests got no outcome: {end}")));
        }
        if errors > 0 {
            return Err(Failure::Failed(format!("{errors} of {outcomes} outcomes are errors")));
        }
        Ok(())
    }
}

/// Returns the line that sends the token, and its id.
fn greeting(token: &str) -> Result<(Vec<u8>, OsId), Failure> {
    let now = now();
    let id = new_id(now).ok_or_else(|| Failure::Failed("cannot make an id".into()))?;
    let metadata = serde_json::json!({ "id": id.as_str(), "timestamp": now.0 });
    let message = serde_json::json!({
        "kind": "command", "type": "Syscall.Authenticate", "data": { "token": token }, "metadata": metadata,
    });
    Ok((format!("{message}\n").into_bytes(), id))
}

/// Adds missing metadata to a line that is no valid message for other reasons. Returns `None` if no metadata is
/// missing.
fn with_metadata(line: &[u8], id: &OsId, now: Timestamp) -> Option<Vec<u8>> {
    let mut message: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(line).ok()?;
    let metadata = message.entry("metadata").or_insert_with(|| serde_json::json!({}));
    if metadata.is_null() {
        *metadata = serde_json::json!({});
    }
    let metadata = metadata.as_object_mut()?;
    for (name, value) in [("id", serde_json::json!(id.as_str())), ("timestamp", serde_json::json!(now.0))] {
        if metadata.get(name).is_none_or(serde_json::Value::is_null) {
            metadata.insert(name.into(), value);
        }
    }
    Some(format!("{}\n", serde_json::Value::Object(message)).into_bytes())
}

pub(super) fn token_arg() -> Arg {
    Arg::new("token")
        .long("token")
        .value_name("TOKEN")
        .help("Shown to the server first; if it is refused, nothing is sent [env: MILLRACE_TOKEN]")
}

fn new_id(now: Timestamp) -> Option<OsId> {
    OsId::new(&EventId::mint(now, rand::random(), 0).to_string()).ok()
}
