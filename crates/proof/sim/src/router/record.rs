//! Records what clients asked for and what they were told; which timers were set and when they fired.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millrace_model::{Mono, Now, OsKind, OsMessage, Timestamp};
use millrace_router::{ConnId, Gauges, TIMER_PREFIX};
use serde_json::Value;

use crate::check::Violation;
use crate::dice::Dice;

pub(crate) const INVARIANTS: [&str; 14] = [
    "one_outcome",
    "right_generation",
    "duplicate_is_real",
    "every_request_answered",
    "no_leak",
    "user_starts",
    "mailbox_bound",
    "in_order",
    "true_causes",
    "honest_is_no_fault",
    "timer_never_early",
    "timer_once",
    "timer_never_lost",
    "cancelled_stays",
];

#[derive(Debug, Default)]
pub(crate) struct Record {
    uses: u64,
    /// Unanswered uses of an id on a connection, the oldest first.
    waiting: BTreeMap<(ConnId, String), Uses>,
    /// The actor that each request went to, for actors that lie about it.
    went: BTreeMap<String, usize>,
    last_posted: BTreeMap<usize, u64>,
    /// Every request that an actor was given in this life of the process.
    given: BTreeSet<(usize, String)>,
    timers: BTreeMap<String, Timer>,
    system_turns: usize,
    wall_shift_ms: i64,
}

/// The uses of one id on one connection. An error does not say which of them it ends, a reply does.
#[derive(Debug, Default)]
struct Uses {
    numbers: Vec<u64>,
    refused: usize,
}

impl Uses {
    fn open(&self) -> usize {
        self.numbers.len() - self.refused
    }
}

#[derive(Debug, Default)]
struct Timer {
    due: Timestamp,
    /// The shift of the wall clock when the timer was set: after a step, wall times say nothing about it.
    wall_shift_ms: i64,
    /// The name that the client who set it was told.
    name: Option<String>,
    /// Lives in which the timer fired, and the ids of the messages it sent.
    fired: Vec<u64>,
    ids: BTreeSet<String>,
    fired_at: Mono,
    /// The request to cancel the timer, if there was one; and whether it was in time.
    cancel_asked: Option<String>,
    cancelled: bool,
}

pub(crate) fn violation(invariant: &'static str, detail: String) -> Violation {
    Violation { invariant, detail }
}

fn data(message: &OsMessage) -> Value {
    serde_json::from_str(message.data.as_str()).unwrap_or_default()
}

impl Record {
    pub(crate) fn next_use(&self) -> u64 {
        self.uses + 1
    }

    /// Counts a use of the id. Returns the number of this use.
    pub(crate) fn asked(&mut self, conn: ConnId, id: &str) -> u64 {
        self.uses += 1;
        self.waiting.entry((conn, id.to_owned())).or_default().numbers.push(self.uses);
        self.uses
    }

