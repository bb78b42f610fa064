//! Only what the topic's retention gives up is trimmed.

use millrace_model::{Offset, Op, Outcome, Stream};

use super::Checker;
use crate::facts::Facts;
use crate::seen::Seen;

pub(super) struct Trimmed;

impl Checker for Trimmed {
    fn name(&self) -> &'static str {
        "trimmed_by_rule"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Durable { batch, outcome: Outcome::Done(_), .. } = seen else { return Ok(()) };
        for op in &batch.ops {
            if let Op::Trim { stream, start } = op {
                allowed(facts, stream, *start)?;
            }
        }
        Ok(())
    }
}

fn allowed(facts: &Facts, stream: &Stream, start: Offset) -> Result<(), String> {
    let Some(config) = facts.ledger.topics.get(&stream.topic) else {
        return Err(format!("{stream} was trimmed and has no topic"));
    };
    let Some(log) = facts.ledger.logs.get(stream) else { return Ok(()) };
    if start > log.next {
        return Err(format!("{stream} was trimmed to {start}, its tail is {}", log.next));
    }
    let Some(retention_ms) = config.retention_ms.filter(|_| config.retention_bytes.is_none()) else {
        let has_rule = config.retention_bytes.is_some();
        return has_rule.then_some(()).ok_or(format!("{stream} was trimmed without a rule"));
    };
    // The wall clock may have been set back since the decision.
    let oldest_kept_ms = facts.wall_max_ms.saturating_sub(retention_ms);
    let too_young =
        log.events.range(log.start..start.max(log.start)).find(|(_, event)| event.ts.0 > oldest_kept_ms);
    too_young.map_or(Ok(()), |(offset, _)| Err(format!("{stream} lost {offset} before its time")))
}
