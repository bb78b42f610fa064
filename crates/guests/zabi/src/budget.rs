//! The bytes that the host keeps for a guest, over all its handles: each queue has its own bound, but a guest may open
//! many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::bus::BusPort;

#[derive(Debug)]
pub(crate) struct ByteBudget {
    used: AtomicUsize,
    bytes_max: usize,
    /// A request for bytes was refused since bytes were last given back.
    had_no_room: AtomicBool,
    /// Told when there is room again, because events may wait for it. Other capabilities refuse a request and forget
    /// it.
    bus: Option<Arc<dyn BusPort>>,
}

/// The part of the budget that one queue uses. Dropping it gives everything back.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Arc<ByteBudget>,
    held: usize,
}

impl ByteBudget {
    pub(crate) fn new(bytes_max: usize, bus: Option<Arc<dyn BusPort>>) -> Arc<ByteBudget> {
        let (used, had_no_room) = Default::default();
        Arc::new(ByteBudget { used, bytes_max, had_no_room, bus })
    }

    pub(crate) fn share(self: &Arc<ByteBudget>) -> BudgetShare {
        BudgetShare { budget: Arc::clone(self), held: 0 }
    }

    fn reserve(&self, bytes: usize) -> bool {
        let within = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        self.used.fetch_update(SeqCst, SeqCst, within).is_ok()
    }

    /// Notes first that there was no room: bytes that another thread gave back before the note are found here, and
    /// bytes that it gives back after the note are told to the bus.
    fn reserve_or_be_told(&self, bytes: usize) -> bool {
        self.had_no_room.store(true, SeqCst);
        self.reserve(bytes)
    }
}

impl BudgetShare {
    /// Takes so many more bytes from the budget. Returns whether they were available.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let has_grown = self.budget.reserve(bytes) || self.budget.reserve_or_be_told(bytes);
        if has_grown {
            self.held += bytes;
        }
        has_grown
    }

    /// Gives back the bytes that are held beyond `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let freed = self.held.saturating_sub(bytes);
        self.held -= freed;
        self.budget.used.fetch_sub(freed, SeqCst);
        if let Some(bus) = &self.budget.bus
            && freed > 0
            && self.budget.had_no_room.swap(false, SeqCst)
        {
            bus.has_room_again();
        }
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_stay_within_the_budget() {
        let budget = ByteBudget::new(10, None);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert!(one.grow(6) && !other.grow(5) && other.grow(4));
        assert!(!one.grow(1) && one.grow(0) && !one.grow(usize::MAX));
        one.shrink_to(2);
        one.shrink_to(3);
        drop(other);
        assert!(one.grow(8) && !one.grow(1), "a share never grows by being told to shrink");
    }
}
