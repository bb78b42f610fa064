//! First deliveries reach a connection in offset order, per group and partition. Redeliveries may come in between. In a
//! sticky group the order holds per key, which `sticky.rs` checks.

use std::collections::BTreeMap;

use millrace_bus::ConnId;
use millrace_model::Offset;

use super::Checker;
use crate::facts::{Facts, spot_of};
use crate::ledger::dropped;
use crate::place::Spot;
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct Order {
    last: BTreeMap<(ConnId, Spot), Offset>,
}

impl Checker for Order {
    fn name(&self) -> &'static str {
        "first_deliveries_in_order"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Delivered { conn, group, event, .. } => {
                let spot = spot_of(group, event);
                let again = facts.traffic.item(&spot, event.offset).is_some_and(|item| item.sends > 0);
                if again
                    || facts.sticky.contains(&spot.seat)
                    || facts.traffic.moved.contains(&spot.seat)
                    || facts.traffic.is_moving(&spot.seat)
                {
                    return Ok(());
                }
                let last = self.last.entry((*conn, spot.clone())).or_default();
                if event.offset <= *last {
                    return Err(format!("{spot} at {} came to {conn:?} after {last}", event.offset));
                }
                *last = event.offset;
            }
            Seen::Wanted { batch } => {
                for topic in dropped(batch) {
                    self.last.retain(|(_, spot), _| spot.seat.topic != *topic);
                }
            }
            Seen::Ended { .. } => self.last.clear(),
            _ => {}
        }
        Ok(())
    }
}
