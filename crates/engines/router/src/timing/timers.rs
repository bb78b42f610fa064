//! Timers: never early, never lost; equal deadlines fire in the order they were set.
//!
//! A durable timer is armed once its row is stored. Its row is deleted when the message it sent is dealt with: every
//! subscriber has finished with the event, or the request was answered. After a crash in between the timer fires again,
//! with the same ids.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{
    Actor, ElapsedTime, Mono, Now, Op, OsFault, OsId, OsMessage, OsType, Principal, Requester, Space,
    TICK_MS, keys,
};
use serde_json::json;

use crate::interface::effect::Effect;
use crate::interface::input::{CapabilityId, CommitToken, ConnId, NotStored};
use crate::interface::note::{Audience, Cause, Note};
use crate::router::Router;
use crate::routing::pending::OutcomeTo;
use crate::timing::builtin::{BuiltinCall, text_member};
use crate::timing::template::{self, BehalfRow, SetTimer, TimerRow, When};
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

/// The owner of a new timer, as its row records it.
struct Setter {
    actor: Option<String>,
    by: Option<BehalfRow>,
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
    fn fills_share(&self, by: &Requester, max: usize) -> bool {
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
    fn put_elapsed(&mut self, now: Now) -> Option<Op> {
        let value = self.elapsed.as_mut()?.write(now).encode();
        Some(Op::Put { space: Space::Kv, key: keys::ROUTER_ELAPSED.to_owned(), value })
    }

    pub(crate) fn token(&mut self, stored: TimerCommit) -> CommitToken {
        self.next_token += 1;
        let token = CommitToken(self.next_token);
        self.commits.insert(token, stored);
        token
    }
}

impl Router {
    pub(crate) fn set_timer(
        &mut self,
        now: Now,
        requester: OutcomeTo,
        by: &Requester,
        ask: BuiltinCall,
        message: &OsMessage,
    ) {
        let set = match template::parse(&message.data) {
            Ok(set) => set,
            Err(why) => {
                let fault = OsFault::new(422, format!("Schema validation failed: {why}"));
                return self.finish_builtin(now, &ask, Err(fault));
            }
        };
        let owner = match requester {
            OutcomeTo::Client(conn) => Owner::Client(conn),
            OutcomeTo::Gone => Owner::Before,
            OutcomeTo::Actor { .. } => Owner::Actor,
            // A timer set by a timer belongs to the owner of the first one.
            OutcomeTo::Timer(timer) => self.timers.owner(timer),
        };
        if let Err(fault) = self.timer_room(owner, by) {
            return self.finish_builtin(now, &ask, Err(fault));
        }
        self.counters.timers_set += 1;
        let when = set.when;
        let durable = set.durable && self.limits.durable_timers;
        let setter = Setter { actor: self.setting_actor(requester), by: by.principal().map(BehalfRow::of) };
        let number = self.add_timer(now, owner, durable, setter, set, message);
        let armed = match when {
            When::After { ms } => Armed { at: now.mono + ms + TICK_MS, day: None },
            When::At(due) => Armed { at: now.mono_at(due), day: Some(due) },
        };
        if durable && let Some(timer) = self.timers.all.get(&number) {
            let key = format!("{TIMER_PREFIX}{}", timer.name);
            // Maps of strings and numbers always serialise.
            let value = Bytes::from(serde_json::to_vec(&timer.row).unwrap_or_default());
            let mut ops = vec![Op::Put { space: Space::Kv, key, value }];
            if timer.row.due_elapsed.is_some() {
                ops.extend(self.timers.put_elapsed(now));
            }
            let token = self.timers.token(TimerCommit::Set { timer: number, armed, ask });
            self.effects.push(Effect::Commit { token, ops });
        } else {
            self.timer_is_set(now, number, armed, &ask);
        }
    }

    fn timer_room(&mut self, owner: Owner, by: &Requester) -> Result<(), OsFault> {
        let fault = if self.timers.len() >= self.limits.timers_max {
            "Too many timers are set: try again later"
        } else if self.timers.fills_share(by, self.limits.timers_max) {
            "This agent has set half of all timers that may be set: cancel some"
        } else if let Owner::Client(conn) = owner
            && self.conns.get(&conn).is_some_and(|one| one.timers >= self.limits.conn_timers_max)
        {
            "This connection has set too many timers: cancel some"
        } else {
            return Ok(());
        };
        self.counters.overloads += 1;
        Err(OsFault::new(503, fault))
    }

