//! Batches for manual operations: switching a schedule, pausing a handler, forgetting a handler. Replaying events is in
//! `replay.rs`.

use bytes::Bytes;
use millrace_model::{
    Batch, Check, Durability, HandlerId, HandlerRow, Namespace, Op, RowError, ScheduleRow, Space, Timestamp,
    keys,
};

use crate::interface::input::ReadQuery;

pub(crate) fn batch(now: Timestamp, nonce: u64, checks: Vec<Check>, ops: Vec<Op>) -> Batch {
    Batch { nonce, now, durability: Durability::Fsync, checks, ops }
}

/// Switches a schedule on or off. A schedule that is switched on again counts from now: fires it missed meanwhile are
/// not made up for.
pub fn set_schedule_enabled(
    namespace: &Namespace,
    name: &str,
    value: &Bytes,
    enabled: bool,
    now: Timestamp,
    nonce: u64,
) -> Result<Batch, RowError> {
    let key = keys::schedule(namespace, name);
    let old = ScheduleRow::decode(&key, value)?;
    let last = if enabled && !old.enabled { old.last.max(now) } else { old.last };
    let row = ScheduleRow { enabled, last, ..old };
    let checks = vec![Check::Equals { space: Space::Schedules, key: key.clone(), value: value.clone() }];
    let ops = vec![Op::Put { space: Space::Schedules, key, value: row.encode() }];
    Ok(batch(now, nonce, checks, ops))
}

/// Asks for one fire of a schedule beside the planned ones, also of a schedule that is switched off. The first session
/// with this schedule that sees the request makes the fire, and the request goes with it. `None` if a run was asked for
/// before and has not been made: two requests are one fire.
pub fn request_schedule_run(
    namespace: &Namespace,
    name: &str,
    value: &Bytes,
    now: Timestamp,
    nonce: u64,
) -> Result<Option<Batch>, RowError> {
    let key = keys::schedule(namespace, name);
    let old = ScheduleRow::decode(&key, value)?;
    if old.run.is_some() {
        return Ok(None);
    }
    let row = ScheduleRow { run: Some(now), ..old };
    let checks = vec![Check::Equals { space: Space::Schedules, key: key.clone(), value: value.clone() }];
    let ops = vec![Op::Put { space: Space::Schedules, key, value: row.encode() }];
    Ok(Some(batch(now, nonce, checks, ops)))
}

/// Pauses a handler in all sessions, or resumes it; each session sees that within its `refresh_interval_ms`. A pause in
/// a program's own settings is not changed.
pub fn set_handler_paused(
    namespace: &Namespace,
    handler: &HandlerId,
    value: &Bytes,
    paused: bool,
    now: Timestamp,
    nonce: u64,
) -> Result<Batch, RowError> {
    let key = keys::handler(namespace, handler);
    let row = HandlerRow { paused, ..HandlerRow::decode(&key, value)? };
    let checks = vec![Check::Equals { space: Space::Handlers, key: key.clone(), value: value.clone() }];
    let ops = vec![Op::Put { space: Space::Handlers, key, value: row.encode() }];
    Ok(batch(now, nonce, checks, ops))
}

/// Forgets a handler that will not come back, in steps: first its row, so that retention no longer waits for it, then
/// its open claims and its lanes. The rows about its finished events are removed together with those events.
#[derive(Debug)]
pub struct Forget {
    namespace: Namespace,
    handler: HandlerId,
    left: Vec<Space>,
    rows_max: usize,
    began: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ForgetStep {
    /// Answer with [`Forget::on_read`], commit the operations that it returns, if any, then take the next step.
    Read(ReadQuery),
    Commit(Vec<Op>),
    Done,
}

impl Forget {
    pub fn new(namespace: Namespace, handler: HandlerId, rows_max: usize) -> Forget {
        Forget { namespace, handler, left: vec![Space::Lanes, Space::Claims], rows_max, began: false }
    }

    pub fn step(&mut self) -> ForgetStep {
        if !self.began {
            self.began = true;
            let key = keys::handler(&self.namespace, &self.handler);
            return ForgetStep::Commit(vec![Op::Delete { space: Space::Handlers, key }]);
        }
        let Some(space) = self.left.last() else { return ForgetStep::Done };
        let from = keys::claims_of(self.namespace.as_str(), &self.handler);
        // The character after the slash ends the range.
        let to = format!("{}0", from.trim_end_matches('/'));
        ForgetStep::Read(ReadQuery::Rows { space: *space, from, to, rows_max: self.rows_max })
    }

    pub fn on_read(&mut self, rows: &[(String, Bytes)]) -> Vec<Op> {
        let Some(space) = self.left.last().copied() else { return Vec::new() };
        if rows.len() < self.rows_max {
            self.left.pop();
        }
        rows.iter().map(|(key, _)| Op::Delete { space, key: key.clone() }).collect()
    }
}
