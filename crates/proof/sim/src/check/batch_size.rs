//! No batch is larger than every store must take: the engine bounds each where it makes it.

use millrace_model::BATCH_BYTES_MAX;

use super::Checker;
use crate::facts::Facts;
use crate::seen::Seen;

pub(super) struct BatchSize;

impl Checker for BatchSize {
    fn name(&self) -> &'static str {
        "batches_fit"
    }

    fn see(&mut self, _facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Wanted { batch } if batch.bytes() > BATCH_BYTES_MAX => {
                Err(format!("a batch of {} bytes", batch.bytes()))
            }
            _ => Ok(()),
        }
    }
}
