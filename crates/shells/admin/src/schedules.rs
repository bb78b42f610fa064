//! Schedules as the store knows them, and when each fires next.

use std::ops::ControlFlow;

use millrace_claims::{Times, cron_words};
use millrace_model::{Namespace, ScheduleRow, Space, Timestamp, keys};
use millrace_store::KeyRange;

use super::{Admin, AdminError};

/// Coming fires that are listed of a schedule.
pub const NEXT_FIRES: usize = 5;
/// Missed fires that are counted of a schedule; there may be more.
pub const MISSED_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleView {
    pub name: String,
    pub row: ScheduleRow,
    /// The expression in words, with its time zone.
    pub words: String,
    /// The coming fires. Empty if the schedule is switched off, or cannot be parsed by this version.
    pub next: Vec<Timestamp>,
    /// The first fire that was due and has not happened: no session with this schedule runs, or it lags.
    pub overdue_since: Option<Timestamp>,
    /// How many fires were due and have not happened, at most [`MISSED_MAX`].
    pub missed: usize,
}

impl ScheduleView {
    fn new(name: String, row: ScheduleRow, now: Timestamp) -> ScheduleView {
        let times = Times::parse(&name, &row.cron, &row.zone).ok().filter(|_| row.enabled);
        let after = |from: Timestamp| {
            let first = times.as_ref().and_then(|times| times.next(from));
            std::iter::successors(first, |at| times.as_ref().and_then(|times| times.next(*at)))
        };
        let due = || after(row.last).take_while(|at| *at <= now);
        ScheduleView {
            words: cron_words(&row.cron, &row.zone),
            next: after(now).take(NEXT_FIRES).collect(),
            overdue_since: due().next(),
            missed: due().take(MISSED_MAX).count(),
            name,
            row,
        }
    }

    /// Returns the planned time of the latest fire. Rows of older versions tell it as long as the schedule was not
    /// switched off.
    pub fn fired_at(&self) -> Option<Timestamp> {
        self.row.fired.or((self.row.fires > 0).then_some(self.row.last))
    }

    pub fn next_at(&self) -> Option<Timestamp> {
        self.next.first().copied()
    }
}

impl Admin {
    /// Returns a schedule; `None` if there is none of this name.
    pub fn schedule(
        &self,
        namespace: &Namespace,
        name: &str,
        now: Timestamp,
    ) -> Result<Option<ScheduleView>, AdminError> {
        let Some(row) = self.row(Space::Schedules, &keys::schedule(namespace, name))? else {
            return Ok(None);
        };
        let row = ScheduleRow::decode(&row.key, &row.value)?;
        Ok(Some(ScheduleView::new(name.to_owned(), row, now)))
    }

    /// Returns every schedule that any session of the namespace has registered, by name.
    pub fn schedules(&self, namespace: &Namespace, now: Timestamp) -> Result<Vec<ScheduleView>, AdminError> {
        Ok(self.schedule_page(namespace, (None, usize::MAX), now, &mut |_| Ok(true))?.0)
    }

    /// Returns a page of the schedules whose event types `may_see` allows, those after the name `after`, and whether
    /// there are more.
    pub fn schedule_page(
        &self,
        namespace: &Namespace,
        (after, max): (Option<&str>, usize),
        now: Timestamp,
        may_see: &mut dyn FnMut(&str) -> Result<bool, AdminError>,
    ) -> Result<(Vec<ScheduleView>, bool), AdminError> {
        let prefix = format!("{namespace}/");
        let (mut found, mut more) = (Vec::new(), false);
        let mut range = KeyRange::prefix(&prefix);
        if let Some(after) = after {
            range.from = format!("{}\0", keys::schedule(namespace, after));
        }
        self.each_row::<AdminError>(Space::Schedules, &range, |row| {
            let name = keys::unescaped(&row.key[prefix.len()..]).unwrap_or_else(|| row.key.clone());
            let row = ScheduleRow::decode(&row.key, &row.value)?;
            if !may_see(&row.event_type)? {
                return Ok(ControlFlow::Continue(()));
            }
            if found.len() == max {
                more = true;
                return Ok(ControlFlow::Break(()));
            }
            found.push(ScheduleView::new(name, row, now));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((found, more))
    }
}
