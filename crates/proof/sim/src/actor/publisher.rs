//! A publisher: sends single events, batches and delayed events, and sends them again when the confirmation did not
//! come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millrace_bus::{BusError, ConnId, Publish, PublishBatch, Reply, ReplyTo, Request};
use millrace_model::{DeliverAt, EventBody, EventId, Headers, NewEvent, TopicKey};

use super::{Desk, Note};
use crate::dice::Dice;
use crate::fault::Fault;
use crate::payload::payload;

const GO_ON: Note = Note(0);
/// Confirmed requests that may be sent once more.
const CONFIRMED_MAX: usize = 32;
/// How far ahead a delayed event may lie, so that all of them come due in the calm at the end.
pub(crate) const DELAY_MS_MAX: u64 = 4000;

#[derive(Debug)]
pub(crate) struct Publisher {
    dice: Dice,
    topics: Vec<TopicKey>,
    pause_ms_max: u64,
    conn: Option<ConnId>,
    unconfirmed: BTreeMap<ReplyTo, Request>,
    /// Requests with ids that were not confirmed: sending them again is safe, and they are sent until they are
    /// confirmed.
    resend: Vec<Request>,
    /// Requests with ids that were confirmed, the oldest first.
    confirmed: VecDeque<Request>,
}

impl Publisher {
    pub(crate) fn new(dice: Dice, topics: Vec<TopicKey>, pause_ms_max: u64) -> Publisher {
        Publisher {
            dice,
            topics,
            pause_ms_max,
            conn: None,
            unconfirmed: BTreeMap::new(),
            resend: Vec::new(),
            confirmed: VecDeque::new(),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.unconfirmed.is_empty() && self.resend.is_empty()
    }

    pub(crate) fn wake(&mut self, desk: &mut Desk) {
        if desk.up {
            self.go_on(desk);
        }
        let pause_ms = self.dice.between(1, self.pause_ms_max);
        if !(desk.calm && self.is_done()) {
            desk.wake_in(pause_ms, GO_ON);
        }
    }

    fn go_on(&mut self, desk: &mut Desk) {
        let conn = *self.conn.get_or_insert_with(|| desk.open());
        if let Some(request) = self.resend.pop() {
            desk.count(Fault::Resent);
            return self.publish(desk, conn, request);
        }
        if desk.calm {
            return;
        }
        // Acts like a client that starts again from an old list of events to send.
        if self.dice.chance(40)
            && let Some(request) = self.confirmed.pop_front()
        {
            desk.count(Fault::Resent);
            return self.publish(desk, conn, request);
        }
        let Some(topic) = self.dice.pick(&self.topics).cloned() else { return };
        let request = match self.dice.below(10) {
            0 => {
                let events = (0..self.dice.between(1, 5)).map(|_| self.event(desk)).collect();
                Request::PublishBatch(PublishBatch { topic, events })
            }
            1 | 2 => {
                let ms = self.dice.below(DELAY_MS_MAX);
                let absolute = self.dice.chance(500);
                let deliver_at =
                    if absolute { DeliverAt::At(desk.wall + ms) } else { DeliverAt::AfterMs(ms) };
                Request::Publish(Publish { topic, event: self.event(desk), deliver_at: Some(deliver_at) })
            }
            _ => Request::Publish(Publish { topic, event: self.event(desk), deliver_at: None }),
        };
        if self.dice.chance(50) {
            // A client in doubt sends twice although the first request is still on its way.
            if has_ids(&request) {
                desk.count(Fault::Resent);
                self.publish(desk, conn, request.clone());
            }
        }
        self.publish(desk, conn, request);
    }

    fn event(&mut self, desk: &mut Desk) -> NewEvent {
        let number = desk.next_event();
        let key = self.dice.chance(600).then(|| format!("k{}", self.dice.below(4)).into());
        let headers = self.dice.chance(300).then(|| {
            let value = if self.dice.chance(500) { "a" } else { "b" };
            Headers::from_map(&BTreeMap::from([("h".to_owned(), value.to_owned())]))
        });
        let id = self.dice.chance(500).then(|| EventId::Text(format!("event {number}").into()));
        NewEvent { id, body: Arc::new(EventBody { key, headers, ..EventBody::of(payload(number)) }) }
    }

    fn publish(&mut self, desk: &mut Desk, conn: ConnId, request: Request) {
        let by_call = self.dice.chance(200);
        let to = if by_call { desk.call(request.clone()) } else { desk.send(conn, request.clone()) };
        self.unconfirmed.insert(to, request);
        if self.dice.chance(10) {
            desk.count(Fault::Disconnect);
            desk.tell(millrace_bus::Input::Close { conn });
            self.dropped();
        }
    }

    pub(crate) fn replied(&mut self, to: ReplyTo, reply: &Reply) {
        let Some(request) = self.unconfirmed.remove(&to) else { return };
        if !has_ids(&request) {
            return;
        }
        match reply {
            // An event that does not match the schema will not match the next time either.
            Reply::Refused(BusError::SchemaMismatch { .. }) => {}
            Reply::Refused(_) => self.resend.push(request),
            _ => {
                self.confirmed.push_back(request);
                self.confirmed.truncate(CONFIRMED_MAX);
            }
        }
    }

    /// The connection has ended, by whatever cause. Calls are given up with it: a client that retries cannot know their
    /// fate either.
    pub(crate) fn dropped(&mut self) {
        self.conn = None;
        let unconfirmed = std::mem::take(&mut self.unconfirmed);
        self.resend.extend(unconfirmed.into_values().filter(has_ids));
    }
}

fn has_ids(request: &Request) -> bool {
    match request {
        Request::Publish(publish) => publish.event.id.is_some(),
        Request::PublishBatch(batch) => batch.events.iter().all(|event| event.id.is_some()),
        _ => false,
    }
}
