//! A run of a child: one process, from its start to its end. Messages are written to
//! its stdin, one at a time is in progress, and lines of its stdout (`child_run/output.rs`) answer them.

mod output;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use millrace_kernel::{Delivery, Port};
use millrace_model::{OsId, OsMessage};
use millrace_router::DeliveryId;
use millrace_wire::os::{LineSplitter, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep_until};

use crate::given::GivenEvents;
use crate::in_progress::{Ends, InProgress};
use crate::process::{Pipes, Process, unread};
use crate::settings::ChildLimits;

/// Bytes of stdout read at once.
const READ_BYTES: usize = 16 << 10;
/// Bytes that wait to be written to the child. Above this, outcomes of the child's requests wait and its stdout is not
/// read: a child that sends requests and does not read blocks on its full stdout.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// Outcomes that wait for the child. Above this, its stdout is not read either: otherwise requests would be read faster
/// than their outcomes are written.
const OUTCOMES_MAX: usize = 128;
/// Time to read the rest of stdout after the process has ended, and for the process to end after its stdout has.
const END_MS: u64 = 500;
/// How long a suspect (see `given.rs`) is given alone if the child does not reply to it. Doubled for every run in a
/// row that left several suspects, up to [`ChildLimits::event_ms`].
const ALONE_MS: u64 = 1000;
/// Interval of the checks whether a child that is to be removed has been given everything.
const LEAVE_LOOK_MS: u64 = 20;

pub(crate) enum ChildExit {
    Retired,
    Ended {
        why: String,
        /// The request or event of the bus that it was handling.
        begun: Vec<DeliveryId>,
        /// The message that it was killed for because it did not answer.
        over: Option<Arc<OsMessage>>,
        /// Number of events of durable timers that it may have been handling.
        suspects: usize,
        /// The process ran, but did not read, or did not answer.
        hung: bool,
        /// The child was killed over an unanswered request, and had answered nothing before that either.
        silent: bool,
    },
}

pub(crate) struct ChildRun<'a> {
    port: &'a Port,
    limits: &'a ChildLimits,
    in_progress: Option<InProgress>,
    given: GivenEvents,
    /// How long an event is given alone.
    alone: Duration,
    /// Bytes written to the pipe of the child.
    written: u64,
    /// Set when stdin was closed because the child is to be removed: how many bytes the child had read then.
    closed_at: Option<u64>,
    /// When a child that is to be removed is killed.
    leave_until: Option<Instant>,
    /// The message that was given up last.
    over: Option<Arc<OsMessage>>,
    /// Set when the child has closed its stdin: nothing more can be written to it.
    stdin_closed_since: Option<Instant>,
    /// Lines to be written to the child, and how many bytes of them have been written.
    out: Vec<u8>,
    sent: usize,
    /// When some of them were last written, or when the first was added.
    took_at: Instant,
    /// Requests of this run whose outcome has not come, counted by id, because the engine refuses the second request
    /// of an id while the first waits. Outcomes of requests of an earlier run are dropped: this process would not
    /// understand them.
    asked: BTreeMap<OsId, usize>,
    splitter: LineSplitter,
    /// The capability was already to be removed when a message was given up last.
    was_to_go: bool,
    /// The child is started again when it does not answer.
    restarts: bool,
    /// The child has answered something.
    answered: bool,
    /// A request was given up.
    gave_up: bool,
}

/// The event that ended a wait.
enum Woken {
    Read(std::io::Result<usize>),
    Wrote(std::io::Result<usize>),
    Delivery(Option<Delivery>),
    Outcome(Option<std::sync::Arc<OsMessage>>),
    GiveUp,
    /// Time to check which events the child has finished.
    CheckEvents,
    /// The capability is to be removed, and the child may have been given everything. Has the time to finish, in ms.
    Removing(u64),
    /// The child was told to end, and has not done so in time.
    RemovalTimeout,
    /// The child has read nothing for too long.
    Hung,
    /// The child has closed its stdin and still runs.
    StdinClosed,
    Retired,
    /// The process ended, and the time for the rest of its stdout is over.
    Exited,
}

