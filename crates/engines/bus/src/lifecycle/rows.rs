//! Writes rows of other engines, which today is the router. They pass through the bus because there is one queue of
//! commits in front of the disk: a row of the router shares the sync of whatever the bus commits at that moment.

use millrace_model::{BATCH_BYTES_MAX, Durability, Now, Op, Space, keys};

use crate::bus::Bus;
use crate::interface::reply::{BusError, ReplyTo};
use crate::lifecycle::pending::PendingEffect;

impl Bus {
    /// Checks the rows' keys and their total size, never their contents.
    pub(crate) fn write(
        &mut self,
        now: Now,
        to: ReplyTo,
        ops: Vec<Op>,
        durability: Option<Durability>,
    ) -> Result<(), BusError> {
        if ops.is_empty() {
            return Err(BusError::EmptyWrite);
        }
        if let Some(op) = ops.iter().find(|op| !is_routers(op)) {
            return Err(BusError::NotYourRow(place(op)));
        }
        let bytes = ops.iter().map(Op::bytes).sum();
        if bytes > BATCH_BYTES_MAX {
            return Err(BusError::BatchTooLarge { bytes, max: BATCH_BYTES_MAX });
        }
        let durability = durability.unwrap_or(self.limits.durability);
        self.commit(now, durability, ops, PendingEffect::Write { to });
        Ok(())
    }
}

fn is_routers(op: &Op) -> bool {
    match op {
        Op::Put { space, key, .. } | Op::PutNew { space, key, .. } | Op::Delete { space, key } => {
            *space == Space::Kv && key.starts_with(keys::ROUTER)
        }
        _ => false,
    }
}

/// Names the row of an operation, for an error. The key is cut, because it may be of any length.
fn place(op: &Op) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    match op {
        Op::Put { space, key, .. } | Op::PutNew { space, key, .. } | Op::Delete { space, key } => {
            let key: String = key.chars().take(SHOWN_CHARS_MAX).collect();
            format!("row {key:?} of {}", space.as_str())
        }
        _ => "something that is no row".to_owned(),
    }
}
