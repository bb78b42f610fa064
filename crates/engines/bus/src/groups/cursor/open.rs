//! An event that was sent, or held back, and is not done.

use std::sync::Arc;

use millrace_model::{AttemptRow, Event, Mono, Timestamp};

use super::read_ahead::Fetched;
use crate::delivery::dead_letter::kept;
use crate::delivery::ended::EndedDelivery;
use crate::groups::sticky::KeyHash;
use crate::interface::input::ConnId;

#[derive(Debug)]
pub(crate) struct Open {
    /// `None` when the event was dropped from memory and must be read again before it can be sent.
    event: Option<Arc<Event>>,
    /// Attempts so far, the delivery under way included.
    attempts: u32,
    state: OpenState,
    /// The number of the event's latest delivery.
    delivered: u64,
    /// The number of the oldest delivery that an ack of `last` may mean: its latest one, or an earlier one that timed
    /// out unanswered on the same connection.
    ackable: u64,
    /// The number of the newest delivery, of any offset, when this one was last refused.
    refused: u64,
    /// The latest delivery was refused or given back, so no ack can mean it any more.
    answered: bool,
    /// Why the last delivery failed, for the dead letter.
    reason: Option<String>,
    /// The connection that had the event last: another one is preferred. `None` = it was not delivered since the server
    /// started.
    last: Option<ConnId>,
    /// When the event may be sent again, in elapsed time. Stored with the attempts, so that the event also waits over a
    /// restart.
    not_before: Option<Timestamp>,
    /// The event's key, while the group is sticky. Always set for an event that was dropped from memory, because the
    /// group may become sticky later.
    key: Option<KeyHash>,
}

/// A delivery under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) conn: ConnId,
    pub(crate) since: Mono,
    pub(crate) deadline: Mono,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenState {
    Leased(Lease),
    /// Listed in the window's `ready`.
    Ready,
    /// Never sent, because a lower event of its key is unfinished.
    Parked,
    /// The event's key belongs to a member that has no room. Listed in the window's `keyed`.
    Awaiting {
        member: ConnId,
    },
    Waiting {
        until: Mono,
    },
    /// To become a dead letter; listed in the window's `to_dead_letter`.
    ToDeadLetter,
    /// The event is being read again.
    Refetching,
}

impl OpenState {
    pub(super) fn is_leased(self) -> bool {
        matches!(self, OpenState::Leased(_))
    }
}

impl Open {
    fn new(event: Option<Arc<Event>>, attempts: u32, state: OpenState) -> Open {
        Open {
            event,
            attempts,
            state,
            delivered: 0,
            ackable: 0,
            refused: 0,
            answered: false,
            reason: None,
            last: None,
            not_before: None,
            key: None,
        }
    }

    pub(super) fn from_fetched(fetched: Fetched, state: OpenState, key: Option<KeyHash>) -> Open {
        let Fetched { event, attempts, not_before, reason } = fetched;
        Open { reason, not_before, key, ..Open::new(Some(event), attempts, state) }
    }

    /// An event that counted as done because its holder `last` acked a higher offset, and that `last` now refuses.
    pub(super) fn reopened(last: ConnId, attempts: u32, key: Option<KeyHash>) -> Open {
        Open { last: Some(last), key, ..Open::new(None, attempts, OpenState::Ready) }
    }

