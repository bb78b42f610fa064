//! The figures of schedules in `GET /metrics`. Sessions in other processes run them; the server reads their rows.

use millrace_admin::{Admin, AdminError, ScheduleView};
use millrace_model::{Namespace, Timestamp};
use millrace_store::{FailureCause, StoreError};

use crate::app::App;
use crate::http::prometheus::Page;
use crate::refusal::Refusal;
use crate::to_wire::OTHER;

pub(crate) type Schedule = (Namespace, ScheduleView);

pub(crate) async fn read(app: &App, now: Timestamp) -> Result<Vec<Schedule>, Refusal> {
    let admin = Admin::new(app.store.clone());
    let read = move |_: &dyn millrace_store::Store| {
        let mut found = Vec::new();
        for namespace in admin.namespace_names().map_err(unreadable)? {
            let views = admin.schedules(&namespace, now).map_err(unreadable)?;
            found.extend(views.into_iter().map(|view| (namespace.clone(), view)));
        }
        Ok(found)
    };
    app.read(read).await
}

/// Writes the first schedules by name; of the others only the longest delay.
pub(crate) fn write(page: &mut Page, schedules: &[&Schedule], now: Timestamp, labels_max: usize) {
    let (shown, rest) = schedules.split_at(labels_max.min(schedules.len()));
    let name = "schedule_overdue_seconds";
    page.head(
        "gauge",
        name,
        "How long the first fire that is due and has not happened is late; 0 without one.",
    );
    let late = |schedule: &Schedule| {
        schedule.1.overdue_since.map_or(0.0, |since| now.0.saturating_sub(since.0) as f64 / 1e3)
    };
    for schedule in shown {
        let labels = [("namespace", schedule.0.as_str()), ("schedule", schedule.1.name.as_str())];
        page.labelled(name, &labels, late(schedule));
    }
    if !rest.is_empty() {
        let longest = rest.iter().map(|schedule| late(schedule)).fold(0.0, f64::max);
        page.labelled(name, &[("namespace", OTHER), ("schedule", OTHER)], longest);
    }
}

fn unreadable(error: AdminError) -> StoreError {
    match error {
        AdminError::Store(error) => error,
        other => StoreError::Unreadable(FailureCause::of(other)),
    }
}
