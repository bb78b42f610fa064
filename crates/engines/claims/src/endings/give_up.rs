//! Giving up on an event: its dead letter, and an event that reports it.

use std::sync::Arc;

use millrace_model::{
    DeadLetterRow, Ending, Event, FinishedRow, JsonText, Op, Space, Ticket, Timestamp, TopicName, keys,
};

use crate::commits::action::{Action, DEAD_LETTER_TOPIC, FollowUp};
use crate::commits::batch_builder::{caused_by, derived_id};
use crate::commits::event_writer::append;
use crate::endings::finished::finished_ops;
use crate::endings::retry::truncate;
use crate::interface::spec::OutEvent;
use crate::worker::Worker;

/// To how many bytes an error is cut if the event needs nearly all the room of a batch.
const SHORT_ERROR_BYTES: usize = 1024;

/// The event that is given up, and by which handler.
struct GivenUp<'a> {
    now: Timestamp,
    handler: usize,
    ticket: &'a Ticket,
    event: &'a Arc<Event>,
    attempts: u32,
}

impl Worker {
    /// Writes a dead letter with a copy of the event. Events of sessions and of the bus leave room for the copy. For an
    /// event that does not, from another source or an older version, the letter only points to it: ending the event
    /// comes first.
    pub(crate) fn give_up(
        &mut self,
        now: Timestamp,
        handler: usize,
        ticket: &Ticket,
        event: &Arc<Event>,
        attempts: u32,
        error: &str,
    ) -> Action {
        let given_up = GivenUp { now, handler, ticket, event, attempts };
        let error = self.shortened(error);
        let action = self.dead_letter(&given_up, &error, true);
        if action.fits() {
            return action;
        }
        let error = truncate(&error, SHORT_ERROR_BYTES);
        let action = self.dead_letter(&given_up, &error, true);
        if action.fits() { action } else { self.dead_letter(&given_up, &error, false) }
    }

    /// Appends no report for a report itself that is given up, and none beyond the depth limit: such chains would never
    /// end.
    fn dead_letter(&mut self, given_up: &GivenUp<'_>, error: &str, with_copy: bool) -> Action {
        let &GivenUp { now, handler, ticket, event, attempts } = given_up;
        let finished = FinishedRow {
            ending: Ending::DeadLettered,
            at: now,
            attempts,
            session: Some(self.identity.session.clone()),
            error: Some(error.to_owned()),
        };
        let row = given_up.row(error, with_copy);
        let key = keys::dead_letter(&ticket.stream, ticket.offset, &ticket.handler, now);
        let (check, delete) = ticket.end();
        let mut ops = vec![delete];
        ops.extend(finished_ops(ticket, &finished));
        ops.push(Op::Put { space: Space::DeadLetters, key, value: row.encode() });
        let lineage = caused_by(event);
        let may_report = ticket.stream.topic.topic() != DEAD_LETTER_TOPIC
            && lineage.depth <= self.config.max_event_chain_depth;
        if let (true, Ok(topic)) = (may_report, TopicName::new(DEAD_LETTER_TOPIC)) {
            let payload = serde_json::json!({
                "event_id": event.id.to_string(),
                "handler_id": ticket.handler.as_str(),
                "attempts": attempts,
                "last_error": error,
            });
            let out = OutEvent::new(topic, JsonText::from_stored(payload.to_string().into_bytes().into()));
            // The id includes the claim's generation, because the replay of a dead letter may be followed by another
            // dead letter.
            let generation = ticket.row.generation.to_string();
            let parts = [&event.id.to_string(), ticket.handler.as_str(), &generation];
            let id = derived_id("dead letter", &parts);
            let nonce = self.prng.next();
            ops.extend(append(&self.identity.namespace, self.topics.known(), &out, id, lineage, nonce));
        }
        let follow_up =
            FollowUp::DeadLettered { handler, event: event.clone(), attempts, error: error.to_owned() };
        Action { checks: vec![check], ops, follow_up }
    }
}

impl GivenUp<'_> {
    fn row(&self, error: &str, with_copy: bool) -> DeadLetterRow {
        let &GivenUp { now, ticket, event, attempts, .. } = self;
        let body = Some(&event.body).filter(|_| with_copy);
        DeadLetterRow {
            event_id: event.id.clone(),
            event_type: ticket.stream.topic.topic().to_owned(),
            partition: ticket.stream.partition.0,
            offset: ticket.offset,
            handler: ticket.handler.clone(),
            session: ticket.row.session.clone(),
            attempts,
            error: error.to_owned(),
            failed_at: now,
            payload: body.map(|body| body.payload.as_str().to_owned()),
            key: body.and_then(|body| body.key.as_deref()).map(str::to_owned),
            headers: body.and_then(|body| body.headers.as_ref()).map(|all| all.json().as_str().to_owned()),
            priority: event.body.priority,
            root: event.body.lineage.root.clone(),
            depth: event.body.lineage.depth,
            steps: ticket.row.steps,
        }
    }
}
