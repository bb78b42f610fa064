//! Idle polls and claims of 100 events, in a store with few and with many finished events.

use super::stage::HandlersStage;
use crate::error::BenchError;
use crate::store::claims;

pub(crate) fn run(stage: &mut HandlersStage<'_>) -> Result<(), BenchError> {
    claims::run_as("retained", stage.folder, stage.options, stage.probe, stage.out)
}
