//! No batch is larger than the size that every store must accept: the engine bounds each batch as it makes it.

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
