//! `/jobs`: begins, shows and cancels work over many dead letters (`jobs.rs`).

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_model::Partition;
use millrace_wire::ErrorCode;
use millrace_wire::http::{JobDoc, JobKind, JobList, JobPreview, JobRequest};

use crate::access::{Caller, Scope};
use crate::app::SharedApp;
use crate::body::read_text;
use crate::http::dead_letters::pair;
use crate::http::topic_access::check_topic;
use crate::http::{document, withheld};
use crate::jobs;
use crate::params::{AtJob, Params, topic_key};
use crate::refusal::Refusal;

pub(crate) async fn create(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
    body: Body,
) -> Result<Response, Refusal> {
    let body = read_text(&app.edge, body, app.edge.settings.frame_bytes_max).await?;
    let request = JobRequest::parse(&body.text)?;
    deleter(&caller, request.kind)?;
    let (topic, dlq) = pair(&topic_key(&params, request.topic.as_str())?)?;
    let (by, letters, filter) = (caller.by(), dlq.clone(), request.filter.clone());
    let scan_max = app.edge.settings.scan_events_max as u64;
    let counted = app.read(move |store| match check_topic(store, &by, &letters, Partition(0))? {
        Err(error) => Ok(Err(Refusal::of(&error))),
        Ok(()) => Ok(Ok(jobs::count(store, &letters, &filter, scan_max)?)),
    });
    let (total, complete) = counted.await??;
    if request.dry_run {
        return Ok(document(StatusCode::OK, &JobPreview { total, complete }));
    }
    let doc = JobDoc {
        job: String::new(),
        kind: request.kind,
        topic: request.topic,
        filter: request.filter,
        rate_per_second: request.rate_per_second,
        state: "running".to_owned(),
        total,
        done: 0,
        replayed: 0,
        duplicates: 0,
        deleted: 0,
        failed: 0,
        by: caller.agent().map(str::to_owned),
        started_at: app.broker.clock().now().wall.0,
        ended_at: None,
        error: None,
        withheld: false,
    };
    let doc = jobs::begin(&app, &caller.by(), (&topic, &dlq), doc).await?;
    Ok(document(StatusCode::ACCEPTED, &doc))
}

/// Deleting needs `admin`, as deleting named letters does: nothing brings them back.
fn deleter(caller: &Caller, kind: JobKind) -> Result<(), Refusal> {
    let may = caller.grant.as_deref().is_none_or(|grant| grant.has(Scope::Admin));
    if kind == JobKind::Replay || may {
        return Ok(());
    }
    let detail = format!("the token of agent {} has no scope admin", caller.agent().unwrap_or("?"));
    Err(Refusal::new(ErrorCode::Forbidden, detail))
}

pub(crate) async fn list(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    let namespace = params.namespace()?;
    let mut jobs = app.jobs.list(namespace.as_str());
    if caller.is_withheld() {
        jobs.iter_mut().for_each(withheld::job);
    }
    Ok(document(StatusCode::OK, &JobList { jobs }))
}

pub(crate) async fn show(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtJob,
) -> Result<Response, Refusal> {
    let mut job = found(&app, &at)?;
    if caller.is_withheld() {
        withheld::job(&mut job);
    }
    Ok(document(StatusCode::OK, &job))
}

/// Cancels a job, which undoes nothing. A job that has ended stays as it is.
pub(crate) async fn cancel(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtJob,
) -> Result<Response, Refusal> {
    let job = found(&app, &at)?;
    deleter(&caller, job.kind)?;
    app.jobs.cancel(at.job);
    Ok(document(StatusCode::ACCEPTED, &job))
}

fn found(app: &SharedApp, at: &AtJob) -> Result<JobDoc, Refusal> {
    app.jobs.get(at.namespace.as_str(), at.job).ok_or_else(|| {
        let detail = format!("there is no job {}: GET /jobs lists them", at.job);
        Refusal::new(ErrorCode::BadFrame, detail).status(StatusCode::NOT_FOUND)
    })
}
