//! The session's row: written at intervals, and when it has changed.

use millrace_model::{Now, Op, SessionRow, Space, keys};

use crate::commits::action::{Action, FollowUp};
use crate::worker::Worker;

impl Worker {
    pub(crate) fn heartbeat(&mut self, now: Now) {
        if self.session.take_heartbeat(now, &self.config) {
            let action = self.session_action(now, false);
            self.queue_action(now, action);
        }
    }

    pub(super) fn session_action(&self, now: Now, stopped: bool) -> Action {
        let row = SessionRow {
            started: self.session.began(),
            heartbeat: now.wall,
            stopped: stopped.then_some(now.wall),
            metadata: self.identity.metadata.clone(),
            hanging: self.hanging_rows(),
            counts: self.ended.counts,
        };
        let key = keys::session(&self.identity.namespace, &self.identity.session);
        let mut ops = vec![Op::Put { space: Space::Sessions, key, value: row.encode() }];
        // The anchor that ages are counted from, for the next process that removes by age.
        if self.config.retention_interval_ms > 0 {
            let ages = self.ages.row(self.identity.boot, now);
            ops.extend(ages.map(|ages| Op::Put {
                space: Space::Kv,
                key: keys::AGES.to_owned(),
                value: ages.encode(),
            }));
        }
        Action { checks: Vec::new(), ops, follow_up: FollowUp::Nothing }
    }
}
