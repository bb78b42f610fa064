//! Durable handlers as the server sees them. Sessions in other processes run them; their pending events and dead
//! letters are in the store, which those processes share with the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::Response;
use millrace_admin::{Admin, AdminError, HandlerView, LetterQuery};
use millrace_model::{DeadLetterRow, Namespace, Requester, Timestamp, TopicKey, TopicName};
use millrace_store::{FailureCause, ReadLimit, Store, StoreError};
use millrace_wire::ErrorCode;
use millrace_wire::http::{HandlerLetter, HandlerLetters, HandlerLettersPage};
use parking_lot::Mutex;

use crate::access::Caller;
use crate::app::App;
use crate::edge::Edge;
use crate::http::actions::not_found;
use crate::http::page::{self, HeldText};
use crate::http::topic_access::may_read;
use crate::http::{json, withheld};
use crate::observe::ContentRead;
use crate::params::Params;
use crate::refusal::Refusal;

const LETTERS_DEFAULT: u64 = 100;
/// How old the figures of handlers in `/metrics` may be: several scrapers share one read of the store.
const FIGURES_MS: u64 = 5000;

/// The figures of handlers for `/metrics`, as of the last read of the store. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(Arc<Mutex<FiguresCache>>);

#[derive(Debug, Default)]
struct FiguresCache {
    at: Option<Instant>,
    found: Arc<Vec<HandlerFigures>>,
    /// A read is in progress. Others use the known figures meanwhile, so that a slow read is not made twice at once.
    busy: bool,
}

#[derive(Debug)]
pub(crate) struct HandlerFigures {
    pub(crate) namespace: Namespace,
    pub(crate) view: HandlerView,
}

impl Figures {
    /// Returns the known figures as `Err` if they are fresh or being read, otherwise the right to read them.
    fn begin(&self) -> Result<ReadTurn, Arc<Vec<HandlerFigures>>> {
        let mut cache = self.0.lock();
        let fresh = cache.at.is_some_and(|at| at.elapsed() < Duration::from_millis(FIGURES_MS));
        if fresh || cache.busy {
            return Err(cache.found.clone());
        }
        cache.busy = true;
        Ok(ReadTurn(self.clone()))
    }
}

/// The right to read the store. When it is dropped, the next read may begin.
struct ReadTurn(Figures);

impl ReadTurn {
    fn done(self, found: Vec<HandlerFigures>) {
        let mut cache = self.0.0.lock();
        (cache.at, cache.found) = (Some(Instant::now()), Arc::new(found));
    }
}

impl Drop for ReadTurn {
    fn drop(&mut self) {
        self.0.0.lock().busy = false;
    }
}

impl App {
    /// Returns the handlers of all namespaces, at most a few seconds old; if reading fails, those of the last read.
    pub(crate) async fn handler_figures(&self, now: Timestamp) -> Arc<Vec<HandlerFigures>> {
        let turn = match self.handlers.begin() {
            Ok(turn) => turn,
            Err(known) => return known,
        };
        let store = self.store.clone();
        // The read finishes, and its result is kept, even if the caller gives up waiting for it.
        let read = self.read(move |_| {
            let found = read_figures(&Admin::new(store), now).map_err(unreadable);
            let found = found
                .inspect_err(|error| tracing::warn!(%error, "/metrics cannot tell how handlers stand"))?;
            turn.done(found);
            Ok(())
        });
        // A failed read has been logged; the figures known before are still the best answer.
        let _ = read.await;
        self.handlers.0.lock().found.clone()
    }
}

fn read_figures(admin: &Admin, now: Timestamp) -> Result<Vec<HandlerFigures>, AdminError> {
    let mut found = Vec::new();
    for namespace in admin.namespace_names()? {
        let views = admin.handlers(&namespace, now)?;
        found.extend(views.into_iter().map(|view| HandlerFigures { namespace: namespace.clone(), view }));
    }
    Ok(found)
}

/// Returns the handlers of a namespace that gave up on events of topics that the caller may read.
pub(crate) async fn letters(
    edge: &Edge,
    store: &Arc<dyn Store>,
    caller: &Caller,
    params: &Params,
) -> Result<Vec<HandlerLetters>, Refusal> {
    let (namespace, by, store) = (params.namespace()?, caller.by_unless_admin(), store.clone());
    let read = edge.read(store.clone(), move |_| {
        let found = Admin::new(store.clone()).letters_by_handler(&namespace).map_err(unreadable)?;
        let mut readers = Readers::new(&*store, &namespace, by);
        let mut shown = Vec::new();
        for of in found {
            if let Ok(topic) = TopicName::new(&of.event_type)
                && readers.may_read(&of.event_type)?
            {
                let (oldest_ts, newest_ts) = (of.oldest, of.newest);
                shown.push(HandlerLetters {
                    handler: of.handler_id,
                    topic,
                    count: of.count,
                    oldest_ts,
                    newest_ts,
                });
            }
        }
        Ok(shown)
    });
    read.await
}

