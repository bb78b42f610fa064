//! One life of a child: lines out, lines in, one message in its hands at a time.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use millrace_model::{OsFault, OsId, OsKind, OsMessage};
use millrace_router::DeliveryId;
use millrace_wire::os::{Lenient, Line, LineSplitter, OsRefusal, encode, parse};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep_until};

use crate::child::hand::{Ends, Hand};
use crate::child::process::{Pipes, Process};
use crate::child::settings::ChildLimits;
use crate::port::{Delivery, Port};

/// Read at once.
const READ_BYTES: usize = 16 << 10;
/// Outcomes of requests of the child wait while more than this waits to be written to it, and it is not listened to: one
/// that asks and does not read stops by itself, at its full stdout.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// It is not listened to either while more outcomes wait than this: reading would be faster than writing to it.
const OUTCOMES_MAX: usize = 128;
/// For the rest of its stdout after it has ended, and for its end after that of its stdout.
const END_MS: u64 = 500;

pub(super) enum LifeEnd {
    Retired,
    Ended {
        why: String,
        /// What it had in its hands.
        begun: Vec<DeliveryId>,
        /// It ran, but it did not read, or did not answer.
        hung: bool,
        /// It was given up over a request, and had answered nothing before that either.
        silent: bool,
    },
}

pub(super) struct Life<'a> {
    port: &'a Port,
    limits: &'a ChildLimits,
    hand: Option<Hand>,
    /// Lines on their way to the child, and how much of them it has.
    out: Vec<u8>,
    sent: usize,
    /// When it last read some of them, or there were none.
    took_at: Instant,
    /// Requests of this life whose outcome has not come, how many of each id: the second of one id is refused while the
    /// first waits. What its predecessor asked for it would not understand.
    asked: BTreeMap<OsId, usize>,
    splitter: LineSplitter,
    /// It was to go when a message was given up last.
    was_to_go: bool,
    /// It gets another life when it does not answer.
    restarts: bool,
    /// It has answered something.
    answered: bool,
    /// A request was given up.
    gave_up: bool,
}

/// What woke it.
enum Woken {
    Read(std::io::Result<usize>),
    Wrote(std::io::Result<usize>),
    Delivery(Option<Delivery>),
    Outcome(Option<std::sync::Arc<OsMessage>>),
    GiveUp,
    /// It has read nothing for too long.
    Hung,
    Retired,
    /// The process has ended, or it is too long since it has.
    Exited,
}

impl<'a> Life<'a> {
    pub(super) async fn live(
        port: &'a Port,
        limits: &'a ChildLimits,
        restarts: bool,
        mut process: Process,
        pipes: Pipes,
    ) -> LifeEnd {
        let mut life = Life {
            port,
            limits,
            hand: None,
            out: Vec::new(),
            sent: 0,
            took_at: Instant::now(),
            asked: BTreeMap::new(),
            splitter: LineSplitter::new(limits.line_bytes_max),
            was_to_go: false,
            restarts,
            answered: false,
            gave_up: false,
        };
        let (mut stdin, mut stdout, read_ahead) = match pipes.open() {
            Ok(open) => open,
            Err(error) => {
                let (why, begun) = (error.to_string(), Vec::new());
                return LifeEnd::Ended { why, begun, hung: false, silent: false };
            }
        };
        life.hear(&read_ahead).await;
        let mut buffer = vec![0; READ_BYTES];
        let mut exited: Option<(String, Instant)> = None;
        let mut hung = None;
        loop {
            match life.wake(&mut stdin, &mut stdout, &mut buffer, &mut process, &mut exited).await {
                // Its stdout has ended: it has nothing more to say.
                Woken::Read(Ok(0) | Err(_)) | Woken::Exited => break,
                Woken::Read(Ok(bytes)) => life.hear(&buffer[..bytes]).await,
                Woken::Wrote(wrote) => life.wrote(&wrote),
                Woken::Delivery(Some(delivery)) => life.begin(&delivery),
                Woken::Outcome(Some(outcome)) => life.outcomes(&outcome),
                Woken::Delivery(None) | Woken::Outcome(None) | Woken::Retired => {
                    process.end(stdin, stdout, limits.end_ms).await;
                    return LifeEnd::Retired;
                }
                Woken::GiveUp => {
                    life.give_up();
                    hung = life.is_over().await;
                    if hung.is_some() {
                        break;
                    }
                }
                Woken::Hung => {
                    hung = Some("it read nothing of what was written to it");
                    break;
                }
            }
        }
        life.last_line().await;
        let mut why = match (exited, hung) {
            (Some((status, _)), _) => status,
            (None, Some(hung)) => {
                process.kill_and_wait().await;
                format!("killed: {hung} for {} ms", limits.answer_ms)
            }
            (None, None) => process.wait_or_kill(END_MS).await,
        };
        let words = process.words.last().await;
        if !words.is_empty() {
            why = format!("{why}; its last words: {words}");
        }
        LifeEnd::Ended {
            why,
            begun: life.hand.iter().map(|hand| hand.delivery).collect(),
            hung: hung.is_some(),
            silent: hung.is_some() && life.gave_up && !life.answered,
        }
    }

