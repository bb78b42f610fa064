//! Requests of a connection that wait for an answer: maps our request numbers to the client's request ids.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::to_wire::UnansweredRequest;

/// The number of all requests that want no answer: if one is refused, its error frame carries no request id.
pub(super) const NO_ANSWER: u64 = 0;

/// The table of unanswered requests. At `max` the connection is not read until answers have come.
#[derive(Debug)]
pub(super) struct Unanswered {
    state: Mutex<UnansweredState>,
    answered: Notify,
    max: usize,
}

#[derive(Debug, Default)]
struct UnansweredState {
    last: u64,
    requests: HashMap<u64, UnansweredRequest>,
}

impl Unanswered {
    pub(super) fn new(max: usize) -> Unanswered {
        Unanswered { state: Mutex::default(), answered: Notify::new(), max }
    }

    pub(super) fn add(&self, request: UnansweredRequest) -> u64 {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.requests.insert(number, request);
        number
    }

    pub(super) fn answer(&self, number: u64) -> Option<UnansweredRequest> {
        if number == NO_ANSWER {
            return None;
        }
        let mut state = self.state.lock();
        let request = state.requests.remove(&number);
        let has_room_again = state.requests.len() + 1 == self.max;
        drop(state);
        if has_room_again {
            self.answered.notify_one();
        }
        request
    }

    pub(super) fn is_full(&self) -> bool {
        self.state.lock().requests.len() >= self.max
    }

    /// Waits until another request may be read. For one reader.
    pub(super) async fn room(&self) {
        while self.is_full() {
            self.answered.notified().await;
        }
    }
}
