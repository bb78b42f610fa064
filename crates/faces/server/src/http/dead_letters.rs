//! Dead letters: lists the topics that have some, shows them, and publishes them again.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use millrace_bus::{PublishBatch, Reply, Request, TopicView};
use millrace_model::{
    DLQ_SUFFIX, Event, EventBody, EventId, Headers, Lineage, NewEvent, Offset, Partition, Timestamp, TopicKey,
};
use millrace_store::{ReadLimit, Store};
use millrace_wire::ErrorCode;
use millrace_wire::http::{ChosenLetters, DeadLetterTopic, DeadLetters, HandlerLetters, Replay, Replayed};

use crate::access::Caller;
use crate::app::SharedApp;
use crate::body::read_text;
use crate::edge::Edge;
use crate::http::page::{self, PageQuery, PageStart};
use crate::http::{chosen_letters, damaged_name, document, durable_handlers, topics, withheld};
use crate::params::{AtTopic, Params, topic_key};
use crate::refusal::Refusal;
use crate::to_wire;

/// Prefix of the headers that describe the dead letter and not the event.
const DLQ_HEADER_PREFIX: &str = "x-dlq-";
/// Dead letters published by one commit.
const REPLAY_SLICE: usize = 500;

/// Lists all dead-letter topics and the durable handlers that gave up on events; with `?topic=` a page of the dead
/// letters of one topic, with `?handler=` of one handler.
pub(crate) async fn list(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    if let Some(letters) = of_one(&app.edge, &app.store, &caller, &params, &headers).await? {
        app.broker.count_damaged(letters.damaged);
        return Ok(letters.response);
    }
    let first_page = params.text("after").is_none();
    let handlers = if first_page {
        durable_handlers::letters(&app.edge, &app.store, &caller, &params).await?
    } else {
        Vec::new()
    };
    let (topics, more) = topics::page(&app, &caller, &params, true).await?;
    document_of(&app.edge, &app.store, &topics, more, handlers).await
}

/// A page of dead letters, and how many damaged events were met.
pub(crate) struct LettersPage {
    pub(crate) response: Response,
    pub(crate) damaged: usize,
}

/// Returns the letters of one topic or handler, if the request names one.
pub(crate) async fn of_one(
    edge: &Edge,
    store: &Arc<dyn Store>,
    caller: &Caller,
    params: &Params,
    headers: &HeaderMap,
) -> Result<Option<LettersPage>, Refusal> {
    if let Some(topic) = params.text("topic") {
        let (_, dlq) = pair(&topic_key(params, topic)?)?;
        withheld::check_params(caller, params)?;
        let query = PageQuery::of(edge, params)?;
        let fetched = page::fetch_letters(edge, store, caller.by(), dlq.clone(), query).await?;
        let damaged = fetched.page.damaged.len();
        let fetched = fetched.for_caller(edge, caller, &dlq);
        let response = fetched.answer(&dlq, &query, page::form(headers));
        return Ok(Some(LettersPage { response, damaged }));
    }
    let Some(handler) = params.text("handler") else { return Ok(None) };
    let response = durable_handlers::letters_of(edge, store, caller, params, handler).await?;
    Ok(Some(LettersPage { response, damaged: 0 }))
}

/// The list of all topics with dead letters, and of handlers.
pub(crate) async fn document_of(
    edge: &Edge,
    store: &Arc<dyn Store>,
    topics: &[TopicView],
    more: bool,
    handlers: Vec<HandlerLetters>,
) -> Result<Response, Refusal> {
    let newest = newest_letters(edge, store).await?;
    let shown = |view| dead_letter_topic(view, &newest);
    let dead_letters = topics.iter().map(shown).collect::<Result<Vec<_>, _>>()?;
    let next = dead_letters.last().filter(|_| more).map(|last| last.dlq.clone());
    Ok(document(StatusCode::OK, &DeadLetters { dead_letters, next, handlers }))
}

