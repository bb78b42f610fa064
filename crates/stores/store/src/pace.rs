//! How often to poll [`crate::Store::watch`].

use std::time::Duration;

/// The pause between two polls.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The pause while others have the store open, or when something has just changed.
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

    /// Returns the pause after a poll that `found` something or nothing, while `others` have the store open or not.
    pub fn after(&mut self, found: bool, others: bool) -> Duration {
        self.pause = if found || others { self.busy } else { (self.pause * 2).min(self.idle_max) };
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rarer_only_while_nobody_else_is_there_and_nothing_changes() {
        let ms = Duration::from_millis;
        let mut pace = Pace::new(ms(10), ms(100));
        let pauses = |pace: &mut Pace, looks: &[(bool, bool)]| -> Vec<u64> {
            let pause = |(found, others): &(bool, bool)| pace.after(*found, *others).as_millis() as u64;
            looks.iter().map(pause).collect()
        };
        assert_eq!(pauses(&mut pace, &[(false, true); 3]), [10, 10, 10]);
        assert_eq!(pauses(&mut pace, &[(false, false); 5]), [20, 40, 80, 100, 100]);
        assert_eq!(pauses(&mut pace, &[(false, true), (false, false), (true, false)]), [10, 20, 10]);
        let mut steady = Pace::new(ms(10), ms(1));
        assert_eq!(
            pauses(&mut steady, &[(false, false); 2]),
            [10, 10],
            "never more often than the interval says"
        );
    }
}
