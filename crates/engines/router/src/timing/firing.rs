//! Firing timers that are due, and restoring those of the previous process.

use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{
    Boot, ElapsedRow, ElapsedTime, JsonText, Mono, Now, Op, OsFault, OsId, OsKind, OsMessage, OsMetadata,
    OsNameError, OsType, Principal, Space, TICK_MS, keys,
};
use serde_json::json;

use crate::interface::effect::Effect;
use crate::interface::input::{CapabilityId, NotTrusted};
use crate::interface::note::{Audience, Note};
use crate::reports::trace::{Behalf, Realm, realm_of};
use crate::router::{Router, TimerEvent};
use crate::routing::events::EventAuthor;
use crate::routing::lanes::Task;
use crate::routing::pending::OutcomeTo;
use crate::timing::builtin::TIMER_FIRED;
use crate::timing::template::{self, BehalfRow, TimerRow};
use crate::timing::timer_queue::Armed;
use crate::timing::timers::{Owner, SendStep, TIMER_PREFIX, Timer, TimerCommit, TimerMessage};

/// How many timers enter the lanes in one turn; the others follow in the next.
const FIRES_PER_TURN: usize = 64;
/// How long a timer waits whose token has expired by a clock that is in doubt.
const DOUBT_RETRY_MS: u64 = 60_000;

impl Router {
    /// Fires the timers that are due: each sends `Timer.Fired` first, then its message.
    pub(crate) fn fire_due(&mut self, now: Now) {
        for _ in 0..FIRES_PER_TURN {
            if !self.lanes.user_has_room() || !self.lanes.system_has_room() {
                return;
            }
            let Some(number) = self.timers.take_due(now) else { return };
            let Some(timer) = self.timers.all.get_mut(&number) else { continue };
            // The timer is for a time of day, and the wall clock may have been set back.
            if timer.row.absolute && now.wall < timer.row.due {
                let armed = Armed { at: now.mono_at(timer.row.due), day: Some(timer.row.due) };
                self.timers.arm(number, armed);
                continue;
            }
            match timer.row.by.as_ref().map(BehalfRow::principal) {
                None => self.fire(now, number),
                Some(by) => self.ask_for(now, number, by),
            }
        }
    }

    /// A timer may do no more than the principal that set it may do now: the shell finds out ([`Effect::CheckSender`]).
    fn ask_for(&mut self, now: Now, number: u64, by: Principal) {
        let Some(timer) = self.timers.all.get(&number) else { return };
        match template::message(&timer.row, now) {
            Ok(message) => self.effects.push(Effect::CheckSender { timer: number, by, message }),
            Err(error) => self.lose_timer(number, error.to_string()),
        }
    }

    pub(crate) fn on_sender_checked(
        &mut self,
        now: Now,
        number: u64,
        result: Result<Arc<Principal>, NotTrusted>,
    ) {
        let Some(timer) = self.timers.all.get_mut(&number) else { return };
        match result {
            Ok(by) => {
                timer.checked = Some(by);
                // Other messages may have filled the lanes meanwhile.
                match self.lanes.user_has_room() && self.lanes.system_has_room() {
                    true => self.fire(now, number),
                    false => self.timers.arm(number, Armed { at: now.mono, day: None }),
                }
            }
            // Dropping a timer cannot be undone, so a clock that is wrong for a minute must not cause it.
            Err(NotTrusted::InDoubt(_)) => {
                let at = now.mono + DOUBT_RETRY_MS;
                self.timers.arm(number, Armed { at, day: None });
            }
            Err(NotTrusted::Refused(reason)) => {
                let agent = timer.row.by.as_ref().map(BehalfRow::principal).map(|by| by.agent.to_string());
                let cause = timer.cause();
                let (timer, ty) = (timer.name.to_string(), OsType::new(&timer.row.ty));
                self.counters.timers_refused += 1;
                if let (Ok(ty), Some(agent)) = (ty, agent) {
                    let note = Note::TimerRefused { timer, agent, ty, reason };
                    self.note(note, Audience::Subscribers, cause);
                }
                self.send_no_more(number);
            }
        }
    }

