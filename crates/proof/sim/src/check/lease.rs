//! An event has one lease at a time: while a member holds it no other member gets it, and once it was acked nobody
//! does.

use super::Checker;
use crate::facts::{Facts, spot_of};
use crate::ledger::is_done;
use crate::seen::Seen;
use crate::traffic::Acked;

pub(super) struct OneLease;

impl Checker for OneLease {
    fn name(&self) -> &'static str {
        "one_lease"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Delivered { conn, group, event, .. } = seen else { return Ok(()) };
        let (spot, offset) = (spot_of(group, event), event.offset);
        if facts.traffic.is_moving(&spot.seat) {
            return Ok(());
        }
        if let Some(item) = facts.traffic.item(&spot, offset) {
            if let Some(lease) = item.surely_held(facts.now_ms) {
                return Err(format!("{spot} at {offset} went to {conn:?} while {:?} holds it", lease.conn));
            }
            if item.acked == Acked::Yes {
                return Err(format!("{spot} at {offset} was delivered again after its ack"));
            }
            if item.not_before_ms > facts.now_ms && !item.asked_back {
                let early_ms = item.not_before_ms - facts.now_ms;
                return Err(format!(
                    "{spot} at {offset} came back {early_ms} ms before its NACK's delay was over"
                ));
            }
        }
        let asked_back = facts.traffic.item(&spot, offset).is_some_and(|item| item.asked_back);
        let begun_anew = asked_back || facts.traffic.moved.contains(&spot.seat);
        if is_done(&facts.ledger.cursor(&spot), offset) && !begun_anew {
            return Err(format!("{spot} at {offset} was delivered although it is durably done"));
        }
        if facts.must_be_filtered(&spot.seat, event) {
            return Err(format!(
                "{spot} at {offset} was delivered although the group's filter turns it away"
            ));
        }
        Ok(())
    }
}
