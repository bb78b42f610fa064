//! Timers whose time has come, and those of the process before.

use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{JsonText, Now, Op, OsId, OsKind, OsMessage, OsMetadata, OsType, Space};
use serde_json::json;

use crate::effect::Effect;
use crate::lanes::Task;
use crate::note::{Audience, Note};
use crate::own::TIMER_FIRED;
use crate::pending::Requester;
use crate::router::Router;
use crate::sabotage::Sabotage;
use crate::template::{self, BehalfRow, TimerRow};
use crate::timers::{Owner, Stored, TIMER_PREFIX, Timer};
use crate::trace::Party;

/// Timers that enter the lanes in one turn: the rest in the next.
const FIRES_PER_TURN: usize = 64;

impl Router {
    /// Those whose time has come, `Timer.Fired` first, then what they send.
    pub(crate) fn fire_due(&mut self, now: Now) {
        for _ in 0..FIRES_PER_TURN {
            if !self.lanes.user_has_room() || !self.lanes.system_has_room() {
                return;
            }
            let Some(number) = self.timers.queue.pop_due(now.mono) else { return };
            let Some(timer) = self.timers.all.get_mut(&number) else { continue };
            timer.armed = None;
            // The wall clock may have stepped back, and a time of day was asked for.
            if timer.row.absolute && now.wall < timer.row.due {
                let at = now.mono_at(timer.row.due);
                self.timers.arm(number, at);
                continue;
            }
            self.fire(now, number);
        }
    }

    fn fire(&mut self, now: Now, number: u64) {
        let Some(timer) = self.timers.all.get_mut(&number) else { return };
        let announced = std::mem::replace(&mut timer.announced, true);
        let name = timer.name.clone();
        let (message, fired) = match (template::message(&timer.row, now), fired_event(timer, now)) {
            (Ok(message), Ok(fired)) => (message, fired),
            (Err(why), _) | (_, Err(why)) => {
                self.note(Note::TimerLost { timer: name.to_string(), reason: why }, Audience::Subscribers);
                self.forget_timer(number);
                return;
            }
        };
        if !announced {
            self.counters.timers_fired += 1;
            self.lanes.push_user(Task::Own { except: None, message: fired });
            self.tell(Note::TimerFired { timer: name.to_string() });
        }
        let task = Task::Fired { timer: number, message };
        match &task {
            Task::Fired { message, .. } if message.ty.is_sys() => {
                self.lanes.push_system(task);
            }
            _ => self.lanes.push_user(task),
        }
    }

    /// What a timer sends is routed like anything else.
    pub(crate) fn route_fired(&mut self, now: Now, timer: u64, message: OsMessage) {
        if message.kind == OsKind::Event {
            match self.fan_out(now, Party::Timer, None, message) {
                true => self.forget_timer(timer),
                false => self.retry_timer(now, timer),
            }
            return;
        }
        let to = self.table.handler(message.kind, &message.ty);
        if let Some(until) = to.and_then(|to| self.timers.held.get(&to)).filter(|until| **until > now.mono) {
            self.timers.arm(timer, *until);
            return;
        }
        self.counters.internal_requests += 1;
        if self.sabotaged(Sabotage::ForgetRow) {
            self.forget_timer(timer);
        }
        // On behalf of whoever set it: what they may not do, their timer may not do either.
        let by = self.timers.all.get(&timer).and_then(|one| one.row.by.as_ref()).map(BehalfRow::principal);
        self.request(now, Requester::Timer(timer), by.map(Arc::new), now.mono, message);
    }

    /// It could not be taken just now.
    pub(crate) fn retry_timer(&mut self, now: Now, timer: u64) {
        let at = now.mono + self.limits.timer_retry_ms;
        self.timers.arm(timer, at);
    }

    /// The same of a request: those behind it wait with it, so that they stay in order.
    pub(crate) fn hold_timer(&mut self, now: Now, timer: u64, message: &OsMessage) {
        if let Some(to) = self.table.handler(message.kind, &message.ty) {
            self.timers.held.insert(to, now.mono + self.limits.timer_retry_ms);
        }
        self.retry_timer(now, timer);
    }

    /// It has done its work.
    pub(crate) fn forget_timer(&mut self, number: u64) {
        let Some(timer) = self.drop_timer(number) else { return };
        if timer.durable {
            let key = format!("{TIMER_PREFIX}{}", timer.name);
            let token = self.timers.token(Stored::Forget { timer: timer.name });
            self.effects.push(Effect::Commit { token, ops: vec![Op::Delete { space: Space::Kv, key }] });
        }
    }

    /// How many there are.
    pub(crate) fn restore_timers(&mut self, now: Now, rows: Vec<(String, Bytes)>) -> usize {
        let mut timers = Vec::new();
        for (key, value) in rows {
            let name = key.strip_prefix(TIMER_PREFIX).unwrap_or(&key).to_owned();
            match serde_json::from_slice::<TimerRow>(&value) {
                Ok(row) => timers.push((row, name)),
                // Left where it is: whoever looks after the store can still read it.
                Err(error) => {
                    let note = Note::TimerLost { timer: name, reason: format!("its row: {error}") };
                    self.note(note, Audience::Subscribers);
                }
            }
        }
        timers.sort_by(|(a, a_name), (b, b_name)| (a.due, a.order, a_name).cmp(&(b.due, b.order, b_name)));
        self.timers.next = timers.iter().map(|(row, _)| row.order).fold(self.timers.next, u64::max);
        let restored = timers.len();
        for (mut row, name) in timers {
            // Only the wall clock knows how long the process was away.
            row.absolute = true;
            let at = now.mono_at(row.due);
            self.timers.next += 1;
            let number = self.timers.next;
            let owner = Owner::Before;
            let name = Arc::from(name);
            self.put_timer(number, Timer { name, row, owner, durable: true, armed: None, announced: false });
            self.timers.arm(number, at);
        }
        restored
    }
}

fn fired_event(timer: &Timer, now: Now) -> Result<OsMessage, String> {
    let id = |text: &str| OsId::new(text).map_err(|error| error.to_string());
    let data = json!({ "timerId": &*timer.name }).to_string();
    Ok(OsMessage {
        kind: OsKind::Event,
        ty: OsType::new(TIMER_FIRED).map_err(|error| error.to_string())?,
        data: JsonText::from_stored(data.into()),
        metadata: OsMetadata {
            id: id(&timer.row.fired_id)?,
            timestamp: now.wall,
            correlation: timer.row.correlation.as_deref().map(id).transpose()?,
            causation: Some(id(&timer.row.set_by)?),
            other: None,
        },
    })
}
