//! Turns of the host's thread, and waiting between them.

use millrace_model::Mono;
use millrace_runs::{Answer, CallId, Disposition, HandlerError, Input, NewRun, RunId};

use super::futures::{Finished, Polled};
use super::{Driver, Hosted, POLLS_PER_TURN_MAX, RunEntry};
use crate::guest::InstanceId;
use crate::host::clock::HostClock;
use crate::host::inbox::HostCommand;
use crate::host::launch::Launch;
use crate::host::observe::RunEvent;
use crate::host::outcome::{EffectOutcome, RunNumber};
use crate::value::Value;

/// Whether a turn left work for the next one.
enum Turned {
    WorkLeft,
    Idle,
    Stopped,
}

impl Driver {
    pub(crate) async fn run(mut self) {
        loop {
            match self.turn() {
                Turned::Stopped => return,
                // Lets the runtime's own tasks and I/O make progress.
                Turned::WorkLeft => tokio::task::yield_now().await,
                Turned::Idle => self.idle().await,
            }
        }
    }

    fn turn(&mut self) -> Turned {
        for command in self.inbox.drain() {
            if !self.obey(command) {
                return Turned::Stopped;
            }
        }
        self.start_waiting();
        self.set_sleeps();
        self.cancel_due();
        let now = self.now();
        self.runs.tick(now);
        self.carry_out_effects();
        self.complete_deferred();
        let tick_ends = now + self.tick_ms_max;
        while self.runs.step(&mut self.instances) {
            self.carry_out_effects();
            // Checked between two steps, so that a tick takes at least one step.
            if self.inbox.is_urgent() || self.tools.clock.has_passed(tick_ends) {
                break;
            }
        }
        let polled_all = self.poll_handlers();
        self.set_sleeps();
        let now = self.now();
        let is_due = self.next_deadline().is_some_and(|at| at <= now);
        if is_due || !polled_all || !self.inbox.is_empty() { Turned::WorkLeft } else { Turned::Idle }
    }

    /// Carries out a command. Returns false if the host is to stop.
    fn obey(&mut self, command: HostCommand) -> bool {
        match command {
            HostCommand::Add { id, state, handlers } => {
                self.instances.insert(id, *state);
                self.hosted.insert(id, Hosted { handlers, active_runs: 0, unused: false });
            }
            HostCommand::Remove { id } => {
                if let Some(hosted) = self.hosted.get_mut(&id) {
                    hosted.unused = true;
                }
                self.free_if_unused(id);
            }
            HostCommand::Start(launches) => {
                for launch in &launches {
                    if let Some(hosted) = self.hosted.get_mut(&launch.guest.instance) {
                        hosted.active_runs += 1;
                    }
                }
                self.waiting_starts.extend(launches);
                self.start_waiting();
            }
            HostCommand::Cancel { run } => self.cancel(run),
            HostCommand::CancelRefused { run } => self.observe(RunEvent::Cancel { run, accepted: false }),
            HostCommand::Stop => return false,
        }
        true
    }

    /// Starts runs in their order, as far as the scheduler has room.
    fn start_waiting(&mut self) {
        while let Some(launch) = self.waiting_starts.pop_front() {
            let Launch { number, guest, module, cell, cancel_after_ms } = launch;
            let now = self.now();
            let deadline = guest.limits.wall_ms_max.map(|ms| self.tools.clock.after_ms(ms));
            let (instance, export) = (guest.instance, guest.export.clone());
            let operations = module.info.operations.clone();
            match self.runs.start(now, NewRun { guest, operations, deadline }) {
                Ok(id) => {
                    let cancel_at = cancel_after_ms.map(|ms| self.tools.clock.after_ms(ms));
                    if let Some(at) = cancel_at {
                        self.cancels.insert((at, id.serial()), id);
                    }
                    let was_cancelled = cell.0.is_decided();
                    let entry = RunEntry {
                        id,
                        instance,
                        export: export.clone(),
                        module,
                        cell,
                        cancel_at,
                        cancel_is_told: false,
                        working: None,
                    };
                    self.entries.insert(id.serial(), entry);
                    self.observe(RunEvent::Started { run: id.into(), export: &export });
                    if was_cancelled {
                        self.end_cancelled(id);
                    }
                }
                Err(refused) => {
                    let guest = refused.guest;
                    self.waiting_starts.push_front(Launch { number, guest, module, cell, cancel_after_ms });
                    return;
                }
            }
        }
    }

