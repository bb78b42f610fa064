//! Deliberate bugs of the bus, to prove that the checkers find them. The engine itself stays correct: a bug is made by
//! changing its limits, its inputs on their way in, and its effects on their way out. The checkers see the true inputs
//! and the changed effects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_bus::{
    Ack, BusLimits, ConnId, Effect, Input, Nack, Publish, Quote, Reply, ReplyTo, Request, Token, TopicSchema,
};
use millrace_model::{
    Batch, Bitmap, CursorRow, DeliverAt, Durability, Event, EventBody, EventId, Group, Now, Offset, Op,
    Outcome, Partition, Requester, Space, TICK_MS, Timestamp, TopicKey,
};

use crate::payload::payload;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// PUBLISHED leaves before the commit is confirmed.
    AnswerBeforeCommit,
    /// A commit passes events that are not done, up to the highest acked one.
    CommitPassesHole,
    /// An ack also completes lower events that its connection received after the acked one.
    AckCompletesLaterDelivery,
    /// Sticky groups send events of one key at once.
    ForgetKeys,
    /// All events that a lost connection held count as attempts.
    BlameAll,
    /// A closed connection keeps what it held.
    KeepLeasesOfClosed,
    IgnoreWindow,
    /// An event goes to two members at once.
    DoubleLease,
    /// The dead letter's copy and the group's completion are two commits, the completion first.
    DeadLetterApart,
    /// Attempts start at two.
    CountTooHigh,
    /// The room that an ack makes is not used.
    NoWakeOnAck,
    /// The newest events of every commit are never offered to groups.
    LoseTail,
    /// Events that join a topic while a new schema is compared with what is there are not compared with it.
    SlipPastSchema,
    /// Retention removes by age without asking whether the wall clock can be trusted.
    TrustEveryAge,
    /// Delays are counted on the wall clock.
    DelayByWall,
    /// Every step of the wall clock is taken over at once, also by the simulated shell.
    BelieveEveryStep,
}

/// The number of requests that the saboteur makes in the name of a connection; their answers are dropped.
const OWN_REQUEST: u64 = u64::MAX;
/// A place that no event reaches.
const NOWHERE: Offset = Offset(u64::MAX >> 1);

/// Events that a connection was sent as a member of a group.
type SentAt = (ConnId, TopicKey, Group, Partition);

/// Stands between one life of the engine and its world. Without a sabotage nothing is changed.
#[derive(Default)]
pub(super) struct Saboteur {
    sabotage: Option<Sabotage>,
    /// Offsets without an answer, in the order of their last deliveries.
    sent: BTreeMap<SentAt, Vec<Offset>>,
    /// Publishes to be answered at once, and those whose answer is dropped.
    to_answer: Vec<(ReplyTo, TopicKey)>,
    answered: BTreeSet<ReplyTo>,
    /// Connections that the engine believes to be open and congested.
    closed: BTreeSet<ConnId>,
    own_commits: BTreeSet<Token>,
    in_force: BTreeMap<TopicKey, Arc<TopicSchema>>,
    /// Schemas that are being compared with the events of a topic.
    compared: BTreeMap<Token, (TopicKey, Arc<TopicSchema>)>,
    /// Bodies as the engine was shown them, and as they are.
    disguised: Vec<(Arc<EventBody>, Arc<EventBody>)>,
}

impl Saboteur {
    pub(super) fn new(sabotage: Option<Sabotage>) -> Saboteur {
        Saboteur { sabotage, ..Saboteur::default() }
    }

    /// Returns the limits that the engine gets instead of the plan's, which the checkers use.
    pub(super) fn limits(sabotage: Option<Sabotage>, limits: &BusLimits) -> BusLimits {
        let believes = matches!(sabotage, Some(Sabotage::TrustEveryAge | Sabotage::BelieveEveryStep));
        let clock_settle_ms = if believes { 0 } else { limits.clock_settle_ms };
        BusLimits { clock_settle_ms, ..limits.clone() }
    }

