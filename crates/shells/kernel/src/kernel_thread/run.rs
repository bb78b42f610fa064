//! The loop's task. Each round handles the inputs, runs one turn of the engine, carries out the effects and yields to
//! other tasks; when there is nothing to do, it waits.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use millrace_model::{Mono, Now};
use millrace_router::{ConnId, Input};
use millrace_shell::SystemClock;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, Sleep};

use crate::kernel_thread::inbox::KernelCommand;
use crate::kernel_thread::local_queue::LocalQueue;
use crate::kernel_thread::pause;
use crate::kernel_thread::shell::Shell;
use crate::ndjson::{self, Edge};

/// The clock is read this often while anything is due, so that a step of the wall clock is noticed.
const WAIT_MS_MAX: u64 = 1000;
/// How long connections get to take their last answers, whatever is left of the grace.
const FLUSH_MS: u64 = 1000;
/// How long actors get to end once nobody needs them; child processes end in this time.
const ACTORS_END_MS: u64 = 1000;

pub(crate) struct KernelThread {
    pub(crate) shell: Shell,
    pub(crate) local_queue: LocalQueue,
    pub(crate) edge: Edge,
    pub(crate) clock: SystemClock,
    pub(crate) commands: mpsc::Receiver<KernelCommand>,
    /// Connections on other threads that have been closed.
    pub(crate) goodbyes: mpsc::UnboundedReceiver<ConnId>,
    pub(crate) accepting: Option<JoinHandle<()>>,
    /// When the grace of a stop is used up.
    pub(crate) stop_now_at: Option<Mono>,
    pub(crate) alarm: Alarm,
    /// Timers of the previous process, until [`KernelThread::begin`].
    pub(crate) timers: Option<Vec<(String, Bytes)>>,
}

impl KernelThread {
    /// Runs until the loop was told to stop and every request is answered.
    pub(crate) async fn run(mut self) {
        let mut turns = 0;
        while !self.shell.stopped {
            let now = self.clock.now();
            self.handle_queued(now);
            if self.stop_now_at.is_some_and(|at| at <= now.mono) {
                self.stop_now_at = None;
                self.shell.router.handle(now, Input::StopNow);
            }
            let turned = self.shell.router.turn(now);
            self.shell.carry_out(now);
            turns = if turned { turns + 1 } else { 0 };
            self.local_queue
                .set_backpressure(self.shell.router.user_lane_len() > self.shell.settings.backpressure_max);
            if !turned || turns >= self.shell.settings.flush_turns_max {
                turns = 0;
                self.shell.conns.flush();
            }
            // A timer that may still act (`Effect::CheckSender`) has put its message into the lanes after the turn.
            if turned || self.shell.router.is_busy() {
                // RFC 0032, section 8.3: after each turn the host gets its turn.
                pause::yield_now().await;
            } else if !self.shell.stopped {
                self.wait(now).await;
            }
        }
        self.shut_down().await;
    }

    /// Handles all inputs that wait, those of other threads first: a message that an actor emitted on another thread
    /// must be handled before the actor's `Done`, which comes by the local queue.
    fn handle_queued(&mut self, now: Now) {
        for _ in 0..self.shell.settings.inbox_max {
            let Ok(command) = self.commands.try_recv() else { break };
            self.on_command(now, command);
        }
        while let Ok(conn) = self.goodbyes.try_recv() {
            self.shell.left(now, conn);
        }
        while let Some(input) = self.local_queue.next() {
            self.shell.router.handle(now, input);
        }
    }

    fn on_command(&mut self, now: Now, command: KernelCommand) {
        match command {
            KernelCommand::Listen { listener } => match tokio::net::UnixListener::from_std(listener) {
                Ok(listener) => {
                    self.accepting = Some(spawn_local(ndjson::accept(self.edge.clone(), listener)));
                }
                Err(error) => tracing::error!(%error, "the socket cannot be listened on"),
            },
            KernelCommand::Begin => self.begin(now),
            KernelCommand::Stop { grace } => {
                if let Some(accepting) = self.accepting.take() {
                    accepting.abort();
                }
                let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
                self.stop_now_at = Some(now.mono + grace_ms);
                self.shell.router.handle(now, Input::Stop);
            }
            command => self.shell.on_command(now, command),
        }
    }

    /// Says `Sys.BootComplete` and restores the timers of the previous process. Not before all capabilities are
    /// installed, or a timer that is already due would find no handler.
    fn begin(&mut self, now: Now) {
        let Some(timers) = self.timers.take() else { return };
        let boot = self.clock.boot();
        self.shell.router.restore(now, boot, timers);
    }

    async fn wait(&mut self, now: Now) {
        let due = self.shell.router.next_deadline().into_iter().chain(self.stop_now_at).min();
        let alarm = &mut self.alarm;
        tokio::select! {
            biased;
            () = self.local_queue.woken() => {}
            command = self.commands.recv() => match command {
                Some(command) => self.on_command(now_again(&self.clock, now), command),
                // Cannot happen, because the loop itself holds a sender.
                None => self.shell.stopped = true,
            },
            conn = self.goodbyes.recv() => match conn {
                Some(conn) => self.shell.left(now_again(&self.clock, now), conn),
                // The last [`crate::KernelHandle`] was dropped without a stop: end as in a crash.
                None => self.shell.stopped = true,
            },
            () = alarm.ring(due, &self.clock) => {}
        }
    }

    /// Writes the last answers and ends the actors.
    async fn shut_down(mut self) {
        self.shell.conns.flush();
        self.shell.conns.finish();
        let conns = self.shell.conns.clone();
        let _ = tokio::time::timeout(Duration::from_millis(FLUSH_MS), conns.all_gone()).await;
        let actors = self.shell.actors.stop_all();
        let all = async {
            for actor in actors {
                // An error means that the actor panicked: it has ended, too.
                let _ = actor.await;
            }
        };
        if tokio::time::timeout(Duration::from_millis(ACTORS_END_MS), all).await.is_err() {
            tracing::debug!("an actor had not ended when the loop did");
        }
        // Child processes that ended by themselves have finished with the events of timers: delete the rows of those
        // timers.
        let now = self.clock.now();
        self.handle_queued(now);
        self.shell.carry_out(now);
        let written = self.shell.commits.all_written();
        if tokio::time::timeout(Duration::from_millis(FLUSH_MS), written).await.is_err() {
            tracing::warn!("rows of timers that have fired were not removed: they fire again");
        }
    }
}

/// Reads the clock again after a wait; never returns a time before `before`.
fn now_again(clock: &SystemClock, before: Now) -> Now {
    let now = clock.now();
    if now.mono < before.mono { before } else { now }
}

/// A timer that is reset only if it must fire earlier: most deadlines pass unused because their request was answered.
pub(crate) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    set_for: Option<Mono>,
}

impl Alarm {
    pub(crate) fn new() -> Alarm {
        Alarm { sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), set_for: None }
    }

    /// Waits until `due`, or returns somewhat earlier; waits for ever if nothing is due.
    async fn ring(&mut self, due: Option<Mono>, clock: &SystemClock) {
        let Some(due) = due else { return std::future::pending().await };
        let now = clock.now().mono;
        let due = due.min(now + WAIT_MS_MAX);
        if self.set_for.is_none_or(|at| at > due || at <= now) {
            self.set_for = Some(due);
            self.sleep.as_mut().reset(Instant::now() + clock.until(due));
        }
        self.sleep.as_mut().await;
        self.set_for = None;
    }
}