    /// Waits for whatever comes first. Everything in it can be cut short without losing anything.
    async fn wake(
        &self,
        stdin: &mut ChildStdin,
        stdout: &mut ChildStdout,
        buffer: &mut [u8],
        process: &mut Process,
        exited: &mut Option<(String, Instant)>,
    ) -> Woken {
        let unsent = &self.out[self.sent..];
        let until = self.hand.as_ref().and_then(|hand| hand.until);
        let is_idle = self.hand.is_none() && self.out.is_empty();
        let has_room = self.out.len() < UNSENT_BYTES_MAX;
        let listens = has_room && self.port.outcomes_waiting() < OUTCOMES_MAX;
        let hung_at = self.deadline(self.took_at).filter(|_| !self.out.is_empty());
        loop {
            let last_words = exited.as_ref().map(|(_, at)| *at + Duration::from_millis(END_MS));
            tokio::select! {
                read = stdout.read(buffer), if listens => return Woken::Read(read),
                () = at(last_words) => return Woken::Exited,
                status = process.wait(), if exited.is_none() => *exited = Some((status, Instant::now())),
                wrote = stdin.write(unsent), if !unsent.is_empty() => return Woken::Wrote(wrote),
                outcome = self.port.next_outcome(), if has_room => return Woken::Outcome(outcome),
                delivery = self.port.next(), if is_idle && exited.is_none() => return Woken::Delivery(delivery),
                () = self.port.retired(), if !is_idle => return Woken::Retired,
                () = at(until) => return Woken::GiveUp,
                () = at(hung_at) => return Woken::Hung,
            }
        }
    }

    /// Hands a message over.
    fn begin(&mut self, delivery: &Delivery) {
        self.hand = Some(Hand::take(delivery, self.deadline(Instant::now())));
        self.write(&delivery.message);
    }

    fn deadline(&self, from: Instant) -> Option<Instant> {
        let answer_ms = self.limits.answer_ms;
        (answer_ms > 0).then(|| from + Duration::from_millis(answer_ms))
    }

    fn write(&mut self, message: &OsMessage) {
        if self.out.is_empty() {
            self.took_at = Instant::now();
        }
        encode(message, &mut self.out);
    }

    fn wrote(&mut self, wrote: &std::io::Result<usize>) {
        self.took_at = Instant::now();
        match wrote {
            Ok(bytes) if *bytes > 0 => self.sent += bytes,
            // It does not read any more. The end of its stdout is what ends it.
            _ => self.sent = self.out.len(),
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
            if let Some(hand) = self.hand.take_if(|hand| hand.ends == Ends::Written) {
                self.port.done(hand.delivery, Ok(()));
            }
        }
    }

    /// This one, and those that wait behind it.
    fn outcomes(&mut self, first: &OsMessage) {
        self.outcome(first);
        while self.out.len() < UNSENT_BYTES_MAX
            && let Some(next) = self.port.try_next_outcome()
        {
            self.outcome(&next);
        }
    }

    fn outcome(&mut self, outcome: &OsMessage) {
        let Some(cause) = &outcome.metadata.causation else { return };
        let Some(count) = self.asked.get_mut(cause) else { return };
        *count -= 1;
        if *count == 0 {
            self.asked.remove(cause);
        }
        self.write(outcome);
    }

