//! Plain batches: checks of rows and ids, appends, delays, and puts and deletes of rows. They need no search through the
//! tables, so a commit of plain batches can also be resolved outside a transaction (`front.rs`).

use bytes::Bytes;
use millrace_model::{Batch, Check, Done, Op, Refusal, Space, TopicRow, keys};
use millrace_resolve as resolve;

use crate::error::Attempt;
use crate::store_core::StoreCore;
use crate::writing::stage::CommitStage;
use crate::writing::target::CommitTarget;

/// Returns whether all batches are plain. The store itself writes rows of [`Space::OffPriority`] when events get into
/// the tables, so nothing plain may depend on them.
pub(crate) fn are_plain(batches: &[Batch]) -> bool {
    let is_settled_late = |space: &Space| *space == Space::OffPriority;
    let is_plain_op = |op: &Op| match op {
        Op::Append(_) | Op::Delay(_) => true,
        Op::Put { space, .. } | Op::PutNew { space, .. } | Op::Delete { space, .. } => {
            !is_settled_late(space)
        }
        Op::Claim(_) | Op::Reconcile(_) | Op::Trim { .. } | Op::Remove { .. } | Op::Drop { .. } => false,
    };
    let is_plain_check = |check: &Check| match check {
        Check::Absent { space, .. } | Check::Present { space, .. } | Check::Equals { space, .. } => {
            !is_settled_late(space)
        }
        Check::IdTaken(_) | Check::Incarnation { .. } => true,
    };
    batches.iter().all(|batch| batch.checks.iter().all(is_plain_check) && batch.ops.iter().all(is_plain_op))
}

/// Returns which check of the batch fails, and what it found.
pub(crate) fn refusal(
    store: &StoreCore,
    target: &impl CommitTarget,
    stage: &CommitStage<'_>,
    batch: &Batch,
) -> Attempt<Option<Refusal>> {
    for (at, check) in batch.checks.iter().enumerate() {
        let failed = match check {
            Check::IdTaken(id) => (!stage.is_taken(store, target, batch.now, id)?).then_some(None),
            Check::Absent { .. }
            | Check::Present { .. }
            | Check::Equals { .. }
            | Check::Incarnation { .. } => failing(target, check)?,
        };
        if let Some(found) = failed {
            return Ok(Some(Refusal { check: at, found }));
        }
    }
    Ok(None)
}

/// Applies an operation of a plain batch.
pub(crate) fn apply<'a>(
    store: &StoreCore,
    target: &mut impl CommitTarget,
    stage: &mut CommitStage<'a>,
    batch: &Batch,
    op: &'a Op,
    done: &mut Done,
) -> Attempt<()> {
    match op {
        Op::Append(append) => {
            let ordinal = done.appended.len() as u32;
            done.appended.push(stage.append(store, target, batch, append, ordinal)?);
        }
        Op::Delay(delay) => done.appended.push(stage.delay(store, target, batch.now, delay)?),
        Op::Put { space: Space::Topics, key, value } => {
            done.incarnation_kept |= put_topic(target, key, value)?;
        }
        Op::Put { .. } | Op::PutNew { .. } | Op::Delete { .. } => target.write(op)?,
        Op::Claim(_) | Op::Reconcile(_) | Op::Trim { .. } | Op::Remove { .. } | Op::Drop { .. } => {}
    }
    Ok(())
}

/// Writes the row of a topic. Returns whether a stored row had another incarnation, which is then kept.
fn put_topic(target: &mut impl CommitTarget, key: &str, value: &Bytes) -> Attempt<bool> {
    let standing = target.row(Space::Topics, key)?;
    let kept = standing.and_then(|row| resolve::keep_incarnation(key, &row, value));
    let (is_kept, value) = (kept.is_some(), kept.unwrap_or_else(|| value.clone()));
    target.write(&Op::Put { space: Space::Topics, key: key.to_owned(), value })?;
    Ok(is_kept)
}

/// Returns what a failing check found; `None` when the check holds.
fn failing(target: &impl CommitTarget, check: &Check) -> Attempt<Option<Option<Bytes>>> {
    let (found, holds) = match check {
        Check::Absent { space, key } => {
            let found = target.row(*space, key)?;
            let holds = found.is_none();
            (found, holds)
        }
        Check::Present { space, key } => {
            let found = target.row(*space, key)?;
            let holds = found.is_some();
            (found, holds)
        }
        Check::Equals { space, key, value } => {
            let found = target.row(*space, key)?;
            let holds = found.as_ref() == Some(value);
            (found, holds)
        }
        Check::Incarnation { topic, incarnation } => {
            let found = target.row(Space::Topics, &keys::topic(topic))?;
            let holds = found.as_ref().and_then(|row| TopicRow::incarnation_of(row)) == Some(*incarnation);
            (found, holds)
        }
        // Not a check of a row: `refusal` looks the id up.
        Check::IdTaken(_) => (None, false),
    };
    Ok((!holds).then_some(found))
}
