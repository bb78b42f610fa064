//! Callers that wait for the same thing and are served in the order in which they came.
//!
//! Only the first of them is woken. When it has been served, or has stopped waiting, it wakes the next.

use std::collections::VecDeque;
use std::task::Waker;

#[derive(Debug, Default)]
pub(super) struct WaitingLine {
    /// In ascending order of their numbers.
    waiting: VecDeque<(u64, Waker)>,
    last_number: u64,
}

/// The number of a caller in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineNumber(u64);

impl WaitingLine {
    /// Whether nobody waits who came before the caller. A caller that has no number yet comes after all that have one.
    pub(super) fn is_first(&self, number: Option<LineNumber>) -> bool {
        self.waiting.front().is_none_or(|(first, _)| number == Some(LineNumber(*first)))
    }

    /// Lets the caller wait at its place, or at the end if it has none.
    pub(super) fn wait(&mut self, number: &mut Option<LineNumber>, waker: &Waker) {
        if let Some(at) = number.and_then(|number| self.find(number)) {
            self.waiting[at].1.clone_from(waker);
            return;
        }
        self.last_number += 1;
        self.waiting.push_back((self.last_number, waker.clone()));
        *number = Some(LineNumber(self.last_number));
    }

    /// Takes a caller out of the line, if it is there. The caller then wakes whoever is the first.
    pub(super) fn leave(&mut self, number: &mut Option<LineNumber>) {
        if let Some(at) = number.take().and_then(|number| self.find(number)) {
            self.waiting.remove(at);
        }
    }

    /// Returns what wakes the first caller.
    pub(super) fn first(&self) -> Option<Waker> {
        self.waiting.front().map(|(_, waker)| waker.clone())
    }

    /// Empties the line, for callers that will wait no more.
    pub(super) fn dissolve(&mut self) -> impl Iterator<Item = Waker> + use<> {
        std::mem::take(&mut self.waiting).into_iter().map(|(_, waker)| waker)
    }

    fn find(&self, number: LineNumber) -> Option<usize> {
        self.waiting.binary_search_by_key(&number.0, |(number, _)| *number).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_keeps_its_place_until_it_leaves() {
        let mut line = WaitingLine::default();
        let [mut a, mut b, mut c] = [None; 3];
        for number in [&mut a, &mut b, &mut c] {
            line.wait(number, Waker::noop());
        }
        line.wait(&mut a, Waker::noop());
        assert!(line.is_first(a) && !line.is_first(b) && !line.is_first(None));
        line.leave(&mut b);
        assert!(line.is_first(a) && !line.is_first(c));
        line.leave(&mut a);
        assert!(line.is_first(c) && a.is_none());
        line.leave(&mut c);
        assert!(line.is_first(None) && line.first().is_none());
    }
}
