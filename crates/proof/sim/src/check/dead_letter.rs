//! A dead letter is complete: it says where it comes from, equals the original, and becomes durable in the same commit
//! as the group's completion of the event and as its copy in the mirror, and only after the event has used up all its
//! deliveries.

use std::collections::BTreeSet;

use millrace_model::{Append, Batch, DEAD_LETTER_MIRROR, DLQ_SUFFIX, Offset, Op};

use super::Checker;
use crate::facts::Facts;
use crate::ledger::{cursor_rows, dropped, is_done};
use crate::place::Spot;
use crate::seen::Seen;

const HEADERS: [&str; 8] = [
    "x-dlq-topic",
    "x-dlq-partition",
    "x-dlq-offset",
    "x-dlq-group",
    "x-dlq-attempts",
    "x-dlq-reason",
    "x-dlq-id",
    "x-dlq-ts",
];

#[derive(Default)]
pub(super) struct DeadLetters {
    buried: BTreeSet<(Spot, Offset)>,
}

impl Checker for DeadLetters {
    fn name(&self) -> &'static str {
        "dead_letter_whole"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Wanted { batch } => {
                for topic in dropped(batch) {
                    self.buried.retain(|(spot, _)| spot.seat.topic != *topic);
                }
                self.check_mirror(batch)?;
                for append in letters(batch) {
                    let (spot, offset) = source(append)?;
                    self.check(facts, batch, append, &spot, offset)?;
                    let again = !self.buried.insert((spot.clone(), offset));
                    if again && !facts.traffic.moved.contains(&spot.seat) {
                        return Err(format!("{spot} at {offset} was dead-lettered twice"));
                    }
                }
            }
            // A dead letter that the crash lost may be written again, and a group that was moved before the crash may
            // meet the event again.
            Seen::Ended { .. } => self.buried.clear(),
            _ => {}
        }
        Ok(())
    }
}

impl DeadLetters {
    /// Every dead letter of a user's topic stands twice in the batch that makes it: in its own topic and in the mirror.
    fn check_mirror(&self, batch: &Batch) -> Result<(), String> {
        let mirrored = letters(batch).filter_map(|letter| {
            let mirror = letter.stream.topic.dead_letters_of()?.dead_letter_mirror()?;
            Some((mirror, &letter.event.body))
        });
        let mirror = appends(batch).filter(|append| append.stream.topic.topic() == DEAD_LETTER_MIRROR);
        let found = mirror.map(|append| (append.stream.topic.clone(), &append.event.body));
        let (wanted, found): (Vec<_>, Vec<_>) = (mirrored.collect(), found.collect());
        if wanted != found {
            return Err(format!("{} dead letters and {} in the mirror", wanted.len(), found.len()));
        }
        Ok(())
    }

    fn check(
        &self,
        facts: &Facts,
        batch: &Batch,
        append: &Append,
        spot: &Spot,
        offset: Offset,
    ) -> Result<(), String> {
        let event = facts.ledger.event(&spot.stream(), offset);
        let event = event.ok_or(format!("{spot} at {offset} was dead-lettered and does not exist"))?;
        if (&event.body.payload, &event.body.key) != (&append.event.body.payload, &append.event.body.key) {
            return Err(format!("the dead letter of {spot} at {offset} has another content"));
        }
        if !cursor_rows(batch).any(|(of, row)| of == *spot && is_done(&row, offset)) {
            return Err(format!(
                "the dead letter of {spot} at {offset} is not in one commit with its completion"
            ));
        }
        let sends = facts.traffic.item(spot, offset).map_or(0, |item| item.sends);
        let claimed = header(append, "x-dlq-attempts").and_then(|text| text.parse().ok()).unwrap_or(u32::MAX);
        if claimed > sends || claimed < facts.attempts_max(&spot.seat.topic) {
            return Err(format!(
                "{spot} at {offset} was dead-lettered after {claimed} attempts, {sends} were made"
            ));
        }
        Ok(())
    }
}

fn appends(batch: &Batch) -> impl Iterator<Item = &Append> {
    batch.ops.iter().filter_map(|op| match op {
        Op::Append(append) => Some(append),
        _ => None,
    })
}

fn letters(batch: &Batch) -> impl Iterator<Item = &Append> {
    appends(batch).filter(|append| append.stream.topic.is_dead_letter())
}

/// The offsets of this group and partition that the batch dead-letters.
pub(super) fn dead_lettered<'a>(batch: &'a Batch, spot: &'a Spot) -> impl Iterator<Item = Offset> + 'a {
    letters(batch)
        .filter_map(|append| source(append).ok())
        .filter(move |(of, _)| of == spot)
        .map(|(_, offset)| offset)
}

fn header(append: &Append, name: &str) -> Option<String> {
    append.event.body.headers.as_ref()?.get(name)
}

fn source(append: &Append) -> Result<(Spot, Offset), String> {
    let topic = append.stream.topic.as_str();
    if let Some(missing) = HEADERS.iter().find(|name| header(append, name).is_none()) {
        return Err(format!("a dead letter in {topic} has no {missing}"));
    }
    let text = |name| header(append, name).unwrap_or_default();
    let origin = topic.strip_suffix(DLQ_SUFFIX).unwrap_or(topic);
    let told = text("x-dlq-topic");
    let spot = Spot::parse(&format!("{origin}/{}/{}", text("x-dlq-group"), text("x-dlq-partition")));
    match (spot, text("x-dlq-offset").parse()) {
        (Some(spot), Ok(offset)) if told == origin || told == spot.seat.topic.topic() => {
            Ok((spot, Offset(offset)))
        }
        _ => Err(format!("a dead letter in {topic} says it comes from {told}, which makes no sense")),
    }
}