    /// Returns what the engine is told instead of an input.
    pub(super) fn inputs(&mut self, now: Now, input: Input) -> Vec<Input> {
        let Some(sabotage) = self.sabotage else { return vec![input] };
        match (sabotage, input) {
            (_, Input::Committed { token, .. }) if self.own_commits.remove(&token) => Vec::new(),
            (Sabotage::BlameAll, Input::Close { conn }) => self.nacks_before_close(conn),
            (Sabotage::KeepLeasesOfClosed, Input::Close { conn }) => {
                self.closed.insert(conn);
                vec![Input::Congested { conn }]
            }
            (_, Input::Drained { conn }) if self.closed.contains(&conn) => Vec::new(),
            (Sabotage::LoseTail, Input::Elsewhere { delayed, .. }) => {
                vec![Input::Elsewhere { reaches: Vec::new(), delayed }]
            }
            (Sabotage::LoseTail, Input::Committed { token, outcome: Outcome::Done(mut done) }) => {
                // An event that is stored already is offered to nobody.
                done.appended.last_mut().into_iter().for_each(|newest| newest.duplicate = true);
                vec![Input::Committed { token, outcome: Outcome::Done(done) }]
            }
            (_, Input::RetainedChecked { token, outcome }) => {
                self.compared.remove(&token);
                vec![Input::RetainedChecked { token, outcome }]
            }
            (_, Input::Request { to, by, request, checked }) => {
                let mut own = Vec::new();
                let request = self.request(sabotage, now, to, request, &mut own);
                own.extend(request.map(|request| Input::Request { to, by, request, checked }));
                own
            }
            (_, input) => {
                if let Input::Close { conn } | Input::Evict { conn } = &input {
                    self.sent.retain(|(of, ..), _| of != conn);
                }
                vec![input]
            }
        }
    }

    /// Returns the request that the engine gets, if it gets one. Adds requests that come before it to `own`.
    fn request(
        &mut self,
        sabotage: Sabotage,
        now: Now,
        to: ReplyTo,
        mut request: Request,
        own: &mut Vec<Input>,
    ) -> Option<Request> {
        match (sabotage, &mut request) {
            (Sabotage::NoWakeOnAck, Request::Ack(ack)) if !ack.confirm => return None,
            (Sabotage::ForgetKeys, Request::Subscribe(subscribe)) => subscribe.sticky = false,
            (Sabotage::IgnoreWindow, Request::Subscribe(subscribe)) => {
                subscribe.max_inflight = Some(BusLimits::default().max_inflight_max);
            }
            (Sabotage::DelayByWall, Request::Publish(Publish { deliver_at: Some(at), .. })) => {
                if let DeliverAt::AfterMs(ms) = *at {
                    *at = DeliverAt::At(now.wall + ms + TICK_MS);
                }
            }
            (Sabotage::AnswerBeforeCommit, Request::Publish(publish)) if publish.deliver_at.is_none() => {
                self.to_answer.push((to, publish.topic.clone()));
            }
            (Sabotage::SlipPastSchema, Request::Publish(publish)) if publish.deliver_at.is_none() => {
                self.disguise(publish);
            }
            (_, Request::Ack(ack)) => self.acked(sabotage, to, ack, own),
            (_, Request::Nack(Nack { topic, group, partition, offset, .. })) => {
                self.answered_by(to, topic, group, *partition, *offset);
            }
            (_, Request::Unsubscribe { topic, group }) => {
                self.sent.retain(|(conn, at, of, _), _| !(is_from(to, *conn) && at == topic && of == group));
            }
            _ => {}
        }
        Some(request)
    }

    fn acked(&mut self, sabotage: Sabotage, to: ReplyTo, ack: &Ack, own: &mut Vec<Input>) {
        let ReplyTo::Conn { conn, .. } = to else { return };
        let Ack { topic, group, partition, offset, .. } = ack;
        let key = (conn, topic.clone(), group.clone(), *partition);
        if sabotage == Sabotage::AckCompletesLaterDelivery {
            let sent = self.sent.get(&key).into_iter().flatten();
            let later = sent.skip_while(|sent| *sent != offset).filter(|sent| *sent < offset);
            for lower in later {
                let request = Request::Ack(Ack { offset: *lower, confirm: false, ..ack.clone() });
                own.push(own_request(conn, request));
            }
        }
        self.answered_by(to, topic, group, *partition, *offset);
    }

