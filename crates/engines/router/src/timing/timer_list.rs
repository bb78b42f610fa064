//! The timers that wait, for operators: pages of those that are armed, the next one first.

use millrace_model::{Mono, Now, Requester, Timestamp};

use crate::router::Router;
use crate::timing::timers::Timer;

/// A timer that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerView {
    pub name: String,
    /// When it is due by the wall clock; of a delay, as things stand.
    pub due: Timestamp,
    /// The timer waits for a time of day, and not for the end of a delay.
    pub absolute: bool,
    pub kind: String,
    pub ty: String,
    pub data_bytes: usize,
    pub durable: bool,
    pub agent: Option<String>,
    /// The capability that set the timer.
    pub capability: Option<String>,
    pub set_by: String,
    /// The timer was due, and is sent again because nobody took its message.
    pub trying_again: bool,
    /// Its place in the list.
    pub place: TimerPlace,
}

/// A place in the list of timers: when one is due on the monotonic clock, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerPlace(pub Mono, pub u64);

impl Router {
    /// Returns up to `max` timers behind a place, of those that `by` may see. Timers whose row is being written, and those
    /// that are being sent, are in no place.
    pub fn timer_page(
        &self,
        now: Now,
        by: &Requester,
        after: Option<TimerPlace>,
        max: usize,
    ) -> Vec<TimerView> {
        let places = self.timers.queue.after(after.map(|TimerPlace(at, number)| (at, number)));
        let views = places.filter_map(|(at, number)| {
            let timer = self.timers.all.get(&number).filter(|timer| is_seen_by(timer, by))?;
            Some(view(timer, now, TimerPlace(at, number)))
        });
        views.take(max).collect()
    }

    /// Returns a timer that waits, by its name, if `by` may see it.
    pub fn timer_named(&self, now: Now, by: &Requester, name: &str) -> Option<TimerView> {
        let number = self.timers.named(name)?;
        let timer = self.timers.all.get(&number).filter(|timer| is_seen_by(timer, by))?;
        Some(view(timer, now, TimerPlace(timer.armed?.at, number)))
    }
}

/// A caller who may not act in all namespaces sees the timers of its own agent, and those of agents that could act only
/// where the caller may act, too.
fn is_seen_by(timer: &Timer, by: &Requester) -> bool {
    let Some((caller, own)) = by.principal().and_then(|by| Some((by, by.namespaces.as_deref()?))) else {
        return true;
    };
    timer.row.by.as_ref().is_some_and(|setter| setter.is(caller) || setter.acted_within(own))
}

fn view(timer: &Timer, now: Now, place: TimerPlace) -> TimerView {
    let row = &timer.row;
    let day = timer.armed.and_then(|armed| armed.day);
    let ahead_ms = place.0.0.saturating_sub(now.mono.0);
    TimerView {
        name: timer.name.to_string(),
        due: day.unwrap_or(now.wall + ahead_ms),
        absolute: row.absolute,
        kind: row.kind.clone(),
        ty: row.ty.clone(),
        data_bytes: row.data.len(),
        durable: timer.durable,
        agent: row.by.as_ref().map(|by| by.agent().to_owned()),
        capability: row.actor.clone(),
        set_by: row.set_by.clone(),
        trying_again: timer.give_up_at.is_some(),
        place,
    }
}
