//! Idle polls and claims of 100 events, in a store with few and with many finished events.

use super::stage::Stage;
use crate::error::BenchError;
use crate::store::claims;

pub(crate) fn run(stage: &mut Stage<'_>) -> Result<(), BenchError> {
    claims::run_as("retained", stage.folder, stage.options, stage.probe, stage.out)
}
