//! The queue of inputs to the loop from tasks on its own thread (`LocalQueue`), which needs no locks, and the signals
//! between them: wake the loop, make actors wait.
//!
//! Only the loop's task touches the engine: other tasks put their inputs into this queue. So no two borrows of the
//! engine can meet, and the effects of an input never run inside the task that sent it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use millrace_router::Input;
use tokio::sync::Notify;

#[derive(Clone)]
pub(crate) struct LocalQueue(Rc<LocalQueueState>);

#[derive(Default)]
struct LocalQueueState {
    inputs: RefCell<VecDeque<Input>>,
    woken: Notify,
    /// The engine's lanes (queues of messages) are long: actors wait before they emit more.
    backpressure: Cell<bool>,
    room: Notify,
}

impl LocalQueue {
    pub(crate) fn new() -> LocalQueue {
        LocalQueue(Rc::new(LocalQueueState::default()))
    }

    /// Adds an input, which the loop handles in its next round. Bounded by what connections and mailboxes may hold.
    pub(crate) fn push(&self, input: Input) {
        self.0.inputs.borrow_mut().push_back(input);
        self.0.woken.notify_one();
    }

    pub(crate) fn wake(&self) {
        self.0.woken.notify_one();
    }

    /// Waits for the next input or wake-up. For the loop's task alone.
    pub(crate) async fn woken(&self) {
        self.0.woken.notified().await;
    }

    pub(crate) fn next(&self) -> Option<Input> {
        self.0.inputs.borrow_mut().pop_front()
    }

    pub(crate) fn set_backpressure(&self, on: bool) {
        if self.0.backpressure.replace(on) && !on {
            self.0.room.notify_waiters();
        }
    }

    /// Waits until an actor may emit more.
    pub(crate) async fn room(&self) {
        while self.0.backpressure.get() {
            self.0.room.notified().await;
        }
    }
}
