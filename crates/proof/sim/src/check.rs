//! The checkers: one named invariant each. They see everything, change nothing, and report a violation only if it is
//! certain.

mod answers;
mod attempts;
mod awake;
mod batch_size;
mod confirmed;
mod cursor;
mod dead_letter;
mod delayed;
mod durable_first;
mod finished;
mod fold;
mod lease;
mod offsets;
mod order;
mod orphan;
mod retention;
mod schema;
mod spin;
mod sticky;
mod stored_once;
mod views;
mod window;

use std::fmt;

pub(crate) use finished::unfinished;

use crate::facts::Facts;
use crate::seen::Seen;

pub(crate) trait Checker {
    /// The name of the invariant, as a report of its violation prints it.
    fn name(&self) -> &'static str;

    /// Looks at one contact of the engine. The error says what was seen and what would have been right.
    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.detail)
    }
}

pub(crate) struct Checkers(Vec<Box<dyn Checker>>);

impl Checkers {
    pub(crate) fn all() -> Checkers {
        Checkers(vec![
            Box::new(offsets::Offsets),
            Box::new(fold::Fold),
            Box::new(durable_first::DurableFirst),
            Box::new(confirmed::Confirmed::default()),
            Box::new(stored_once::StoredOnce::default()),
            Box::new(delayed::Delayed::default()),
            Box::new(cursor::Cursors::default()),
            Box::new(dead_letter::DeadLetters::default()),
            Box::new(lease::OneLease),
            Box::new(attempts::Attempts),
            Box::new(window::Window),
            Box::new(order::Order::default()),
            Box::new(sticky::Sticky::default()),
            Box::new(retention::Trimmed::default()),
            Box::new(schema::Schemas::default()),
            Box::new(orphan::Orphans),
            Box::new(views::Views),
            Box::new(answers::Answers::default()),
            Box::new(spin::Spin),
            Box::new(batch_size::BatchSize),
            Box::new(awake::Awake),
            Box::new(finished::Finished),
        ])
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|checker| checker.name()).collect()
    }

    pub(crate) fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), Violation> {
        for checker in &mut self.0 {
            let verdict = checker.see(facts, seen);
            verdict.map_err(|detail| Violation { invariant: checker.name(), detail })?;
        }
        Ok(())
    }
}
