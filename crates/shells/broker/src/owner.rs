//! The owner: the only part that touches the engine, run by one thread at a time (see `workers.rs`).
//!
//! A turn passes the waiting inputs to the engine, settles once, and carries out the effects. Completions come first,
//! because they free what requests need. While the writer's backlog is full, requests stay in the inbox; its room then
//! runs out, so the edges stop reading.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use millrace_bus::{Bus, Input};
use millrace_model::Now;

use crate::command::{BrokerTurn, Command};
use crate::dispatch::{Dispatch, Feedback};
use crate::shared::BrokerShared;

pub(crate) struct Owner {
    /// Tells everybody when the owner is dropped, also by a panic. The first field, so that it is dropped first.
    _ended: EndInbox,
    shared: Arc<BrokerShared>,
    bus: Bus,
    dispatch: Dispatch,
    feedback: Vec<Feedback>,
    /// How many impossible states of the engine were logged.
    never_logged: u64,
}

impl Owner {
    pub(crate) fn new(shared: Arc<BrokerShared>, bus: Bus, dispatch: Dispatch) -> Owner {
        let ended = EndInbox(shared.clone());
        Owner { _ended: ended, shared, bus, dispatch, feedback: Vec::new(), never_logged: 0 }
    }

    /// Handles the inputs of `turn` and leaves it empty. Returns how long the engine can do without another turn.
    pub(crate) fn turn(&mut self, turn: &mut BrokerTurn) -> Duration {
        let now = self.shared.clock.now();
        self.shared.metrics.turns.fetch_add(1, Relaxed);
        for input in turn.completions.drain(..) {
            self.completion(now, input);
        }
        for command in turn.requests.drain(..) {
            self.command(now, command);
        }
        self.bus.settle(now);
        let never = self.bus.never_count();
        if never > self.never_logged {
            self.never_logged = never;
            tracing::error!(
                states = never,
                "the engine of the bus was in a state that cannot occur: report this bug"
            );
        }
        for effect in self.bus.drain() {
            self.dispatch.effect(effect);
        }
        let mut feedback = std::mem::take(&mut self.feedback);
        self.dispatch.hand_over(&mut feedback);
        if self.shared.health.storage_failed().is_some() {
            self.shared.health.set_failure_told();
        }
        let wait = if feedback.is_empty() { self.wait() } else { Duration::ZERO };
        for news in feedback.drain(..) {
            self.feedback(now, news);
        }
        self.feedback = feedback;
        wait
    }

    fn wait(&self) -> Duration {
        let longest = Duration::from_millis(self.shared.settings.wait_ms_max);
        self.bus.next_deadline().map_or(longest, |at| self.shared.clock.until(at).min(longest))
    }

    fn completion(&mut self, now: Now, input: Input) {
        match &input {
            // The connection is congested again since it reported relief: it will report again.
            Input::Drained { conn } if !self.dispatch.relieved(*conn) => return,
            Input::StorageFailed { reason } => {
                self.shared.health.set_storage_failed(reason.clone());
                // Nothing can become durable any more: a stop has nothing to wait for.
                self.dispatch.set_stopped();
            }
            _ => {}
        }
        self.bus.handle(now, input);
    }

    fn command(&mut self, now: Now, command: Command) {
        let input = match command {
            Command::Request { to, by, request, checked } => Input::Request { to, by, request, checked },
            Command::Call { answer, by, request, checked } => {
                Input::Request { to: self.dispatch.expect(answer), by, request, checked }
            }
            Command::Open { conn, namespace, outbox } => {
                self.dispatch.open(conn, outbox);
                Input::Open { conn, namespace }
            }
            Command::Close { conn, evicted } if self.dispatch.close(conn) => match evicted {
                true => Input::Evict { conn },
                false => Input::Close { conn },
            },
            Command::Close { .. } => return,
            Command::Stop { stopped } => {
                self.dispatch.expect_stop(stopped);
                Input::Stop
            }
        };
        self.bus.handle(now, input);
    }

    fn feedback(&mut self, now: Now, news: Feedback) {
        match news {
            Feedback::Congested(conn) => self.bus.handle(now, Input::Congested { conn }),
            Feedback::Overrun(conn) => {
                tracing::warn!(conn = conn.0, "a connection was dropped: it did not read what it asked for");
                self.shared.metrics.dropped_slow.fetch_add(1, Relaxed);
                self.dispatch.close(conn);
                self.bus.handle(now, Input::Close { conn });
            }
        }
    }
}

struct EndInbox(Arc<BrokerShared>);

impl Drop for EndInbox {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.health.set_storage_failed("the owner thread fell over a bug".to_owned());
        }
        self.0.backlog.end();
        self.0.inbox.end();
        self.0.ended.send_replace(true);
    }
}
