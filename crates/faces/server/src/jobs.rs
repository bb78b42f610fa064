//! Work over many dead letters, which the server does by itself: a closed tab must not lose it, and neither does a
//! restart. A job is a row of the space `kv`, written after every slice of letters; its slices may be done twice after
//! a crash, which the ids of replayed events make harmless.

mod running;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use millrace_model::{Actor, Event, Headers, Namespace, Offset, Op, Partition, Requester, Space, TopicKey};
use millrace_store::{KeyRange, ReadLimit, Store, StoreError, each_row};
use millrace_wire::ErrorCode;
use millrace_wire::http::{JobDoc, JobFilter};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::app::{App, SharedApp};
use crate::observe::to_its_end;
use crate::refusal::Refusal;

/// Jobs at a time, of one namespace and of all of them.
const RUNNING_MAX: usize = 4;
const RUNNING_ALL_MAX: usize = 32;
/// Jobs that are kept: one more takes the place of the oldest that has ended.
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
    /// Somebody has cancelled it. Stored before the answer, so that it does not go on after a restart.
    #[serde(default)]
    cancelled: bool,
}

/// The agent that began the job. Its tokens are asked before every slice, so that rights that were taken away end the job.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Owner {
    agent: Actor,
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
    control: Arc<Control>,
}

/// The state that a running job shares with whoever cancels it.
#[derive(Debug, Default)]
struct Control {
    cancelled: AtomicBool,
    /// Held while the row is made and written: two writers of one row must not overtake each other.
    writing: tokio::sync::Mutex<()>,
}

impl Control {
    fn of(job: &Job) -> Arc<Control> {
        Arc::new(Control { cancelled: AtomicBool::new(job.cancelled), ..Control::default() })
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }
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

    /// Marks a job that runs as cancelled: it ends after the slice under way. Returns `None` if it has ended.
    fn mark_cancelled(&self, id: u64) -> Option<(Job, Arc<Control>)> {
        let jobs = self.by_id.lock();
        let entry = jobs.get(&id).filter(|entry| entry.job.doc.is_running())?;
        entry.control.cancelled.store(true, Relaxed);
        Some((entry.job.clone(), entry.control.clone()))
    }

    fn running(&self, id: u64) -> Option<Job> {
        let jobs = self.by_id.lock();
        jobs.get(&id).map(|entry| entry.job.clone()).filter(|job| job.doc.is_running())
    }

    fn set(&self, id: u64, job: &Job) {
        if let Some(entry) = self.by_id.lock().get_mut(&id) {
            entry.job = job.clone();
        }
    }

    /// Takes a place for one more job.
    fn admit(&self, mut job: Job, now: u64) -> Result<Admitted, Refusal> {
        let mut jobs = self.by_id.lock();
        let running = || jobs.values().filter(|entry| entry.job.doc.is_running());
        let here = running().filter(|entry| entry.job.namespace == job.namespace).count();
        if here >= RUNNING_MAX {
            let detail = format!(
                "{here} jobs of this namespace are running, at most {RUNNING_MAX} may: wait for one, or cancel it"
            );
            return Err(Refusal::new(ErrorCode::LimitReached, detail));
        }
        let everywhere = running().count();
        if everywhere >= RUNNING_ALL_MAX {
            let detail = format!(
                "{everywhere} jobs of all namespaces are running, at most {RUNNING_ALL_MAX} may: wait for one"
            );
            return Err(Refusal::new(ErrorCode::LimitReached, detail));
        }
        let mut forgotten = Vec::new();
        while jobs.len() >= KEPT_MAX {
            let ended = jobs.iter().find(|(_, entry)| !entry.job.doc.is_running()).map(|(id, _)| *id);
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
        let control = Control::of(&job);
        jobs.insert(id, Entry { job: job.clone(), control: control.clone() });
        Ok(Admitted { id, job, control, forgotten })
    }
}

/// A job that has a place, and the ids of those that are forgotten for it.
struct Admitted {
    id: u64,
    job: Job,
    control: Arc<Control>,
    forgotten: Vec<u64>,
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

/// Begins a job: when this returns, the job is durable and runs, also if the caller has gone meanwhile: a job
/// that has its place and does not run would keep the place.
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
        by: by.principal().map(|who| Owner { agent: who.agent.clone() }),
        places: app.read(move |store| places(store, &letters)).await?,
        cancelled: false,
        doc,
    };
    let now = app.broker.clock().now().wall.0;
    let app = app.clone();
    to_its_end(async move {
        let Admitted { id, job, control, forgotten } = app.jobs.admit(job, now)?;
        let turn = control.writing.lock().await;
        let mut ops = vec![put(id, &job)];
        ops.extend(forgotten.into_iter().map(|id| Op::Delete { space: Space::Kv, key: key(id) }));
        if let Err(error) = app.broker.row_writer(PREFIX).write(ops).await {
            app.jobs.by_id.lock().remove(&id);
            return Err(Refusal::new(ErrorCode::StorageFailed, error.to_string()));
        }
        drop(turn);
        acted(&app, "job_begun", id, &job);
        let doc = job.doc.clone();
        running::spawn(app, id, job, control);
        Ok(doc)
    })
    .await
}

/// Cancels a job: when this returns, it does not go on after a restart either. A job that has ended stays as it is.
pub(crate) async fn cancel(app: &SharedApp, id: u64) -> Result<(), Refusal> {
    let app = app.clone();
    to_its_end(async move {
        let Some((marked, control)) = app.jobs.mark_cancelled(id) else { return Ok(()) };
        let _turn = control.writing.lock().await;
        // The job may have ended, and written so, while this waited.
        if let Some(job) = app.jobs.running(id) {
            let job = Job { cancelled: true, ..job };
            let written = app.broker.row_writer(PREFIX).write(vec![put(id, &job)]).await;
            written.map_err(|error| Refusal::new(ErrorCode::StorageFailed, error.to_string()))?;
        }
        acted(&app, "job_cancelled", id, &marked);
        Ok(())
    })
    .await
}

fn acted(app: &App, kind: &str, id: u64, job: &Job) {
    if let Ok(namespace) = Namespace::new(&job.namespace) {
        app.acted(kind, &namespace, &id.to_string());
    }
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
        let control = Control::of(&job);
        app.jobs.by_id.lock().insert(id, Entry { job: job.clone(), control: control.clone() });
        if job.doc.is_running() {
            tracing::info!(job = id, "a job goes on");
            running::spawn(app.clone(), id, job, control);
        }
    }
}
