//! Supervises one child: runs its process, and decides after each end whether to start it again. Each process is
//! one *run* (`child_run.rs`).

use std::collections::VecDeque;
use std::time::Duration;

use millrace_kernel::Port;
use millrace_model::OsFault;
use millrace_router::Manifest;
use tokio::time::Instant;

use crate::child_run::{ChildExit, ChildRun};
use crate::process::{Pipes, Process};
use crate::settings::{ChildLimits, ChildSettings};
use crate::start::{self, StartError};

/// Why a child is not started again.
#[derive(Debug, thiserror::Error)]
enum GiveUp {
    /// The child hung, and its successor runs already.
    #[error("{why}")]
    Replaced { why: String },
    #[error("it ended ({why}) and is not to be started again")]
    NoRestart { why: String },
    #[error("it answered nothing in {runs} lives ({why})")]
    Silent { runs: usize, why: String },
    #[error("it was started again {restarts} times within {window_ms} ms ({why})")]
    TooOften { restarts: usize, window_ms: u64, why: String },
    /// The child of the next run has another manifest.
    #[error(transparent)]
    Changed(StartError),
}

/// Runs the child until the capability is retired.
pub(crate) async fn run(
    port: Port,
    settings: ChildSettings,
    limits: ChildLimits,
    manifest: Manifest,
    process: Process,
    pipes: Pipes,
) {
    let mut supervisor =
        Supervisor { port, settings, limits, manifest, restarts: VecDeque::new(), silent: 0, caution: 0 };
    // A child that replaces another one reads and writes nothing before that one has finished.
    if !supervisor.port.wait_for_predecessor().await {
        return;
    }
    let mut living = Some((process, pipes));
    while let Some((process, pipes)) = living.take() {
        supervisor.port.set_process(process.id());
        let Supervisor { port, limits, settings, caution, .. } = &supervisor;
        let next = match ChildRun::run(port, limits, settings.restart, *caution, process, pipes).await {
            ChildExit::Retired => return,
            ChildExit::Ended { why, begun, over, hung, silent, suspects } => {
                supervisor.caution = if suspects > 1 { supervisor.caution.saturating_add(1) } else { 0 };
                supervisor.silent = if silent { supervisor.silent + 1 } else { 0 };
                let name = supervisor.port.name();
                let fault = OsFault::new(
                    500,
                    match begun.as_slice() {
                        [] => format!("Capability '{name}' ended: {why}"),
                        _ => format!("Capability '{name}' ended before it answered"),
                    },
                );
                tracing::warn!(capability = %name, "it ended: {why}");
                supervisor.port.set_process(None);
                supervisor.port.crashed(begun, over, fault);
                // A hung child that is to be removed is not started again: its successor runs already, and the next
                // run would hang as well.
                if hung && supervisor.port.is_to_go().await {
                    Err(GiveUp::Replaced { why })
                } else {
                    supervisor.next_run(why).await
                }
            }
        };
        match next {
            Ok(next) => {
                supervisor.port.healthy();
                living = Some(next);
            }
            Err(reason) => supervisor.give_up(reason.to_string()).await,
        }
    }
}

struct Supervisor {
    port: Port,
    settings: ChildSettings,
    limits: ChildLimits,
    manifest: Manifest,
    /// Starts within the window.
    restarts: VecDeque<Instant>,
    /// Runs in a row without an answer. Counted apart from `restarts`, because giving up a request takes so long that
    /// the window would have passed.
    silent: usize,
    /// Runs in a row that left several suspects (events that may each have ended the child, see `given.rs`). Each such
    /// run makes the next one wait longer between two suspects.
    caution: u32,
}

impl Supervisor {
    /// Starts the next run after a pause.
    async fn next_run(&mut self, mut why: String) -> Result<(Process, Pipes), GiveUp> {
        if !self.settings.restart {
            return Err(GiveUp::NoRestart { why });
        }
        if self.silent > self.limits.restarts_max {
            return Err(GiveUp::Silent { runs: self.silent, why });
        }
        loop {
            let ChildLimits { restarts_max, restart_window_ms, restart_pause_ms, .. } = self.limits;
            let window = Duration::from_millis(restart_window_ms);
            while self.restarts.front().is_some_and(|at| at.elapsed() >= window) {
                self.restarts.pop_front();
            }
            if self.restarts.len() >= restarts_max {
                let (restarts, window_ms) = (restarts_max, restart_window_ms);
                return Err(GiveUp::TooOften { restarts, window_ms, why });
            }
            tokio::time::sleep(Duration::from_millis(restart_pause_ms)).await;
            self.restarts.push_back(Instant::now());
            match start::again(&self.settings, &self.limits, &self.manifest).await {
                Ok(next) => return Ok(next),
                Err(error @ StartError::Changed) => return Err(GiveUp::Changed(error)),
                Err(error) => {
                    tracing::warn!(capability = %self.settings.name, "{error}");
                    why = error.to_string();
                }
            }
        }
    }

    async fn give_up(&self, reason: String) {
        tracing::error!(capability = %self.settings.name, "unhealthy: {reason}");
        self.port.unhealthy(reason);
        // Discards messages that were posted meanwhile: the engine has answered for them as well.
        while self.port.next().await.is_some() {}
    }
}
