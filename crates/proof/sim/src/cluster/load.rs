//! The clients: what they wish, and the batches that a leader makes of it.

use std::collections::VecDeque;

use millrace_conformance::build::{
    absent, ack, append_body, append_keyed, batch, body, checked, claim_of, delete, drop_topic, equals, put,
    put_new, release, remove, stream, trim,
};
use millrace_conformance::{HistoryStep, steps_from_seed};
use millrace_model::{Batch, Claim, Done, EventId, HandlerOrder, Op, Space, Ticket, Timestamp};

use super::server::{CURSORS, LeaderMemory};
use super::truth::SEEKS;
use crate::dice::Dice;

/// Longer than any run and any difference of clocks: an id is stored once.
const DEDUPE_WINDOW_MS: u64 = 30 * 24 * 3_600_000;
const TOPICS: u64 = 3;
const PARTITIONS: u64 = 2;
const GROUPS: u64 = 3;
/// The topic whose events handlers claim.
const CLAIMED: &str = "claimed";
const HANDLERS: [&str; 2] = ["h", "ordered"];
const TICKETS_MAX: usize = 12;

pub(super) struct Client {
    at: usize,
    pub(super) dice: Dice,
    sequence: u64,
    wish: Option<Wish>,
    /// A request is under way.
    pub(super) is_waiting: bool,
    /// The server that answered last, or that another server has named as the leader.
    pub(super) server: Option<usize>,
    tickets: Vec<Ticket>,
    history: VecDeque<Vec<Batch>>,
    histories: u64,
}

enum Wish {
    /// Sent again, under the same ids, until it is confirmed.
    Publish { events: Vec<WishedEvent>, attempt: u64, is_split: bool },
    /// Asked for once.
    Once(OnceWish),
}

#[derive(Clone)]
struct WishedEvent {
    topic: u64,
    partition: u32,
    id: Option<EventId>,
    name: String,
}

#[derive(Clone, Copy)]
enum OnceWish {
    /// Batches of the conformance suite.
    History,
    Claims,
    /// A group commits a position, or seeks.
    Cursor,
    Rows,
    /// Events under a check that does not hold.
    Refused,
    Retention,
    Drop,
}

/// How a request has ended, for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fared {
    Done,
    /// Nothing was written.
    Refused,
    Unknown,
}

impl Client {
    pub(super) fn new(seed: u64, at: usize) -> Client {
        Client {
            at,
            dice: Dice::new(seed, &format!("client {at}")),
            sequence: 0,
            wish: None,
            is_waiting: false,
            server: None,
            tickets: Vec::new(),
            history: VecDeque::new(),
            histories: 0,
        }
    }

    pub(super) fn has_wish(&self) -> bool {
        self.wish.is_some()
    }

    pub(super) fn wish_for_events(&mut self, brings_ids: bool) {
        self.sequence += 1;
        let count = self.dice.between(1, 4);
        let events = (0..count).map(|n| {
            let name = format!("c{}-{}-{n}", self.at, self.sequence);
            let id = brings_ids.then(|| EventId::parse(&name).ok()).flatten();
            let (topic, partition) = (self.dice.below(TOPICS), self.dice.below(PARTITIONS) as u32);
            WishedEvent { topic, partition, id, name }
        });
        let events = events.collect();
        self.wish = Some(Wish::Publish { events, attempt: 0, is_split: self.dice.chance(300) });
    }

    fn draw_wish(&mut self) {
        let once = match self.dice.below(22) {
            0..10 => {
                let brings_ids = self.dice.chance(700);
                return self.wish_for_events(brings_ids);
            }
            10..12 => OnceWish::History,
            12..15 => OnceWish::Claims,
            15..17 => OnceWish::Cursor,
            17 => OnceWish::Rows,
            18 | 19 => OnceWish::Refused,
            20 => OnceWish::Retention,
            _ if self.dice.chance(300) => OnceWish::Drop,
            _ => OnceWish::Retention,
        };
        self.wish = Some(Wish::Once(once));
    }