    /// The timer cannot send its message and never will: reports it as lost.
    fn lose_timer(&mut self, number: u64, reason: String) {
        let Some(timer) = self.timers.all.get(&number) else { return };
        let (name, cause) = (timer.name.to_string(), timer.cause());
        self.counters.timers_lost += 1;
        self.note(Note::TimerLost { timer: name, reason }, Audience::Subscribers, cause);
        self.send_no_more(number);
    }

    fn send_no_more(&mut self, number: u64) {
        if let Some(timer) = self.timers.all.get_mut(&number) {
            (timer.fired.step, timer.sent.step) = (SendStep::Over, SendStep::Over);
        }
        self.forget_if_finished(number);
    }

    fn fire(&mut self, now: Now, number: u64) {
        let Some(timer) = self.timers.all.get_mut(&number) else { return };
        let (message, fired) = match (template::message(&timer.row, now), fired_event(timer, now)) {
            (Ok(message), Ok(fired)) => (message, fired),
            (Err(error), _) => return self.lose_timer(number, error.to_string()),
            (_, Err(error)) => return self.lose_timer(number, error.to_string()),
        };
        let is_first = !std::mem::replace(&mut timer.announced, true);
        let (name, cause) = (timer.name.to_string(), timer.cause());
        let mut due = Vec::new();
        for (which, message) in [(TimerMessage::Fired, fired), (TimerMessage::Sent, message)] {
            let sending = timer.sending(which);
            if sending.step == SendStep::Due {
                sending.step = SendStep::UnderWay;
                due.push(Task::Fired { timer: number, which, message });
            }
        }
        if is_first {
            self.counters.timers_fired += 1;
            self.tell(Note::TimerFired { timer: name }, cause);
        }
        for task in due {
            match &task {
                Task::Fired { message, .. } if message.ty.is_sys() => {
                    self.lanes.push_system(task);
                }
                _ => self.lanes.push_user(task),
            }
        }
    }

    /// Routes a timer's message like any other.
    pub(crate) fn route_fired(&mut self, now: Now, timer: u64, which: TimerMessage, message: OsMessage) {
        // The timer acts on behalf of the principal that set it, and may do no more than that one.
        let by = self.timers.all.get(&timer).and_then(Timer::requester);
        if message.kind == OsKind::Event {
            return self.route_timer_event(now, timer, which, by.as_ref().and_then(realm_of), message);
        }
        let to = self.table.handler(message.kind, &message.ty);
        if let Some(until) = to.and_then(|to| self.timers.held.get(&to)).filter(|until| **until > now.mono) {
            let until = *until;
            return self.retry_timer(timer, which, until);
        }
        self.counters.internal_requests += 1;
        if let Some(by) = by {
            self.request(now, OutcomeTo::Timer(timer), Behalf::of(by), now.mono, message);
        }
    }

    /// Sends a timer's event to every subscriber that does not have it yet. The timer's row stays until all of them
    /// have finished with the event.
    fn route_timer_event(
        &mut self,
        now: Now,
        number: u64,
        which: TimerMessage,
        realm: Realm,
        message: OsMessage,
    ) {
        let is_unheard = which == TimerMessage::Sent && self.table.listeners(&message.ty).is_empty();
        let Some(timer) = self.timers.all.get_mut(&number) else { return };
        let had = timer.sending(which).taken.clone();
        if is_unheard && had.is_empty() && self.waits_for_subscriber(now, number) {
            return;
        }
        if self.timers.unheard.remove(&number)
            && let Some(timer) = self.timers.all.get_mut(&number)
        {
            timer.give_up_at = None;
        }
        let author = EventAuthor::Timer { timer: number, which };
        let ty = message.ty.clone();
        let fan_out = self.fan_out(now, (author, realm), &had, message);
        let Some(timer) = self.timers.all.get_mut(&number) else { return };
        timer.owed += fan_out.taken.len();
        let sending = timer.sending(which);
        sending.taken.extend(fan_out.taken);
        sending.step = SendStep::Over;
        let nobody = sending.taken.is_empty() && fan_out.down.is_empty();
        if !fan_out.down.is_empty() {
            let until = self.hold(now, &fan_out.down);
            self.retry_timer(number, which, until);
        } else if which == TimerMessage::Sent && nobody {
            let reason = match fan_out.misfit {
                Some(why) => format!("no subscriber of {ty} takes what it was to send: {why}"),
                None => format!("no capability subscribes to {ty}"),
            };
            self.lose_timer(number, reason);
        } else {
            self.forget_if_finished(number);
        }
    }

