//! A journal that loses, repeats and delays requests according to a plan, for tests of the code that uses a journal.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use millrace_journal::{
    Fitness, Journal, JournalError, JournalReadLimit, ManifestRead, ManifestVersion, OutboxId, OutboxRefusal,
    OutboxRow, PartName, Placed, Placing, Tip,
};
use parking_lot::Mutex;

use super::fault_plan::{Fault, FaultCounts, FaultPlan};

/// The request that is about to be delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalCall {
    Check,
    Place { n: u64 },
    Read { from: u64 },
    Manifest,
    SetManifest,
    PutPart,
    GetPart,
    ListParts,
    DeletePart,
    DeleteBelow { n: u64 },
    Outbox,
}

/// Called instead of a delay: moves a clock, waits for another thread, or sleeps.
pub type DelayHook = Box<dyn Fn(JournalCall) + Send + Sync>;

/// Wraps a journal. The number of the request and the seed of the plan decide every fault, so a test that calls from
/// one thread always meets the same ones. Wrap each handle of its own: they share the journal and not the counter.
pub struct FaultyJournal<J: ?Sized> {
    plan: FaultPlan,
    delay: Option<DelayHook>,
    state: Mutex<FaultState>,
    inner: Arc<J>,
}

#[derive(Default)]
struct FaultState {
    counts: FaultCounts,
    late: Vec<(u64, LateRequest)>,
}

enum LateRequest {
    Place { n: u64, prev: Tip, tip: Tip, record: Bytes, settles: Vec<OutboxId> },
    SetManifest { new: Bytes, was: Option<ManifestVersion> },
}

impl<J: Journal + ?Sized> FaultyJournal<J> {
    pub fn new(inner: Arc<J>, plan: FaultPlan) -> FaultyJournal<J> {
        FaultyJournal { plan, delay: None, state: Mutex::default(), inner }
    }

    #[must_use]
    pub fn on_delay(mut self, hook: impl Fn(JournalCall) + Send + Sync + 'static) -> FaultyJournal<J> {
        self.delay = Some(Box::new(hook));
        self
    }

    pub fn inner(&self) -> &Arc<J> {
        &self.inner
    }

    pub fn counts(&self) -> FaultCounts {
        self.state.lock().counts
    }

    /// Carries out all late requests now.
    pub fn deliver_late(&self) {
        self.deliver_late_until(u64::MAX);
    }

    fn deliver_late_until(&self, request: u64) {
        let due: Vec<LateRequest> = {
            let late = &mut self.state.lock().late;
            late.extract_if(.., |(due, _)| *due <= request).map(|(_, late)| late).collect()
        };
        for late in due {
            // Nobody waits for these answers any more.
            match late {
                LateRequest::Place { n, prev, tip, record, settles } => {
                    let _ = self.inner.place(&Placing { n, prev, tip, record: &record, settles: &settles });
                }
                LateRequest::SetManifest { new, was } => {
                    let _ = self.inner.set_manifest(&new, was.as_ref());
                }
            }
        }
    }

    /// Makes a request with its fault. `late` copies the request; `None` for requests that are lost instead.
    fn request<T>(
        &self,
        call: JournalCall,
        late: impl FnOnce() -> Option<LateRequest>,
        send: impl Fn(&J) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let (request, is_delayed, fault) = {
            let counts = &mut self.state.lock().counts;
            let request = counts.requests;
            let (is_delayed, fault) = (self.plan.is_delayed(request), self.plan.fault(request));
            counts.requests += 1;
            counts.delayed += u64::from(is_delayed);
            (request, is_delayed, fault)
        };
        if let Some(hook) = self.delay.as_ref().filter(|_| is_delayed) {
            hook(call);
        }
        self.deliver_late_until(request);
        match fault {
            None => send(&self.inner),
            Some(Fault::Repeat) => {
                self.state.lock().counts.repeated += 1;
                let _ = send(&self.inner);
                send(&self.inner)
            }
            Some(Fault::LoseAnswer) => {
                self.state.lock().counts.lost_answers += 1;
                let _ = send(&self.inner);
                Err(unknown("answer", request))
            }
            Some(fault @ (Fault::LoseRequest | Fault::Late)) => {
                let late = late().filter(|_| fault == Fault::Late);
                let state = &mut *self.state.lock();
                match late {
                    Some(late) => {
                        state.counts.late += 1;
                        state.late.push((request + self.plan.lateness(request), late));
                    }
                    None => state.counts.lost_requests += 1,
                }
                Err(unknown("request", request))
            }
        }
    }

    fn plain<T>(
        &self,
        call: JournalCall,
        send: impl Fn(&J) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        self.request(call, || None, send)
    }
}

fn unknown(lost: &str, request: u64) -> JournalError {
    JournalError::Unknown(format!("the {lost} number {request} was lost by the test").into())
}

impl<J: Journal + ?Sized> Journal for FaultyJournal<J> {
    fn check(&self) -> Result<Fitness, JournalError> {
        self.plain(JournalCall::Check, |journal| journal.check())
    }

    fn is_still_replicated(&self) -> Result<bool, JournalError> {
        self.inner.is_still_replicated()
    }

    fn place(&self, placing: &Placing<'_>) -> Result<Placed, JournalError> {
        let late = || {
            let Placing { n, prev, tip, record, settles } = *placing;
            let record = Bytes::copy_from_slice(record);
            Some(LateRequest::Place { n, prev, tip, record, settles: settles.to_vec() })
        };
        self.request(JournalCall::Place { n: placing.n }, late, |journal| journal.place(placing))
    }

