//! Every position that the server shows is a durable one.

use millrace_bus::{OffsetsView, Reply};
use millrace_model::{Offset, Partition};

use super::Checker;
use crate::facts::Facts;
use crate::place::Seat;
use crate::seen::Seen;

pub(super) struct Views;

impl Checker for Views {
    fn name(&self) -> &'static str {
        "views_show_durable"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Answered { reply, .. } = seen else { return Ok(()) };
        match reply {
            Reply::Offsets(view) => offsets(facts, view),
            Reply::Subscribed { topic, group, partitions } => {
                let seat = Seat { topic: topic.clone(), group: group.clone() };
                partitions.iter().try_for_each(|(at, next)| committed(facts, &seat, *at, next.before()))
            }
            Reply::Sought { topic, group, partitions } => {
                let seat = Seat { topic: topic.clone(), group: group.clone() };
                partitions.iter().try_for_each(|(at, next)| committed(facts, &seat, *at, next.before()))
            }
            _ => Ok(()),
        }
    }
}

/// The store may be ahead of what the engine knows, never behind it.
fn committed(facts: &Facts, seat: &Seat, partition: Partition, shown: Offset) -> Result<(), String> {
    let spot = seat.spot(partition);
    // After its topic has grown, a group has no row for a new partition until it has a position there: it stands at the
    // partition's start.
    let (start, _) = facts.ledger.bounds(&spot.stream());
    let durable = facts.ledger.cursors.get(&spot).map_or(start.before(), |row| row.committed);
    let begun_anew = facts.traffic.moved.contains(seat) || facts.traffic.is_dropping(&seat.topic);
    if shown > durable && !begun_anew {
        return Err(format!("{spot} is shown at {shown}, durable is {durable}"));
    }
    Ok(())
}

fn offsets(facts: &Facts, view: &OffsetsView) -> Result<(), String> {
    for (at, groups) in &view.partitions {
        let stream = view.topic.stream(at.partition);
        let (start, next) = facts.ledger.bounds(&stream);
        let dropping = facts.traffic.is_dropping(&view.topic);
        if (at.next > next || at.start > start) && !dropping {
            return Err(format!(
                "{stream} is shown as {}..{}, durable is {start}..{next}",
                at.start, at.next
            ));
        }
        for (group, shown) in groups {
            let seat = Seat { topic: view.topic.clone(), group: group.clone() };
            committed(facts, &seat, at.partition, shown.committed)?;
            let lag = at.next.before().0.saturating_sub(shown.committed.0);
            if shown.lag != lag {
                return Err(format!("{seat} shows a lag of {}, it is {lag}", shown.lag));
            }
        }
    }
    Ok(())
}