    fn answered_by(
        &mut self,
        to: ReplyTo,
        topic: &TopicKey,
        group: &Group,
        partition: Partition,
        offset: Offset,
    ) {
        let ReplyTo::Conn { conn, .. } = to else { return };
        if let Some(sent) = self.sent.get_mut(&(conn, topic.clone(), group.clone(), partition)) {
            sent.retain(|sent| *sent != offset);
        }
    }

    fn nacks_before_close(&mut self, conn: ConnId) -> Vec<Input> {
        let mut inputs = Vec::new();
        for ((of, topic, group, partition), offsets) in &self.sent {
            for offset in offsets.iter().filter(|_| *of == conn) {
                let (topic, group, partition) = (topic.clone(), group.clone(), *partition);
                let (offset, reason, delay_ms) = (*offset, None, None);
                let nack = Nack { topic, partition, group, offset, reason, delay_ms, confirm: false };
                inputs.push(own_request(conn, Request::Nack(nack)));
            }
        }
        self.sent.retain(|(of, ..), _| *of != conn);
        inputs.push(Input::Close { conn });
        inputs
    }

    /// Shows the engine another payload, if the schema in force accepts the true one and the schema under comparison
    /// does not.
    fn disguise(&mut self, publish: &mut Publish) {
        let rejects = |schema: &TopicSchema| schema.check(&publish.event.body, Quote::Nothing).is_err();
        let slips = self.compared.values().any(|(topic, schema)| *topic == publish.topic && rejects(schema));
        if slips && !self.in_force.get(&publish.topic).is_some_and(|schema| rejects(schema)) {
            let shown = Arc::new(EventBody { payload: payload(1), ..(*publish.event.body).clone() });
            self.disguised.push((shown.clone(), publish.event.body.clone()));
            publish.event.body = shown;
        }
    }

    /// Returns what the world sees instead of the effects of a turn.
    pub(super) fn effects(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let Some(sabotage) = self.sabotage else { return effects };
        let mut changed = Vec::new();
        for effect in effects {
            self.effect(sabotage, effect, &mut changed);
        }
        for (to, topic) in std::mem::take(&mut self.to_answer) {
            // A publish that was refused has its answer.
            if !changed.iter().any(|effect| matches!(effect, Effect::Reply { to: of, .. } if *of == to)) {
                self.answered.insert(to);
                changed.push(Effect::Reply { to, reply: early_answer(topic) });
            }
        }
        changed
    }

    fn effect(&mut self, sabotage: Sabotage, effect: Effect, changed: &mut Vec<Effect>) {
        match effect {
            Effect::Reply { to: ReplyTo::Conn { request: OWN_REQUEST, .. }, .. } => {}
            Effect::Reply { to, .. } if self.answered.remove(&to) => {}
            Effect::Reply { to: ReplyTo::Conn { conn, .. }, .. } | Effect::Notice { conn, .. }
                if self.closed.contains(&conn) => {}
            Effect::Deliver { conn, group, event, attempts } => {
                let event = self.undisguised_event(event);
                let attempts = attempts + u32::from(sabotage == Sabotage::CountTooHigh);
                self.delivered(conn, &group, &event);
                if sabotage == Sabotage::DoubleLease
                    && let Some(other) = self.other_member(conn, &group, &event.stream.topic)
                {
                    let (group, event) = (group.clone(), event.clone());
                    changed.push(Effect::Deliver { conn: other, group, event, attempts });
                }
                changed.push(Effect::Deliver { conn, group, event, attempts });
            }
            Effect::Commit { token, mut batch } => {
                self.undisguise_batch(&mut batch);
                match sabotage {
                    Sabotage::CommitPassesHole => pass_holes(&mut batch),
                    Sabotage::DeadLetterApart => changed.extend(self.completion_apart(token, &mut batch)),
                    _ => {}
                }
                changed.push(Effect::Commit { token, batch });
            }
            Effect::CheckRetained { token, check } => {
                let topic = check.streams.first().map(|(stream, ..)| stream.topic.clone());
                let topic = topic.or_else(|| check.delayed.as_ref().map(|delayed| delayed.topic.clone()));
                self.compared.extend(topic.map(|topic| (token, (topic, check.schema.clone()))));
                changed.push(Effect::CheckRetained { token, check });
            }
            Effect::SchemaInForce { topic, schema } => {
                match &schema {
                    Some(schema) => drop(self.in_force.insert(topic.clone(), schema.clone())),
                    None => drop(self.in_force.remove(&topic)),
                }
                changed.push(Effect::SchemaInForce { topic, schema });
            }
            effect => changed.push(effect),
        }
    }

