//! Runs one job, a slice of letters after the other.

use std::sync::Arc;
use std::time::Duration;

use millrace_broker::RowWriteError;
use millrace_bus::{PublishBatch, Reply, Request};
use millrace_model::{Event, Offset, Partition, Requester, TopicKey};
use millrace_router::NotTrusted;
use millrace_store::ReadLimit;
use millrace_wire::ErrorCode;
use millrace_wire::http::{JobFailure, JobKind};

use super::{Control, Job, PREFIX, SLICE, matches, put};
use crate::access::Scope;
use crate::app::SharedApp;
use crate::http::dead_letters::{has_payload, original};
use crate::observe::HttpRequester;
use crate::refusal::Refusal;

/// Letters that a job names as failed; all of them are counted.
const FAILURES_MAX: usize = 20;
const FAILURE_CHARS_MAX: usize = 300;
/// How often a token that only seems to have expired is looked at again.
const IN_DOUBT_MS: u64 = 1000;

/// How a job ends.
enum End {
    Done,
    Cancelled,
    /// The server stops: the job goes on when it is back.
    Stopping,
    Failed(String),
}

/// Runs the job in a task of its own. The audit names the agent that began it.
pub(super) fn spawn(app: SharedApp, id: u64, job: Job, control: Arc<Control>) {
    let requester = HttpRequester::for_agent(job.by.as_ref().map(|owner| owner.agent.as_str()));
    tokio::spawn(Arc::new(requester).serve(run(app, id, job, control)));
}

async fn run(app: SharedApp, id: u64, mut job: Job, control: Arc<Control>) {
    let end = work(&app, id, &mut job, &control).await;
    let (state, error) = match end {
        End::Stopping => return,
        End::Done => ("done", None),
        End::Cancelled => ("cancelled", None),
        End::Failed(why) => ("failed", Some(why)),
    };
    (job.doc.state, job.doc.error) = (state.to_owned(), error);
    job.doc.ended_at = Some(app.broker.clock().now().wall.0);
    app.jobs.set(id, &job);
    tracing::info!(job = id, state, done = job.doc.done, error = job.doc.error, "a job has ended");
    if let Err(error) = store(&app, id, &job, &control).await {
        tracing::error!(job = id, %error, "the end of a job could not be written: its last slice is done again");
    }
}

async fn store(app: &SharedApp, id: u64, job: &Job, control: &Control) -> Result<(), RowWriteError> {
    let _turn = control.writing.lock().await;
    let job = Job { cancelled: control.is_cancelled(), ..job.clone() };
    app.broker.row_writer(PREFIX).write(vec![put(id, &job)]).await
}

async fn work(app: &SharedApp, id: u64, job: &mut Job, control: &Control) -> End {
    let Ok(topic) = TopicKey::parse(&job.topic) else {
        return End::Failed("its topic has no name".to_owned());
    };
    let Some(dlq) = topic.dead_letters() else { return End::Failed("its topic has no letters".to_owned()) };
    for at in 0..job.places.len() {
        while let Some((partition, next, end)) =
            job.places.get(at).copied().filter(|(_, next, end)| next < end)
        {
            // First: a server that stops may have been told to cancel the job just before.
            if control.is_cancelled() {
                return End::Cancelled;
            }
            if app.broker.health().stopping() || app.broker.health().storage_failed().is_some() {
                return End::Stopping;
            }
            let by = match requester(app, job) {
                Ok(by) => by,
                Err(NotTrusted::InDoubt(_)) => {
                    tokio::time::sleep(Duration::from_millis(IN_DOUBT_MS)).await;
                    continue;
                }
                Err(NotTrusted::Refused(why)) => return End::Failed(why),
            };
            let began = tokio::time::Instant::now();
            let done_before = job.doc.done;
            let passed = match slice(app, &by, job, (&topic, &dlq), (partition, next, end)).await {
                Ok(passed) => passed,
                Err(refusal) if refusal.is(ErrorCode::ShuttingDown) => return End::Stopping,
                Err(refusal) => return End::Failed(refusal.detail().to_owned()),
            };
            if let Some(place) = job.places.get_mut(at) {
                place.1 = passed;
            }
            app.jobs.set(id, job);
            if let Err(error) = store(app, id, job, control).await {
                return End::Failed(error.to_string());
            }
            if let Some(rate) = job.doc.rate_per_second {
                let due_ms = (job.doc.done - done_before) * 1000 / rate.max(1);
                tokio::time::sleep_until(began + Duration::from_millis(due_ms)).await;
            }
        }
    }
    End::Done
}

