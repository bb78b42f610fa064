//! The commands to the host's thread, and their queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::HostStopped;
use super::launch::{Launch, RunStartError};
use super::outcome::RunNumber;
use crate::guest::InstanceId;
use crate::handlers::HandlerSlot;
use crate::instance::InstanceState;

/// A command for the host's thread.
pub(crate) enum HostCommand {
    Add {
        id: InstanceId,
        state: Box<InstanceState>,
        handlers: Vec<HandlerSlot>,
    },
    /// No further runs of the instance will be started.
    Remove {
        id: InstanceId,
    },
    /// Starts these runs, at once and in this order.
    Start(Vec<Launch>),
    /// The outcome is decided already; the scheduler must release the run.
    Cancel {
        run: RunNumber,
    },
    /// A cancellation of a run that already had its outcome: for the observer.
    CancelRefused {
        run: RunNumber,
    },
    Stop,
}

impl HostCommand {
    /// Whether the steps of a tick end when this command arrives.
    fn is_urgent(&self) -> bool {
        matches!(self, HostCommand::Cancel { .. } | HostCommand::Stop)
    }
}

/// Refused cancellations that wait for the host's thread. The observer is not told of further ones.
const REFUSED_CANCELS_MAX: usize = 1_024;

/// The queue of commands. Bounded by the number of runs and instances: each is started, cancelled and removed once.
/// Refused cancellations have a bound of their own.
pub(crate) struct CommandInbox {
    state: Mutex<CommandInboxState>,
    /// An urgent command waits. Checked after every step, so it is readable without the lock.
    urgent: AtomicBool,
    /// Notified for every command, and by everything else that the host's thread must react to.
    pub(crate) wake: Arc<Notify>,
    runs_max: usize,
}

#[derive(Default)]
struct CommandInboxState {
    commands: VecDeque<HostCommand>,
    last_run: u64,
    last_instance: u64,
    active_runs: usize,
    refused_cancels: usize,
    stopped: bool,
}

impl CommandInbox {
    pub(crate) fn new(runs_max: usize) -> CommandInbox {
        CommandInbox {
            state: Mutex::default(),
            urgent: AtomicBool::new(false),
            wake: Arc::default(),
            runs_max,
        }
    }

    pub(crate) fn next_instance(&self) -> u64 {
        let mut state = self.state.lock();
        state.last_instance += 1;
        state.last_instance
    }

    pub(crate) fn push(&self, command: HostCommand) -> Result<(), HostStopped> {
        let mut state = self.state.lock();
        if state.stopped {
            return Err(HostStopped);
        }
        if command.is_urgent() {
            self.urgent.store(true, SeqCst);
        }
        state.commands.push_back(command);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// Queues a notice for the observer that a cancellation came too late.
    pub(crate) fn push_refused_cancel(&self, run: RunNumber) {
        let mut state = self.state.lock();
        if state.stopped || state.refused_cancels >= REFUSED_CANCELS_MAX {
            return;
        }
        state.refused_cancels += 1;
        state.commands.push_back(HostCommand::CancelRefused { run });
        drop(state);
        self.wake.notify_one();
    }

    /// Numbers the runs and queues them. Numbers are given in the order in which the scheduler starts the runs, so they
    /// equal the scheduler's own.
    pub(crate) fn push_starts(&self, mut launches: Vec<Launch>) -> Result<Vec<RunNumber>, RunStartError> {
        let mut state = self.state.lock();
        if state.stopped {
            return Err(HostStopped.into());
        }
        if state.active_runs.saturating_add(launches.len()) > self.runs_max {
            return Err(RunStartError::TooManyRuns { max: self.runs_max });
        }
        state.active_runs += launches.len();
        for launch in &mut launches {
            state.last_run += 1;
            launch.number = RunNumber(state.last_run);
        }
        let numbers = launches.iter().map(|launch| launch.number).collect();
        state.commands.push_back(HostCommand::Start(launches));
        drop(state);
        self.wake.notify_one();
        Ok(numbers)
    }

    pub(crate) fn drain(&self) -> VecDeque<HostCommand> {
        let mut state = self.state.lock();
        state.refused_cancels = 0;
        self.urgent.store(false, SeqCst);
        std::mem::take(&mut state.commands)
    }

    /// Whether an urgent command waits, which ends the steps of a tick.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent.load(SeqCst)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().commands.is_empty()
    }

    pub(crate) fn run_ended(&self) {
        self.state.lock().active_runs -= 1;
    }

    /// Refuses everything from now on. Returns the commands that nobody will carry out.
    pub(crate) fn stop(&self) -> VecDeque<HostCommand> {
        let mut state = self.state.lock();
        state.stopped = true;
        std::mem::take(&mut state.commands)
    }
}