    pub(super) fn free_if_unused(&mut self, id: InstanceId) {
        let is_unused = self.hosted.get(&id).is_some_and(|hosted| hosted.unused && hosted.active_runs == 0);
        if is_unused {
            self.hosted.remove(&id);
            self.instances.remove(&id);
        }
    }

    /// Ends a run whose cancellation the caller has decided already. A run that still waits to be started is cancelled
    /// when its turn comes.
    fn cancel(&mut self, run: RunNumber) {
        if let Some(id) = self.entries.get(&run.0).map(|entry| entry.id) {
            self.end_cancelled(id);
        }
    }

    fn cancel_due(&mut self) {
        let now = self.now();
        while let Some(entry) = self.cancels.first_entry().filter(|entry| entry.key().0 <= now) {
            let id = entry.remove();
            if let Some(entry) = self.entries.get(&id.serial()) {
                entry.cell.0.decide(EffectOutcome::Cancelled { reason: None });
                self.end_cancelled(id);
            }
        }
    }

    fn end_cancelled(&mut self, id: RunId) {
        let now = self.now();
        if let Some(entry) = self.entries.get_mut(&id.serial()) {
            entry.cancel_is_told = true;
            self.observe(RunEvent::Cancel { run: id.into(), accepted: true });
        }
        // The scheduler never refuses a cancellation; the outcome that counts is in the run's cell.
        let _ = self.runs.handle(now, Input::Cancel { run: id, reason: None });
        self.carry_out_effects();
    }

    /// Tells the scheduler of sleeps that handlers asked for.
    fn set_sleeps(&mut self) {
        for request in self.tools.sleeps.take_requests() {
            let now = self.now();
            let input = Input::WakeAt { call: request.call, at: request.at, token: request.token };
            let refused = match self.runs.handle(now, input) {
                Ok(Disposition::Accepted) => continue,
                Ok(Disposition::Dropped) => HandlerError::new("the run has ended, or has its answer already"),
                Err(refused) => HandlerError::new(refused.to_string()),
            };
            self.tools.sleeps.finish(request.token, Err(refused));
        }
    }

    /// Polls the futures of handlers. Returns false if some future wants to be polled again at once.
    fn poll_handlers(&mut self) -> bool {
        for _ in 0..POLLS_PER_TURN_MAX {
            if !self.deferred.is_empty() {
                return false;
            }
            match self.handlers.poll() {
                Polled::Finished(finished) => self.finished(finished),
                Polled::AllWaiting => return true,
                Polled::Again => {}
            }
        }
        false
    }

    fn finished(&mut self, (call, result): Finished) {
        if let Some(result) = result {
            let answer = self.answer_of(call, result);
            self.complete(call, answer);
        }
    }

    fn complete(&mut self, call: CallId, answer: Answer<Value>) {
        let now = self.now();
        let again = (call, answer.clone());
        // An answer to a run that has ended is dropped. A full queue is emptied by the next tick.
        if self.runs.handle(now, Input::Completed { call, answer }).is_err() {
            self.deferred.push_back(again);
        }
    }

    fn complete_deferred(&mut self) {
        for (call, answer) in std::mem::take(&mut self.deferred) {
            self.complete(call, answer);
        }
    }

    fn next_deadline(&self) -> Option<Mono> {
        let cancel = self.cancels.keys().next().map(|(at, _)| *at);
        [self.runs.next_deadline(), cancel].into_iter().flatten().min()
    }

    /// Waits until there is something to do. A virtual clock is moved instead, if no handler holds it.
    async fn idle(&mut self) {
        if let HostClock::Virtual(clock) = &self.tools.clock {
            let clock = clock.clone();
            // Everything that the runtime has ready comes before the clock moves.
            tokio::task::yield_now().await;
            match self.handlers.poll() {
                Polled::Finished(finished) => return self.finished(finished),
                Polled::Again => return,
                Polled::AllWaiting => self.set_sleeps(),
            }
            if let Some(at) = self.next_deadline().filter(|_| self.inbox.is_empty() && !clock.is_held()) {
                return clock.move_to(at);
            }
        }
        let clock = match &self.tools.clock {
            HostClock::Real(clock) => Some(clock.clone()),
            HostClock::Virtual(_) => None,
        };
        let at = self.next_deadline();
        let wake = self.inbox.wake.clone();
        let deadline = async {
            match clock.zip(at) {
                Some((clock, at)) => tokio::time::sleep(clock.until(at)).await,
                None => std::future::pending().await,
            }
        };
        let finished = tokio::select! {
            biased;
            () = wake.notified() => None,
            finished = self.handlers.next() => Some(finished),
            () = deadline => None,
        };
        if let Some(finished) = finished {
            self.finished(finished);
        }
    }
}
