//! Deliberate bugs of a worker, to prove that the checkers find them. The engine itself stays correct: a bug is made by
//! changing its configuration, its effects on their way to the world, and its inputs on their way back.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_claims::{Effect, Input, ReadQuery, ReadResult, WorkerConfig};
use millrace_model::{
    Batch, Check, ClaimRow, ClaimState, Ending, FinishedRow, HandlerOrder, Op, Outcome, Space, Suspicion,
};
use millrace_store::Store;

use super::plan::TICK;
use super::process;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// Acknowledgements do not check the lease.
    AckWithoutFence,
    /// An event whose attempts are used up is run again.
    NeverGiveUp,
    /// Emitted events are committed in a batch of their own, without the acknowledgement.
    EmitBeforeAck,
    /// A retry appends the events of its commits again.
    ForgetSteps,
    /// A fire does not check the schedule's row.
    FireWithoutFence,
    /// Retention does not wait for handlers.
    TrimUnfinished,
    /// Events that are given back before they start are charged an attempt.
    CountUnstarted,
    /// Events under suspicion are started like any others.
    TrustSuspects,
    /// Handlers in order of keys claim events like all others.
    ForgetOrder,
}

/// Stands between the engines of all processes and their world. Without a sabotage nothing is changed.
#[derive(Debug)]
pub(super) struct Saboteur {
    sabotage: Option<Sabotage>,
    event_retention_ms: u64,
    /// Rows of claims that a worker was shown without their suspicion: by process and key, the row as shown and as
    /// stored.
    disguised: BTreeMap<(usize, String), (Bytes, Bytes)>,
}

impl Saboteur {
    pub(super) fn new(sabotage: Option<Sabotage>, event_retention_ms: u64) -> Saboteur {
        Saboteur { sabotage, event_retention_ms, disguised: BTreeMap::new() }
    }

    /// Returns the configuration that the engine gets instead of the plan's, which the checkers use.
    pub(super) fn config(&self, config: &WorkerConfig) -> WorkerConfig {
        match self.sabotage {
            Some(Sabotage::NeverGiveUp) => WorkerConfig { event_max_attempts: u32::MAX, ..config.clone() },
            _ => config.clone(),
        }
    }

    /// Changes an input before the engine of the process gets it.
    pub(super) fn input(&mut self, process: usize, input: &mut Input) {
        if let (Some(Sabotage::TrustSuspects), Input::Committed { outcome: Outcome::Done(done), .. }) =
            (self.sabotage, input)
        {
            for claimed in &mut done.claimed {
                let stored = claimed.ticket.row.encode();
                claimed.ticket.row.suspicion = Suspicion::None;
                let shown = claimed.ticket.row.encode();
                self.disguised.insert((process, claimed.ticket.key()), (shown, stored));
            }
        }
    }

    /// Changes an effect of the engine before the world carries it out. Returns a batch that is committed besides it.
    pub(super) fn effect(&self, process: usize, effect: &mut Effect, store: &dyn Store) -> Option<Batch> {
        match (self.sabotage?, effect) {
            (Sabotage::TrimUnfinished, Effect::Read { query, .. }) => self.trim_as_asked(query, store),
            (Sabotage::EmitBeforeAck, Effect::Commit { batch, .. }) => emits_of(batch),
            (sabotage, Effect::Commit { batch, .. }) => {
                self.batch(sabotage, process, batch);
                None
            }
            _ => None,
        }
    }

    fn batch(&self, sabotage: Sabotage, process: usize, batch: &mut Batch) {
        match sabotage {
            Sabotage::AckWithoutFence => drop_fences_of_acks(batch),
            Sabotage::FireWithoutFence => drop_fences_of_fires(batch),
            Sabotage::ForgetSteps => rewrite_claims(batch, |row| row.steps = 0),
            Sabotage::CountUnstarted => charge_given_back(batch),
            Sabotage::TrustSuspects => self.undisguise(process, batch),
            Sabotage::ForgetOrder => {
                for op in &mut batch.ops {
                    if let Op::Claim(claim) = op {
                        claim.order = HandlerOrder::Priority;
                    }
                }
            }
            Sabotage::NeverGiveUp | Sabotage::EmitBeforeAck | Sabotage::TrimUnfinished => {}
        }
    }