/// When the newest letter of each dead-letter topic was written. The store has these times in memory, so all topics cost
/// one call.
async fn newest_letters(
    edge: &Edge,
    store: &Arc<dyn Store>,
) -> Result<BTreeMap<TopicKey, Timestamp>, Refusal> {
    let read = edge.read(store.clone(), |store| {
        let mut newest = BTreeMap::new();
        for bounds in store.streams()?.into_iter().filter(|bounds| bounds.stream.topic.is_dead_letter()) {
            let last = newest.entry(bounds.stream.topic).or_insert(bounds.last_ts);
            *last = bounds.last_ts.max(*last);
        }
        Ok(newest)
    });
    read.await
}

fn dead_letter_topic(
    view: &TopicView,
    newest: &BTreeMap<TopicKey, Timestamp>,
) -> Result<DeadLetterTopic, Refusal> {
    let (topic, dlq) = pair(&view.topic)?;
    let letters = |(start, next): (Offset, Offset)| next.0.saturating_sub(start.0.max(1));
    let count = view.partitions.iter().map(|view| letters((view.start, view.next))).sum();
    Ok(DeadLetterTopic {
        topic: to_wire::topic_name(&topic).map_err(|error| damaged_name(&error))?,
        dlq: to_wire::topic_name(&dlq).map_err(|error| damaged_name(&error))?,
        count,
        last_ts: newest.get(&view.topic).copied().filter(|_| count > 0),
        streams: to_wire::streams(view),
    })
}

/// Publishes dead letters to their topic again, and reports separately those that had been published before. Doing it
/// twice is harmless within the dedupe window: the id of the copy derives from that of the dead letter. Each dead
/// letter costs the caller what publishing it would cost.
pub(crate) async fn replay(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
    body: Body,
) -> Result<Response, Refusal> {
    let body = read_text(&app.edge, body, app.edge.settings.frame_bytes_max).await?;
    if let Some(chosen) = ChosenLetters::parse(&body.text)? {
        return chosen_letters::replay(&app, &caller, &at, &chosen).await;
    }
    let Replay { partition, offset, limit } = Replay::parse(&body.text)?;
    let (topic, dlq) = pair(&at.topic)?;
    let next = offset.unwrap_or(Offset::FIRST).max(Offset::FIRST);
    let mut progress = ReplayProgress { taken: 0, duplicates: 0, next };
    let place = ReplayScope { topic: &topic, dlq: &dlq, partition };
    let ended = place.replay(&app, &caller, limit as usize, &mut progress).await;
    let ReplayProgress { taken, duplicates, next } = progress;
    let more = ended.map_err(|refusal| match taken {
        0 if !refusal.is(ErrorCode::RateLimited) => refusal,
        _ => refusal.in_replay((taken - duplicates) as u64, duplicates as u64, next),
    })?;
    let replayed = Replayed {
        topic: to_wire::topic_name(&topic).map_err(|error| damaged_name(&error))?,
        dlq: to_wire::topic_name(&dlq).map_err(|error| damaged_name(&error))?,
        partition,
        replayed: (taken - duplicates) as u64,
        duplicates: duplicates as u64,
        next,
        more,
    };
    Ok(document(StatusCode::OK, &replayed))
}

/// The progress of a replay: dead letters taken, how many of them had been published before, and the first one not
/// taken.
struct ReplayProgress {
    taken: usize,
    duplicates: usize,
    next: Offset,
}

/// Which dead letters are replayed, and to which topic.
struct ReplayScope<'a> {
    topic: &'a TopicKey,
    dlq: &'a TopicKey,
    partition: Partition,
}

