//! The loop of a running session: takes what has happened, lets the engine decide, and carries out its effects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use millrace_claims::{Effect, Input, RunId, Worker};
use millrace_shell::Watcher;
use millrace_store::{Pace, StoreError};

use super::committer::{BatchOrigin, Committer};
use super::mailbox::{Answer, Mail, Mailbox};
use super::pool::Pool;
use super::reads::{log_note, read};
use crate::error::{Result, SessionError};
use crate::session::Session;
use crate::typed::Handler;

/// The loop checks the clock at least this often, so that a step of the wall clock is noticed for everything that is
/// due.
const WAIT_MAX: Duration = Duration::from_millis(1000);

pub(super) struct RunLoop {
    session: Session,
    committer: Arc<Committer>,
    worker: Worker,
    handlers: Arc<[Handler]>,
    mailbox: Arc<Mailbox>,
    pool: Pool,
    waiting: BTreeMap<RunId, SyncSender<Answer>>,
    watcher: Watcher,
    watch_at: Instant,
    until_idle: bool,
    /// Impossible states of the engine that were logged.
    never_logged: u64,
    stopped: Option<Option<String>>,
}

impl RunLoop {
    pub(super) fn new(
        session: Session,
        committer: Arc<Committer>,
        worker: Worker,
        handlers: Arc<[Handler]>,
        mailbox: Arc<Mailbox>,
        until_idle: bool,
    ) -> Result<RunLoop> {
        let pool = Pool::start(&session, &handlers, &mailbox, session.settings().handler_concurrency)
            .map_err(SessionError::Thread)?;
        let config = session.settings();
        let busy = Duration::from_millis(config.wake_poll_ms.max(1));
        let pace = Pace::new(busy, Duration::from_millis(config.wake_poll_idle_ms_max));
        let news = mailbox.clone();
        let wake = Arc::new(move || news.tell_news());
        // The engine begins by reading everything, so only later commits are new.
        let watcher = Watcher::new(session.store(), pace, wake)?;
        Ok(RunLoop {
            session,
            committer,
            worker,
            handlers,
            mailbox,
            pool,
            waiting: BTreeMap::new(),
            watcher,
            watch_at: Instant::now(),
            until_idle,
            never_logged: 0,
            stopped: None,
        })
    }

    /// Runs until the engine has stopped: everything unstarted is given back, and that is durable.
    pub(super) fn run(mut self) -> Result<()> {
        self.handle(Input::Tick);
        let failed = loop {
            if let Some(failed) = self.stopped.take() {
                break failed;
            }
            self.turn();
        };
        // Handlers that still wait for an answer learn that there will be none.
        self.mailbox.close();
        self.waiting.clear();
        // A session that stops has waited for its handlers already.
        let grace = Duration::from_millis(self.session.settings().stop_grace_ms);
        self.pool.shut_down(if failed.is_some() { grace } else { Duration::ZERO });
        let Some(reason) = failed else { return Ok(()) };
        let failure = self.committer.failure();
        Err(SessionError::Store(failure.unwrap_or_else(|| StoreError::Poisoned(reason.into()))))
    }

    fn turn(&mut self) {
        let post = self.mailbox.take_all(self.wait());
        let quiet = post.mail.is_empty();
        let now = self.session.clock().now();
        for mail in post.mail {
            let input = match mail {
                Mail::Input(input) => input,
                Mail::Commit { run, input, reply } => {
                    self.waiting.insert(run, reply);
                    input
                }
            };
            self.worker.handle(now, input);
        }
        // Effects are carried out together: batches that came together are committed together, and each thread is woken
        // once.
        self.carry_out();
        let mut news = false;
        if post.news {
            self.watcher.woken();
        }
        if post.news || Instant::now() >= self.watch_at {
            news = self.watch();
        }
        let now = self.session.clock().now();
        if self.worker.next_deadline().is_some_and(|at| at <= now.mono) {
            self.handle(Input::Tick);
        }
        if self.until_idle && quiet && !news && self.worker.is_idle() {
            self.until_idle = false;
            self.handle(Input::Stop);
        }
    }

    fn wait(&self) -> Duration {
        let now = self.session.clock().now();
        let deadline = self
            .worker
            .next_deadline()
            .map_or(WAIT_MAX, |at| Duration::from_millis(at.0.saturating_sub(now.mono.0)));
        deadline.min(self.watch_at.saturating_duration_since(Instant::now())).min(WAIT_MAX)
    }

    fn handle(&mut self, input: Input) {
        self.worker.handle(self.session.clock().now(), input);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        let never = self.worker.counts().broken;
        if never > self.never_logged {
            self.never_logged = never;
            tracing::error!(
                states = never,
                "the engine of durable handlers was in a state that cannot occur: report this bug"
            );
        }
        loop {
            let effects = self.worker.drain();
            if effects.is_empty() {
                return;
            }
            let (mut commits, mut runs) = (Vec::new(), Vec::new());
            for effect in effects {
                match effect {
                    Effect::Commit { token, batch } => {
                        commits.push((BatchOrigin::Worker(self.mailbox.clone(), token), batch));
                    }
                    Effect::Read { token, query } => {
                        let result = read(self.session.store(), &query);
                        self.worker.handle(self.session.clock().now(), Input::ReadDone { token, result });
                    }
                    Effect::Run(run) => runs.push(run),
                    Effect::Cut { run } => self.pool.cut(run),
                    Effect::Answer { run, result } => {
                        if let Some(reply) = self.waiting.remove(&run) {
                            // A handler's thread waits only for this; if it is gone, it needs no answer.
                            let _ = reply.send(result);
                        }
                    }
                    Effect::Note(note) => log_note(&note, &self.handlers),
                    Effect::Stopped { failed } => self.stopped = Some(failed),
                }
            }
            if !commits.is_empty() {
                self.committer.submit(commits);
            }
            self.pool.submit(runs);
        }
    }

    /// Tells the engine which topics have got events since the last poll, from any process, and whether events were
    /// delayed. Returns true if topics have got events, or if there is more to read right away.
    fn watch(&mut self) -> bool {
        // If the poll fails, the next one comes soon.
        self.watch_at = Instant::now() + self.watcher.pause();
        let poll = match self.watcher.poll(self.session.store(), Ok) {
            Ok(poll) => poll,
            Err(error) => {
                tracing::warn!(%error, "the store could not be watched, it will be tried again");
                return false;
            }
        };
        self.watch_at = Instant::now() + poll.pause;
        let Some(changes) = poll.news else { return false };
        if changes.delayed || !changes.complete {
            self.handle(Input::Delayed);
        }
        let namespace = self.session.namespace_name();
        let topics: BTreeSet<_> = changes
            .runs
            .into_iter()
            .map(|run| run.stream.topic)
            .filter(|topic| topic.namespace() == namespace.as_str())
            .collect();
        if changes.complete && topics.is_empty() {
            return poll.more;
        }
        let topics = changes.complete.then(|| topics.into_iter().collect());
        self.handle(Input::News { topics });
        true
    }
}