    /// Trims a stream to where its age allows, whatever its handlers have left to do, as soon as a sweep asks for that.
    fn trim_as_asked(&self, query: &ReadQuery, store: &dyn Store) -> Option<Batch> {
        let ReadQuery::RetentionStart { stream, older_than, .. } = query else { return None };
        let ReadResult::Start(start) = process::read(store, query) else { return None };
        // The checkers judge ages by the time of the batch.
        let now = (*older_than)? + self.event_retention_ms;
        let trim = Op::Trim { stream: stream.clone(), start };
        Some(Batch { nonce: now.0 ^ start.0 << 48, now, ops: vec![trim], ..Batch::default() })
    }

    /// A worker proves its claim with the row as it was shown: the store must compare with the row that it has.
    fn undisguise(&self, process: usize, batch: &mut Batch) {
        for check in &mut batch.checks {
            if let Check::Equals { space: Space::Claims, key, value } = check
                && let Some((shown, stored)) = self.disguised.get(&(process, key.clone()))
                && value == shown
            {
                *value = stored.clone();
            }
        }
    }
}

/// A check that always holds. Replaces a fence, so that refusals still name the right index.
fn always() -> Check {
    Check::Absent { space: Space::Kv, key: "sabotage/nothing".to_owned() }
}

fn drop_fences_of_acks(batch: &mut Batch) {
    let acks = |op: &Op| match op {
        Op::Put { space: Space::Finished, key, value } => {
            FinishedRow::decode(key, value).is_ok_and(|row| row.ending == Ending::Acked)
        }
        _ => false,
    };
    let acked: Vec<&String> = batch
        .ops
        .windows(2)
        .filter_map(|pair| match pair {
            [Op::Delete { space: Space::Claims, key }, finished] if acks(finished) => Some(key),
            _ => None,
        })
        .collect();
    for check in &mut batch.checks {
        if matches!(check, Check::Equals { space: Space::Claims, key, .. } if acked.contains(&&*key)) {
            *check = always();
        }
    }
}

fn drop_fences_of_fires(batch: &mut Batch) {
    let fires = |op: &Op| matches!(op, Op::Append(append) if append.stream.topic.topic() == TICK);
    if batch.ops.iter().any(fires) {
        for check in &mut batch.checks {
            if matches!(check, Check::Equals { space: Space::Schedules, .. }) {
                *check = always();
            }
        }
    }
}

/// Changes the rows of claims that a worker writes, and in the same way those that it expects to find.
fn rewrite_claims(batch: &mut Batch, change: impl Fn(&mut ClaimRow)) {
    let rewrite = |key: &str, value: &mut Bytes| {
        if let Ok(mut row) = ClaimRow::decode(key, value) {
            change(&mut row);
            *value = row.encode();
        }
    };
    for check in &mut batch.checks {
        if let Check::Equals { space: Space::Claims, key, value } = check {
            rewrite(key, value);
        }
    }
    for op in &mut batch.ops {
        if let Op::Put { space: Space::Claims, key, value } = op {
            rewrite(key, value);
        }
    }
}

fn charge_given_back(batch: &mut Batch) {
    for op in &mut batch.ops {
        if let Op::Put { space: Space::Claims, key, value } = op
            && let Ok(mut row) = ClaimRow::decode(key, value)
            && row.state == ClaimState::Waiting
            && row.session.is_none()
        {
            row.attempts += 1;
            *value = row.encode();
        }
    }
}

/// Moves the events that handlers emitted into a batch of their own. The last commits of runs keep theirs: they also
/// hold state, which names its events.
fn emits_of(batch: &mut Batch) -> Option<Batch> {
    let emitted =
        |op: &Op| matches!(op, Op::Append(append) if append.event.body.payload.as_str().contains("|emit|"));
    if !batch.ops.iter().any(emitted) || batch.ops.iter().any(|op| matches!(op, Op::Reconcile(_))) {
        return None;
    }
    let topics = batch.ops.iter().filter(|op| matches!(op, Op::PutNew { .. })).cloned().collect::<Vec<_>>();
    let (emits, ops) = std::mem::take(&mut batch.ops).into_iter().partition::<Vec<_>, _>(emitted);
    batch.ops = ops;
    let (nonce, now) = (batch.nonce.wrapping_add(1), batch.now);
    Some(Batch { nonce, now, ops: topics.into_iter().chain(emits).collect(), ..Batch::default() })
}
