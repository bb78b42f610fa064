//! Writes the engine's operations (rows of durable timers) through the row writer, in order; several requests share one
//! write.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use millrace_model::{BATCH_BYTES_MAX, Op};
use millrace_router::{CommitToken, Input, NotStored};
use millrace_shell::RowWriter;
use tokio::sync::Notify;

use crate::kernel_thread::local_queue::LocalQueue;

/// The queue of requests to the store. Bounded by the number of timers that the engine lets be set.
#[derive(Clone, Default)]
pub(crate) struct Commits(Rc<State>);

#[derive(Default)]
struct State {
    waiting: RefCell<VecDeque<(CommitToken, Vec<Op>)>>,
    arrived: Notify,
    /// A write is under way.
    writes: Cell<bool>,
    written: Notify,
}

impl Commits {
    pub(crate) fn put(&self, token: CommitToken, ops: Vec<Op>) {
        self.0.waiting.borrow_mut().push_back((token, ops));
        self.0.arrived.notify_one();
    }

    /// Waits until every request in the queue has been written or has failed.
    pub(crate) async fn all_written(&self) {
        while self.0.writes.get() || !self.0.waiting.borrow().is_empty() {
            self.0.written.notified().await;
        }
    }

    /// Writes until the task is dropped. There is one write at a time, so that the deletion of a timer's row never
    /// overtakes its insertion.
    pub(crate) async fn run(self, rows: Option<RowWriter>, local_queue: LocalQueue, ops_max: usize) {
        loop {
            let (tokens, ops) = self.take(ops_max);
            if tokens.is_empty() {
                self.0.arrived.notified().await;
                continue;
            }
            self.0.writes.set(true);
            let result = match &rows {
                Some(rows) => rows.write(ops).await.map_err(|error| NotStored(error.to_string())),
                None => Err("nothing durable was given to the loop".into()),
            };
            for token in tokens {
                local_queue.push(Input::Committed { token, result: result.clone() });
            }
            self.0.writes.set(false);
            self.0.written.notify_waiters();
        }
    }

    /// Takes the requests for the next write: at least one, whatever its size, and no more than fit one batch, because
    /// a batch that is too large would be refused with every request in it.
    fn take(&self, ops_max: usize) -> (Vec<CommitToken>, Vec<Op>) {
        let mut waiting = self.0.waiting.borrow_mut();
        let (mut tokens, mut all, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some((_, ops)) = waiting.front() {
            bytes += ops.iter().map(Op::bytes).sum::<usize>();
            if !tokens.is_empty() && (all.len() + ops.len() > ops_max || bytes > BATCH_BYTES_MAX) {
                break;
            }
            if let Some((token, ops)) = waiting.pop_front() {
                tokens.push(token);
                all.extend(ops);
            }
        }
        (tokens, all)
    }
}
