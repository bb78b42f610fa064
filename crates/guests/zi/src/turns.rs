//! Turns of threads at the process, in the order of their arrival.
//!
//! A thread may hold its turn for long, because it waits in POLL. So a thread that has to wait hurries the holder, and
//! a thread whose turn begins while others wait behind it is hurried at once. A plain mutex would not work: the thread
//! that polls could take it again before the waiting thread has woken up.

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Turns {
    queue: Mutex<TicketQueue>,
    turn_ended: Condvar,
}

#[derive(Debug, Default)]
struct TicketQueue {
    /// The ticket of the next thread that arrives.
    next_ticket: u64,
    /// The ticket whose turn it is.
    current_ticket: u64,
}

/// The turn ends when this is dropped.
#[derive(Debug)]
pub(crate) struct TurnGuard<'a>(&'a Turns);

impl Turns {
    /// Waits for the caller's turn. `hurry` asks the thread whose turn it is to end its call soon, if that call waits;
    /// it may be called more often than needed.
    pub(crate) fn wait(&self, hurry: impl Fn()) -> TurnGuard<'_> {
        let mut queue = self.queue.lock();
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        if queue.current_ticket != ticket {
            hurry();
            let is_waiting = |queue: &mut TicketQueue| queue.current_ticket != ticket;
            self.turn_ended.wait_while(&mut queue, is_waiting);
        }
        // The threads behind have hurried an earlier holder, perhaps not this thread.
        if queue.next_ticket > ticket + 1 {
            hurry();
        }
        TurnGuard(self)
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().current_ticket += 1;
        self.0.turn_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_alone_is_not_hurried() {
        let turns = Turns::default();
        for _ in 0..3 {
            drop(turns.wait(|| panic!("nobody else is there")));
        }
    }

    #[test]
    fn turns_are_apart_and_holders_are_hurried() {
        let (turns, inside, hurried) = (Turns::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let hurry = || {
            hurried.fetch_add(1, SeqCst);
        };
        thread::scope(|scope| {
            let first = turns.wait(hurry);
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _turn = turns.wait(hurry);
                        assert_eq!(inside.fetch_add(1, SeqCst), 0, "one thread at a time");
                        inside.fetch_sub(1, SeqCst);
                    }
                });
            }
            // Each of the four threads arrives, finds the turn taken, and hurries its holder.
            while hurried.load(SeqCst) < 4 {
                thread::yield_now();
            }
            assert_eq!(inside.load(SeqCst), 0);
            drop(first);
        });
        assert_eq!(turns.queue.lock().next_ticket, 401);
    }

    #[test]
    fn a_holder_that_comes_back_stands_behind_those_who_wait() {
        let (turns, order) = (Turns::default(), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            let first = turns.wait(|| ());
            scope.spawn(|| {
                let _turn = turns.wait(|| ());
                order.lock().push("the thread that waited");
            });
            while turns.queue.lock().next_ticket < 2 {
                thread::yield_now();
            }
            drop(first);
            let _again = turns.wait(|| ());
            order.lock().push("the first thread again");
        });
        assert_eq!(*order.lock(), ["the thread that waited", "the first thread again"]);
    }
}
