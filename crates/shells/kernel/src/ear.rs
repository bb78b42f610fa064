//! The way to the loop for tasks on its own thread: a queue without locks, and the loop's alarm clock.
//!
//! Nobody but the loop's task touches the engine. So no borrow can meet another, and what an input causes never runs
//! inside whoever brought it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use millrace_router::Input;
use tokio::sync::Notify;

#[derive(Clone)]
pub(crate) struct Ear(Rc<State>);

#[derive(Default)]
struct State {
    inputs: RefCell<VecDeque<Input>>,
    woken: Notify,
    /// The lanes are long: actors wait before they say more.
    crowded: Cell<bool>,
    room: Notify,
}

impl Ear {
    pub(crate) fn new() -> Ear {
        Ear(Rc::new(State::default()))
    }

    /// The loop hears it on its next round. Bounded by what connections and mailboxes may hold.
    pub(crate) fn tell(&self, input: Input) {
        self.0.inputs.borrow_mut().push_back(input);
        self.0.woken.notify_one();
    }

    pub(crate) fn wake(&self) {
        self.0.woken.notify_one();
    }

    /// For the loop alone.
    pub(crate) async fn woken(&self) {
        self.0.woken.notified().await;
    }

    pub(crate) fn next(&self) -> Option<Input> {
        self.0.inputs.borrow_mut().pop_front()
    }

    pub(crate) fn set_crowded(&self, crowded: bool) {
        if self.0.crowded.replace(crowded) && !crowded {
            self.0.room.notify_waiters();
        }
    }

    /// Waits until an actor may say more.
    pub(crate) async fn room(&self) {
        while self.0.crowded.get() {
            self.0.room.notified().await;
        }
    }
}
