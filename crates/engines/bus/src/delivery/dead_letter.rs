//! The contents of a dead letter, and how large it may be.
//!
//! A letter, its copy in the mirror and the row that counts its event as done are one batch. So each part has a bound,
//! and together they fit into a batch that every store must accept.

use std::sync::Arc;

use millrace_model::{
    BATCH_BYTES_MAX, Event, EventBody, Headers, JsonText, Lineage, NewEvent, TRACEPARENT, TopicKey,
};

use crate::groups::cursor::Open;

/// Most bytes of a reason that are stored, whatever the setting says: escaped in the worst way they take six times as
/// much, in the letter, in the mirror and in the row of attempts.
pub const REASON_BYTES_MAX: usize = 4 << 10;
/// A letter of up to half this size is mirrored with its payload.
const TWICE_BYTES_MAX: usize = 4 << 20;
/// Room that a letter leaves for the rest of its batch: the row of its cursor, a mirrored copy without payload (28 KiB
/// with the longest reason), the rows of topics created for it. An event that was published leaves enough room for the
/// headers of its letter; an event that a session committed may not.
const ROOM_BYTES: usize = 36 << 10;
const LETTER_BYTES_MAX: usize = BATCH_BYTES_MAX - ROOM_BYTES;
/// A longer key is left out together with the payload.
const KEY_BYTES_MAX: usize = 1 << 10;
/// A valid `traceparent` has 55 bytes.
const TRACEPARENT_BYTES_MAX: usize = 128;

/// Headers that say where the event comes from and why it was given up.
const STORY: [&str; 8] = [
    "x-dlq-topic",
    "x-dlq-partition",
    "x-dlq-offset",
    "x-dlq-group",
    "x-dlq-attempts",
    "x-dlq-reason",
    "x-dlq-id",
    "x-dlq-ts",
];
/// The reasons that the engine itself gives; any other is that of a consumer that refused the event.
pub(crate) const TIMED_OUT: &str = "not acknowledged in time";
pub(crate) const DISCONNECTED: &str = "the connection closed";
/// The header that says why a letter has no payload.
const LEFT_OUT: &str = "x-dlq-payload";

/// The dead letter of an event that was given up on.
pub(crate) struct DeadLetter {
    pub(crate) topic: TopicKey,
    pub(crate) letter: NewEvent,
    pub(crate) mirror: Option<(TopicKey, NewEvent)>,
}

impl DeadLetter {
    /// Returns `None` if the event's body is not in memory, or its topic has no dead letters. The mirror has other
    /// readers than the topic: for a topic with a list of its readers (`private`), the mirror holds the headers in
    /// `STORY` and says where the letter is, but not what the event's author wrote.
    pub(crate) fn of(open: &Open, group: &str, private: bool) -> Option<DeadLetter> {
        let event = open.event()?;
        let source = &event.stream.topic;
        let topic = source.dead_letters()?;
        let whole = letter(open, event, group);
        let letter = if whole.bytes() <= LETTER_BYTES_MAX {
            whole
        } else {
            without_payload(&whole, "left out: the event is too large to be copied; it is where it was")
        };
        let mirror = source.dead_letter_mirror().map(|mirror| {
            let mirrored = if private {
                let why =
                    format!("left out: topic {} says who may read it; see {}", source.topic(), topic.topic());
                EventBody { key: None, ..without_payload(&letter, &why) }
            } else if 2 * letter.bytes() <= TWICE_BYTES_MAX {
                letter.clone()
            } else {
                without_payload(&letter, "left out: too large to be stored twice at once")
            };
            (mirror, new(mirrored))
        });
        Some(DeadLetter { topic, letter: new(letter), mirror })
    }

    pub(crate) fn bytes(&self) -> usize {
        let mirror = self.mirror.as_ref().map_or(0, |(_, mirrored)| mirrored.body.bytes());
        self.letter.body.bytes() + mirror
    }
}

fn new(body: EventBody) -> NewEvent {
    NewEvent { id: None, body: Arc::new(body) }
}

/// Cuts a reason to the length that is stored.
pub(crate) fn kept(reason: &str) -> String {
    let mut reason = reason.to_owned();
    truncate(&mut reason, REASON_BYTES_MAX);
    reason
}

pub(crate) fn truncate(text: &mut String, bytes_max: usize) {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// Returns the letter: the event's own key, payload and headers, and the headers in `STORY`.
fn letter(open: &Open, event: &Event, group: &str) -> EventBody {
    let mut headers = event.body.headers.as_ref().map(Headers::to_map).unwrap_or_default();
    // Readers of the letter rely on this header, so the event's author must not set it.
    headers.remove(LEFT_OUT);
    let reason = open.reason().unwrap_or(TIMED_OUT);
    let story = [
        event.stream.topic.topic().to_owned(),
        event.stream.partition.to_string(),
        event.offset.to_string(),
        group.to_owned(),
        open.attempts().to_string(),
        kept(reason),
        event.id.to_string(),
        event.ts.0.to_string(),
    ];
    headers.extend(STORY.map(str::to_owned).into_iter().zip(story));
    let lineage = Lineage {
        root: event.body.lineage.root.clone().or_else(|| Some(event.id.clone())),
        depth: event.body.lineage.depth,
        causation: Some(event.id.clone()),
        correlation: event.body.lineage.correlation.clone(),
    };
    EventBody {
        key: event.body.key.clone(),
        headers: Some(Headers::from_map(&headers)),
        priority: event.body.priority,
        lineage,
        payload: event.body.payload.clone(),
    }
}

/// Returns a copy that is sure to be small: the headers in `STORY`, the trace, a key of ordinary size.
fn without_payload(letter: &EventBody, why: &str) -> EventBody {
    let mut headers = letter.headers.as_ref().map(Headers::to_map).unwrap_or_default();
    headers.retain(|name, value| {
        STORY.contains(&name.as_str()) || (name == TRACEPARENT && value.len() <= TRACEPARENT_BYTES_MAX)
    });
    headers.insert(LEFT_OUT.to_owned(), why.to_owned());
    EventBody {
        key: letter.key.clone().filter(|key| key.len() <= KEY_BYTES_MAX),
        headers: Some(Headers::from_map(&headers)),
        priority: letter.priority,
        lineage: letter.lineage.clone(),
        payload: JsonText::null(),
    }
}
