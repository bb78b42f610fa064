//! Timers: never early, never lost; equal deadlines fire in the order they were set.
//!
//! A durable timer is armed once its row is stored. Its row is deleted when the message it sent is dealt with: every
//! subscriber has finished with the event, or the request was answered. After a crash in between the timer fires again,
//! with the same ids.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_model::{Actor, ElapsedTime, Mono, Now, Op, OsId, Principal, Requester, Space, keys};

use crate::interface::input::{CapabilityId, CommitToken, ConnId};
use crate::interface::note::Cause;
use crate::timing::builtin::BuiltinCall;
use crate::timing::template::TimerRow;
use crate::timing::timer_queue::{Armed, TimerQueue};

/// Prefix of the keys of timers' rows in [`Space::Kv`].
pub const TIMER_PREFIX: &str = "router/timer/";

/// The owner of a timer: who set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Client(ConnId),
    Actor,
    /// Set before this process started, or by a client that disconnected before its request had its turn.
    Before,
}

#[derive(Debug)]
pub(crate) struct Timer {
    pub(crate) name: Arc<str>,
    pub(crate) row: TimerRow,
    pub(crate) owner: Owner,
    pub(crate) durable: bool,
    /// Its position in the queue; `None` while a commit of its row is under way, and after it fired.
    pub(crate) armed: Option<Armed>,
    /// How far the timer's two messages are: `Timer.Fired`, and the message it was set to send.
    pub(crate) fired: Sending,
    pub(crate) sent: Sending,
    /// How many of its events subscribers have not finished with.
    pub(crate) owed: usize,
    /// The timer has fired, and `Sys.TimerFired` was emitted.
    pub(crate) announced: bool,
    /// The agent that set the timer, once the shell has confirmed its rights ([`crate::Input::SenderChecked`]).
    pub(crate) checked: Option<Arc<Principal>>,
    /// When the timer is given up as lost; set once its message found no subscriber, or one that answered 503.
    pub(crate) give_up_at: Option<Mono>,
}

/// Selects one of the two messages of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerMessage {
    /// `Timer.Fired`.
    Fired,
    /// The message it was set to send.
    Sent,
}

/// How far one of the timer's two messages is.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    pub(crate) step: SendStep,
    /// Subscribers that have the message: when the timer tries again for others, these do not get it twice.
    pub(crate) taken: BTreeSet<Arc<str>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SendStep {
    /// To be sent when the timer is due or tries again.
    #[default]
    Due,
    /// In a lane, or a request that waits for its outcome.
    UnderWay,
    /// No further subscriber is to get it.
    Over,
}

impl Timer {
    pub(crate) fn new(name: Arc<str>, row: TimerRow, owner: Owner, durable: bool) -> Timer {
        let (fired, sent) = (Sending::default(), Sending::default());
        Timer {
            name,
            row,
            owner,
            durable,
            armed: None,
            fired,
            sent,
            owed: 0,
            announced: false,
            checked: None,
            give_up_at: None,
        }
    }

    pub(crate) fn sending(&mut self, which: TimerMessage) -> &mut Sending {
        match which {
            TimerMessage::Fired => &mut self.fired,
            TimerMessage::Sent => &mut self.sent,
        }
    }

    /// On whose behalf the timer acts. `None` while the rights of the agent that set it are not confirmed.
    pub(crate) fn requester(&self) -> Option<Requester> {
        match self.row.by {
            None => Some(Requester::Trusted),
            Some(_) => self.checked.clone().map(Requester::Agent),
        }
    }

    /// The agent whose share of timers it counts against. Its row records the agent, so it still counts after a
    /// restart.
    fn sharer(&self) -> Option<&Actor> {
        self.row.by.as_ref()?.sharer()
    }

    /// The `Timer.Set` the timer follows from, with its correlation.
    pub(crate) fn cause(&self) -> Option<Cause> {
        let correlation = self.row.correlation.as_deref().and_then(|id| OsId::new(id).ok());
        Some(Cause { id: OsId::new(&self.row.set_by).ok()?, correlation })
    }
}

/// The purpose of a commit.
#[derive(Debug)]
pub(crate) enum TimerCommit {
    Set {
        timer: u64,
        armed: Armed,
        ask: BuiltinCall,
    },
    Cancel {
        timer: u64,
        armed: Armed,
        ask: BuiltinCall,
    },
    Forget {
        timer: Arc<str>,
        cause: Option<Cause>,
    },
    /// The elapsed time, stored beside the wall time.
    Elapsed,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    pub(crate) all: BTreeMap<u64, Timer>,
    by_name: BTreeMap<Arc<str>, u64>,
    pub(crate) queue: TimerQueue,
    /// Until when timers' messages to a capability are held back: one of them found no room there, and no younger one
    /// may overtake it.
    pub(crate) held: BTreeMap<CapabilityId, Mono>,
    /// Timers that were due while nobody subscribes to their event.
    pub(crate) unheard: BTreeSet<u64>,
    commits: BTreeMap<CommitToken, TimerCommit>,
    /// The clock on which delays of durable timers are counted. `None` until the rows of the previous process are
    /// known.
    pub(crate) elapsed: Option<ElapsedTime>,
    /// How many timers each agent has set. Timers of administrators count against no share.
    by_agent: BTreeMap<Actor, usize>,
    pub(crate) next: u64,
    next_token: u64,
}

