//! `/schedules`: events that sessions send by the clock. Sessions in other processes make the fires; this server lists
//! the schedules, and changes their rows, which every fire checks.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_admin::{Admin, ChangeError, ScheduleView};
use millrace_model::{Namespace, Timestamp};
use millrace_store::Store;
use millrace_wire::http::{ScheduleDoc, ScheduleList};

use crate::access::Caller;
use crate::app::{App, SharedApp};
use crate::http::document;
use crate::http::durable_handlers::{Readers, unreadable};
use crate::params::{AtNamed, Params};
use crate::refusal::Refusal;

pub(crate) async fn list(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    let (namespace, by) = (params.namespace()?, caller.by_unless_admin());
    let limit = params.list_limit(app.edge.settings.list_max)?;
    let after = params.text("after").map(str::to_owned);
    let (store, now) = (app.store.clone(), app.broker.clock().now().wall);
    let read = app.read(move |reader| {
        let mut readers = Readers::new(reader, &namespace, by);
        let mut may_see = |topic: &str| Ok(readers.may_read(topic)?);
        let page = (after.as_deref(), limit);
        Admin::new(store).schedule_page(&namespace, page, now, &mut may_see).map_err(unreadable)
    });
    let (found, more) = read.await?;
    let schedules: Vec<ScheduleDoc> = found.into_iter().map(shown).collect();
    let next = schedules.last().filter(|_| more).map(|last| last.name.clone());
    Ok(document(StatusCode::OK, &ScheduleList { schedules, next }))
}

fn shown(view: ScheduleView) -> ScheduleDoc {
    let last = view.fired_at();
    let ScheduleView { name, row, words, next, overdue_since, missed } = view;
    ScheduleDoc {
        name,
        cron: row.cron,
        zone: row.zone,
        words,
        event_type: row.event_type,
        enabled: row.enabled,
        last: last.map(|at| at.0),
        fires: row.fires,
        missed: missed as u64,
        overdue_since: overdue_since.map(|at| at.0),
        run_asked_at: row.run.map(|at| at.0),
        next: next.into_iter().map(|at| at.0).collect(),
    }
}

/// Asks for one fire now, beside the planned ones.
pub(crate) async fn run(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtNamed,
) -> Result<Response, Refusal> {
    change(&app, &caller, at, "schedule_run_asked", StatusCode::ACCEPTED, Admin::run_schedule).await
}

pub(crate) async fn pause(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtNamed,
) -> Result<Response, Refusal> {
    let pause = |admin: &Admin, namespace: &Namespace, name: &str, now| {
        admin.set_schedule_enabled(namespace, name, false, now)
    };
    change(&app, &caller, at, "schedule_paused", StatusCode::OK, pause).await
}

pub(crate) async fn resume(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtNamed,
) -> Result<Response, Refusal> {
    let resume = |admin: &Admin, namespace: &Namespace, name: &str, now| {
        admin.set_schedule_enabled(namespace, name, true, now)
    };
    change(&app, &caller, at, "schedule_resumed", StatusCode::OK, resume).await
}

/// Makes a change and answers with the schedule as it is then.
async fn change(
    app: &SharedApp,
    caller: &Caller,
    at: AtNamed,
    kind: &'static str,
    status: StatusCode,
    change: impl FnOnce(&Admin, &Namespace, &str, Timestamp) -> Result<(), ChangeError> + Send + 'static,
) -> Result<Response, Refusal> {
    let AtNamed { name, namespace } = at;
    let (of, schedule, by) = (namespace.clone(), name.clone(), caller.by_unless_admin());
    let carry_out = move |admin: &Admin, store: &dyn Store, now: Timestamp| {
        let unknown = || ChangeError::NoSchedule(schedule.clone());
        let view = admin.schedule(&of, &schedule, now)?.ok_or_else(unknown)?;
        // A schedule that the caller may not see does not exist for the caller.
        if !Readers::new(store, &of, by).may_read(&view.row.event_type)? {
            return Err(unknown());
        }
        change(admin, &of, &schedule, now)?;
        admin.schedule(&of, &schedule, now)?.ok_or_else(unknown)
    };
    let record = move |app: &App, _: &ScheduleView| app.acted(kind, &namespace, &name);
    let view = app.act(carry_out, record).await?;
    Ok(document(status, &shown(view)))
}
