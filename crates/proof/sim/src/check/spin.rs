//! An engine that was woken for nothing does not ask to be woken again at once: its loop would spin.

use super::Checker;
use crate::facts::Facts;
use crate::seen::Seen;

pub(super) struct Spin;

impl Checker for Spin {
    fn name(&self) -> &'static str {
        "no_busy_loop"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Settled { deadline: Some(at), quiet: true } if *at <= facts.now.mono && !facts.ending => {
                Err(format!("settled at {:?}, the engine wants to be woken at {at:?}", facts.now.mono))
            }
            _ => Ok(()),
        }
    }
}