    /// Returns the requests that other actors were given.
    pub(crate) fn asked_elsewhere(&self, actor: usize) -> Vec<String> {
        self.went.iter().filter(|(_, to)| **to != actor).map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn closed(&mut self, conn: ConnId) {
        self.waiting.retain(|(one, _), _| *one != conn);
    }

    pub(crate) fn answered(&mut self, conn: ConnId, message: &OsMessage) -> Result<(), Violation> {
        let cause = message.metadata.causation.as_ref().map_or("", |id| id.as_str()).to_owned();
        let said = data(message);
        let key = (conn, cause.clone());
        // Clients that hung up are forgotten: their ids are free.
        let open: usize =
            self.waiting.iter().filter(|((_, id), _)| *id == cause).map(|(_, uses)| uses.open()).sum();
        if said["code"].as_u64() == Some(409) && open < 2 {
            return Err(violation(
                "duplicate_is_real",
                format!("{cause} is refused and nobody else waits for it"),
            ));
        }
        let Some(uses) = self.waiting.get_mut(&key) else {
            return Err(violation(
                "one_outcome",
                format!("client {} was told {cause} and did not ask", conn.0),
            ));
        };
        match said["use"].as_u64().filter(|_| message.kind == OsKind::Reply) {
            Some(number) => {
                let Some(at) = uses.numbers.iter().position(|one| *one == number) else {
                    let detail = format!("{cause}: the answer of use {number}, asked were {uses:?}");
                    return Err(violation("right_generation", detail));
                };
                uses.numbers.remove(at);
            }
            None => uses.refused += 1,
        }
        if uses.open() == 0 {
            self.waiting.remove(&key);
        }
        self.cancel_answered(&cause, &said);
        Ok(())
    }

    pub(crate) fn turned(&mut self, users_wait: bool, was_system: bool, max: usize) -> Result<(), Violation> {
        self.system_turns = if users_wait && was_system { self.system_turns + 1 } else { 0 };
        if self.system_turns > max {
            let turns = self.system_turns;
            return Err(violation(
                "user_starts",
                format!("{turns} system turns while users wait, {max} allowed"),
            ));
        }
        Ok(())
    }

    /// A message reached a mailbox.
    pub(crate) fn posted(
        &mut self,
        now: Now,
        life: u64,
        actor: usize,
        message: &OsMessage,
    ) -> Result<(), Violation> {
        let said = data(message);
        self.given.insert((actor, message.metadata.id.to_string()));
        self.caused(&said, message)?;
        if let Some(number) = said["use"].as_u64() {
            self.went.insert(message.metadata.id.to_string(), actor);
            let last = self.last_posted.insert(actor, number).unwrap_or_default();
            if last > number {
                return Err(violation(
                    "in_order",
                    format!("actor {actor} got use {number} after use {last}"),
                ));
            }
        }
        let Some(timer) = said["timer"].as_str().and_then(|id| self.timers.get_mut(id)) else {
            return Ok(());
        };
        let id = message.metadata.id.to_string();
        // A command goes to one actor; a fact goes to all of them, in one turn.
        let again =
            timer.fired.last() == Some(&life) && (message.kind != OsKind::Event || !timer.ids.contains(&id));
        if again {
            return Err(violation("timer_once", format!("{} fired twice in one life", said["timer"])));
        }
        if timer.wall_shift_ms == self.wall_shift_ms && now.wall < timer.due {
            let early = timer.due.0 - now.wall.0;
            return Err(violation("timer_never_early", format!("{} fired {early} ms early", said["timer"])));
        }
        if timer.cancelled {
            return Err(violation("cancelled_stays", format!("{} fired although cancelled", said["timer"])));
        }
        timer.fired.push(life);
        timer.fired_at = now.mono;
        timer.ids.insert(id);
        if timer.ids.len() > 1 {
            return Err(violation("timer_once", format!("{} sent two ids: {:?}", said["timer"], timer.ids)));
        }
        Ok(())
    }

    /// The cause that an actor's event names must be a message that this actor was given.
    fn caused(&self, said: &Value, message: &OsMessage) -> Result<(), Violation> {
        let Some(author) = said["author"].as_u64() else { return Ok(()) };
        let cause = message.metadata.causation.as_ref().map_or("", |id| id.as_str());
        if self.given.contains(&(author as usize, cause.to_owned())) {
            return Ok(());
        }
        let detail = format!("actor {author} said that {} follows from {cause}", message.metadata.id);
        Err(violation("true_causes", detail))
    }

    pub(crate) fn timer_asked(&mut self, id: &str, now: Now, delay_ms: u64) {
        let (due, wall_shift_ms) = (now.wall + delay_ms, self.wall_shift_ms);
        self.timers.insert(id.to_owned(), Timer { due, wall_shift_ms, ..Timer::default() });
    }

    pub(crate) fn timer_set(&mut self, cause: &str, message: &OsMessage) {
        let name = data(message)["timerId"].as_str().map(str::to_owned);
        if let Some(timer) = self.timers.get_mut(cause) {
            timer.name = name;
        }
    }

    pub(crate) fn some_timer(&self, dice: &mut Dice) -> Option<String> {
        let names: Vec<&String> = self
            .timers
            .values()
            .filter(|timer| timer.fired.is_empty())
            .filter_map(|timer| timer.name.as_ref())
            .collect();
        dice.pick(&names).map(|name| (*name).clone())
    }

    pub(crate) fn cancel_asked(&mut self, name: &str, by: &str) {
        if let Some(timer) = self.timers.values_mut().find(|timer| timer.name.as_deref() == Some(name)) {
            timer.cancel_asked = Some(by.to_owned());
        }
    }

    fn cancel_answered(&mut self, cause: &str, said: &Value) {
        let asked = self.timers.values_mut().find(|timer| timer.cancel_asked.as_deref() == Some(cause));
        if let (Some(timer), Some(true)) = (asked, said["cancelled"].as_bool()) {
            timer.cancelled = true;
        }
    }

    pub(crate) fn wall_stepped(&mut self, by_ms: i64) {
        self.wall_shift_ms += by_ms;
    }

    /// The process was killed: connections and everything but the rows are gone. A timer that was confirmed and has not
    /// fired must have a row. A timer must keep its row while the message that it sent waits in one of the `mailboxes`:
    /// an event as long as it is there, a request until it times out.
    pub(crate) fn killed(
        &mut self,
        rows: &BTreeMap<String, Bytes>,
        mailboxes: &BTreeSet<(String, bool)>,
        patient_since: Mono,
    ) -> Result<(), Violation> {
        self.waiting.clear();
        self.went.clear();
        self.last_posted.clear();
        self.given.clear();
        self.system_turns = 0;
        for (id, timer) in &self.timers {
            let Some(name) = &timer.name else { continue };
            let waits = mailboxes.contains(&(id.clone(), true))
                || (mailboxes.contains(&(id.clone(), false)) && timer.fired_at > patient_since);
            let safe = (!timer.fired.is_empty() && !waits) || timer.cancel_asked.is_some();
            if !safe && !rows.contains_key(&format!("{TIMER_PREFIX}{name}")) {
                return Err(violation("timer_never_lost", format!("{id} was confirmed and has no row")));
            }
        }
        Ok(())
    }

    pub(crate) fn at_the_end(&self, left: &Gauges) -> Result<(), Violation> {
        if let Some(((conn, id), uses)) = self.waiting.first_key_value() {
            let detail = format!("client {} was never told about {id} ({uses:?})", conn.0);
            return Err(violation("every_request_answered", detail));
        }
        if (left.pending, left.in_mailboxes, left.user_lane, left.system_lane) != (0, 0, 0, 0) {
            return Err(violation("no_leak", format!("{left:?}")));
        }
        let lost = self.timers.iter().find(|(_, timer)| {
            timer.name.is_some() && timer.fired.is_empty() && timer.cancel_asked.is_none()
        });
        match lost {
            Some((id, timer)) => Err(violation("timer_never_lost", format!("{id} never fired: {timer:?}"))),
            None => Ok(()),
        }
    }
}
