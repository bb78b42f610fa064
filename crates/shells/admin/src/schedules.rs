//! Schedules as the store knows them, and when each fires next.

use std::ops::ControlFlow;

use millrace_claims::Times;
use millrace_model::{Namespace, ScheduleRow, Space, Timestamp, keys};
use millrace_store::KeyRange;

use super::{Admin, AdminError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleView {
    pub name: String,
    pub row: ScheduleRow,
    /// The next fire after now. `None` if the schedule is switched off, or cannot be parsed by this version.
    pub next_at: Option<Timestamp>,
    /// The first fire that was due and has not happened: no session with this schedule runs, or it lags.
    pub overdue_since: Option<Timestamp>,
}

impl Admin {
    /// Returns every schedule that any session of the namespace has registered, by name.
    pub fn schedules(&self, namespace: &Namespace, now: Timestamp) -> Result<Vec<ScheduleView>, AdminError> {
        let prefix = format!("{namespace}/");
        let mut found = Vec::new();
        self.each_row::<AdminError>(Space::Schedules, &KeyRange::prefix(&prefix), |row| {
            let name = keys::unescaped(&row.key[prefix.len()..]).unwrap_or_else(|| row.key.clone());
            let row = ScheduleRow::decode(&row.key, &row.value)?;
            let times = Times::parse(&name, &row.cron, &row.zone).ok().filter(|_| row.enabled);
            let due = times.as_ref().and_then(|times| times.next(row.last));
            found.push(ScheduleView {
                next_at: times.and_then(|times| times.next(now)),
                overdue_since: due.filter(|due| *due <= now),
                name,
                row,
            });
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}
