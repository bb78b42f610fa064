//! One handler of this worker: what it has in hand, and whether it should look for more.

use std::collections::{BTreeSet, VecDeque};

use millrace_model::{Claimed, Mono, Now, Timestamp, TopicKey};

use crate::spec::HandlerSpec;

/// Moments at which events of one handler are known to be ready again. Later ones are found by polling.
const DUES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Handler {
    pub(crate) spec: HandlerSpec,
    pub(crate) topic: TopicKey,
    /// Claimed and not started, in the order to run them.
    pub(crate) queue: VecDeque<Claimed>,
    pub(crate) running: usize,
    /// There may be events to claim.
    pub(crate) hungry: bool,
    /// The last claim got all it asked for.
    pub(crate) full: bool,
    /// When to look again although nobody said anything.
    pub(crate) look_at: Mono,
    dues: BTreeSet<Timestamp>,
    /// Nobody told it to look, so there may be claims of others it knows nothing of: when the first of them is due must
    /// be read.
    pub(crate) unsure: bool,
    /// How many events it holds at most. Falls when queued events have to be given back, rises again when they do not:
    /// a slow handler does not hoard what others could do.
    appetite: usize,
    appetite_max: usize,
    /// It had to give events back: it claims again only when one of them could run at once.
    patient: bool,
}

impl Handler {
    pub(crate) fn new(spec: HandlerSpec, topic: TopicKey, appetite_max: usize) -> Handler {
        Handler {
            spec,
            topic,
            queue: VecDeque::new(),
            running: 0,
            hungry: true,
            full: false,
            look_at: Mono(0),
            dues: BTreeSet::new(),
            unsure: true,
            appetite: appetite_max,
            appetite_max,
            patient: false,
        }
    }

    pub(crate) fn in_hand(&self) -> usize {
        self.queue.len() + self.running
    }

    /// How many events to claim now. Waits until half of what it may hold is done, so that claims come in batches.
    pub(crate) fn wish(&self, place_free: bool) -> usize {
        let in_hand = self.in_hand();
        let may = self.hungry && (place_free || !self.patient);
        if may && in_hand <= self.appetite / 2 { self.appetite - in_hand } else { 0 }
    }

    /// Its claim has landed.
    pub(crate) fn fed(&mut self, asked: usize, got: usize, more: bool, look_at: Mono) {
        self.full = got >= asked;
        self.hungry = self.full || more;
        self.look_at = look_at;
        self.patient = false;
        if self.queue.is_empty() {
            self.appetite = (self.appetite * 2).min(self.appetite_max);
        }
    }

    pub(crate) fn eats_less(&mut self) {
        self.appetite = (self.appetite / 2).max(1);
        self.patient = true;
    }

    /// An event of this handler will be ready then.
    pub(crate) fn expect(&mut self, due: Timestamp) {
        self.dues.insert(due);
        if self.dues.len() > DUES_MAX {
            self.dues.pop_last();
        }
    }

    pub(crate) fn wake(&mut self, now: Now, polls: bool) {
        while self.dues.first().is_some_and(|due| *due <= now.wall) {
            self.dues.pop_first();
            self.hungry = true;
            self.unsure = true;
        }
        if polls && self.look_at <= now.mono && !self.hungry {
            self.hungry = true;
            self.unsure = true;
        }
    }

    pub(crate) fn next_wake(&self, now: Now, polls: bool) -> Option<Mono> {
        let due = self.dues.first().map(|due| now.mono_at(*due));
        let look = (polls && !self.hungry).then_some(self.look_at);
        [due, look].into_iter().flatten().min()
    }
}
