//! Counts refusals by error code. The codes are a closed list, which bounds the label of the metric.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use millrace_wire::ErrorCode;

#[derive(Debug)]
pub(crate) struct Refusals(Vec<(ErrorCode, AtomicU64)>);

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals(ErrorCode::ALL.iter().map(|code| (*code, AtomicU64::new(0))).collect())
    }
}

impl Refusals {
    pub(crate) fn count(&self, code: ErrorCode) {
        if let Some((_, count)) = self.0.iter().find(|(of, _)| *of == code) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (ErrorCode, u64)> {
        self.0.iter().map(|(code, count)| (*code, count.load(Relaxed)))
    }
}
