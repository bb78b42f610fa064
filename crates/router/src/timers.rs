//! Timers: never early, never lost, equal deadlines in the order they were set.
//!
//! A durable timer is armed when its row is stored, and its row goes when what it sent has been taken care of: an event
//! was posted, a request was answered. A crash in between makes it fire again, with the same ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{Mono, Now, Op, OsFault, OsMessage, OsType, Space, TICK_MS};
use serde_json::json;

use crate::deadlines::{Deadline, Deadlines};
use crate::effect::Effect;
use crate::input::{By, CapabilityId, ConnId, Token};
use crate::note::{Audience, Note};
use crate::own::{Ask, text_member};
use crate::pending::Requester;
use crate::router::Router;
use crate::sabotage::Sabotage;
use crate::template::{self, BehalfRow, SetTimer, TimerRow, When};

/// Where the rows of timers are in [`Space::Kv`].
pub const TIMER_PREFIX: &str = "router/timer/";

/// Who set a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Client(ConnId),
    Actor,
    /// Somebody before this process started.
    Before,
}

/// Whom a new timer belongs to, as its row says it.
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
    /// Where it stands in the queue; `None` while it is being stored or after it fired.
    pub(crate) armed: Option<Deadline>,
    /// `Timer.Fired` was sent.
    pub(crate) announced: bool,
}

/// What a commit was for.
#[derive(Debug)]
pub(crate) enum Stored {
    Set { timer: u64, at: Mono, ask: Ask },
    Cancel { timer: u64, at: Mono, ask: Ask },
    Forget { timer: Arc<str> },
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    pub(crate) all: BTreeMap<u64, Timer>,
    by_name: BTreeMap<Arc<str>, u64>,
    pub(crate) queue: Deadlines<u64>,
    /// Until when what timers send to a capability waits: one of them found no room there, and none may pass it.
    pub(crate) held: BTreeMap<CapabilityId, Mono>,
    commits: BTreeMap<Token, Stored>,
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

    pub(crate) fn arm(&mut self, timer: u64, at: Mono) {
        let deadline = self.queue.set(at, timer);
        if let Some(one) = self.all.get_mut(&timer) {
            one.armed = Some(deadline);
        }
    }

    pub(crate) fn token(&mut self, stored: Stored) -> Token {
        self.next_token += 1;
        let token = Token(self.next_token);
        self.commits.insert(token, stored);
        token
    }
}

impl Router {
    pub(crate) fn set_timer(
        &mut self,
        now: Now,
        requester: Requester,
        by: &By,
        ask: Ask,
        message: &OsMessage,
    ) {
        let set = match template::parse(&message.data) {
            Ok(set) => set,
            Err(why) => {
                let fault = OsFault::new(422, format!("Schema validation failed: {why}"));
                return self.finish_own(now, &ask, Err(fault));
            }
        };
        let owner = match requester {
            Requester::Client(conn) => Owner::Client(conn),
            Requester::Gone => Owner::Before,
            Requester::Actor { .. } => Owner::Actor,
            // What a timer sets belongs to whoever set that timer.
            Requester::Timer(timer) => self.timers.owner(timer),
        };
        if let Err(fault) = self.timer_room(owner) {
            return self.finish_own(now, &ask, Err(fault));
        }
        self.counters.timers_set += 1;
        let when = set.when;
        let durable = set.durable && self.limits.durable_timers;
        let setter = Setter { actor: self.setting_actor(requester), by: by.as_deref().map(BehalfRow::of) };
        let number = self.add_timer(now, owner, durable, setter, set, message);
        let at = match when {
            When::After { ms } if self.sabotaged(Sabotage::FireEarly) => now.mono + ms / 2,
            When::After { ms } => now.mono + ms + TICK_MS,
            When::At(due) => now.mono_at(due),
        };
        if durable && let Some(timer) = self.timers.all.get(&number) {
            let key = format!("{TIMER_PREFIX}{}", timer.name);
            // Maps of strings and numbers: their serialisation has no failing case.
            let value = Bytes::from(serde_json::to_vec(&timer.row).unwrap_or_default());
            let token = self.timers.token(Stored::Set { timer: number, at, ask });
            self.effects.push(Effect::Commit { token, ops: vec![Op::Put { space: Space::Kv, key, value }] });
        } else {
            self.timer_is_set(now, number, at, &ask);
        }
    }