/// The identity that the job's next slice is done under: what a token of its agent stands for now.
fn requester(app: &SharedApp, job: &Job) -> Result<Requester, NotTrusted> {
    let Some(owner) = job.by.as_ref() else { return Ok(Requester::Trusted) };
    if app.edge.tokens.is_open() {
        return Ok(Requester::Trusted);
    }
    let scopes: &[Scope] = match job.doc.kind {
        JobKind::Replay => &[Scope::Subscribe, Scope::Publish],
        JobKind::Delete => &[Scope::Admin],
    };
    app.edge.tokens.stand_for_work(&owner.agent, scopes, &job.namespace).map(Requester::Agent)
}

/// Deals with the next letters of a partition. Returns the offset to go on at.
async fn slice(
    app: &SharedApp,
    by: &Requester,
    job: &mut Job,
    (topic, dlq): (&TopicKey, &TopicKey),
    (partition, next, end): (u32, u64, u64),
) -> Result<u64, Refusal> {
    let stream = dlq.stream(Partition(partition));
    // With a rate, a slice is about a second's work, so that the job ends soon after it is told to.
    let events_max =
        job.doc.rate_per_second.map_or(SLICE.events_max, |rate| SLICE.events_max.min(rate as usize).max(1));
    let limit = ReadLimit { events_max, ..SLICE };
    let page = app.read(move |store| store.read(&stream, Offset(next), limit)).await?;
    if page.through.0 < next {
        return Ok(end);
    }
    let filter = job.doc.filter.clone();
    let wanted = page.events.iter().filter(|letter| letter.offset.0 < end && matches(&filter, letter));
    let letters: Vec<&Arc<Event>> = wanted.collect();
    match job.doc.kind {
        JobKind::Replay => replay(app, by, job, topic, &letters).await?,
        JobKind::Delete => {
            let offsets: Vec<_> = letters.iter().map(|letter| letter.offset).collect();
            if !offsets.is_empty() {
                let count = offsets.len() as u64;
                let (topic, partition) = (dlq.clone(), Partition(partition));
                match app.request(by.clone(), Request::RemoveLetters { topic, partition, offsets }).await? {
                    Reply::LettersRemoved { .. } => job.doc.deleted += count,
                    other => return Err(Refusal::unexpected(&other)),
                }
            }
        }
    }
    job.doc.done += letters.len() as u64;
    Ok(page.through.0 + 1)
}

/// Publishes letters again. Those that cannot be replayed are counted and named, and do not hold up the others.
async fn replay(
    app: &SharedApp,
    by: &Requester,
    job: &mut Job,
    topic: &TopicKey,
    letters: &[&Arc<Event>],
) -> Result<(), Refusal> {
    let (whole, hollow): (Vec<&Arc<Event>>, Vec<_>) = letters.iter().partition(|letter| has_payload(letter));
    for letter in hollow {
        failed(job, letter, "the letter has no payload: the event was too large to copy");
    }
    let mut rest = whole.as_slice();
    while !rest.is_empty() {
        let Err(refused) = publish(app, by, job, topic, rest).await else { break };
        let refused_at = refused.schema_mismatch();
        let Some((before, [letter, behind @ ..])) = refused_at.and_then(|at| rest.split_at_checked(at))
        else {
            return Err(refused);
        };
        if !before.is_empty() {
            publish(app, by, job, topic, before).await?;
        }
        failed(job, letter, refused.detail());
        rest = behind;
    }
    Ok(())
}

async fn publish(
    app: &SharedApp,
    by: &Requester,
    job: &mut Job,
    topic: &TopicKey,
    letters: &[&Arc<Event>],
) -> Result<(), Refusal> {
    let events = letters.iter().map(|letter| original(letter)).collect();
    let request = Request::PublishBatch(PublishBatch { topic: topic.clone(), events });
    match app.request(by.clone(), request).await? {
        Reply::PublishedBatch { duplicates, .. } => {
            job.doc.duplicates += duplicates as u64;
            job.doc.replayed += letters.len().saturating_sub(duplicates) as u64;
            Ok(())
        }
        other => Err(Refusal::unexpected(&other)),
    }
}

fn failed(job: &mut Job, letter: &Event, why: &str) {
    job.doc.failed += 1;
    if job.doc.failures.len() < FAILURES_MAX {
        job.doc.failures.push(JobFailure {
            partition: letter.stream.partition,
            offset: letter.offset,
            detail: why.chars().take(FAILURE_CHARS_MAX).collect(),
        });
    }
}