impl Timers {
    pub(crate) fn first_due(&self) -> Option<Mono> {
        self.queue.first()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn owner(&self, timer: u64) -> Owner {
        self.all.get(&timer).map_or(Owner::Before, |one| one.owner)
    }

    /// Whether the agent has set half of the `max` timers that all may set together. Administrators, and callers
    /// without a token, have no share to fill.
    pub(super) fn fills_share(&self, by: &Requester, max: usize) -> bool {
        let sharer = by.principal().filter(|by| !by.is_administrator());
        let held = sharer.and_then(|by| self.by_agent.get(&by.agent)).copied();
        held.is_some_and(|held| held >= max / 2)
    }

    fn forget_share(&mut self, agent: &Actor) {
        if let Some(held) = self.by_agent.get_mut(agent) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.by_agent.remove(agent);
            }
        }
    }

    /// Compares the indexes of the timers with the timers themselves. See `invariants.rs`.
    pub(crate) fn check_indexes(&self) {
        let names = self.all.iter().map(|(number, timer)| (&timer.name, number));
        assert!(self.by_name.iter().eq(names.collect::<BTreeMap<_, _>>()), "timers and their names differ");
        let mut shares = BTreeMap::new();
        for agent in self.all.values().filter_map(Timer::sharer) {
            *shares.entry(agent.clone()).or_insert(0) += 1;
        }
        assert_eq!(self.by_agent, shares, "agents have set other numbers of timers than are counted");
        let armed = self.all.values().filter_map(|timer| Some(timer.armed?.at)).min();
        assert_eq!(self.queue.first(), armed, "the queue does not begin with the first timer");
    }

    /// Each timer is in the queue at most once: if it is there already, the earlier time counts.
    pub(crate) fn arm(&mut self, timer: u64, armed: Armed) {
        let Some(one) = self.all.get_mut(&timer) else { return };
        if let Some(before) = one.armed {
            if before.at <= armed.at {
                return;
            }
            self.queue.remove(timer, before);
        }
        one.armed = Some(armed);
        self.queue.add(timer, armed);
    }

    /// Takes the first timer that is due out of the queue.
    pub(crate) fn take_due(&mut self, now: Now) -> Option<u64> {
        let due = self.queue.due(now, |timer| self.all.get(&timer).and_then(|one| one.armed))?;
        self.disarm(due);
        Some(due)
    }

    pub(crate) fn disarm(&mut self, timer: u64) -> Option<Armed> {
        let armed = self.all.get_mut(&timer)?.armed.take()?;
        self.queue.remove(timer, armed);
        Some(armed)
    }

    /// The write that stores the elapsed time beside the wall time.
    pub(super) fn put_elapsed(&mut self, now: Now) -> Option<Op> {
        let value = self.elapsed.as_mut()?.write(now).encode();
        Some(Op::Put { space: Space::Kv, key: keys::ROUTER_ELAPSED.to_owned(), value })
    }

    /// Adds a timer, which is not armed yet.
    pub(super) fn insert(&mut self, number: u64, timer: Timer) {
        if let Some(agent) = timer.sharer() {
            *self.by_agent.entry(agent.clone()).or_default() += 1;
        }
        self.by_name.insert(timer.name.clone(), number);
        self.all.insert(number, timer);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Timer> {
        self.disarm(number);
        self.unheard.remove(&number);
        let timer = self.all.remove(&number)?;
        self.by_name.remove(&timer.name);
        if let Some(agent) = timer.sharer() {
            self.forget_share(agent);
        }
        Some(timer)
    }

    pub(super) fn named(&self, name: &str) -> Option<u64> {
        self.by_name.get(name).copied()
    }

    /// Returns what a commit was for, once it has ended.
    pub(super) fn complete(&mut self, token: CommitToken) -> Option<TimerCommit> {
        self.commits.remove(&token)
    }

    pub(crate) fn token(&mut self, stored: TimerCommit) -> CommitToken {
        self.next_token += 1;
        let token = CommitToken(self.next_token);
        self.commits.insert(token, stored);
        token
    }
}
