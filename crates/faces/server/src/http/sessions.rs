//! `GET /sessions`: programs that run durable handlers, as their rows in the store tell of them.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_admin::{Admin, Liveness, SESSION_TTL_MS, SessionView};
use millrace_wire::http::{HangingDoc, SessionDoc, SessionList};

use crate::access::Caller;
use crate::app::SharedApp;
use crate::http::document;
use crate::http::durable_handlers::{Readers, unreadable};
use crate::params::Params;
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
        let admin = Admin::new(store);
        admin.session_page(&namespace, page, now, SESSION_TTL_MS, &mut may_see).map_err(unreadable)
    });
    let page = read.await?;
    let sessions: Vec<SessionDoc> =
        page.sessions.into_iter().map(|(view, holds)| SessionDoc { holds, ..shown(view) }).collect();
    let next = sessions.last().filter(|_| page.more).map(|last| last.session.clone());
    Ok(document(StatusCode::OK, &SessionList { sessions, next }))
}

fn shown(view: SessionView) -> SessionDoc {
    let mut metadata = view.metadata;
    let state = match view.liveness {
        Liveness::Alive => "alive",
        Liveness::Dead => "dead",
        Liveness::Stopped => "stopped",
    };
    let hanging = view.hanging.into_iter().map(|run| HangingDoc {
        handler: run.handler.to_string(),
        event: run.event.to_string(),
        since: run.since.0,
        cut_off: run.cut_off,
    });
    SessionDoc {
        session: view.session_id,
        state: state.to_owned(),
        started: view.started_at.0,
        heartbeat: view.last_heartbeat.0,
        host: metadata.remove("hostname"),
        pid: metadata.remove("pid"),
        hanging: hanging.collect(),
        runs: view.counts,
        metadata,
        ..SessionDoc::default()
    }
}
