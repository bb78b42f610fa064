//! Which callers get an error when there is no room.

use millrace_model::{Batch, Op};
use millrace_store::StoreError;

use super::Reply;

/// Answers the callers whose batch is refused with the error. Batches of a session's loop are kept: the loop waits.
pub(super) fn refuse(
    batches: &mut Vec<Batch>,
    replies: &mut Vec<Reply>,
    error: &StoreError,
    is_refused: impl Fn(&Batch) -> bool,
) {
    let asked = batches.drain(..).zip(replies.drain(..)).collect::<Vec<_>>();
    for (batch, reply) in asked {
        match reply {
            Reply::Caller(_) if is_refused(&batch) => reply.answer(Err(error.clone())),
            reply => {
                batches.push(batch);
                replies.push(reply);
            }
        }
    }
}

/// Returns whether a batch adds events or state to the store.
pub(super) fn adds(batch: &Batch) -> bool {
    batch.ops.iter().any(|op| matches!(op, Op::Append(_) | Op::Delay(_) | Op::Reconcile(_)))
}
