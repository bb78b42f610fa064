//! Every request gets exactly one answer, unless its connection closed or the server ended. An ack in time is never
//! refused, and no request stays unanswered while the engine sleeps.

use std::collections::BTreeSet;

use millrace_bus::{BusError, Input, Reply, ReplyTo, Request};

use super::Checker;
use crate::facts::Facts;
use crate::place::Seat;
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct Answers {
    answered: BTreeSet<ReplyTo>,
    /// Acks of events that their sender certainly held.
    in_time: BTreeSet<ReplyTo>,
}

impl Checker for Answers {
    fn name(&self) -> &'static str {
        "one_answer"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Told { input: Input::Request { to, request, .. } } => {
                if holds(facts, *to, request) {
                    self.in_time.insert(*to);
                }
                Ok(())
            }
            Seen::Answered { to, reply } => self.answered(facts, *to, reply),
            Seen::Idle => silent(facts),
            Seen::Ended { .. } => {
                *self = Answers::default();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Answers {
    fn answered(&mut self, facts: &Facts, to: ReplyTo, reply: &Reply) -> Result<(), String> {
        if !self.answered.insert(to) {
            return Err(format!("{to:?} was answered twice, the second time {reply:?}"));
        }
        match facts.traffic.asked.get(&to) {
            Some(Request::Ack(ack)) if !ack.confirm && matches!(reply, Reply::Acked) => {
                Err(format!("{to:?} did not want to hear that its ack is durable"))
            }
            Some(Request::Ack(ack)) if self.in_time.contains(&to) && !facts.ending => match reply {
                Reply::Refused(BusError::TopicDeleted(_)) => Ok(()),
                Reply::Refused(error) => {
                    Err(format!("the ack of {} in time was refused: {error}", ack.offset))
                }
                _ => Ok(()),
            },
            Some(request) => fits(request, reply),
            None if matches!(to, ReplyTo::Conn { conn, .. } if is_closed(facts, conn)) => Ok(()),
            None => Err(format!("{to:?} was answered and had not asked")),
        }
    }
}

fn is_closed(facts: &Facts, conn: millrace_bus::ConnId) -> bool {
    facts.traffic.conns.get(&conn).is_none_or(|conn| conn.closed_in_turn.is_some())
}

fn holds(facts: &Facts, to: ReplyTo, request: &Request) -> bool {
    let (ReplyTo::Conn { conn, .. }, Request::Ack(ack)) = (to, request) else { return false };
    let seat = Seat { topic: ack.topic.clone(), group: ack.group.clone() };
    let item = facts.traffic.item(&seat.spot(ack.partition), ack.offset);
    let lease = item.and_then(|item| item.surely_held(facts.now_ms));
    lease.is_some_and(|lease| lease.conn == conn) && !facts.traffic.is_moving(&seat) && !facts.ending
}

fn silent(facts: &Facts) -> Result<(), String> {
    let retrying =
        facts.read_failed_ms.is_some_and(|at_ms| facts.now_ms <= at_ms + facts.limits.read_retry_ms);
    let waiting = facts.traffic.asked.iter().find(|(to, request)| match (to, request) {
        (_, Request::Ack(ack)) if !ack.confirm => false,
        (_, Request::Nack(nack)) if !nack.confirm => false,
        (_, Request::GiveBack(_)) => false,
        (ReplyTo::Conn { conn, .. }, _) => !is_closed(facts, *conn),
        _ => true,
    });
    match waiting.filter(|_| !retrying) {
        Some((to, request)) => {
            Err(format!("{to:?} waits for an answer while the engine sleeps: {request:?}"))
        }
        None => Ok(()),
    }
}

fn fits(request: &Request, reply: &Reply) -> Result<(), String> {
    let fits = matches!(
        (request, reply),
        (_, Reply::Refused(_))
            | (Request::Publish(_), Reply::Published { .. })
            | (Request::PublishBatch(_), Reply::PublishedBatch { .. })
            | (Request::Subscribe(_), Reply::Subscribed { .. })
            | (Request::Unsubscribe { .. }, Reply::Unsubscribed { .. })
            | (Request::Ack(_), Reply::Acked)
            | (Request::Nack(_), Reply::Nacked)
            | (Request::Flow { .. }, Reply::FlowAdded)
            | (
                Request::CreateTopic { .. } | Request::PatchTopic { .. } | Request::DescribeTopic { .. },
                Reply::Topic { .. },
            )
            | (Request::DeleteTopic { .. }, Reply::TopicDeleted { .. })
            | (Request::ListTopics { .. }, Reply::Topics { .. })
            | (Request::Offsets { .. }, Reply::Offsets(_))
            | (Request::SeekGroup { .. }, Reply::Sought { .. })
            | (Request::ListGroups { .. }, Reply::Groups(_))
            | (Request::DeleteGroup { .. }, Reply::GroupDeleted { .. })
            | (Request::RemoveLetters { .. }, Reply::LettersRemoved { .. })
            | (Request::PauseGroup { .. }, Reply::GroupPaused { .. })
            | (Request::InspectGroup { .. }, Reply::GroupInspected(_))
            | (Request::InspectConnections, Reply::ConnectionsInspected(_))
            | (Request::EventStandings { .. }, Reply::EventStandings(_))
            | (Request::Stats, Reply::Stats(_))
    );
    fits.then_some(()).ok_or(format!("{request:?} was answered by {reply:?}"))
}