impl ReplayScope<'_> {
    /// Returns whether there are more dead letters. `done` holds the progress, also when the replay ends with a
    /// refusal.
    async fn replay(
        &self,
        app: &SharedApp,
        caller: &Caller,
        limit: usize,
        done: &mut ReplayProgress,
    ) -> Result<bool, Refusal> {
        // The gate (`access/gate.rs`) has charged for one already.
        let mut paid = 1;
        loop {
            let left = limit - done.taken;
            // At the limit, one more is read to learn whether there are more.
            let fetched = self.fetch(app, caller, done.next, REPLAY_SLICE.min(left).max(1)).await?;
            let letters = &fetched.page.events;
            if letters.is_empty() || left == 0 {
                done.next = if left == 0 { done.next } else { fetched.next };
                return Ok(!letters.is_empty());
            }
            let whole: Vec<_> = letters.iter().filter(|letter| has_payload(letter)).collect();
            if !whole.is_empty() {
                let cost = (whole.len() as u64).saturating_sub(paid);
                caller.charge_more(std::mem::take(&mut paid), cost)?;
                publish(app, caller, self.topic, &whole, done).await?;
            }
            // Only now: a dead letter that was not published must be found again by the next request.
            done.next = fetched.next;
        }
    }

    async fn fetch(
        &self,
        app: &SharedApp,
        caller: &Caller,
        from: Offset,
        events_max: usize,
    ) -> Result<page::Fetched, Refusal> {
        let limit = ReadLimit { events_max, bytes_max: app.edge.settings.page_bytes_max };
        let start = PageStart::Offset(from);
        let query = PageQuery { partition: self.partition, start, limit, payload_sha256: false };
        let fetched =
            page::fetch_letters(&app.edge, &app.store, caller.by(), self.dlq.clone(), query).await?;
        app.broker.count_damaged(fetched.page.damaged.len());
        Ok(fetched)
    }
}

/// Publishes the dead letters, and counts them in `done`. If one does not match the topic's present schema, those
/// before it are published and counted, and the refusal names it, so that a replay can go on behind it.
async fn publish(
    app: &SharedApp,
    caller: &Caller,
    topic: &TopicKey,
    letters: &[&Arc<Event>],
    done: &mut ReplayProgress,
) -> Result<(), Refusal> {
    let Err(refused) = publish_all(app, caller, topic, letters, done).await else { return Ok(()) };
    let Some(index) = refused.schema_mismatch() else { return Err(refused) };
    let (before, Some(letter)) = (&letters[..index.min(letters.len())], letters.get(index)) else {
        return Err(refused);
    };
    if !before.is_empty() {
        publish_all(app, caller, topic, before, done).await?;
        done.next = letter.offset;
    }
    Err(refused.at(letter.stream.partition, letter.offset))
}

async fn publish_all(
    app: &SharedApp,
    caller: &Caller,
    topic: &TopicKey,
    letters: &[&Arc<Event>],
    done: &mut ReplayProgress,
) -> Result<(), Refusal> {
    let events = letters.iter().map(|letter| original(letter)).collect();
    let request = Request::PublishBatch(PublishBatch { topic: topic.clone(), events });
    match app.request(caller.by(), request).await? {
        Reply::PublishedBatch { duplicates, .. } => {
            done.duplicates += duplicates;
            done.taken += letters.len();
            Ok(())
        }
        other => Err(Refusal::unexpected(&other)),
    }
}

/// Whether the dead letter holds the event's payload. Without it (the event was too large to copy) a replay would
/// publish something that was never published.
pub(crate) fn has_payload(letter: &Event) -> bool {
    letter.body.headers.as_ref().is_none_or(|headers| headers.get("x-dlq-payload").is_none())
}

/// Header of a dead letter: the id of the event.
pub(crate) const DLQ_ID_HEADER: &str = "x-dlq-id";
/// Headers of a replayed event: the id it had before, and the id of the dead letter.
pub(crate) const REPLAYED_FROM: &str = "x-replayed-from";
pub(crate) const REPLAYED_LETTER: &str = "x-replayed-letter";