    /// The requester has its 504 from the engine by now; the next message must not wait for this one.
    fn give_up(&mut self) {
        if let Some(hand) = self.hand.take() {
            self.gave_up |= hand.ends == Ends::Outcome;
            hand.fail(self.port, OsFault::new(504, "Request timed out"));
        }
    }

    /// Whether it is to be killed for what it did not answer, and why.
    ///
    /// It may be at it still: the next message would be a second one in its hands, or wait as long as this one did. So
    /// its next life gets that. One that is to go has no next life: it gets the rest of its mailbox all the same. Nothing
    /// came into that since it is to go, so when it was given a message after that and did not answer it, whoever waits
    /// for the others has had 504 as well.
    async fn is_over(&mut self) -> Option<&'static str> {
        let is_to_go = self.port.is_to_go().await;
        let was_to_go = std::mem::replace(&mut self.was_to_go, is_to_go);
        match is_to_go {
            true => was_to_go.then_some("it was to end and answered nothing"),
            false => self.restarts.then_some("it did not answer"),
        }
    }

    async fn hear(&mut self, mut input: &[u8]) {
        // Taken out, so that a line may be looked at while the rest of this is changed.
        let mut splitter = std::mem::replace(&mut self.splitter, LineSplitter::new(0));
        while let Some(line) = splitter.next(&mut input) {
            let said = self.read(line);
            self.said(said).await;
        }
        self.splitter = splitter;
    }

    /// What it said last may lack its LF. Then it counts if it is a message, else it was cut short.
    async fn last_line(&mut self) {
        let mut splitter = std::mem::replace(&mut self.splitter, LineSplitter::new(0));
        let said = splitter.finish().and_then(|line| self.read(line).ok());
        if let Some(message) = said {
            self.said(Ok(message)).await;
        }
    }

    fn read(&self, line: Line<'_>) -> Result<OsMessage, OsFault> {
        let Line::Whole(line) = line else {
            return Err(OsFault::new(413, OsRefusal::too_long(self.limits.line_bytes_max).message));
        };
        let (id, timestamp) = self.port.link().stamp();
        let lenient = Lenient { id: &|| id.clone(), timestamp };
        parse(line, Some(lenient)).map_err(|refusal| {
            let name = self.port.name();
            OsFault::new(500, format!("Capability '{name}' said what is no message: {}", refusal.message))
        })
    }

    async fn said(&mut self, said: Result<OsMessage, OsFault>) {
        let mut message = match said {
            Ok(message) => message,
            Err(fault) => return self.bad(fault),
        };
        match message.kind {
            OsKind::Reply | OsKind::Error => match self.hand.take_if(|hand| hand.is_answered_by(&message)) {
                Some(hand) => {
                    self.answered = true;
                    hand.finish(self.port, message);
                }
                None if message.kind == OsKind::Reply && message.metadata.causation.is_none() => {
                    let (name, ty) = (self.port.name(), &message.ty);
                    let why = format!("Capability '{name}' emitted a reply {ty} without metadata.causation");
                    self.bad(OsFault::new(500, why));
                }
                None => self.port.emit(None, message, false).await,
            },
            OsKind::Event | OsKind::Command | OsKind::Query => {
                let during = self.hand.as_ref().map(|hand| {
                    hand.lend(&mut message);
                    hand.delivery
                });
                let is_request = message.kind.is_request();
                if is_request {
                    *self.asked.entry(message.metadata.id.clone()).or_default() += 1;
                }
                self.port.emit(during, message, is_request).await;
            }
        }
    }

    /// Whoever waits is told now. The child is not asked again for what it has spoilt.
    fn bad(&mut self, fault: OsFault) {
        self.port.bad_emit(self.hand.as_ref().map(|hand| hand.delivery), fault.clone());
        match self.hand.take_if(|hand| hand.ends != Ends::Written) {
            // The line above has answered it.
            Some(hand) if hand.ends == Ends::Outcome => self.port.done(hand.delivery, Ok(())),
            Some(hand) => hand.fail(self.port, fault),
            None => {}
        }
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => pending().await,
    }
}
