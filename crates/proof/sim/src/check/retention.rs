//! Retention trims only what the topic's settings allow, by the true age of events and not by what a wrong clock says.

use std::collections::BTreeMap;

use millrace_model::{Offset, Op, Outcome, Stream};

use super::Checker;
use crate::facts::Facts;
use crate::seen::Seen;

/// Small steps of the wall clock that stay are believed at once: ages err by as much, in both directions.
const SMALL_STEPS_MS: u64 = 20_000;

#[derive(Default)]
pub(super) struct Trimmed {
    stored: BTreeMap<(Stream, Offset), Stored>,
}

#[derive(Clone, Copy, Default)]
struct Stored {
    /// The time of the world at which it was stored.
    at_ms: u64,
    /// The number of the server that stored the event, if it had started while the wall clock was far off. Later
    /// servers judge the event's age by its timestamp: they cannot know better.
    mistimed_by: Option<u64>,
}

impl Checker for Trimmed {
    fn name(&self) -> &'static str {
        "trimmed_by_rule"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Durable { batch, outcome: Outcome::Done(done), .. } = seen else { return Ok(()) };
        let mut appended = done.appended.iter();
        for op in &batch.ops {
            match op {
                Op::Append(append) => {
                    let Some(one) = appended.next().filter(|one| !one.duplicate) else { continue };
                    let mistimed_by = facts.began_far_off.then_some(facts.life);
                    let stored = Stored { at_ms: facts.now_ms, mistimed_by };
                    self.stored.insert((append.stream.clone(), one.offset), stored);
                }
                Op::Delay(_) => {
                    appended.next();
                }
                Op::Trim { stream, start } => self.allowed(facts, stream, *start)?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl Trimmed {
    fn allowed(&self, facts: &Facts, stream: &Stream, start: Offset) -> Result<(), String> {
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
        // Compared with the latest wall time ever, because the wall clock may have been set back since the decision.
        let oldest_kept_ms = facts.wall_max_ms.saturating_sub(retention_ms);
        for (offset, event) in log.events.range(log.start..start.max(log.start)) {
            let stored = self.stored.get(&(stream.clone(), *offset)).copied().unwrap_or_default();
            let age_ms = facts.now_ms - stored.at_ms;
            let mistimed = stored.mistimed_by.is_some_and(|life| life != facts.life);
            let old_by_its_time =
                event.ts.0 <= oldest_kept_ms && (mistimed || age_ms + SMALL_STEPS_MS >= retention_ms);
            if age_ms < retention_ms && !old_by_its_time {
                return Err(format!("{stream} lost {offset} before its time, after {age_ms} ms"));
            }
        }
        Ok(())
    }
}