    /// Whether a timer whose event has no subscriber waits for one. A configuration may lack the capability by mistake,
    /// or may be about to be reloaded.
    fn waits_for_subscriber(&mut self, now: Now, number: u64) -> bool {
        let Some(timer) = self.timers.all.get(&number).filter(|timer| timer.durable) else { return false };
        let until = timer.give_up_at.unwrap_or(now.mono + self.limits.timer_give_up_ms);
        if until <= now.mono {
            return false;
        }
        let (name, ty, cause) = (timer.name.to_string(), timer.row.ty.clone(), timer.cause());
        if self.timers.unheard.insert(number) {
            let wait_ms = self.limits.timer_give_up_ms;
            self.note(Note::TimerWaits { timer: name, ty, wait_ms }, Audience::Subscribers, cause);
        }
        if let Some(timer) = self.timers.all.get_mut(&number) {
            timer.give_up_at = Some(until);
        }
        self.retry_timer(number, TimerMessage::Sent, until);
        true
    }

    /// New capabilities were installed: some may subscribe to events of timers that had no subscriber.
    pub(crate) fn unheard_timers_try_again(&mut self, now: Now) {
        let unheard: Vec<u64> = self.timers.unheard.iter().copied().collect();
        for number in unheard {
            self.timers.arm(number, Armed { at: now.mono, day: None });
        }
    }

    /// A subscriber answered the timer's event with an error, or crashed on it too often. 503 asks for the event to be
    /// sent again.
    pub(crate) fn timer_event_failed(
        &mut self,
        now: Now,
        event: &TimerEvent,
        by: CapabilityId,
        fault: &OsFault,
    ) {
        let Some(timer) = self.timers.all.get_mut(&event.timer) else { return };
        let give_up_ms = self.limits.timer_give_up_ms;
        if fault.code == 503 && now.mono < *timer.give_up_at.get_or_insert(now.mono + give_up_ms) {
            return self.timer_event_unseen(now, event, by);
        }
        let (name, cause) = (timer.name.to_string(), timer.cause());
        if event.which == TimerMessage::Sent {
            let OsFault { code, message } = fault;
            let reason = format!("capability '{}' failed at {}: {code} {message}", event.to, timer.row.ty);
            self.counters.timers_lost += 1;
            self.note(Note::TimerLost { timer: name, reason }, Audience::Subscribers, cause);
        }
        self.timer_event_finished(event.timer);
    }

    /// A subscriber has finished with an event of this timer.
    pub(crate) fn timer_event_finished(&mut self, number: u64) {
        if let Some(timer) = self.timers.all.get_mut(&number) {
            timer.owed = timer.owed.saturating_sub(1);
        }
        self.forget_if_finished(number);
    }

    /// A subscriber stopped taking messages before it began this event: the timer tries again.
    pub(crate) fn timer_event_unseen(&mut self, now: Now, event: &TimerEvent, by: CapabilityId) {
        let Some(timer) = self.timers.all.get_mut(&event.timer) else { return };
        timer.owed = timer.owed.saturating_sub(1);
        timer.sending(event.which).taken.remove(&event.to);
        let until = self.hold(now, &[by]);
        self.retry_timer(event.timer, event.which, until);
    }

    /// The request that the timer sent was answered.
    pub(crate) fn timer_request_ended(&mut self, number: u64) {
        if let Some(timer) = self.timers.all.get_mut(&number) {
            timer.sent.step = SendStep::Over;
        }
        self.forget_if_finished(number);
    }

    fn forget_if_finished(&mut self, number: u64) {
        let is_finished = |one: &Timer| {
            one.owed == 0 && one.fired.step == SendStep::Over && one.sent.step == SendStep::Over
        };
        if self.timers.all.get(&number).is_some_and(is_finished) {
            self.forget_timer(number);
        }
    }

    fn retry_timer(&mut self, timer: u64, which: TimerMessage, at: Mono) {
        if let Some(one) = self.timers.all.get_mut(&timer) {
            one.sending(which).step = SendStep::Due;
        }
        self.timers.arm(timer, Armed { at, day: None });
    }

