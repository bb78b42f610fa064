//! The two macrotask lanes, and the bookkeeping that ends a turn.
//!
//! Strict priority: a system message always goes first. That users do not starve is the entrance's doing: between two
//! user messages at most [`Lanes::system_max`] system messages are let in.

use std::collections::VecDeque;

use millrace_model::{Mono, OsId, OsMessage};

use crate::input::{By, CapabilityId, ConnId, DeliveryId, Receipt};
use crate::note::{Audience, Cause, Note};
use crate::timers::TimerMessage;
use crate::trace::Realm;

/// One macrotask.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// With who it was when it sent it: it may be gone by its turn.
    Client {
        conn: ConnId,
        by: By,
        /// When it arrived: its patience counts from there.
        at: Mono,
        message: OsMessage,
    },
    Actor(Said),
    Bus {
        to: CapabilityId,
        receipt: Receipt,
        message: OsMessage,
    },
    /// What a timer was to send, or its `Timer.Fired`.
    Fired {
        timer: u64,
        which: TimerMessage,
        message: OsMessage,
    },
    /// An event of the loop about itself.
    Own {
        /// Who gave rise to it and is not told.
        except: Option<CapabilityId>,
        message: OsMessage,
    },
    /// A request's time is up: the loop's own `Sys.RequestTimeout`, as a job and not as a message (point 14 of the
    /// specification's list).
    Timeout {
        id: OsId,
        delivery: DeliveryId,
    },
}

/// What an actor said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) from: CapabilityId,
    /// What it had in hand when it said it, if it could tell.
    pub(crate) hand: Option<InHand>,
    pub(crate) message: OsMessage,
    /// For an outcome: what it answers. Found out when it was said, because what the actor has in hand may be
    /// something else by the time this has its turn.
    pub(crate) answers: Answers,
    /// Whether it follows from what it names as its cause. Found out when it was said, like `answers`.
    pub(crate) follows: bool,
    pub(crate) wait: bool,
    pub(crate) at: Mono,
}

/// What an actor had in hand, and is blamed for.
#[derive(Clone, Debug)]
pub(crate) struct InHand {
    pub(crate) id: OsId,
    pub(crate) correlation: Option<OsId>,
    pub(crate) delivery: DeliveryId,
    /// It is talk of the loop about itself.
    pub(crate) is_sys: bool,
    pub(crate) realm: Realm,
}

/// Which use of a request id an outcome is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// This delivery and no other.
    Exactly(DeliveryId),
    /// Whichever the actor had been given by then.
    UpTo(DeliveryId),
}

/// Bookkeeping at the end of a turn. None of these can make another one: what they may touch is fixed by
/// [`crate::Router::turn`].
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
    /// How many more may enter the system lane before the next user message.
    allowance: usize,
}

impl Lanes {
    pub(crate) fn new(system_max: usize, user_max: usize) -> Lanes {
        let (system, user) = (VecDeque::new(), VecDeque::new());
        Lanes { system, user, system_max, user_max, allowance: system_max }
    }

    /// System first.
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

    /// For the simulator's deliberate bug only.
    pub(crate) fn open_wide(&mut self) {
        self.allowance = usize::MAX;
    }

    fn renew(&mut self) {
        self.allowance = self.system_max.saturating_sub(self.system.len());
    }

    pub(crate) fn system_has_room(&self) -> bool {
        self.allowance > 0
    }

    /// False, and nothing done, when it may not enter now.
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

    /// Past the bound too: for what must not be dropped and is bounded elsewhere.
    pub(crate) fn push_user(&mut self, task: Task) {
        self.user.push_back(task);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.system.is_empty() && self.user.is_empty()
    }

    pub(crate) fn lengths(&self) -> (usize, usize) {
        (self.system.len(), self.user.len())
    }

    /// For a stop that waits no longer.
    pub(crate) fn take_user(&mut self) -> VecDeque<Task> {
        std::mem::take(&mut self.user)
    }
}
