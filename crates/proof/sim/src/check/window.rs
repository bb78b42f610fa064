//! Windows and credits are respected, and nothing is sent to connections that cannot receive.

use super::Checker;
use crate::facts::{Facts, spot_of};
use crate::seen::Seen;

pub(super) struct Window;

impl Checker for Window {
    fn name(&self) -> &'static str {
        "window_and_credits"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Delivered { conn, group, event, .. } = seen else { return Ok(()) };
        let seat = spot_of(group, event).seat;
        let what = || format!("{} at {} went to {conn:?}", event.stream, event.offset);
        let Some(to) = facts.traffic.conns.get(conn) else {
            return Err(format!("{}, which does not exist", what()));
        };
        if let Some(turn) = to.closed_in_turn {
            let known = turn < facts.turn;
            return if known { Err(format!("{}, which is closed", what())) } else { Ok(()) };
        }
        let Some(member) = to.members.get(&seat).filter(|member| member.active) else {
            return Err(format!("{}, which is not a member of {seat}", what()));
        };
        if to.congested {
            return Err(format!("{}, which is congested", what()));
        }
        if to.credits == Some(0) {
            return Err(format!("{}, which has no credits left", what()));
        }
        let held = facts.traffic.held_by(*conn, &seat, |item| item.surely_held(facts.now_ms));
        if held as u64 >= u64::from(member.window_max) {
            return Err(format!("{}, which holds {held} of {} already", what(), member.window_max));
        }
        Ok(())
    }
}
