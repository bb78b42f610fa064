//! Which request of a [`FaultyJournal`](super::FaultyJournal) fails, and how: decided by a seed and the request's number.

use crate::model::Draw;

/// How often each fault happens: once in every so many requests, at a place that the seed chooses. 0 = never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    pub seed: u64,
    /// The request does not arrive. The caller gets `Unknown`.
    pub lose_request_every: u64,
    /// The request is carried out, its answer does not arrive. The caller gets `Unknown`.
    pub lose_answer_every: u64,
    /// The request is carried out twice, as after a retry further down, and the second answer arrives.
    pub repeat_every: u64,
    /// Placing a record or setting the manifest: the caller gets `Unknown` and the request is carried out before one of
    /// the next requests, however the caller went on meanwhile. Other requests are lost instead.
    pub late_every: u64,
    /// The hook is called before the request.
    pub delay_every: u64,
}

/// How often each fault has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    pub requests: u64,
    pub lost_requests: u64,
    pub lost_answers: u64,
    pub repeated: u64,
    pub late: u64,
    pub delayed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    LoseRequest,
    LoseAnswer,
    Repeat,
    Late,
}

impl FaultPlan {
    /// Returns the fault of a request, the first one that is due.
    pub(super) fn fault(&self, request: u64) -> Option<Fault> {
        let kinds = [
            (self.lose_request_every, Fault::LoseRequest),
            (self.lose_answer_every, Fault::LoseAnswer),
            (self.repeat_every, Fault::Repeat),
            (self.late_every, Fault::Late),
        ];
        let due = kinds.iter().enumerate().find(|(kind, (every, _))| self.is_due(*kind, *every, request));
        due.map(|(_, (_, fault))| *fault)
    }

    pub(super) fn is_delayed(&self, request: u64) -> bool {
        self.is_due(usize::MAX, self.delay_every, request)
    }

    /// Returns how many requests a late one is late.
    pub(super) fn lateness(&self, request: u64) -> u64 {
        const LATE_REQUESTS_MAX: u64 = 8;
        1 + self.draw(usize::MAX - 1, request).below(LATE_REQUESTS_MAX)
    }

    fn is_due(&self, kind: usize, every: u64, request: u64) -> bool {
        every != 0 && request % every == self.draw(kind, request / every).below(every)
    }

    fn draw(&self, kind: usize, at: u64) -> Draw {
        let mut draw = Draw(self.seed ^ (kind as u64).rotate_left(48));
        Draw(draw.next() ^ at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_happens_once_in_every_so_many_requests() {
        let plan = FaultPlan { seed: 3, lose_answer_every: 5, ..FaultPlan::default() };
        for from in (0..1_000).step_by(5) {
            let faults = (from..from + 5).filter_map(|request| plan.fault(request));
            assert_eq!(faults.collect::<Vec<_>>(), [Fault::LoseAnswer]);
        }
    }

    #[test]
    fn a_seed_decides_where() {
        let due = |seed| {
            let plan = FaultPlan { seed, lose_request_every: 7, late_every: 9, ..FaultPlan::default() };
            (0..200).map(|request| plan.fault(request)).collect::<Vec<_>>()
        };
        assert_eq!(due(1), due(1));
        assert_ne!(due(1), due(2));
    }
}
