//! Keepalive: finds out whether the peer is still there. A half-open socket accepts writes for a long time; only the
//! peer's silence shows that it has gone.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(super) struct Pulse {
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

impl Pulse {
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
        let (pulse, mut missed) = (Pulse::default(), 0);
        let mut checks = |pulse: &Pulse| pulse.check(&mut missed, 2);
        pulse.beat();
        assert_eq!([checks(&pulse), checks(&pulse)], [KeepaliveStep::Fine, KeepaliveStep::Ping]);
        pulse.beat();
        let rest: Vec<_> = (0..4).map(|_| checks(&pulse)).collect();
        assert_eq!(
            rest,
            [KeepaliveStep::Fine, KeepaliveStep::Ping, KeepaliveStep::Ping, KeepaliveStep::Gone]
        );
        pulse.listen(false);
        assert_eq!(checks(&pulse), KeepaliveStep::Fine);
    }
}