    pub(crate) fn event(&self) -> Option<&Arc<Event>> {
        self.event.as_ref()
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(crate) fn state(&self) -> OpenState {
        self.state
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    pub(crate) fn last(&self) -> Option<ConnId> {
        self.last
    }

    pub(crate) fn key(&self) -> Option<KeyHash> {
        self.key
    }

    /// Whether the event was sent since the server started.
    pub(crate) fn was_sent(&self) -> bool {
        self.last.is_some()
    }

    /// Whether the event was sent at any time, perhaps before the server started.
    pub(super) fn came_back(&self) -> bool {
        self.last.is_some() || self.attempts > 0
    }

    pub(crate) fn current_lease(&self) -> Option<Lease> {
        match self.state {
            OpenState::Leased(lease) => Some(lease),
            _ => None,
        }
    }

    /// The delivery under way, as it is told of when it ends.
    pub(crate) fn ended(&self) -> Option<EndedDelivery> {
        let lease = self.current_lease()?;
        Some(EndedDelivery { lease, attempts: self.attempts, event: self.event.clone() })
    }

    pub(super) fn into_ended(self) -> Option<EndedDelivery> {
        let lease = self.current_lease()?;
        Some(EndedDelivery { lease, attempts: self.attempts, event: self.event })
    }

    /// The connection that holds the event.
    pub(crate) fn holder(&self) -> Option<ConnId> {
        self.current_lease().map(|lease| lease.conn)
    }

    pub(crate) fn is_leased_to(&self, conn: ConnId) -> bool {
        self.holder() == Some(conn)
    }

    /// Whether an ack of `acked` by `conn` completes this lower event too: see `Window::completed_below`.
    pub(super) fn is_completed_with(&self, acked: &Open, conn: ConnId) -> bool {
        self.is_leased_to(conn) && self.delivered < acked.delivered && self.refused < acked.ackable
    }

    /// Bytes of the event's body, if it is in memory.
    pub(super) fn kept_bytes(&self) -> Option<usize> {
        self.event.as_ref().map(|event| event.body.bytes())
    }

    /// Attempts that have ended. The delivery under way is not one before it fails.
    fn attempts_ended(&self) -> u32 {
        self.attempts.saturating_sub(u32::from(self.state.is_leased()))
    }

    /// Whether the event needs a row of attempts. Most events do not: they are done after their first delivery.
    pub(super) fn needs_row(&self) -> bool {
        self.attempts_ended() != 0 || self.not_before.is_some() || self.reason.is_some()
    }

    /// The row of attempts. Only attempts that ended are written: a delivery that a crash cuts short must not count.
    pub(super) fn row(&self) -> AttemptRow {
        AttemptRow {
            attempts: self.attempts_ended(),
            not_before: self.not_before,
            reason: self.reason.as_deref().map(kept),
        }
    }

    pub(super) fn lease(&mut self, lease: Lease, delivery: u64) {
        self.attempts += 1;
        self.state = OpenState::Leased(lease);
        self.delivered = delivery;
        if self.answered || self.last != Some(lease.conn) {
            self.ackable = delivery;
        }
        self.answered = false;
        self.last = Some(lease.conn);
        self.not_before = None;
    }

    /// Records that the consumer could not handle the event; `delivery` is the newest delivery of any offset.
    pub(super) fn refuse(&mut self, delivery: u64) {
        self.answered = true;
        self.refused = delivery;
    }

    /// Takes back the delivery under way, as if it had not been.
    pub(super) fn give_back(&mut self) {
        self.attempts = self.attempts.saturating_sub(1);
        self.state = OpenState::Ready;
        self.answered = true;
    }

    pub(super) fn set_state(&mut self, state: OpenState) {
        self.state = state;
    }

    pub(super) fn set_reason(&mut self, reason: &str) {
        self.reason = Some(reason.to_owned());
    }

    pub(super) fn wait(&mut self, until: Mono, not_before: Timestamp) {
        self.state = OpenState::Waiting { until };
        self.not_before = Some(not_before);
    }

    /// Makes the event ready if its wait is over.
    pub(super) fn wake(&mut self, now: Mono) -> bool {
        let woken = matches!(self.state, OpenState::Waiting { until } if until <= now);
        if woken {
            self.state = OpenState::Ready;
            self.not_before = None;
        }
        woken
    }

    /// Notes the key, if it is not known yet.
    pub(super) fn learn_key(&mut self, hash: impl Fn(&str) -> KeyHash) {
        let key = self.event.as_ref().and_then(|event| event.body.key.as_deref());
        self.key = self.key.or_else(|| key.map(hash));
    }

    pub(super) fn put_body(&mut self, event: Arc<Event>) {
        self.event = Some(event);
    }

    pub(super) fn drop_body(&mut self) {
        self.event = None;
    }
}