    fn add_timer(
        &mut self,
        now: Now,
        owner: Owner,
        durable: bool,
        setter: Setter,
        set: SetTimer,
        message: &OsMessage,
    ) -> u64 {
        let SetTimer { when, template, .. } = set;
        let mut draw = || self.ids.draw(now.wall).to_string();
        let (name, message_id, fired_id) = (draw(), draw(), draw());
        self.timers.next += 1;
        let number = self.timers.next;
        let correlation = template.correlation.or_else(|| message.metadata.correlation.clone());
        let due_elapsed = |ms: u64| Some(self.timers.elapsed?.at(now) + ms + TICK_MS);
        let row = TimerRow {
            due_elapsed: match when {
                When::After { ms } if durable => due_elapsed(ms),
                When::After { .. } | When::At(_) => None,
            },
            due: template::due(now, when),
            order: number,
            absolute: matches!(when, When::At(_)),
            after_ms: match when {
                When::After { ms } => Some(ms),
                When::At(_) => None,
            },
            set_by: message.metadata.id.to_string(),
            message_id,
            fired_id,
            kind: template.kind.as_str().to_owned(),
            ty: template.ty.to_string(),
            data: template.data.as_str().to_owned(),
            correlation: correlation.map(|id| id.to_string()),
            other: template.other.map(|other| other.to_string()),
            by: setter.by,
            actor: setter.actor,
        };
        self.put_timer(number, Timer::new(name.into(), row, owner, durable));
        number
    }

    pub(crate) fn put_timer(&mut self, number: u64, timer: Timer) {
        if let Owner::Client(conn) = timer.owner
            && let Some(conn) = self.conns.get_mut(&conn)
        {
            conn.timers += 1;
        }
        if let Some(agent) = timer.sharer() {
            *self.timers.by_agent.entry(agent.clone()).or_default() += 1;
        }
        self.timers.by_name.insert(timer.name.clone(), number);
        self.timers.all.insert(number, timer);
    }

    pub(crate) fn drop_timer(&mut self, number: u64) -> Option<Timer> {
        self.timers.disarm(number);
        self.timers.unheard.remove(&number);
        let timer = self.timers.all.remove(&number)?;
        self.timers.by_name.remove(&timer.name);
        if let Some(agent) = timer.sharer() {
            self.timers.forget_share(agent);
        }
        if let Owner::Client(conn) = timer.owner
            && let Some(conn) = self.conns.get_mut(&conn)
        {
            conn.timers = conn.timers.saturating_sub(1);
        }
        Some(timer)
    }

    fn timer_is_set(&mut self, now: Now, number: u64, armed: Armed, ask: &BuiltinCall) {
        self.timers.arm(number, armed);
        let Some(name) = self.timers.all.get(&number).map(|one| one.name.to_string()) else { return };
        self.finish_builtin(now, ask, Ok(&json!({ "timerId": name })));
        self.tell(Note::TimerSet { timer: name }, Some(ask.cause()));
    }

    pub(crate) fn cancel_timer(
        &mut self,
        now: Now,
        requester: OutcomeTo,
        by: &Requester,
        ask: BuiltinCall,
        message: &OsMessage,
    ) {
        let name = text_member(&message.data, "timerId").unwrap_or_default();
        let named = self.timers.by_name.get(name.as_str()).copied();
        let number = named.filter(|number| self.may_cancel(requester, by, *number));
        // A timer that tries again for further subscribers has already sent its message.
        let is_unsent = |one: &Timer| one.sent.step == SendStep::Due && one.sent.taken.is_empty();
        let number = number.filter(|number| self.timers.all.get(number).is_some_and(is_unsent));
        let disarmed = number.and_then(|number| Some((number, self.timers.disarm(number)?)));
        let Some((number, armed)) = disarmed else {
            // Unknown, fired, being sent, or another owner's (about which nothing is revealed): not an error.
            return self.finish_builtin(now, &ask, Ok(&json!({ "cancelled": false })));
        };
        if self.timers.all.get(&number).is_some_and(|one| one.durable) {
            let key = format!("{TIMER_PREFIX}{name}");
            let token = self.timers.token(TimerCommit::Cancel { timer: number, armed, ask });
            self.effects.push(Effect::Commit { token, ops: vec![Op::Delete { space: Space::Kv, key }] });
        } else {
            self.timer_is_cancelled(now, number, &ask);
        }
    }

