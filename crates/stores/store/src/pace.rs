//! How often to poll [`crate::Store::watch`].

use std::time::Duration;

use crate::port::OtherHandles;

/// The longest pause while every commit of others is told ([`OtherHandles::Told`]): a net for calls that are lost. After
/// news the pauses begin at `busy` and double up to this, so an idle process soon polls this rarely.
const TOLD_PAUSE_MAX: Duration = Duration::from_secs(5);

/// The pause between two polls.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The pause while others have the store open that do not tell of their commits.
    busy: Duration,
    /// While nobody else has the store open, the pause doubles up to this.
    idle_max: Duration,
    pause: Duration,
}

impl Pace {
    pub fn new(busy: Duration, idle_max: Duration) -> Pace {
        Pace { busy, idle_max: idle_max.max(busy), pause: busy }
    }

    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// A call has come that a poll does not explain: a handle may have been opened that does not tell of its commits,
    /// and may not be seen yet. The next pauses are short.
    pub fn restart(&mut self) {
        self.pause = self.busy;
    }

    /// Returns the pause after a poll that `found` something or nothing.
    pub fn after(&mut self, found: bool, others: OtherHandles) -> Duration {
        self.pause = match others {
            OtherHandles::Silent => self.busy,
            OtherHandles::None if found => self.busy,
            OtherHandles::None => (self.pause * 2).min(self.idle_max),
            // News do not restart the doubling: the next news are told as well.
            OtherHandles::Told => (self.pause * 2).min(TOLD_PAUSE_MAX.max(self.idle_max)),
        };
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OtherHandles::{None, Silent, Told};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn pauses(pace: &mut Pace, polls: &[(bool, OtherHandles)]) -> Vec<u64> {
        polls.iter().map(|(found, others)| pace.after(*found, *others).as_millis() as u64).collect()
    }

    #[test]
    fn polls_become_rarer_only_while_no_silent_handle_is_open_and_nothing_changes() {
        let mut pace = Pace::new(ms(10), ms(100));
        assert_eq!(pauses(&mut pace, &[(false, Silent); 3]), [10, 10, 10]);
        assert_eq!(pauses(&mut pace, &[(false, None); 5]), [20, 40, 80, 100, 100]);
        assert_eq!(pauses(&mut pace, &[(false, Silent), (false, None), (true, None)]), [10, 20, 10]);
        let mut steady = Pace::new(ms(10), ms(1));
        let never_more_often_than_the_interval = pauses(&mut steady, &[(false, None); 2]);
        assert_eq!(never_more_often_than_the_interval, [10, 10]);
    }

    #[test]
    fn polls_become_rare_while_every_commit_is_told() {
        let mut pace = Pace::new(ms(10), ms(100));
        let told = pauses(&mut pace, &[(false, Told); 12]);
        assert_eq!(told[..4], [20, 40, 80, 160]);
        assert_eq!(told.last(), Some(&5000));
        assert_eq!(
            pauses(&mut pace, &[(true, Told), (false, None)]),
            [5000, 100],
            "the bound of the case holds"
        );
        assert_eq!(pauses(&mut pace, &[(true, Silent), (false, Told)]), [10, 20]);
        pauses(&mut pace, &[(false, Told); 12]);
        pace.restart();
        assert_eq!(pauses(&mut pace, &[(false, Told); 2]), [20, 40]);
    }

    #[test]
    fn settings_longer_than_the_net_are_kept() {
        let hour = Duration::from_secs(3600);
        assert_eq!(Pace::new(hour, hour).after(false, Told), hour);
    }
}