/// The event as its author published it, with the dead letter as its cause.
pub(crate) fn original(letter: &Event) -> NewEvent {
    let body = &letter.body;
    let mut headers = body.headers.as_ref().map(Headers::to_map).unwrap_or_default();
    let replayed = headers.get(DLQ_ID_HEADER).cloned();
    headers.retain(|name, _| !name.starts_with(DLQ_HEADER_PREFIX));
    // The replayed event has a new id; these headers tell its consumers which event it was and which dead letter it
    // came from.
    headers.extend(replayed.map(|id| (REPLAYED_FROM.to_owned(), id)));
    headers.insert(REPLAYED_LETTER.to_owned(), letter.id.to_string());
    // If the dead letter's id leaves no room for the prefix, the new id names its partition and offset instead.
    let id = EventId::parse(&format!("replay:{}", letter.id))
        .or_else(|_| EventId::parse(&format!("replay:{}:{}", letter.stream.partition, letter.offset)));
    NewEvent {
        id: id.ok(),
        body: Arc::new(EventBody {
            key: body.key.clone(),
            headers: (!headers.is_empty()).then(|| Headers::from_map(&headers)),
            priority: body.priority,
            lineage: Lineage { causation: Some(letter.id.clone()), ..body.lineage.clone() },
            payload: body.payload.clone(),
        }),
    }
}

/// Returns a topic and its dead-letter topic, whichever of the two was named.
pub(crate) fn pair(named: &TopicKey) -> Result<(TopicKey, TopicKey), Refusal> {
    if let Some(dlq) = named.dead_letters() {
        return Ok((named.clone(), dlq));
    }
    let topic = named.as_str().strip_suffix(DLQ_SUFFIX).unwrap_or(named.as_str());
    let topic =
        TopicKey::parse(topic).map_err(|error| Refusal::new(ErrorCode::BadTopic, error.to_string()))?;
    Ok((topic, named.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_model::{JsonText, Namespace, Timestamp, TopicName};

    fn key(topic: &str) -> TopicKey {
        TopicKey::new(&Namespace::default(), &TopicName::new(topic).unwrap())
    }

    #[test]
    fn either_name_finds_the_pair() {
        assert_eq!(pair(&key("a")).unwrap(), (key("a"), key("a.DLQ")));
        assert_eq!(pair(&key("a.DLQ")).unwrap(), (key("a"), key("a.DLQ")));
    }

    #[test]
    fn a_letter_without_its_payload_is_told_apart() {
        let letter = |name: &str| {
            let headers = [(name.to_owned(), "x".to_owned())].into();
            let headers = Some(Headers::from_map(&headers));
            Event {
                stream: key("a.DLQ").stream(Partition(0)),
                offset: Offset(3),
                ts: Timestamp(9),
                id: EventId::parse("letter-3").unwrap(),
                body: Arc::new(EventBody { headers, ..EventBody::of(JsonText::null()) }),
            }
        };
        assert!(has_payload(&letter("x-dlq-reason")));
        assert!(!has_payload(&letter("x-dlq-payload")));
    }

    #[test]
    fn a_replayed_letter_is_the_original_with_its_cause() {
        let headers = [("x-dlq-reason", "boom"), ("x-dlq-id", "order-1"), ("trace", "7")]
            .map(|(name, value)| (name.into(), value.into()));
        let body = EventBody {
            headers: Some(Headers::from_map(&headers.into())),
            key: Some("k".into()),
            ..EventBody::of(JsonText::parse("{\"a\": 1}").unwrap())
        };
        let letter = Event {
            stream: key("a.DLQ").stream(Partition(0)),
            offset: Offset(3),
            ts: Timestamp(9),
            id: EventId::parse("letter-3").unwrap(),
            body: Arc::new(body),
        };
        let event = original(&letter);
        assert_eq!(event.id, Some(EventId::parse("replay:letter-3").unwrap()));
        assert_eq!(event.body.lineage.causation, Some(letter.id.clone()));
        let told = r#"{"trace":"7","x-replayed-from":"order-1","x-replayed-letter":"letter-3"}"#;
        assert_eq!(event.body.headers.as_ref().unwrap().json().as_str(), told);
        assert_eq!(event.body.payload.as_str(), "{\"a\": 1}");
    }
}
