//! Work over many dead letters, which the server does by itself: a closed tab must not lose it, and neither does a
//! restart. A job is a row of the space `kv`, written after every slice of letters; its slices may be done twice after
//! a crash, which the ids of replayed events make harmless.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use millrace_bus::{PublishBatch, Reply, Request};
use millrace_model::{
    Actor, Event, Headers, Namespace, Offset, Op, Partition, Principal, Requester, Space, TopicKey,
};
use millrace_store::{KeyRange, ReadLimit, Store, StoreError, each_row};
use millrace_wire::ErrorCode;
use millrace_wire::http::{JobDoc, JobFilter, JobKind};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::app::{App, SharedApp};
use crate::http::dead_letters::{has_payload, original};
use crate::refusal::Refusal;

/// Jobs at a time, and jobs that are kept: one more takes the place of the oldest that has ended.
const RUNNING_MAX: usize = 4;
const KEPT_MAX: usize = 100;
/// Letters of one slice, and their bytes.
const SLICE: ReadLimit = ReadLimit { events_max: 100, bytes_max: 4 << 20 };
const PREFIX: &str = "jobs/";

/// A job as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) doc: JobDoc,
    pub(crate) namespace: String,
    /// The topic whose letters these are, as a key.
    topic: String,
    by: Option<Owner>,
    /// The next letter of each partition, and the first that is not the job's: letters that arrive later, such as those of
    /// replayed events that fail again, are left alone.
    places: Vec<(u32, u64, u64)>,
}

/// The agent that began the job: access lists are checked against it, also after a restart.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Owner {
    agent: Actor,
    roles: Vec<Actor>,
    namespaces: Option<Vec<String>>,
}

impl Owner {
    fn of(by: &Requester) -> Option<Owner> {
        let who = by.principal()?;
        let names = |names: &Arc<[Namespace]>| names.iter().map(ToString::to_string).collect();
        let namespaces = who.namespaces.as_ref().map(names);
        Some(Owner { agent: who.agent.clone(), roles: who.roles.clone(), namespaces })
    }

    fn requester(&self) -> Requester {
        let namespaces = self.namespaces.as_ref();
        let namespaces = namespaces.map(|names| names.iter().flat_map(|name| Namespace::new(name)).collect());
        Requester::Agent(Arc::new(Principal {
            agent: self.agent.clone(),
            roles: self.roles.clone(),
            namespaces,
        }))
    }
}

/// The jobs of this server.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    by_id: Mutex<BTreeMap<u64, Entry>>,
    last: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    job: Job,
    cancelled: Arc<AtomicBool>,
}

/// How a job ends.
enum End {
    Done,
    Cancelled,
    /// The server stops: the job goes on when it is back.
    Stopping,
    Failed(String),
}

impl Jobs {
    pub(crate) fn list(&self, namespace: &str) -> Vec<JobDoc> {
        let jobs = self.by_id.lock();
        let here = jobs.values().rev().filter(|entry| entry.job.namespace == namespace);
        here.map(|entry| entry.job.doc.clone()).collect()
    }

    pub(crate) fn get(&self, namespace: &str, id: u64) -> Option<JobDoc> {
        let jobs = self.by_id.lock();
        jobs.get(&id).filter(|entry| entry.job.namespace == namespace).map(|entry| entry.job.doc.clone())
    }

    /// Asks a job to end after the slice under way.
    pub(crate) fn cancel(&self, id: u64) {
        if let Some(entry) = self.by_id.lock().get(&id) {
            entry.cancelled.store(true, Relaxed);
        }
    }

    fn set(&self, id: u64, job: &Job) {
        if let Some(entry) = self.by_id.lock().get_mut(&id) {
            entry.job = job.clone();
        }
    }

