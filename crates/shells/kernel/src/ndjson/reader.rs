//! The reading side of one connection: from bytes to messages for the loop.

use std::future::pending;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use millrace_model::{OsMessage, Principal};
use millrace_router::{ConnId, Input};
use millrace_wire::os::{Lenient, Line, LineSplitter, OsRefusal, parse};
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;
use tokio::time::timeout;

use crate::clients::credentials::{self, TokenError};
use crate::kernel_thread::pause;
use crate::ndjson::edge::{Admitted, Edge};
use crate::ndjson::hangup::hung_up;
use crate::ndjson::writer::{ConnectionEnd, LineWriter};

pub(super) struct LineReader {
    edge: Edge,
    conn: ConnId,
    writer: Rc<LineWriter>,
    half: OwnedReadHalf,
    splitter: LineSplitter,
    /// Set by the first message.
    admitted: Option<Admitted>,
}

impl LineReader {
    pub(super) fn new(edge: Edge, conn: ConnId, writer: Rc<LineWriter>, half: OwnedReadHalf) -> LineReader {
        let splitter = LineSplitter::new(edge.settings.line_bytes_max);
        LineReader { edge, conn, writer, half, splitter, admitted: None }
    }

    /// Whether the loop knows this connection.
    pub(super) fn is_open(&self) -> bool {
        self.admitted.is_some()
    }

    /// Reads until the client hangs up. A client that only stops writing is waited for, because its answers are still
    /// to come.
    pub(super) async fn run(&mut self) -> ConnectionEnd {
        loop {
            self.writer.room().await;
            let (buffer, bytes) = match self.read_in_time().await {
                Ok(Some((_, 0))) => break,
                Ok(Some(read)) => read,
                Ok(None) => return ConnectionEnd::Silent,
                Err(_) => return ConnectionEnd::Gone,
            };
            self.split_lines(&buffer[..bytes]).await;
            self.edge.give_back(buffer);
            pause::yield_now().await;
        }
        self.take_last().await;
        self.writer.reads_no_more();
        match hung_up(self.half.as_ref()).await {
            Ok(()) => ConnectionEnd::Gone,
            // A hang-up cannot be detected here: then the writing side will notice it.
            Err(_) => pending().await,
        }
    }

    /// Returns `None` if the client had to authenticate and sent nothing in time.
    async fn read_in_time(&mut self) -> io::Result<Option<(Box<[u8]>, usize)>> {
        let settings = self.edge.settings.clone();
        if self.admitted.is_some() || !settings.require_auth {
            return self.read().await.map(Some);
        }
        match timeout(Duration::from_millis(settings.auth_ms_max), self.read()).await {
            Ok(read) => read.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Reads into a shared buffer that is taken only when there is something to read: idle connections hold none.
    async fn read(&mut self) -> io::Result<(Box<[u8]>, usize)> {
        loop {
            self.half.readable().await?;
            let mut buffer = self.edge.buffer();
            // Unlike `try_read`, this knows that a read which did not fill the buffer has emptied the socket.
            match self.half.read(&mut buffer).now_or_never() {
                Some(read) => return Ok((buffer, read?)),
                None => self.edge.give_back(buffer),
            }
        }
    }

    async fn split_lines(&mut self, mut input: &[u8]) {
        loop {
            let line = match self.splitter.next(&mut input) {
                None => return,
                Some(line) => read_line(&self.edge, line),
            };
            self.on_line(line).await;
        }
    }

    /// Handles a last line without LF.
    async fn take_last(&mut self) {
        let line = self.splitter.finish().map(|line| read_line(&self.edge, line));
        if let Some(line) = line {
            self.on_line(line).await;
        }
    }

    async fn on_line(&mut self, line: Result<OsMessage, OsRefusal>) {
        match line {
            Ok(message) => self.message(message).await,
            Err(refusal) => self.refuse(refusal).await,
        }
    }

    async fn message(&mut self, message: OsMessage) {
        if self.admitted.as_ref().is_some_and(|admitted| !admitted.is_valid()) {
            return self.refuse_and_close(OsRefusal::new(401, credentials::REVOKED).about(&message)).await;
        }
        let must_prove = self.edge.settings.require_auth && self.admitted.is_none();
        match self.edge.authenticate(self.principal(), &message) {
            Some(Ok(admitted)) => self.set_identity(admitted),
            Some(Err(TokenError::Unknown)) | None if must_prove => {
                return self
                    .refuse_and_close(OsRefusal::new(401, credentials::REQUIRED).about(&message))
                    .await;
            }
            Some(Err(error)) if must_prove => {
                return self.refuse_and_close(refusal(&error).about(&message)).await;
            }
            Some(Err(error)) => {
                self.admit_without_token();
                return self.refuse(refusal(&error).about(&message)).await;
            }
            None => self.admit_without_token(),
        }
        let refused = self.admitted.as_ref().and_then(|admitted| admitted.rights.refuse(&message));
        if let Some(why) = refused {
            return self.refuse(OsRefusal::new(403, why).about(&message)).await;
        }
        self.writer.permit().await;
        self.edge.local_queue.push(Input::Client { conn: self.conn, message });
    }

    /// The identity that the client has proved, if any.
    fn principal(&self) -> Option<&Principal> {
        self.admitted.as_ref()?.by.principal()
    }

    /// Admits a connection without a token, where none is required.
    fn admit_without_token(&mut self) {
        if self.admitted.is_none() {
            self.set_identity(Admitted::owner());
        }
    }

    fn set_identity(&mut self, admitted: Admitted) {
        let (conn, by) = (self.conn, admitted.by.clone());
        self.writer.set_agent(by.principal().map(|who| who.agent.clone()));
        self.edge.local_queue.push(match self.admitted {
            None => Input::Open { conn, by },
            Some(_) => Input::Identify { conn, by },
        });
        self.admitted = Some(admitted);
    }

    /// Refuses the message and reads no more; the writing side closes the connection.
    async fn refuse_and_close(&self, refusal: OsRefusal) {
        self.edge.refuse(&self.writer, self.conn, self.principal(), refusal);
        self.writer.finish();
        pending::<()>().await;
    }

    async fn refuse(&self, refusal: OsRefusal) {
        self.writer.room().await;
        self.edge.refuse(&self.writer, self.conn, self.principal(), refusal);
    }
}

fn refusal(error: &TokenError) -> OsRefusal {
    OsRefusal::new(error.code(), error.to_string())
}

fn read_line(edge: &Edge, line: Line<'_>) -> Result<OsMessage, OsRefusal> {
    match line {
        Line::TooLong => Err(OsRefusal::too_long(edge.settings.line_bytes_max)),
        Line::Whole(line) if edge.settings.lenient_metadata => {
            let timestamp = edge.mint.now();
            parse(line, Some(Lenient { id: &|| edge.mint.id_at(timestamp), timestamp }))
        }
        Line::Whole(line) => parse(line, None),
    }
}
