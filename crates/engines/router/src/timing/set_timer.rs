//! Setting, cancelling and storing timers. The records and the table are in `timers.rs`, firing is in `firing.rs`.

use bytes::Bytes;
use millrace_model::{Now, Op, OsFault, OsMessage, OsType, Requester, Space, TICK_MS};
use serde_json::json;

use crate::interface::effect::Effect;
use crate::interface::input::{CommitToken, NotStored};
use crate::interface::note::{Audience, Cause, Note};
use crate::router::Router;
use crate::routing::pending::OutcomeTo;
use crate::timing::builtin::{BuiltinCall, text_member};
use crate::timing::template::{self, BehalfRow, SetTimer, TimerRow, When};
use crate::timing::timer_queue::Armed;
use crate::timing::timers::{Owner, SendStep, TIMER_PREFIX, Timer, TimerCommit};

/// The owner of a new timer, as its row records it.
struct Setter {
    actor: Option<String>,
    by: Option<BehalfRow>,
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
        self.timers.insert(number, timer);
    }

    pub(crate) fn drop_timer(&mut self, number: u64) -> Option<Timer> {
        let timer = self.timers.remove(number)?;
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
        let named = self.timers.named(name.as_str());
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
        match (self.timers.complete(token), result) {
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