    /// Only the agent that set a timer may cancel it. Agents are compared by name, not by connection, so this holds
    /// across reconnects and restarts. Callers without access control count as one and may cancel every client's timer;
    /// but a timer that a capability set only that capability may cancel.
    fn may_cancel(&self, requester: OutcomeTo, by: &Requester, timer: u64) -> bool {
        let Some(row) = self.timers.all.get(&timer).map(|one| &one.row) else { return false };
        let same_agent = match (&row.by, by) {
            (_, Requester::Trusted) => true,
            (None, Requester::Agent(_)) => false,
            (Some(setter), Requester::Agent(by)) => setter.is(by),
        };
        same_agent && row.actor == self.setting_actor(requester)
    }

    /// The capability that makes this request, or that set the timer which makes it.
    fn setting_actor(&self, requester: OutcomeTo) -> Option<String> {
        match requester {
            OutcomeTo::Actor { capability, .. } => Some(self.table.name_of(capability).to_string()),
            OutcomeTo::Timer(timer) => self.timers.all.get(&timer)?.row.actor.clone(),
            OutcomeTo::Client(_) | OutcomeTo::Gone => None,
        }
    }

    fn timer_is_cancelled(&mut self, now: Now, number: u64, ask: &BuiltinCall) {
        self.counters.timers_cancelled += 1;
        if let Some(timer) = self.drop_timer(number) {
            self.tell(Note::TimerCancelled { timer: timer.name.to_string() }, Some(ask.cause()));
        }
        self.finish_builtin(now, ask, Ok(&json!({ "cancelled": true })));
    }

    pub(crate) fn timer_committed(&mut self, now: Now, token: CommitToken, result: Result<(), NotStored>) {
        let failed = |why: &NotStored| OsFault::new(503, format!("The timer could not be stored: {why}"));
        match (self.timers.commits.remove(&token), result) {
            (Some(TimerCommit::Set { timer, armed, ask }), Ok(())) => {
                self.timer_is_set(now, timer, armed, &ask);
            }
            (Some(TimerCommit::Set { timer, ask, .. }), Err(why)) => {
                self.drop_timer(timer);
                self.finish_builtin(now, &ask, Err(failed(&why)));
            }
            (Some(TimerCommit::Cancel { timer, ask, .. }), Ok(())) => {
                self.timer_is_cancelled(now, timer, &ask);
            }
            (Some(TimerCommit::Cancel { timer, armed, ask }), Err(why)) => {
                self.timers.arm(timer, armed);
                self.finish_builtin(now, &ask, Err(failed(&why)));
            }
            (Some(TimerCommit::Forget { timer, cause }), Err(why)) => {
                let reason = format!("it fired but its row could not be removed, it may fire again: {why}");
                let note = Note::TimerLost { timer: timer.to_string(), reason };
                self.note(note, Audience::Subscribers, cause);
            }
            // A failed write of the elapsed time is repeated with the next timer, or when the wall clock changes again.
            (Some(TimerCommit::Forget { .. }), Ok(())) | (Some(TimerCommit::Elapsed), _) | (None, _) => {}
        }
    }

    /// Stores the elapsed time again if the wall clock has been set since the last write and timers are set.
    pub(crate) fn keep_elapsed(&mut self, now: Now) {
        let is_outdated = self.timers.elapsed.is_some_and(|elapsed| elapsed.is_outdated(now));
        if is_outdated
            && !self.timers.is_empty()
            && let Some(op) = self.timers.put_elapsed(now)
        {
            let token = self.timers.token(TimerCommit::Elapsed);
            self.effects.push(Effect::Commit { token, ops: vec![op] });
        }
    }

    /// Emits this note only if somebody subscribes to it: a log line for every timer would be noise.
    pub(crate) fn tell(&mut self, note: Note, cause: Option<Cause>) {
        if OsType::new(note.ty()).is_ok_and(|ty| !self.table.listeners(&ty).is_empty()) {
            self.note(note, Audience::Subscribers, cause);
        }
    }
}