    fn delivered(&mut self, conn: ConnId, group: &Group, event: &Event) {
        let key = (conn, event.stream.topic.clone(), group.clone(), event.stream.partition);
        let sent = self.sent.entry(key).or_default();
        sent.retain(|offset| *offset != event.offset);
        sent.push(event.offset);
    }

    /// Returns another connection that was sent events of the topic as a member of the group.
    fn other_member(&self, conn: ConnId, group: &Group, topic: &TopicKey) -> Option<ConnId> {
        let others = self.sent.keys().filter(|(_, at, of, _)| at == topic && of == group);
        others.map(|(other, ..)| *other).find(|other| *other != conn)
    }

    fn true_body(&self, body: &Arc<EventBody>) -> Option<Arc<EventBody>> {
        let found = self.disguised.iter().find(|(shown, _)| Arc::ptr_eq(shown, body));
        found.map(|(_, body)| body.clone())
    }

    fn undisguised_event(&self, event: Arc<Event>) -> Arc<Event> {
        match self.true_body(&event.body) {
            Some(body) => Arc::new(Event { body, ..(*event).clone() }),
            None => event,
        }
    }

    fn undisguise_batch(&self, batch: &mut Batch) {
        for op in &mut batch.ops {
            if let Op::Append(append) = op
                && let Some(body) = self.true_body(&append.event.body)
            {
                append.event.body = body;
            }
        }
    }

    /// Takes the rows of the cursor out of a batch with dead letters, into a commit that comes before it.
    fn completion_apart(&mut self, token: Token, batch: &mut Batch) -> Option<Effect> {
        let is_of_cursor = |op: &Op| {
            matches!(
                op,
                Op::Put { space: Space::Cursors | Space::Attempts, .. }
                    | Op::Delete { space: Space::Cursors | Space::Attempts, .. }
            )
        };
        let has_letters = batch
            .ops
            .iter()
            .any(|op| matches!(op, Op::Append(append) if append.stream.topic.is_dead_letter()));
        if !has_letters || !batch.ops.iter().any(is_of_cursor) {
            return None;
        }
        let (rows, rest) = std::mem::take(&mut batch.ops).into_iter().partition(is_of_cursor);
        let completion = Batch { nonce: batch.nonce ^ 1, ops: rows, ..batch.clone() };
        batch.ops = rest;
        let own = Token(u64::MAX - token.0);
        self.own_commits.insert(own);
        Some(Effect::Commit { token: own, batch: completion })
    }
}

fn is_from(to: ReplyTo, conn: ConnId) -> bool {
    matches!(to, ReplyTo::Conn { conn: of, .. } if of == conn)
}

fn own_request(conn: ConnId, request: Request) -> Input {
    let to = ReplyTo::Conn { conn, request: OWN_REQUEST };
    Input::Request { to, by: Requester::Trusted, request, checked: None }
}

fn early_answer(topic: TopicKey) -> Reply {
    let (id, at) = (EventId::mint(Timestamp(0), 0, 0), Some((Partition(0), NOWHERE)));
    Reply::Published { topic, id, at, due: None, durability: Durability::Fsync }
}

/// Moves the commit of every cursor in the batch up to its highest acked event.
fn pass_holes(batch: &mut Batch) {
    for op in &mut batch.ops {
        if let Op::Put { space: Space::Cursors, key, value } = op
            && let Ok(row) = CursorRow::decode(key, value)
            && let Some(highest) = row.ahead.iter().max()
        {
            let committed = Offset(row.committed.0 + 1 + highest);
            *value = CursorRow { committed, ahead: Bitmap::default(), ..row }.encode();
        }
    }
}
