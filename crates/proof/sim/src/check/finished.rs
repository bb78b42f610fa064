//! In the end every event is finished for every group: acked, dead-lettered, filtered, trimmed or sought past.

use millrace_model::Partition;

use super::Checker;
use crate::facts::Facts;
use crate::place::Spot;
use crate::seen::Seen;

pub(super) struct Finished;

impl Checker for Finished {
    fn name(&self) -> &'static str {
        "all_finished"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        if !matches!(seen, Seen::End { .. }) {
            return Ok(());
        }
        if let Some(spot) = unfinished(facts) {
            let (committed, (_, next)) =
                (facts.ledger.cursor(&spot).committed, facts.ledger.bounds(&spot.stream()));
            return Err(format!("{spot} stands at {committed}, the tail is {}", next.before()));
        }
        match facts.ledger.due.keys().next() {
            Some(key) => Err(format!("the delayed event {key} still waits")),
            None => Ok(()),
        }
    }
}

/// Returns a group whose durable commit is not at the tail of some partition.
pub(crate) fn unfinished(facts: &Facts) -> Option<Spot> {
    let spots = facts.ledger.groups.keys().flat_map(|seat| {
        let partitions = facts.ledger.topics.get(&seat.topic).map_or(0, |config| config.partitions);
        (0..partitions).map(|partition| seat.spot(Partition(partition)))
    });
    let mut spots = spots.filter(|spot| {
        let (start, next) = facts.ledger.bounds(&spot.stream());
        facts.ledger.cursor(spot).committed.max(start.before()) < next.before()
    });
    spots.next()
}