    fn read(&self, from: u64, limit: JournalReadLimit) -> Result<Vec<(u64, Bytes)>, JournalError> {
        self.plain(JournalCall::Read { from }, |journal| journal.read(from, limit))
    }

    fn manifest(&self) -> Result<Option<ManifestRead>, JournalError> {
        self.plain(JournalCall::Manifest, |journal| journal.manifest())
    }

    fn set_manifest(&self, new: &[u8], was: Option<&ManifestVersion>) -> Result<bool, JournalError> {
        let late = || Some(LateRequest::SetManifest { new: Bytes::copy_from_slice(new), was: was.cloned() });
        self.request(JournalCall::SetManifest, late, |journal| journal.set_manifest(new, was))
    }

    fn put_part(&self, name: &PartName, bytes: &[u8]) -> Result<(), JournalError> {
        self.plain(JournalCall::PutPart, |journal| journal.put_part(name, bytes))
    }

    fn get_part(&self, name: &PartName) -> Result<Option<Bytes>, JournalError> {
        self.plain(JournalCall::GetPart, |journal| journal.get_part(name))
    }

    fn parts(&self) -> Result<Vec<PartName>, JournalError> {
        self.plain(JournalCall::ListParts, |journal| journal.parts())
    }

    fn delete_part(&self, name: &PartName) -> Result<(), JournalError> {
        self.plain(JournalCall::DeletePart, |journal| journal.delete_part(name))
    }

    fn delete_below(&self, n: u64) -> Result<(), JournalError> {
        // Records are deleted a day after they were given up, and no request is late by a day.
        self.deliver_late();
        self.plain(JournalCall::DeleteBelow { n }, |journal| journal.delete_below(n))
    }

    fn engine_time_ms(&self) -> Option<u64> {
        self.inner.engine_time_ms()
    }

    fn outbox(&self, after: Option<OutboxId>, rows_max: usize) -> Result<Vec<OutboxRow>, JournalError> {
        self.plain(JournalCall::Outbox, |journal| journal.outbox(after, rows_max))
    }

    fn delete_outbox(&self, ids: &[OutboxId]) -> Result<(), JournalError> {
        self.plain(JournalCall::Outbox, |journal| journal.delete_outbox(ids))
    }

    fn refuse_outbox(&self, refused: &[OutboxRefusal]) -> Result<(), JournalError> {
        self.plain(JournalCall::Outbox, |journal| journal.refuse_outbox(refused))
    }
}

impl<J: ?Sized> fmt::Debug for FaultyJournal<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyJournal").field("plan", &self.plan).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use millrace_journal::MemoryJournal;

    use super::*;
    use crate::journal::TestChain;

    const WHOLE: JournalReadLimit = JournalReadLimit { records_max: 100, bytes_max: usize::MAX };

    fn faulty(plan: FaultPlan) -> FaultyJournal<MemoryJournal> {
        FaultyJournal::new(Arc::new(MemoryJournal::new()), plan)
    }

    fn place_first(journal: &dyn Journal, writer: u64) -> Result<Placed, JournalError> {
        journal.place(&TestChain::START.candidate(writer, 40).placing())
    }

    fn stored(journal: &FaultyJournal<MemoryJournal>) -> usize {
        journal.inner().read(1, WHOLE).unwrap().len()
    }

    #[test]
    fn a_lost_request_is_not_carried_out_and_a_lost_answer_is() {
        let journal = faulty(FaultPlan { lose_request_every: 1, ..FaultPlan::default() });
        assert!(matches!(place_first(&journal, 1), Err(JournalError::Unknown(_))));
        assert_eq!((stored(&journal), journal.counts().lost_requests), (0, 1));

        let journal = faulty(FaultPlan { lose_answer_every: 1, ..FaultPlan::default() });
        assert!(matches!(place_first(&journal, 1), Err(JournalError::Unknown(_))));
        assert_eq!((stored(&journal), journal.counts().lost_answers), (1, 1));
    }

    #[test]
    fn a_repeated_placing_is_answered_by_its_second_time() {
        let journal = faulty(FaultPlan { repeat_every: 1, ..FaultPlan::default() });
        assert_eq!(place_first(&journal, 1), Ok(Placed::Taken));
        assert_eq!((stored(&journal), journal.counts().repeated), (1, 1));
    }

    #[test]
    fn a_late_placing_comes_after_others() {
        let journal = faulty(FaultPlan { late_every: 1, ..FaultPlan::default() });
        assert!(matches!(place_first(&journal, 1), Err(JournalError::Unknown(_))));
        assert_eq!((stored(&journal), journal.counts().late), (0, 1));
        assert_eq!(place_first(journal.inner().as_ref(), 2), Ok(Placed::Yes));
        journal.deliver_late();
        let expected = TestChain::START.candidate(2, 40).bytes;
        assert_eq!(journal.inner().read(1, WHOLE), Ok(vec![(1, expected)]));

        let journal = faulty(FaultPlan { late_every: 1, ..FaultPlan::default() });
        assert!(place_first(&journal, 1).is_err());
        // Reads are lost here, and count as requests.
        (0..8).for_each(|_| assert!(journal.read(1, WHOLE).is_err()));
        assert_eq!(stored(&journal), 1);
    }

    #[test]
    fn a_delay_calls_the_hook_with_the_request() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let journal = faulty(FaultPlan { delay_every: 3, ..FaultPlan::default() }).on_delay(move |call| {
            assert_eq!(call, JournalCall::Read { from: 5 });
            counted.fetch_add(1, Ordering::Relaxed);
        });
        for _ in 0..30 {
            assert_eq!(journal.read(5, WHOLE), Ok(vec![]));
        }
        assert_eq!((calls.load(Ordering::Relaxed), journal.counts().delayed), (10, 10));
    }
}