    fn timer_room(&mut self, owner: Owner) -> Result<(), OsFault> {
        let fault = if self.timers.len() >= self.limits.timers_max {
            "Too many timers are set: try again later"
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
        let row = TimerRow {
            due: template::due(now, when),
            order: number,
            absolute: matches!(when, When::At(_)),
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
        self.put_timer(
            number,
            Timer { name: name.into(), row, owner, durable, armed: None, announced: false },
        );
        number
    }

    pub(crate) fn put_timer(&mut self, number: u64, timer: Timer) {
        if let Owner::Client(conn) = timer.owner
            && let Some(conn) = self.conns.get_mut(&conn)
        {
            conn.timers += 1;
        }
        self.timers.by_name.insert(timer.name.clone(), number);
        self.timers.all.insert(number, timer);
    }

    pub(crate) fn drop_timer(&mut self, number: u64) -> Option<Timer> {
        let timer = self.timers.all.remove(&number)?;
        self.timers.by_name.remove(&timer.name);
        if let Some(deadline) = timer.armed {
            self.timers.queue.cancel(deadline);
        }
        if let Owner::Client(conn) = timer.owner
            && let Some(conn) = self.conns.get_mut(&conn)
        {
            conn.timers = conn.timers.saturating_sub(1);
        }
        Some(timer)
    }

    fn timer_is_set(&mut self, now: Now, number: u64, at: Mono, ask: &Ask) {
        self.timers.arm(number, at);
        let Some(name) = self.timers.all.get(&number).map(|one| one.name.to_string()) else { return };
        self.finish_own(now, ask, Ok(&json!({ "timerId": name })));
        self.tell(Note::TimerSet { timer: name });
    }

    pub(crate) fn cancel_timer(
        &mut self,
        now: Now,
        requester: Requester,
        by: &By,
        ask: Ask,
        message: &OsMessage,
    ) {
        let name = text_member(&message.data, "timerId").unwrap_or_default();
        let named = self.timers.by_name.get(name.as_str()).copied();
        let number = named.filter(|number| self.may_cancel(requester, by, *number));
        let armed = number.and_then(|number| Some((number, self.timers.all.get_mut(&number)?)));
        let Some((number, deadline, durable)) =
            armed.and_then(|(number, one)| Some((number, one.armed.take()?, one.durable)))
        else {
            // Unknown, fired, on its way, or another's, of which nothing is told: not an error.
            return self.finish_own(now, &ask, Ok(&json!({ "cancelled": false })));
        };
        self.timers.queue.cancel(deadline);
        if durable {
            let key = format!("{TIMER_PREFIX}{name}");
            let token = self.timers.token(Stored::Cancel { timer: number, at: deadline.at, ask });
            self.effects.push(Effect::Commit { token, ops: vec![Op::Delete { space: Space::Kv, key }] });
        } else {
            self.timer_is_cancelled(now, number, &ask);
        }
    }

    /// Whoever set it, by name and not by connection: over reconnects and restarts. Where nobody has a name all are one,
    /// and whom no access control concerns is not stopped by it here either; but what a capability set is its own.
    fn may_cancel(&self, requester: Requester, by: &By, timer: u64) -> bool {
        let Some(row) = self.timers.all.get(&timer).map(|one| &one.row) else { return false };
        let same_agent = match (&row.by, by) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(setter), Some(by)) => setter.is(by),
        };
        same_agent && row.actor == self.setting_actor(requester)
    }

    /// The capability a request comes from, or the timer it set.
    fn setting_actor(&self, requester: Requester) -> Option<String> {
        match requester {
            Requester::Actor { capability, .. } => Some(self.table.name_of(capability).to_string()),
            Requester::Timer(timer) => self.timers.all.get(&timer)?.row.actor.clone(),
            Requester::Client(_) | Requester::Gone => None,
        }
    }

    fn timer_is_cancelled(&mut self, now: Now, number: u64, ask: &Ask) {
        self.counters.timers_cancelled += 1;
        if let Some(timer) = self.drop_timer(number) {
            self.tell(Note::TimerCancelled { timer: timer.name.to_string() });
        }
        self.finish_own(now, ask, Ok(&json!({ "cancelled": true })));
    }

    pub(crate) fn timer_committed(&mut self, now: Now, token: Token, result: Result<(), String>) {
        let failed = |why: &str| OsFault::new(503, format!("The timer could not be stored: {why}"));
        match (self.timers.commits.remove(&token), result) {
            (Some(Stored::Set { timer, at, ask }), Ok(())) => self.timer_is_set(now, timer, at, &ask),
            (Some(Stored::Set { timer, ask, .. }), Err(why)) => {
                self.drop_timer(timer);
                self.finish_own(now, &ask, Err(failed(&why)));
            }
            (Some(Stored::Cancel { timer, ask, .. }), Ok(())) => self.timer_is_cancelled(now, timer, &ask),
            (Some(Stored::Cancel { timer, at, ask }), Err(why)) => {
                self.timers.arm(timer, at);
                self.finish_own(now, &ask, Err(failed(&why)));
            }
            (Some(Stored::Forget { timer }), Err(why)) => {
                let reason = format!("it fired but its row could not be removed, it may fire again: {why}");
                self.note(Note::TimerLost { timer: timer.to_string(), reason }, Audience::Subscribers);
            }
            (Some(Stored::Forget { .. }), Ok(())) | (None, _) => {}
        }
    }

    /// Of interest to subscribers only: a log line per timer would be noise.
    pub(crate) fn tell(&mut self, note: Note) {
        if OsType::new(note.ty()).is_ok_and(|ty| !self.table.listeners(&ty).is_empty()) {
            self.note(note, Audience::Subscribers);
        }
    }
}