    /// Returns the batches that a leader commits for the client, by the leader's clock and memory.
    pub(super) fn batches(&mut self, now_ms: u64, memory: Option<&mut LeaderMemory>) -> Vec<Batch> {
        if self.wish.is_none() {
            self.draw_wish();
        }
        let mut batches = match &mut self.wish {
            Some(Wish::Publish { events, attempt, is_split }) => {
                *attempt += 1;
                let appends = events.iter().map(|event| event.append(*attempt));
                match is_split {
                    true => appends.map(|op| batch(now_ms, vec![op])).collect(),
                    false => vec![batch(now_ms, appends.collect())],
                }
            }
            Some(Wish::Once(once)) => {
                let once = *once;
                self.batches_once(once, now_ms, memory)
            }
            None => Vec::new(),
        };
        // Ids are minted from the nonce, so it must come from the seed.
        batches.iter_mut().for_each(|batch| batch.nonce = self.dice.draw());
        batches
    }

    fn batches_once(&mut self, once: OnceWish, now_ms: u64, memory: Option<&mut LeaderMemory>) -> Vec<Batch> {
        match once {
            OnceWish::History => self.history(now_ms),
            OnceWish::Claims => (0..self.dice.between(1, 3)).map(|_| self.claims(now_ms)).collect(),
            OnceWish::Cursor => memory.map(|memory| self.cursor(now_ms, memory)).into_iter().collect(),
            OnceWish::Rows => vec![self.rows(now_ms)],
            OnceWish::Refused => vec![self.refused(now_ms)],
            OnceWish::Retention => {
                let start = self.dice.between(1, 20) + self.sequence;
                let s = self.own_stream();
                let claimed = stream(CLAIMED, self.dice.below(PARTITIONS) as u32);
                vec![batch(now_ms, vec![trim(&s, start)]), batch(now_ms, vec![trim(&claimed, start)])]
            }
            OnceWish::Drop => vec![batch(now_ms, vec![drop_topic(&own_topic(self.dice.below(TOPICS)))])],
        }
    }

    fn own_stream(&mut self) -> millrace_model::Stream {
        stream(&own_topic(self.dice.below(TOPICS)), self.dice.below(PARTITIONS) as u32)
    }

    /// Returns the next batches of a random history of the conformance suite.
    fn history(&mut self, now_ms: u64) -> Vec<Batch> {
        if self.history.is_empty() {
            self.histories += 1;
            let steps = steps_from_seed(self.histories * 1000 + self.at as u64, 20);
            self.history.extend(steps.into_iter().filter_map(|step| match step {
                HistoryStep::Commit(batches) => Some(batches),
                HistoryStep::Maintain(_) | HistoryStep::Reopen => None,
            }));
        }
        let mut batches = self.history.pop_front().unwrap_or_default();
        batches.iter_mut().for_each(|batch| batch.now = Timestamp(now_ms));
        batches
    }

