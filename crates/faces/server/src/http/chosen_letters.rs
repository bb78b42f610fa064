//! Dead letters one by one: why there are some (`summary`), and replaying, editing or deleting those that are named.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_admin::{Admin, AdminError, LetterQuery};
use millrace_bus::{BusError, PublishBatch, Reply, Request};
use millrace_model::{
    Event, EventBody, EventId, Headers, JsonText, NewEvent, Offset, Partition, Requester, TopicKey, TopicName,
};
use millrace_store::{FailureCause, ReadLimit, Store, StoreError};
use millrace_wire::ErrorCode;
use millrace_wire::http::{
    ChosenLetters, ChosenReplayed, EditedLetter, LetterReason, LetterSummary, LettersDeleted,
};
use sha2::{Digest, Sha256};

use crate::access::Caller;
use crate::app::SharedApp;
use crate::body::read_text;
use crate::http::dead_letters::{has_payload, original, pair};
use crate::http::event_filter::EventFilter;
use crate::http::event_search::{Order, Search, SearchStart};
use crate::http::topic_access::check_topic;
use crate::http::{damaged_name, document, withheld};
use crate::params::AtTopic;
use crate::refusal::Refusal;
use crate::to_wire;

/// Different reasons that one summary names, and the characters of each.
const REASONS_MAX: usize = 200;
const REASON_CHARS_MAX: usize = 300;
/// Letters of durable handlers that one summary looks at.
const HANDLER_LETTERS_MAX: usize = 2_000;
const ONE: ReadLimit = ReadLimit { events_max: 1, bytes_max: 1 };
/// The header of an event that was changed before it was published again.
const EDITED: &str = "x-replayed-edited";

