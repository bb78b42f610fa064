//! The two lanes of macrotasks, and the microtasks (bookkeeping) that end a turn.
//!
//! Strict priority: a system message always goes first. User messages still do not starve, because admission is
//! limited: between two user messages at most [`Lanes::system_max`] system messages may enter their lane.

use std::collections::VecDeque;

use millrace_model::{Mono, OsId, OsMessage, Requester};

use crate::interface::input::{CapabilityId, ConnId, DeliveryId, Receipt};
use crate::interface::note::{Audience, Cause, Note};
use crate::reports::trace::Realm;
use crate::timing::timers::TimerMessage;

/// A macrotask: a message or timeout that waits for its turn.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// A client's message. `by` is the sender's identity at the time, because the connection may be closed before this
    /// turn.
    Client {
        conn: ConnId,
        by: Requester,
        /// When the message arrived: its timeout counts from there.
        at: Mono,
        message: OsMessage,
    },
    Actor(Emitted),
    Bus {
        to: CapabilityId,
        receipt: Receipt,
        message: OsMessage,
    },
    /// The message that a timer was set to send, or its `Timer.Fired`.
    Fired {
        timer: u64,
        which: TimerMessage,
        message: OsMessage,
    },
    /// An event of the loop about itself.
    Own {
        /// The capability that caused the event, which is not told.
        except: Option<CapabilityId>,
        message: OsMessage,
    },
    /// A request has timed out: the loop's own `Sys.RequestTimeout`, as a task and not as a message (point 14 of the
    /// specification's list).
    Timeout {
        id: OsId,
        delivery: DeliveryId,
    },
}

/// A message that an actor emitted.
#[derive(Clone, Debug)]
pub(crate) struct Emitted {
    pub(crate) from: CapabilityId,
    /// The delivery that the actor was working on at the time, if the shell could tell.
    pub(crate) in_progress: Option<InProgress>,
    pub(crate) message: OsMessage,
    /// For an outcome: the delivery that it answers. Determined when the message was emitted, because the actor may be
    /// working on another delivery when its turn comes.
    pub(crate) answers: Answers,
    /// Whether the message really follows from the cause that it names. Determined when it was emitted, like `answers`.
    pub(crate) follows: bool,
    pub(crate) wait: bool,
    pub(crate) at: Mono,
}

/// The delivery that an actor was working on when it emitted a message; a fault is charged to it.
#[derive(Clone, Debug)]
pub(crate) struct InProgress {
    pub(crate) id: OsId,
    pub(crate) correlation: Option<OsId>,
    pub(crate) delivery: DeliveryId,
    /// The message is of the domain `Sys`: the loop talks about itself.
    pub(crate) is_sys: bool,
    pub(crate) realm: Realm,
}

/// Which delivery of a request an outcome is meant for: request ids may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// Exactly this delivery.
    Exactly(DeliveryId),
    /// Any delivery up to this one, the last at the time the outcome was emitted.
    UpTo(DeliveryId),
}

/// Bookkeeping at the end of a turn. No microtask can create another: see `drain_microtasks` in `router.rs`.
#[derive(Clone, Debug)]
pub(crate) enum Microtask {
    Answer { conn: ConnId, message: OsMessage },
    Release { conn: ConnId },
    Note { note: Note, to: Audience, cause: Option<Cause> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    System,
    User,
}

#[derive(Debug)]
pub(crate) struct Lanes {
    system: VecDeque<Task>,
    user: VecDeque<Task>,
    system_max: usize,
    user_max: usize,
    /// How many more tasks may enter the system lane before the next user message.
    allowance: usize,
}

impl Lanes {
    pub(crate) fn new(system_max: usize, user_max: usize) -> Lanes {
        let (system, user) = (VecDeque::new(), VecDeque::new());
        Lanes { system, user, system_max, user_max, allowance: system_max }
    }

    /// Takes the next task, from the system lane first.
    pub(crate) fn next(&mut self) -> Option<(Lane, Task)> {
        if let Some(task) = self.system.pop_front() {
            if self.user.is_empty() {
                self.renew();
            }
            return Some((Lane::System, task));
        }
        let task = self.user.pop_front();
        self.renew();
        task.map(|task| (Lane::User, task))
    }

    fn renew(&mut self) {
        self.allowance = self.system_max.saturating_sub(self.system.len());
    }

    pub(crate) fn system_has_room(&self) -> bool {
        self.allowance > 0
    }

    /// Returns false, and does nothing, if the system lane admits no more for now.
    pub(crate) fn push_system(&mut self, task: Task) -> bool {
        if self.allowance == 0 {
            return false;
        }
        self.allowance -= 1;
        self.system.push_back(task);
        true
    }

    pub(crate) fn user_has_room(&self) -> bool {
        self.user.len() < self.user_max
    }

    /// Does not check the limit: for tasks that must not be dropped and are bounded elsewhere.
    pub(crate) fn push_user(&mut self, task: Task) {
        self.user.push_back(task);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.system.is_empty() && self.user.is_empty()
    }

    pub(crate) fn lengths(&self) -> (usize, usize) {
        (self.system.len(), self.user.len())
    }

    /// Empties the user lane, for a stop without a grace period.
    pub(crate) fn take_user(&mut self) -> VecDeque<Task> {
        std::mem::take(&mut self.user)
    }
}