impl<'a> ChildRun<'a> {
    pub(crate) async fn run(
        port: &'a Port,
        limits: &'a ChildLimits,
        restarts: bool,
        caution: u32,
        mut process: Process,
        pipes: Pipes,
    ) -> ChildExit {
        let alone_ms = ALONE_MS.saturating_mul(1 << caution.min(16)).min(limits.event_ms);
        let mut run = ChildRun {
            port,
            limits,
            in_progress: None,
            given: GivenEvents::new(limits),
            alone: Duration::from_millis(alone_ms),
            written: 0,
            closed_at: None,
            leave_until: None,
            over: None,
            stdin_closed_since: None,
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
        let (stdin, mut stdout, read_ahead) = match pipes.open() {
            Ok(open) => open,
            Err(error) => {
                let (why, begun) = (error.to_string(), Vec::new());
                return ChildExit::Ended { why, begun, over: None, suspects: 0, hung: false, silent: false };
            }
        };
        let mut stdin = Some(stdin);
        run.hear(&read_ahead).await;
        let mut buffer = vec![0; READ_BYTES];
        let mut exited: Option<(String, Instant)> = None;
        let mut hung = None;
        loop {
            match run.wake(&mut stdin, &mut stdout, &mut buffer, &mut process, &mut exited).await {
                // The end of its stdout: the child has nothing more to say.
                Woken::Read(Ok(0) | Err(_)) | Woken::Exited => break,
                Woken::Read(Ok(bytes)) => run.hear(&buffer[..bytes]).await,
                Woken::Wrote(wrote) => run.wrote(&wrote),
                Woken::Delivery(Some(delivery)) => run.begin(&delivery),
                Woken::Outcome(Some(outcome)) => run.outcomes(&outcome),
                Woken::Delivery(None) | Woken::Outcome(None) | Woken::Retired => {
                    let read = run.read_bytes(stdin.as_ref());
                    let by_itself = process.end(stdin, stdout, limits.end_ms).await;
                    run.retire(by_itself, read);
                    return ChildExit::Retired;
                }
                Woken::CheckEvents => run.look(stdin.as_ref()),
                Woken::Removing(within_ms) => {
                    if port.is_drained().await {
                        run.closed_at = Some(run.read_bytes(stdin.as_ref()));
                        run.leave_until =
                            (within_ms > 0).then(|| Instant::now() + Duration::from_millis(within_ms));
                        stdin = None;
                    }
                }
                Woken::RemovalTimeout => {
                    let read = run.read_bytes(None);
                    tracing::warn!(capability = %port.name(), "it was to end, did not finish and is killed");
                    process.kill_and_wait().await;
                    run.retire(false, read);
                    return ChildExit::Retired;
                }
                Woken::GiveUp if run.in_progress.as_ref().is_some_and(InProgress::is_alone) => {
                    if let Some(in_progress) = run.in_progress.take() {
                        run.given.wrote(port, in_progress);
                    }
                }
                Woken::GiveUp => {
                    run.give_up();
                    hung = run.is_over().await.map(|why| format!("{why} for {} ms", limits.answer_ms));
                    if hung.is_some() {
                        break;
                    }
                }
                Woken::Hung => {
                    hung = Some(format!(
                        "it read nothing of what was written to it for {} ms",
                        limits.answer_ms
                    ));
                    break;
                }
                Woken::StdinClosed => {
                    hung = Some("it closed its stdin and did not end".to_owned());
                    break;
                }
            }
        }
        run.last_line().await;
        let was_hung = hung.is_some();
        let mut why = match (exited, hung) {
            (Some((status, _)), _) => status,
            (None, Some(hung)) => {
                process.kill_and_wait().await;
                format!("killed: {hung}")
            }
            (None, None) => process.wait_or_kill(END_MS).await,
        };
        let ended_well = Process::ended_well(&why);
        let last_line = process.stderr_log.last().await;
        if !last_line.is_empty() {
            why = format!("{why}; its last words: {last_line}");
        }
        let read = run.read_bytes(stdin.as_ref());
        if run.closed_at.is_some() {
            run.retire(ended_well, read);
            return ChildExit::Retired;
        }
        let silent = was_hung && run.gave_up && !run.answered;
        let over = run.over.take();
        let (begun, suspects) = run.end(read);
        ChildExit::Ended { why, begun, over, suspects, hung: was_hung, silent }
    }

    /// Returns the delivery that the child had begun, which fails with it, and how many events of durable timers it may
    /// have been handling.
    fn end(self, read: u64) -> (Vec<DeliveryId>, usize) {
        match self.in_progress {
            Some(in_progress) if !in_progress.is_event() => {
                let busy = in_progress.end <= read;
                (vec![in_progress.delivery.id], self.given.for_next_run(self.port, read, None, busy))
            }
            in_progress => (Vec::new(), self.given.for_next_run(self.port, read, in_progress, false)),
        }
    }

    fn retire(self, by_itself: bool, read: u64) {
        let in_progress = self.in_progress.filter(InProgress::is_event);
        match (by_itself, in_progress) {
            (true, None) => self.given.finished(self.port),
            (true, Some(in_progress)) => {
                self.given.finished(self.port);
                // An event still in progress was not written completely, or was given alone and not answered.
                GivenEvents::new(self.limits).give_back(self.port, 0, Some(in_progress));
            }
            (false, in_progress) => self.given.give_back(self.port, read, in_progress),
        }
    }

    /// How many bytes the child has read, as far as the system tells.
    fn read_bytes(&self, stdin: Option<&ChildStdin>) -> u64 {
        let now = stdin.map(|stdin| self.written.saturating_sub(unread(stdin)));
        now.or(self.closed_at).unwrap_or(self.written)
    }

    fn look(&mut self, stdin: Option<&ChildStdin>) {
        let read = self.read_bytes(stdin);
        self.given.look(self.port, read);
    }

    async fn leaves(&self) -> u64 {
        let within_ms = self.port.leaving().await;
        tokio::time::sleep(Duration::from_millis(LEAVE_LOOK_MS)).await;
        within_ms
    }

    /// Waits for whichever comes first. Every branch can be cancelled without losing anything.
    async fn wake(
        &self,
        stdin: &mut Option<ChildStdin>,
        stdout: &mut ChildStdout,
        buffer: &mut [u8],
        process: &mut Process,
        exited: &mut Option<(String, Instant)>,
    ) -> Woken {
        let unsent = &self.out[self.sent..];
        let until = self.in_progress.as_ref().and_then(|in_progress| in_progress.until);
        let is_stdin_closed = self.stdin_closed_since.is_some();
        let is_closed = stdin.is_none();
        let is_idle = self.in_progress.is_none() && self.out.is_empty() && !is_closed;
        let takes_delivery = is_idle && !is_stdin_closed;
        let stdin_closed_until = self.stdin_closed_since.map(|at| at + Duration::from_millis(END_MS));
        let has_room = self.out.len() < UNSENT_BYTES_MAX;
        let listens = has_room && self.port.outcomes_waiting() < OUTCOMES_MAX;
        // A child that reads nothing may be handling events from a buffer of its own: each gets as long as a request.
        let ahead = self
            .in_progress
            .as_ref()
            .filter(|in_progress| in_progress.is_event())
            .map_or(0, |_| self.given.ahead());
        let answer = Duration::from_millis(self.limits.answer_ms).saturating_mul(ahead);
        let hung_at = self.deadline(self.took_at).filter(|_| !self.out.is_empty()).map(|at| at + answer);
        loop {
            let stdout_until = exited.as_ref().map(|(_, at)| *at + Duration::from_millis(END_MS));
            tokio::select! {
                read = stdout.read(buffer), if listens => return Woken::Read(read),
                () = at(stdout_until) => return Woken::Exited,
                status = process.wait(), if exited.is_none() => *exited = Some((status, Instant::now())),
                wrote = write(stdin.as_mut(), unsent), if !unsent.is_empty() => return Woken::Wrote(wrote),
                outcome = self.port.next_outcome(), if has_room => return Woken::Outcome(outcome),
                delivery = self.port.next(), if takes_delivery && exited.is_none() => return Woken::Delivery(delivery),
                () = self.port.retired(), if !takes_delivery => return Woken::Retired,
                () = at(until) => return Woken::GiveUp,
                () = at(self.given.until()), if !is_closed => return Woken::CheckEvents,
                within_ms = self.leaves(), if takes_delivery => return Woken::Removing(within_ms),
                () = at(self.leave_until) => return Woken::RemovalTimeout,
                () = at(stdin_closed_until) => return Woken::StdinClosed,
                () = at(hung_at) => return Woken::Hung,
            }
        }
    }

    /// Hands a message to the child.
    fn begin(&mut self, delivery: &Delivery) {
        self.over = None;
        self.write(&delivery.message);
        let (now, end) = (Instant::now(), self.written + (self.out.len() - self.sent) as u64);
        self.in_progress = Some(InProgress::new(delivery, end, self.deadline(now), now + self.alone));
    }

    fn deadline(&self, from: Instant) -> Option<Instant> {
        let answer_ms = self.limits.answer_ms;
        (answer_ms > 0).then(|| from + Duration::from_millis(answer_ms))
    }

    fn write(&mut self, message: &OsMessage) {
        if self.stdin_closed_since.is_some() || self.closed_at.is_some() {
            return;
        }
        if self.out.is_empty() {
            self.took_at = Instant::now();
        }
        encode(message, &mut self.out);
    }

    fn wrote(&mut self, wrote: &std::io::Result<usize>) {
        self.took_at = Instant::now();
        match wrote {
            Ok(bytes) if *bytes > 0 => {
                self.sent += bytes;
                self.written += *bytes as u64;
            }
            // The child has closed its stdin, or has ended. Lines that it wrote before are still read. Nothing more is
            // written to it, and the messages it has stay with it until its end.
            _ => {
                self.stdin_closed_since = Some(Instant::now());
                self.out.clear();
                self.sent = 0;
                return;
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
            if let Some(in_progress) =
                self.in_progress.take_if(|in_progress| in_progress.ends == Ends::Written)
            {
                self.given.wrote(self.port, in_progress);
            }
        }
    }

    /// Writes this outcome, and those that wait behind it.
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

    /// Gives up the message in progress, so that the next one does not wait for it. The engine answers the requester
    /// with 504.
    fn give_up(&mut self) {
        if let Some(in_progress) = self.in_progress.take() {
            self.gave_up |= in_progress.ends == Ends::Outcome;
            self.port.gave_up(in_progress.delivery.id);
            self.over = Some(in_progress.delivery.message);
        }
    }

    /// Returns why the child is to be killed over the message that it did not answer, if it is.
    ///
    /// The child may still be handling that message: the next one would be a second one in progress, or would wait as
    /// long. So a child that is restarted is killed, and its next run gets the next message. A child that is to be
    /// removed has no next run, so it is still given the rest of its mailbox. But no message has been added since its
    /// removal began: if it leaves one of them unanswered, the requesters of all the others have had their 504, too,
    /// and it is killed.
    async fn is_over(&mut self) -> Option<&'static str> {
        let is_to_go = self.port.is_to_go().await;
        let was_to_go = std::mem::replace(&mut self.was_to_go, is_to_go);
        match is_to_go {
            true => was_to_go.then_some("it was to end and answered nothing"),
            false => self.restarts.then_some("it did not answer"),
        }
    }
}

async fn write(stdin: Option<&mut ChildStdin>, bytes: &[u8]) -> std::io::Result<usize> {
    match stdin {
        Some(stdin) => stdin.write(bytes).await,
        None => pending().await,
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => pending().await,
    }
}