type ReasonKey = (&'static str, String, String);

/// Reasons with their counts, bounded.
#[derive(Default)]
struct Reasons {
    by_key: BTreeMap<ReasonKey, LetterReason>,
    left_out: bool,
}

impl Reasons {
    fn count(&mut self, kind: &'static str, who: &str, reason: &str, ts: u64, at: (u32, u64)) {
        let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
        let key = (kind, who.to_owned(), reason.clone());
        if self.by_key.len() >= REASONS_MAX && !self.by_key.contains_key(&key) {
            self.left_out = true;
            return;
        }
        let new = || LetterReason {
            kind: kind.to_owned(),
            group: who.to_owned(),
            reason,
            count: 0,
            first_ts: ts,
            last_ts: ts,
            sample: at,
        };
        let of = self.by_key.entry(key).or_insert_with(new);
        of.count += 1;
        of.first_ts = of.first_ts.min(ts);
        if of.last_ts <= ts {
            (of.last_ts, of.sample) = (ts, at);
        }
    }
}

pub(crate) async fn summary(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
) -> Result<Response, Refusal> {
    let (topic, dlq) = pair(&at.topic)?;
    let scan_max = app.edge.settings.scan_events_max as u64;
    let scan = at.params.number("scan", 1..=scan_max)?.unwrap_or(scan_max);
    let (by, store, source) = (caller.by(), app.store.clone(), topic.clone());
    let is_withheld = caller.is_withheld();
    let read = app.read(move |reader| {
        if let Err(error) = check_letters(reader, &by, &source, &dlq)? {
            return Ok(Err(Refusal::of(&error)));
        }
        let mut reasons = Reasons::default();
        let (scanned, mut complete) = match groups(reader, dlq, scan, &mut reasons)? {
            Ok(done) => done,
            Err(refusal) => return Ok(Err(refusal)),
        };
        complete &= handlers(&Admin::new(store), &source, &mut reasons).map_err(unreadable)?;
        complete &= !reasons.left_out;
        let mut reasons: Vec<LetterReason> = reasons.by_key.into_values().collect();
        if is_withheld {
            reasons = withheld::reasons(reasons);
        }
        reasons.sort_by_key(|reason| Reverse((reason.count, reason.last_ts)));
        Ok(Ok((scanned, complete, reasons)))
    });
    let (scanned, complete, reasons) = read.await??;
    let topic = to_wire::topic_name(&topic).map_err(|error| damaged_name(&error))?;
    Ok(document(StatusCode::OK, &LetterSummary { topic, scanned, complete, reasons, withheld: is_withheld }))
}

/// Counts letters of groups, the newest first. Returns how many were looked at and whether that was all.
fn groups(
    store: &dyn Store,
    dlq: TopicKey,
    scan_max: u64,
    reasons: &mut Reasons,
) -> Result<Result<(u64, bool), Refusal>, StoreError> {
    let search = Search {
        topic: dlq,
        order: Order::Descending,
        partition: None,
        filter: EventFilter::default(),
        events_max: 256,
        bytes_max: 4 << 20,
        scan_max,
    };
    let (mut start, mut scanned) = (SearchStart::End, 0);
    loop {
        let left = Search { scan_max: scan_max - scanned, ..search.clone() };
        let found = match left.run(store, &start)? {
            Ok(found) => found,
            Err(error) => return Ok(Err(error.into())),
        };
        for letter in &found.events {
            let header = |name| letter.body.headers.as_ref().and_then(|headers: &Headers| headers.get(name));
            let (who, why) = (header("x-dlq-group"), header("x-dlq-reason"));
            let at = (letter.stream.partition.0, letter.offset.0);
            reasons.count("group", &who.unwrap_or_default(), &why.unwrap_or_default(), letter.ts.0, at);
        }
        scanned += found.scanned;
        if !found.more || found.scanned == 0 || scanned >= scan_max {
            return Ok(Ok((scanned, !found.more)));
        }
        start = SearchStart::Cursor(found.cursor);
    }
}

/// Counts letters of durable handlers about this topic. Returns whether that was all.
fn handlers(admin: &Admin, topic: &TopicKey, reasons: &mut Reasons) -> Result<bool, AdminError> {
    let Ok(namespace) = millrace_model::Namespace::new(topic.namespace()) else { return Ok(true) };
    let mut left = HANDLER_LETTERS_MAX;
    for of in admin.letters_by_handler(&namespace)?.iter().filter(|of| of.event_type == topic.topic()) {
        let query = LetterQuery {
            handler: &of.handler_id,
            after: None,
            letters_max: left.max(1),
            bytes_max: 8 << 20,
        };
        let page = admin.letters_of(&namespace, &query, &mut |named| Ok(named == topic.topic()))?;
        for letter in &page.letters {
            let at = (letter.partition, letter.offset.0);
            reasons.count("handler", &of.handler_id, &letter.error, letter.failed_at.0, at);
        }
        left = left.saturating_sub(page.letters.len());
        if page.after.is_some() || left == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn unreadable(error: AdminError) -> StoreError {
    match error {
        AdminError::Store(error) => error,
        other => StoreError::Unreadable(FailureCause::of(other)),
    }
}

/// Whether `by` may read the letters: by the lists of their topic, or of the source while there are no letters yet.
fn check_letters(
    store: &dyn Store,
    by: &Requester,
    topic: &TopicKey,
    dlq: &TopicKey,
) -> Result<Result<(), BusError>, StoreError> {
    match check_topic(store, by, dlq, Partition(0))? {
        Err(BusError::UnknownTopic(_)) => check_topic(store, by, topic, Partition(0)),
        checked => Ok(checked),
    }
}

/// A letter as it was found, or the place where it is not.
type FoundLetter = Result<Arc<Event>, (u32, u64)>;

async fn fetch(
    app: &SharedApp,
    caller: &Caller,
    (topic, dlq): (&TopicKey, &TopicKey),
    chosen: &ChosenLetters,
) -> Result<Vec<FoundLetter>, Refusal> {
    let (by, topic, dlq) = (caller.by(), topic.clone(), dlq.clone());
    let places: Vec<_> = chosen.places().collect();
    let read = app.read(move |store| {
        if let Err(error) = check_letters(store, &by, &topic, &dlq)? {
            return Ok(Err(Refusal::of(&error)));
        }
        let mut found = Vec::new();
        for (partition, offset) in places {
            let page = store.read(&dlq.stream(partition), offset, ONE)?;
            let letter = page.events.into_iter().find(|event| event.offset == offset);
            found.push(letter.ok_or((partition.0, offset.0)));
        }
        Ok(Ok(found))
    });
    read.await?
}

/// Publishes the named letters again, those that are edited with their changes: all of them, or none.
pub(crate) async fn replay(
    app: &SharedApp,
    caller: &Caller,
    at: &AtTopic,
    chosen: &ChosenLetters,
) -> Result<Response, Refusal> {
    let (topic, dlq) = pair(&at.topic)?;
    let found = fetch(app, caller, (&topic, &dlq), chosen).await?;
    let edits = chosen.letters.iter().map(|_| None).chain(chosen.edited.iter().map(Some));
    let (mut events, mut missing) = (Vec::new(), Vec::new());
    for (letter, edit) in found.into_iter().zip(edits) {
        match (letter, edit) {
            (Ok(letter), Some(edit)) if edit.payload.is_some() || has_payload(&letter) => {
                events.push(edited(&letter, edit)?);
            }
            (Ok(letter), None) if has_payload(&letter) => events.push(original(&letter)),
            (Ok(letter), _) => missing.push((letter.stream.partition.0, letter.offset.0)),
            (Err(place), _) => missing.push(place),
        }
    }
    let (mut published, mut duplicates) = (Vec::new(), 0);
    if !events.is_empty() {
        caller.charge_rest(events.len())?;
        let request = Request::PublishBatch(PublishBatch { topic: topic.clone(), events });
        match app.request(caller.by(), request).await? {
            Reply::PublishedBatch { offsets, duplicates: before, .. } => {
                published = offsets.iter().map(|(partition, offset)| (partition.0, offset.0)).collect();
                duplicates = before;
            }
            other => return Err(Refusal::unexpected(&other)),
        }
    }
    let doc = ChosenReplayed {
        topic: to_wire::topic_name(&topic).map_err(|error| damaged_name(&error))?,
        dlq: to_wire::topic_name(&dlq).map_err(|error| damaged_name(&error))?,
        replayed: (published.len() - duplicates.min(published.len())) as u64,
        duplicates: duplicates as u64,
        published,
        missing,
    };
    Ok(document(StatusCode::OK, &doc))
}

/// The letter's event with the changes, and a header that tells it from the original.
fn edited(letter: &Event, edit: &EditedLetter) -> Result<NewEvent, Refusal> {
    let bad = |detail: String| Refusal::new(ErrorCode::BadFrame, detail);
    let plain = original(letter);
    let mut body = EventBody::clone(&plain.body);
    if let Some(payload) = &edit.payload {
        body.payload = JsonText::parse(payload.get())
            .map_err(|error| bad(format!("the payload is refused: {error}")))?;
    }
    if let Some(key) = &edit.key {
        body.key = key.as_deref().map(Into::into);
    }
    let mut headers = body.headers.as_ref().map(Headers::to_map).unwrap_or_default();
    if let Some(own) = &edit.headers {
        // Headers that say where the event comes from stay, whatever the editor writes.
        headers.retain(|name, _| name.starts_with("x-replayed-"));
        let theirs =
            own.iter().filter(|(name, _)| !name.starts_with("x-replayed-") && !name.starts_with("x-dlq-"));
        headers.extend(theirs.map(|(name, value)| (name.clone(), value.clone())));
    }
    headers.insert(EDITED.to_owned(), "true".to_owned());
    body.headers = Some(Headers::from_map(&headers));
    // The same edit twice is stored once; another edit of the letter is another event.
    let digest = edit_digest(&body);
    let place = format!("{}:{}", letter.stream.partition, letter.offset);
    let id = EventId::parse(&format!("replay:{place}:edited:{}", digest.get(..32).unwrap_or(&digest)));
    Ok(NewEvent { id: id.ok(), body: Arc::new(body) })
}

/// Tells two different edits apart. Each part goes in with its length, and an absent key is not an empty one: otherwise the
/// end of the payload could be taken for the beginning of the key.
fn edit_digest(body: &EventBody) -> String {
    let headers = body.headers.as_ref().map(|headers| headers.json().bytes().clone());
    let key = body.key.as_deref().map(str::as_bytes);
    let mut digest = Sha256::new();
    for part in [Some(body.payload.bytes().as_ref()), key, headers.as_deref()] {
        digest.update([u8::from(part.is_some())]);
        let part: &[u8] = part.unwrap_or_default();
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    format!("{:x}", digest.finalize())
}

/// Removes the named letters from their topic.
pub(crate) async fn delete(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
    body: Body,
) -> Result<Response, Refusal> {
    let body = read_text(&app.edge, body, app.edge.settings.frame_bytes_max).await?;
    let Some(chosen) = ChosenLetters::parse(&body.text)?.filter(|chosen| chosen.edited.is_empty()) else {
        let detail = "name the letters to delete: {\"letters\":[[partition, offset], ...]}";
        return Err(Refusal::new(ErrorCode::BadFrame, detail));
    };
    let (topic, dlq) = pair(&at.topic)?;
    let found = fetch(&app, &caller, (&topic, &dlq), &chosen).await?;
    let mut by_partition: BTreeMap<Partition, Vec<Offset>> = BTreeMap::new();
    let mut missing = Vec::new();
    for letter in found {
        match letter {
            Ok(letter) => by_partition.entry(letter.stream.partition).or_default().push(letter.offset),
            Err(place) => missing.push(place),
        }
    }
    let mut deleted = 0;
    for (partition, mut offsets) in by_partition {
        offsets.sort_unstable();
        offsets.dedup();
        deleted += offsets.len() as u64;
        let request = Request::RemoveLetters { topic: dlq.clone(), partition, offsets };
        match app.request(caller.by(), request).await? {
            Reply::LettersRemoved { .. } => {}
            other => return Err(Refusal::unexpected(&other)),
        }
    }
    let name = |key: &TopicKey| -> Result<TopicName, Refusal> {
        to_wire::topic_name(key).map_err(|error| damaged_name(&error))
    };
    Ok(document(StatusCode::OK, &LettersDeleted { topic: name(&topic)?, dlq: name(&dlq)?, deleted, missing }))
}
