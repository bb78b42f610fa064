//! Switching schedules on and off, and asking for a run now. Sessions of any process obey: each of their fires checks
//! that the schedule's row is as they have read it.

use millrace_claims::{request_schedule_run, set_schedule_enabled};
use millrace_model::{Batch, Namespace, RowError, Space, Timestamp, keys};
use millrace_store::Row;

use super::{Admin, AdminError, ChangeError};

/// How often a change is attempted while sessions write the row.
const ATTEMPTS_MAX: usize = 16;

impl Admin {
    /// Switches a schedule on or off, in all sessions. A schedule that is switched on again counts from now.
    pub fn set_schedule_enabled(
        &self,
        namespace: &Namespace,
        name: &str,
        enabled: bool,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        self.change_schedule(namespace, name, |row| {
            set_schedule_enabled(namespace, name, &row.value, enabled, now, rand::random()).map(Some)
        })
    }

    /// Asks for one fire now, beside the planned ones. A session that has the schedule makes the fire, within its
    /// `refresh_interval_ms`; while no session has it, the request waits. Requests that wait together are one fire.
    pub fn run_schedule(&self, namespace: &Namespace, name: &str, now: Timestamp) -> Result<(), ChangeError> {
        self.change_schedule(namespace, name, |row| {
            request_schedule_run(namespace, name, &row.value, now, rand::random())
        })
    }

    /// Makes a change of the row; `None` says that nothing is to be changed.
    fn change_schedule(
        &self,
        namespace: &Namespace,
        name: &str,
        make: impl Fn(&Row) -> Result<Option<Batch>, RowError>,
    ) -> Result<(), ChangeError> {
        let key = keys::schedule(namespace, name);
        for _ in 0..ATTEMPTS_MAX {
            let row = self.row(Space::Schedules, &key)?;
            let row = row.ok_or_else(|| ChangeError::NoSchedule(name.to_owned()))?;
            let Some(batch) = make(&row).map_err(AdminError::from)? else { return Ok(()) };
            // Refused only if another process wrote the row since it was read.
            if self.write(batch)? {
                return Ok(());
            }
        }
        Err(ChangeError::Busy)
    }
}