    /// Takes a place for one more job. Returns its id and the ids of those that are forgotten for it.
    fn admit(&self, mut job: Job, now: u64) -> Result<(u64, Job, Arc<AtomicBool>, Vec<u64>), Refusal> {
        let mut jobs = self.by_id.lock();
        let running = jobs.values().filter(|entry| entry.job.doc.state == "running").count();
        if running >= RUNNING_MAX {
            let detail =
                format!("{running} jobs are running, at most {RUNNING_MAX} may: wait for one, or cancel it");
            return Err(Refusal::new(ErrorCode::LimitReached, detail));
        }
        let mut forgotten = Vec::new();
        while jobs.len() >= KEPT_MAX {
            let ended = jobs.iter().find(|(_, entry)| entry.job.doc.state != "running").map(|(id, _)| *id);
            let Some(oldest) = ended else { break };
            jobs.remove(&oldest);
            forgotten.push(oldest);
        }
        let id = self
            .last
            .fetch_max(now, Relaxed)
            .max(now)
            .max(jobs.keys().next_back().map_or(0, |last| last + 1));
        job.doc.job = id.to_string();
        let cancelled = Arc::new(AtomicBool::new(false));
        jobs.insert(id, Entry { job: job.clone(), cancelled: cancelled.clone() });
        Ok((id, job, cancelled, forgotten))
    }
}

fn key(id: u64) -> String {
    format!("{PREFIX}{id:016x}")
}

/// Letters that match the filter.
pub(crate) fn matches(filter: &JobFilter, letter: &Event) -> bool {
    let header = |name| letter.body.headers.as_ref().and_then(|headers: &Headers| headers.get(name));
    filter.from.is_none_or(|from| letter.ts.0 >= from)
        && filter.to.is_none_or(|to| letter.ts.0 < to)
        && filter.group.as_ref().is_none_or(|group| header("x-dlq-group").as_ref() == Some(group))
        && filter.reason.as_ref().is_none_or(|reason| header("x-dlq-reason").as_ref() == Some(reason))
}

/// Counts the letters that match, at most `scan_max` of those there are.
pub(crate) fn count(
    store: &dyn Store,
    dlq: &TopicKey,
    filter: &JobFilter,
    scan_max: u64,
) -> Result<(u64, bool), StoreError> {
    let (mut total, mut scanned) = (0, 0);
    for (partition, mut next, end) in places(store, dlq)? {
        while next < end {
            if scanned >= scan_max {
                return Ok((total, false));
            }
            let page = store.read(&dlq.stream(Partition(partition)), Offset(next), SLICE)?;
            if page.through.0 < next {
                break;
            }
            scanned += page.events.len().max(1) as u64;
            let wanted = page.events.iter().filter(|letter| letter.offset.0 < end && matches(filter, letter));
            total += wanted.count() as u64;
            next = page.through.0 + 1;
        }
    }
    Ok((total, true))
}

/// The first letter of each partition, and the first that is not there yet.
fn places(store: &dyn Store, dlq: &TopicKey) -> Result<Vec<(u32, u64, u64)>, StoreError> {
    let streams = store.streams()?.into_iter().filter(|bounds| bounds.stream.topic == *dlq);
    let mut places: Vec<_> =
        streams.map(|bounds| (bounds.stream.partition.0, bounds.start.0.max(1), bounds.next.0)).collect();
    places.sort_unstable();
    Ok(places)
}

/// Begins a job: when this returns, the job is durable and runs.
pub(crate) async fn begin(
    app: &SharedApp,
    by: &Requester,
    (topic, dlq): (&TopicKey, &TopicKey),
    doc: JobDoc,
) -> Result<JobDoc, Refusal> {
    let letters = dlq.clone();
    let job = Job {
        namespace: topic.namespace().to_owned(),
        topic: topic.as_str().to_owned(),
        by: Owner::of(by),
        places: app.read(move |store| places(store, &letters)).await?,
        doc,
    };
    let now = app.broker.clock().now().wall.0;
    let (id, job, cancelled, forgotten) = app.jobs.admit(job, now)?;
    let mut ops = vec![put(id, &job)];
    ops.extend(forgotten.into_iter().map(|id| Op::Delete { space: Space::Kv, key: key(id) }));
    if let Err(error) = app.broker.row_writer(PREFIX).write(ops).await {
        app.jobs.by_id.lock().remove(&id);
        return Err(Refusal::new(ErrorCode::StorageFailed, error.to_string()));
    }
    let doc = job.doc.clone();
    tokio::spawn(run(app.clone(), id, job, cancelled));
    Ok(doc)
}

