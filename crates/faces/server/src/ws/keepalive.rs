//! Keepalive: finds out whether the peer is still there. A half-open socket accepts writes for a long time; only the
//! peer's silence shows that it has gone.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(super) struct Keepalive {
    heard: AtomicBool,
    /// The reader is not reading at the moment, so silence proves nothing.
    deaf: AtomicBool,
}

/// The action to take after an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepaliveStep {
    Fine,
    Ping,
    Gone,
}

impl Keepalive {
    pub(super) fn beat(&self) {
        self.heard.store(true, Relaxed);
    }

    pub(super) fn listen(&self, listening: bool) {
        self.deaf.store(!listening, Relaxed);
    }

    /// Called once per interval; `missed` counts the pings without any answer.
    pub(super) fn check(&self, missed: &mut u32, missed_max: u32) -> KeepaliveStep {
        if self.heard.swap(false, Relaxed) || self.deaf.load(Relaxed) {
            *missed = 0;
            return KeepaliveStep::Fine;
        }
        if *missed >= missed_max {
            return KeepaliveStep::Gone;
        }
        *missed += 1;
        KeepaliveStep::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_asked_about_and_then_believed() {
        let (keepalive, mut missed) = (Keepalive::default(), 0);
        let mut checks = |keepalive: &Keepalive| keepalive.check(&mut missed, 2);
        keepalive.beat();
        assert_eq!([checks(&keepalive), checks(&keepalive)], [KeepaliveStep::Fine, KeepaliveStep::Ping]);
        keepalive.beat();
        let rest: Vec<_> = (0..4).map(|_| checks(&keepalive)).collect();
        assert_eq!(
            rest,
            [KeepaliveStep::Fine, KeepaliveStep::Ping, KeepaliveStep::Ping, KeepaliveStep::Gone]
        );
        keepalive.listen(false);
        assert_eq!(checks(&keepalive), KeepaliveStep::Fine);
    }
}