    fn claims(&mut self, now_ms: u64) -> Batch {
        let partition = self.dice.below(PARTITIONS) as u32;
        let s = stream(CLAIMED, partition);
        match self.dice.below(20) {
            0 => batch(now_ms, vec![drop_topic(CLAIMED)]),
            1 | 2 => batch(now_ms, vec![trim(&s, self.dice.below(40))]),
            3 => {
                let from = 1 + self.dice.below(30);
                batch(now_ms, vec![remove(&s, &[from, from + 2, from + 3], from + 4)])
            }
            4..9 => {
                let of = HANDLERS[self.dice.below(2) as usize];
                let order = if of == "ordered" { HandlerOrder::Key } else { HandlerOrder::Priority };
                let until_ms = now_ms + self.dice.between(1_000, 60_000);
                let claim = claim_of(CLAIMED, of, self.dice.between(1, 6) as usize, until_ms);
                batch(now_ms, vec![Op::Claim(Claim { order, ..claim })])
            }
            9..14 if !self.tickets.is_empty() => {
                let at = self.dice.below(self.tickets.len() as u64) as usize;
                // Used again now and then: the check must refuse it.
                let is_kept = self.dice.chance(200);
                let ticket = if is_kept { self.tickets[at].clone() } else { self.tickets.swap_remove(at) };
                match self.dice.chance(700) {
                    true => ack(now_ms, &ticket),
                    false => release(now_ms, &ticket, now_ms + self.dice.below(5_000)),
                }
            }
            _ => {
                let priority = [100, 100, 7, 500][self.dice.below(4) as usize];
                let key = [None, Some("a"), Some("b")][partition as usize % 3];
                let text = format!("{}-{}", self.at, self.dice.draw());
                batch(now_ms, vec![append_keyed(&s, &text, key, priority)])
            }
        }
    }

    /// A leader commits a group's position from its memory, without a check, as the bus engine does.
    fn cursor(&mut self, now_ms: u64, memory: &mut LeaderMemory) -> Batch {
        let group = self.dice.below(GROUPS);
        let key = format!("{CURSORS}g{group}");
        let position = memory.cursors.entry(key.clone()).or_default();
        let seeks = self.dice.chance(60);
        *position = if seeks { *position / 2 } else { *position + self.dice.between(1, 5) };
        let mut ops = vec![put(Space::Cursors, &key, &position.to_string())];
        if seeks {
            ops.push(put(Space::Kv, &format!("{SEEKS}g{group}"), &position.to_string()));
        }
        batch(now_ms, ops)
    }

    fn rows(&mut self, now_ms: u64) -> Batch {
        let (key, value) = (format!("row{}", self.dice.below(4)), self.dice.below(3).to_string());
        let check = match self.dice.chance(500) {
            true => absent(Space::Kv, &key),
            false => equals(Space::Kv, &key, &value),
        };
        let op = match self.dice.below(3) {
            0 => put(Space::Kv, &key, &self.dice.below(3).to_string()),
            1 => put_new(Space::Kv, &key, "new"),
            _ => delete(Space::Kv, &key),
        };
        checked(now_ms, vec![check], vec![op])
    }

    fn refused(&mut self, now_ms: u64) -> Batch {
        self.sequence += 1;
        let name = format!("c{}-{}-refused", self.at, self.sequence);
        let event = WishedEvent { topic: self.dice.below(TOPICS), partition: 0, id: None, name };
        let never = equals(Space::Kv, "sim/never", "there");
        checked(now_ms, vec![never], vec![event.append(1), put(Space::Kv, "sim/refused", "there")])
    }

    /// The request has ended.
    pub(super) fn fared(&mut self, fared: Fared, done: &[&Done]) {
        self.is_waiting = false;
        self.tickets.extend(done.iter().flat_map(|done| &done.claimed).map(|claimed| claimed.ticket.clone()));
        let too_many = self.tickets.len().saturating_sub(TICKETS_MAX);
        self.tickets.drain(..too_many);
        self.wish = match (self.wish.take(), fared) {
            (Some(Wish::Publish { mut events, attempt, is_split }), Fared::Refused | Fared::Unknown) => {
                // An event without an id is not sent again after an unknown outcome: it could be stored twice.
                events.retain(|event| fared == Fared::Refused || event.id.is_some());
                (!events.is_empty()).then_some(Wish::Publish { events, attempt, is_split })
            }
            _ => None,
        };
    }
}

fn own_topic(number: u64) -> String {
    format!("own{number}")
}

impl WishedEvent {
    fn append(&self, attempt: u64) -> Op {
        let to = stream(&own_topic(self.topic), self.partition);
        append_body(&to, self.id.clone(), body(&format!("{}/{attempt}", self.name)), DEDUPE_WINDOW_MS)
    }
}