/// Returns a page of the dead letters of one handler.
pub(crate) async fn letters_of(
    edge: &Edge,
    store: &Arc<dyn Store>,
    caller: &Caller,
    params: &Params,
    handler: &str,
) -> Result<Response, Refusal> {
    let (namespace, by) = (params.namespace()?, caller.by());
    let letters_max = params.number("limit", 1..=edge.settings.page_events_max as u64)?;
    let limit = ReadLimit {
        events_max: letters_max.unwrap_or(LETTERS_DEFAULT) as usize,
        bytes_max: edge.settings.page_bytes_max,
    };
    let share = page::share(edge, limit).await?;
    // An administrator sees every handler, as in GET /handlers, but not what events of others say.
    let sees = caller.by_unless_admin();
    let (handler, after) = (handler.to_owned(), params.text("after").map(str::to_owned));
    let store = store.clone();
    let read = edge.read(store.clone(), move |_| {
        let mut readers = Readers::new(&*store, &namespace, by);
        let query = LetterQuery {
            handler: &handler,
            after: after.as_deref(),
            letters_max: limit.events_max,
            bytes_max: limit.bytes_max,
        };
        let mut may_see = |topic: &str| Ok(readers.may_read(topic)?);
        let admin = Admin::new(store.clone());
        let found = admin.letters_of(&namespace, &query, &mut may_see).map_err(unreadable)?;
        if found.letters.is_empty() && found.after.is_none() {
            let mut seen = Readers::new(&*store, &namespace, sees);
            let mut may_see = |topic: &str| Ok(seen.may_read(topic)?);
            if !admin.knows_handler(&namespace, &handler, &mut may_see).map_err(unreadable)? {
                return Ok(Err(handler));
            }
        }
        let letters = found.letters.into_iter().filter_map(letter).collect();
        Ok(Ok(HandlerLettersPage { handler, letters, next: found.after }))
    });
    let page = read.await?;
    let mut page = page.map_err(|handler| {
        not_found(format!("there is no handler {handler:.200} in this namespace: GET /handlers lists them"))
    })?;
    if caller.is_withheld() {
        page.letters.iter_mut().for_each(withheld::handler_letter);
    } else {
        let read = ContentRead {
            what: "letters",
            events: Some(page.letters.len() as u64),
            ..ContentRead::default()
        };
        edge.content_read(caller, &read);
    }
    let text = serde_json::to_string(&page).map_err(|error| {
        Refusal::new(ErrorCode::StorageFailed, format!("the answer has no JSON form: {error}"))
    })?;
    Ok(json(StatusCode::OK, HeldText::body(text, share)))
}

fn letter(row: DeadLetterRow) -> Option<HandlerLetter> {
    Some(HandlerLetter {
        event_id: row.event_id.to_string(),
        topic: TopicName::new(&row.event_type).ok()?,
        partition: millrace_model::Partition(row.partition),
        offset: row.offset,
        attempts: row.attempts,
        error: row.error,
        failed_ts: row.failed_at,
        key: row.key,
        payload: row.payload.and_then(|text| serde_json::value::RawValue::from_string(text).ok()),
        withheld: false,
    })
}

/// Which topics of a namespace somebody may read. Each topic is looked up once.
pub(crate) struct Readers<'a> {
    store: &'a dyn Store,
    namespace: &'a Namespace,
    by: Requester,
    known: BTreeMap<String, bool>,
}

impl<'a> Readers<'a> {
    pub(crate) fn new(store: &'a dyn Store, namespace: &'a Namespace, by: Requester) -> Readers<'a> {
        Readers { store, namespace, by, known: BTreeMap::new() }
    }

    pub(crate) fn may_read(&mut self, topic: &str) -> Result<bool, StoreError> {
        if let Some(known) = self.known.get(topic) {
            return Ok(*known);
        }
        let may = match TopicName::new(topic) {
            Ok(name) => may_read(self.store, &self.by, &TopicKey::new(self.namespace, &name))?,
            Err(_) => false,
        };
        self.known.insert(topic.to_owned(), may);
        Ok(may)
    }
}

pub(crate) fn unreadable(error: AdminError) -> StoreError {
    match error {
        AdminError::Store(error) => error,
        other => StoreError::Unreadable(FailureCause::of(other)),
    }
}