    /// Holds back timers' messages to these capabilities and returns until when: one message found no room, and younger
    /// ones must not overtake it.
    fn hold(&mut self, now: Now, capabilities: &[CapabilityId]) -> Mono {
        let fresh = now.mono + self.limits.timer_retry_ms;
        let mut until = fresh;
        for id in capabilities.iter().filter(|id| self.table.get(**id).is_some()) {
            let held = self.timers.held.entry(*id).or_insert(fresh);
            if *held <= now.mono {
                *held = fresh;
            }
            until = until.min(*held);
        }
        until
    }

    /// The request of a timer was refused for lack of room: it and later timers' messages to the same capability wait,
    /// so that they stay in order.
    pub(crate) fn hold_timer(&mut self, now: Now, timer: u64, message: &OsMessage) {
        let to = self.table.handler(message.kind, &message.ty);
        let until = self.hold(now, to.as_slice());
        self.retry_timer(timer, TimerMessage::Sent, until);
    }

    /// Removes a timer that has done its work, and its row.
    pub(crate) fn forget_timer(&mut self, number: u64) {
        let Some(timer) = self.drop_timer(number) else { return };
        if timer.durable {
            let key = format!("{TIMER_PREFIX}{}", timer.name);
            let cause = timer.cause();
            let token = self.timers.token(TimerCommit::Forget { timer: timer.name, cause });
            self.effects.push(Effect::Commit { token, ops: vec![Op::Delete { space: Space::Kv, key }] });
        }
    }

    /// Returns the number of restored timers.
    pub(crate) fn restore_timers(
        &mut self,
        now: Now,
        boot: Option<Boot>,
        rows: Vec<(String, Bytes)>,
    ) -> usize {
        let (mut timers, mut elapsed_row) = (Vec::new(), None);
        for (key, value) in rows {
            if key == keys::ROUTER_ELAPSED {
                // An unreadable row counts as none: timers then go by the wall clock.
                elapsed_row = ElapsedRow::decode(&key, &value).ok();
                continue;
            }
            let name = key.strip_prefix(TIMER_PREFIX).unwrap_or(&key).to_owned();
            match serde_json::from_slice::<TimerRow>(&value) {
                Ok(row) => timers.push((row, name)),
                // The row is left in place, so that an operator can still read it.
                Err(error) => {
                    let note = Note::TimerLost { timer: name, reason: format!("its row: {error}") };
                    self.note(note, Audience::Subscribers, None);
                }
            }
        }
        timers.sort_by(|(a, a_name), (b, b_name)| (a.due, a.order, a_name).cmp(&(b.due, b.order, b_name)));
        self.timers.next = timers.iter().map(|(row, _)| row.order).fold(self.timers.next, u64::max);
        let restored = timers.len();
        let elapsed = ElapsedTime::restore(elapsed_row, boot, now);
        self.timers.elapsed = Some(elapsed);
        for (mut row, name) in timers {
            row.absolute |= row.after_ms.is_none();
            // The rest of a delay, by elapsed time. Without that, only the wall clock tells how long no process ran.
            let due = row.due_elapsed.filter(|_| elapsed_row.is_some());
            let at =
                due.map_or(now.mono_at(row.due), |due| now.mono + due.0.saturating_sub(elapsed.at(now).0));
            // A wall clock that was set back since must not make the delay longer than it was set.
            let delay_end = row.after_ms.map(|ms| now.mono + ms + TICK_MS);
            let at = delay_end.map_or(at, |end| end.min(at));
            self.timers.next += 1;
            let number = self.timers.next;
            let day = row.absolute.then_some(row.due);
            self.put_timer(number, Timer::new(Arc::from(name), row, Owner::Before, true));
            self.timers.arm(number, Armed { at, day });
        }
        restored
    }
}

fn fired_event(timer: &Timer, now: Now) -> Result<OsMessage, OsNameError> {
    let data = json!({ "timerId": &*timer.name }).to_string();
    Ok(OsMessage {
        kind: OsKind::Event,
        ty: OsType::new(TIMER_FIRED)?,
        data: JsonText::from_stored(data.into()),
        metadata: OsMetadata {
            id: OsId::new(&timer.row.fired_id)?,
            timestamp: now.wall,
            correlation: timer.row.correlation.as_deref().map(OsId::new).transpose()?,
            causation: Some(OsId::new(&timer.row.set_by)?),
            other: None,
        },
    })
}
