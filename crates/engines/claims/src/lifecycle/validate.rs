//! Refuses a worker whose settings or declarations cannot work.

use std::collections::BTreeSet;

use crate::interface::config::WorkerConfig;
use crate::interface::error::SpecError;
use crate::interface::spec::{HandlerSpec, ScheduleSpec, WorkerIdentity};

/// Largest metadata of a session, which is written with every heartbeat.
const METADATA_BYTES_MAX: usize = 1 << 20;

/// Checks what a worker is created with.
pub(crate) fn check(
    config: &WorkerConfig,
    identity: &WorkerIdentity,
    handlers: &[HandlerSpec],
    schedules: &[ScheduleSpec],
) -> Result<(), SpecError> {
    let numbers = [
        ("event_poll_interval_ms", config.event_poll_interval_ms),
        ("event_claim_limit", config.event_claim_limit as u64),
        ("max_events_per_iteration", config.max_events_per_iteration as u64),
        ("event_claim_lease_ms", config.event_claim_lease_ms),
        ("session_heartbeat_interval_ms", config.session_heartbeat_interval_ms),
        ("session_ttl_ms", config.session_ttl_ms),
        ("event_max_attempts", u64::from(config.event_max_attempts)),
        ("max_batch_size", config.max_batch_size as u64),
        ("handler_concurrency", config.handler_concurrency as u64),
        ("refresh_interval_ms", config.refresh_interval_ms),
        ("retention_rows_max", config.retention_rows_max as u64),
    ];
    if let Some((name, _)) = numbers.into_iter().find(|(_, value)| *value == 0) {
        return Err(SpecError::Zero { name });
    }
    if config.handler_timeout_ms == Some(0) {
        return Err(SpecError::Zero { name: "handler_timeout_ms" });
    }
    let bytes = identity.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > METADATA_BYTES_MAX {
        return Err(SpecError::MetadataTooLarge { bytes, limit: METADATA_BYTES_MAX });
    }
    let mut known = BTreeSet::new();
    if let Some(twice) = handlers.iter().find(|handler| !known.insert(handler.id.as_str())) {
        return Err(SpecError::DoubledHandler(twice.id.as_str().to_owned()));
    }
    let mut known = BTreeSet::new();
    if let Some(twice) = schedules.iter().find(|schedule| !known.insert(schedule.name.as_str())) {
        return Err(SpecError::DoubledSchedule(twice.name.clone()));
    }
    Ok(())
}
