//! `/jobs`: begins, shows and cancels work over many dead letters (`jobs.rs`).

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_model::{DLQ_SUFFIX, Namespace, Partition, TopicName};
use millrace_wire::ErrorCode;
use millrace_wire::http::{JobDoc, JobKind, JobList, JobPreview, JobRequest};

use crate::access::{Caller, Scope};
use crate::app::SharedApp;
use crate::body::read_text;
use crate::http::actions::not_found;
use crate::http::dead_letters::pair;
use crate::http::durable_handlers::Readers;
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
        total_is_least: !complete,
        done: 0,
        replayed: 0,
        duplicates: 0,
        deleted: 0,
        failed: 0,
        failures: Vec::new(),
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
    let jobs = app.jobs.list(namespace.as_str());
    let jobs = visible(&app, &caller, &namespace, jobs).await?;
    Ok(document(StatusCode::OK, &JobList { jobs }))
}

pub(crate) async fn show(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtJob,
) -> Result<Response, Refusal> {
    let job = found(&app, &caller, &at).await?;
    Ok(document(StatusCode::OK, &job))
}

/// Cancels a job, which undoes nothing. A job that has ended stays as it is.
pub(crate) async fn cancel(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtJob,
) -> Result<Response, Refusal> {
    let job = found(&app, &caller, &at).await?;
    deleter(&caller, job.kind)?;
    jobs::cancel(&app, at.job).await?;
    Ok(document(StatusCode::ACCEPTED, &job))
}

async fn found(app: &SharedApp, caller: &Caller, at: &AtJob) -> Result<JobDoc, Refusal> {
    let job = app.jobs.get(at.namespace.as_str(), at.job).into_iter().collect();
    let job = visible(app, caller, &at.namespace, job).await?.pop();
    job.ok_or_else(|| not_found(format!("there is no job {}: GET /jobs lists them", at.job)))
}

/// Leaves out jobs over letters that the caller may not read. An administrator sees that they are there, but neither their
/// reasons nor their errors, which quote letters.
async fn visible(
    app: &SharedApp,
    caller: &Caller,
    namespace: &Namespace,
    jobs: Vec<JobDoc>,
) -> Result<Vec<JobDoc>, Refusal> {
    let (reader, seer, namespace) = (caller.by(), caller.by_unless_admin(), namespace.clone());
    let is_withheld = caller.is_withheld();
    let read = app.read(move |store| {
        let mut readers = Readers::new(store, &namespace, reader);
        let mut seers = Readers::new(store, &namespace, seer);
        let mut seen = Vec::new();
        for mut job in jobs {
            let letters = letters_topic(&job.topic);
            if !seers.may_read(&letters)? {
                continue;
            }
            if is_withheld || !readers.may_read(&letters)? {
                withheld::job(&mut job);
            }
            seen.push(job);
        }
        Ok(seen)
    });
    read.await
}

fn letters_topic(topic: &TopicName) -> String {
    let name = topic.as_str();
    if name.ends_with(DLQ_SUFFIX) { name.to_owned() } else { format!("{name}{DLQ_SUFFIX}") }
}