fn put(id: u64, job: &Job) -> Op {
    // A job is made of plain values, which always have a JSON form.
    let value = serde_json::to_vec(job).unwrap_or_default();
    Op::Put { space: Space::Kv, key: key(id), value: value.into() }
}

/// Reads the jobs of earlier lives, and goes on with those that had not ended.
pub(crate) async fn resume(app: &SharedApp) {
    let read = app.read(|store| {
        let mut found = Vec::new();
        each_row(store, Space::Kv, KeyRange::prefix(PREFIX), |row| found.push(row))?;
        Ok::<_, StoreError>(found)
    });
    let rows = match read.await {
        Ok(rows) => rows,
        Err(refusal) => return tracing::error!(?refusal, "jobs could not be read: none goes on"),
    };
    for row in rows {
        let id = row.key.strip_prefix(PREFIX).and_then(|id| u64::from_str_radix(id, 16).ok());
        let job = serde_json::from_slice::<Job>(&row.value);
        let (Some(id), Ok(job)) = (id, job) else {
            tracing::error!(key = row.key, "the row of a job cannot be read: it does not go on");
            continue;
        };
        let cancelled = Arc::new(AtomicBool::new(false));
        app.jobs.by_id.lock().insert(id, Entry { job: job.clone(), cancelled: cancelled.clone() });
        if job.doc.state == "running" {
            tracing::info!(job = id, "a job goes on");
            tokio::spawn(run(app.clone(), id, job, cancelled));
        }
    }
}

async fn run(app: SharedApp, id: u64, mut job: Job, cancelled: Arc<AtomicBool>) {
    let end = work(&app, id, &mut job, &cancelled).await;
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
    if let Err(error) = app.broker.row_writer(PREFIX).write(vec![put(id, &job)]).await {
        tracing::error!(job = id, %error, "the end of a job could not be written: its last slice is done again");
    }
}

async fn work(app: &SharedApp, id: u64, job: &mut Job, cancelled: &AtomicBool) -> End {
    let Ok(topic) = TopicKey::parse(&job.topic) else {
        return End::Failed("its topic has no name".to_owned());
    };
    let Some(dlq) = topic.dead_letters() else { return End::Failed("its topic has no letters".to_owned()) };
    let by = job.by.as_ref().map_or(Requester::Trusted, Owner::requester);
    for at in 0..job.places.len() {
        while let Some((partition, next, end)) =
            job.places.get(at).copied().filter(|(_, next, end)| next < end)
        {
            if app.broker.health().stopping() || app.broker.health().storage_failed().is_some() {
                return End::Stopping;
            }
            if cancelled.load(Relaxed) {
                return End::Cancelled;
            }
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
            if let Err(error) = app.broker.row_writer(PREFIX).write(vec![put(id, job)]).await {
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

/// Deals with the next letters of a partition. Returns the offset to go on at.
async fn slice(
    app: &App,
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
        JobKind::Replay => {
            let whole: Vec<_> = letters.iter().filter(|letter| has_payload(letter)).collect();
            job.doc.failed += (letters.len() - whole.len()) as u64;
            if !whole.is_empty() {
                let events = whole.iter().map(|letter| original(letter)).collect();
                let request = Request::PublishBatch(PublishBatch { topic: topic.clone(), events });
                match app.request(by.clone(), request).await? {
                    Reply::PublishedBatch { duplicates, .. } => {
                        job.doc.duplicates += duplicates as u64;
                        job.doc.replayed += whole.len().saturating_sub(duplicates) as u64;
                    }
                    other => return Err(Refusal::unexpected(&other)),
                }
            }
        }
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
