//! Takes content away from answers to callers with the scope `inspect` and without `subscribe`, and to administrators whom
//! a topic's list does not let read: payloads, keys and header values, and texts that consumers wrote about them (reasons,
//! errors). Events lose their content here, before anything
//! is written, and every answer that had some says `"withheld": true`.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::{Event, EventBody, Headers, JsonText};
use millrace_wire::ErrorCode;
use millrace_wire::http::{
    DelayedDoc, EventStory, GroupList, GroupPage, HandlerLetter, InflightList, JobDoc, LetterReason,
    OpenClaims, Trace,
};

use crate::access::Caller;
use crate::params::Params;
use crate::refusal::Refusal;

/// Parameters that ask about what is withheld: an answer, or its absence, would tell it.
const TELLING_PARAMS: &[&str] = &["key", "header", "contains", "path", "payload_sha256"];

/// Refuses a request whose answer would tell the caller what is withheld from it.
pub(crate) fn check_params(caller: &Caller, params: &Params) -> Result<(), Refusal> {
    let telling = TELLING_PARAMS.iter().find(|name| params.text(name).is_some());
    let Some(name) = telling.filter(|_| caller.is_withheld()) else { return Ok(()) };
    let detail = format!(
        "{name} asks about payloads, keys or headers, which are withheld from agent {}: its token has the scope inspect \
         and not subscribe",
        caller.agent().unwrap_or_default()
    );
    Err(Refusal::new(ErrorCode::Forbidden, detail))
}

/// The event without its content. The names of headers stay.
pub(crate) fn event(event: &Event) -> Event {
    let names = event.body.headers.as_ref().map(Headers::to_map);
    let names =
        names.map(|map| map.into_keys().map(|name| (name, String::new())).collect::<BTreeMap<_, _>>());
    let body = EventBody {
        key: None,
        headers: names.map(|names| Headers::from_map(&names)),
        payload: JsonText::null(),
        ..EventBody::clone(&event.body)
    };
    Event { body: Arc::new(body), ..event.clone() }
}

pub(crate) fn events(all: &mut [Arc<Event>]) {
    for one in all {
        *one = Arc::new(event(one));
    }
}

/// A filter holds a key and a header value.
pub(crate) fn group_list(list: &mut GroupList) {
    for group in list.groups.iter_mut().filter(|group| group.filter.is_some()) {
        group.filter = None;
        group.withheld = true;
    }
}

pub(crate) fn group_page(page: &mut GroupPage) {
    page.withheld = page.filter.take().is_some();
}

pub(crate) fn inflight(list: &mut InflightList) {
    for one in &mut list.inflight {
        list.withheld |= one.reason.take().is_some();
    }
}

/// Takes away what the story says beside the event, which is written without its content already.
pub(crate) fn story(story: &mut EventStory) {
    story.withheld = true;
    story.claims.iter_mut().for_each(|claim| claim.error = None);
    story.groups.iter_mut().for_each(|group| group.reason = None);
    story.letters.iter_mut().for_each(|letter| letter.reason = None);
}

/// Leaves out why something has failed, and the trace that an author named: it is the value of a header.
pub(crate) fn trace(trace: &mut Trace) {
    for node in &mut trace.nodes {
        trace.withheld |= node.error.take().is_some() | node.trace_id.take().is_some();
    }
}

pub(crate) fn open_claims(list: &mut OpenClaims) {
    for claim in &mut list.claims {
        list.withheld |= claim.error.take().is_some();
    }
}

pub(crate) fn delayed(delayed: &mut DelayedDoc) {
    delayed.withheld = delayed.key.take().is_some();
}

pub(crate) fn handler_letter(letter: &mut HandlerLetter) {
    letter.error = String::new();
    letter.key = None;
    letter.payload = None;
    letter.withheld = true;
}

/// Reasons of the same group or handler become one, without its text.
pub(crate) fn reasons(all: Vec<LetterReason>) -> Vec<LetterReason> {
    let mut merged: BTreeMap<(String, String), LetterReason> = BTreeMap::new();
    for one in all {
        let key = (one.kind.clone(), one.group.clone());
        match merged.get_mut(&key) {
            None => {
                merged.insert(key, LetterReason { reason: String::new(), ..one });
            }
            Some(known) => {
                known.count += one.count;
                known.first_ts = known.first_ts.min(one.first_ts);
                if known.last_ts <= one.last_ts {
                    (known.last_ts, known.sample) = (one.last_ts, one.sample);
                }
            }
        }
    }
    merged.into_values().collect()
}

/// A job names the reason whose letters it is about, and may have failed because of one of them.
pub(crate) fn job(job: &mut JobDoc) {
    let reason = job.filter.reason.take();
    job.withheld = reason.is_some() | job.error.take().is_some() | !job.failures.is_empty();
    // A detail may quote the letter; where the letter is may be seen.
    job.failures.iter_mut().for_each(|failure| failure.detail.clear());
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_model::{EventId, Offset, Partition, Timestamp, TopicKey};

    #[test]
    fn names_of_headers_stay_and_content_goes() {
        let headers = BTreeMap::from([("x-kind".to_owned(), "canary".to_owned())]);
        let body = EventBody {
            key: Some("canary".into()),
            headers: Some(Headers::from_map(&headers)),
            ..EventBody::of(JsonText::parse("\"canary\"").unwrap())
        };
        let whole = Event {
            stream: TopicKey::parse("default/t").unwrap().stream(Partition(0)),
            offset: Offset(1),
            ts: Timestamp(2),
            id: EventId::parse("e").unwrap(),
            body: Arc::new(body),
        };
        let told = event(&whole);
        assert!(!format!("{told:?}").contains("canary"), "{told:?}");
        assert_eq!(told.body.headers.as_ref().unwrap().get("x-kind").as_deref(), Some(""));
        assert_eq!((told.offset, told.ts, told.id), (whole.offset, whole.ts, whole.id));
    }
}
