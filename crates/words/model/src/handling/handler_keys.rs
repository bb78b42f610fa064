//! Keys of the rows of durable handlers and of state. Exported in [`crate::keys`], beside those of the bus.
//!
//! Names contain no slash; texts that users choose freely (type names, keys of entities) are escaped so that they
//! contain none.

use crate::clocks::time::Timestamp;
use crate::handling::state::{Identity, StateCommit, StateKind};
use crate::log::id::EventId;
use crate::log::stream::{Offset, Partition, Stream, TopicKey};
use crate::rows::digits::{Digits, decimal, hex};
use crate::topics::name::{HandlerId, Namespace, SessionId};

/// `namespace/handler`
pub fn handler(namespace: &Namespace, handler: &HandlerId) -> String {
    [namespace.as_str(), "/", handler.as_str()].concat()
}

/// In `kv`: a row that changes whenever a handler is registered. A batch that removes events because all handlers are
/// done with them checks this row.
pub fn handlers_mark(namespace: &Namespace) -> String {
    ["handlers_mark/", namespace.as_str()].concat()
}

/// `namespace/handler/topic/partition/lane`: the lane is `-` for the plain one, else as in [`off_priority`].
pub fn lane(handler: &HandlerId, stream: &Stream, lane: Option<u32>) -> String {
    let (namespace, topic) = (stream.topic.namespace(), stream.topic.topic());
    let (partition, digits) = (decimal(stream.partition.0), lane.map(inverted));
    let lane = digits.as_deref().unwrap_or("-");
    [namespace, "/", handler.as_str(), "/", topic, "/", &partition, "/", lane].concat()
}

/// Prefix of the keys of all lanes of a handler on a topic.
pub fn lanes_of(handler: &HandlerId, topic: &TopicKey) -> String {
    [topic.namespace(), "/", handler.as_str(), "/", topic.topic(), "/"].concat()
}

/// Returns partition and lane of a key made by [`lane`].
pub fn lane_place(key: &str) -> Option<(Partition, Option<u32>)> {
    let mut parts = key.rsplit('/');
    let lane = match parts.next()? {
        "-" => None,
        digits => Some(lane_from(digits)?),
    };
    Some((Partition(parts.next()?.parse().ok()?), lane))
}

/// `namespace/handler/due/topic/partition/offset`: the first rows of a handler are those that are due first.
pub fn claim(handler: &HandlerId, due: Timestamp, stream: &Stream, offset: Offset) -> String {
    let (namespace, topic) = (stream.topic.namespace(), stream.topic.topic());
    let (due, partition, offset) = (hex(due.0, 12), decimal(stream.partition.0), hex(offset.0, 16));
    [namespace, "/", handler.as_str(), "/", &due, "/", topic, "/", &partition, "/", &offset].concat()
}

/// Prefix of the keys of all claims of a handler.
pub fn claims_of(namespace: &str, handler: &HandlerId) -> String {
    [namespace, "/", handler.as_str(), "/"].concat()
}

/// Sorts after every claim of the handler that is due at `now` or before, and before the rest.
pub fn claims_end(namespace: &str, handler: &HandlerId, now: Timestamp) -> String {
    [namespace, "/", handler.as_str(), "/", &hex(now.0, 12), "0"].concat()
}

/// `namespace/topic/partition/incarnation/lane/offset` for an event that does not have the default priority; the urgent
/// come first. `incarnation` is a number of the store: it distinguishes the stream from earlier ones of its name, whose
/// rows may still be there.
pub fn off_priority(stream: &Stream, incarnation: u64, lane: u32, offset: Offset) -> String {
    let (partition, incarnation) = (decimal(stream.partition.0), hex(incarnation, 16));
    let (lane, offset) = (inverted(lane), hex(offset.0, 16));
    [stream.topic.as_str(), "/", &partition, "/", &incarnation, "/", &lane, "/", &offset].concat()
}

/// Prefix of the keys of all events of the stream outside the plain lane.
pub fn off_priorities_of(stream: &Stream, incarnation: u64) -> String {
    [stream.topic.as_str(), "/", &decimal(stream.partition.0), "/", &hex(incarnation, 16), "/"].concat()
}

/// Returns lane and offset of a key made by [`off_priority`].
pub fn off_priority_place(key: &str) -> Option<(u32, Offset)> {
    let mut parts = key.rsplit('/');
    let offset = u64::from_str_radix(parts.next()?, 16).ok()?;
    Some((lane_from(parts.next()?)?, Offset(offset)))
}

/// Returns handler, stream and offset of a key made by [`claim`].
pub fn claim_place(key: &str) -> Option<(&str, Stream, Offset)> {
    let mut parts = key.split('/');
    let (namespace, handler, _, topic) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let partition = parts.next()?.parse().ok()?;
    let offset = u64::from_str_radix(parts.next()?, 16).ok()?;
    let topic = TopicKey::parse(&format!("{namespace}/{topic}")).ok()?;
    Some((handler, topic.stream(Partition(partition)), Offset(offset)))
}

/// Returns four hex digits that fall as the priority rises, so that urgent keys sort first.
fn inverted(lane: u32) -> Digits {
    hex(u64::from(0xffff - lane.min(0xffff)), 4)
}

/// Returns the lane that these hex digits of a key made by [`off_priority`] or [`lane`] name.
pub fn lane_from(digits: &str) -> Option<u32> {
    u32::from_str_radix(digits, 16).ok().map(|inverted| 0xffff - inverted.min(0xffff))
}

/// `namespace/topic/partition/offset/handler`
pub fn finished(stream: &Stream, offset: Offset, handler: &HandlerId) -> String {
    let (partition, offset) = (decimal(stream.partition.0), hex(offset.0, 16));
    [stream.topic.as_str(), "/", &partition, "/", &offset, "/", handler.as_str()].concat()
}

/// `namespace/time/topic/partition/offset/handler`: oldest first.
pub fn dead_letter(stream: &Stream, offset: Offset, handler: &HandlerId, failed_at: Timestamp) -> String {
    let (namespace, topic) = (stream.topic.namespace(), stream.topic.topic());
    format!("{namespace}/{:012x}/{topic}/{}/{:016x}/{handler}", failed_at.0, stream.partition, offset.0)
}

/// Returns time, topic and handler of a key made by [`dead_letter`].
pub fn dead_letter_place(key: &str) -> Option<(Timestamp, &str, &str)> {
    let mut parts = key.split('/').skip(1);
    let failed_at = u64::from_str_radix(parts.next()?, 16).ok()?;
    let topic = parts.next()?;
    Some((Timestamp(failed_at), topic, parts.nth(2)?))
}

/// `namespace/session`
pub fn session(namespace: &Namespace, session: &SessionId) -> String {
    [namespace.as_str(), "/", session.as_str()].concat()
}

/// `namespace/name`, the name escaped.
pub fn schedule(namespace: &Namespace, name: &str) -> String {
    format!("{namespace}/{}", escaped(name))
}

/// The row in `kv` that counts commits of state.
pub const STATE_COMMITS: &str = "state/commits";

/// `namespace/commit`
pub fn state_commit(namespace: &Namespace, commit: StateCommit) -> String {
    format!("{namespace}/{:016x}", commit.0)
}

/// In `kv`: the row that names the commit of state with which an event was appended.
pub fn commit_of_event(namespace: &Namespace, id: &EventId) -> String {
    format!("commit_of/{namespace}/{id}")
}

/// `namespace/e|r/type`: with a slash added, the prefix of all identities of a type.
pub fn state_type(namespace: &Namespace, kind: StateKind, type_name: &str) -> String {
    let kind = match kind {
        StateKind::Entity => 'e',
        StateKind::Relation => 'r',
    };
    format!("{namespace}/{kind}/{}", escaped(type_name))
}

/// `namespace/e/type/key` or `namespace/r/type/left/right/instance`
pub fn identity(namespace: &Namespace, identity: &Identity) -> String {
    let head = state_type(namespace, identity.kind(), identity.type_name());
    match identity {
        Identity::Entity { key, .. } => format!("{head}/{}", escaped(key)),
        Identity::Relation { left_key, right_key, instance_key, .. } => {
            format!("{head}/{}/{}/{}", escaped(left_key), escaped(right_key), escaped(instance_key))
        }
    }
}

/// The key of a version of an identity: the identity's key, `//`, the commit. Escaped keys contain no slash, so no
/// identity's key is a prefix of another's versions.
pub fn version(identity_key: &str, commit: StateCommit) -> String {
    format!("{identity_key}//{:016x}", commit.0)
}

/// Escapes a text: bytes outside `A-Z a-z 0-9 . _ : -` become `~` and two hex digits: no slash, and every text has one
/// spelling.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-') {
            out.push(byte as char);
        } else {
            out.push('~');
            out.push_str(&hex(u64::from(byte), 2));
        }
    }
    out
}

/// The inverse of [`escaped`]; returns `None` for a text that [`escaped`] cannot have made.
pub fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'~' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_events_come_first_and_lanes_come_back() {
        let stream = TopicKey::parse("n/t").unwrap().stream(Partition(3));
        let at = |lane, offset| off_priority(&stream, 9, lane, Offset(offset));
        assert!(at(900, 7) < at(50, 1) && at(50, 1) < at(50, 2));
        assert!(at(50, 1).starts_with(&off_priorities_of(&stream, 9)));
        assert_eq!(off_priority_place(&at(900, 7)), Some((900, Offset(7))));
    }

    #[test]
    fn claims_sort_by_when_they_are_due() {
        let (id, stream) =
            (HandlerId::new("m::f:g").unwrap(), TopicKey::parse("n/t").unwrap().stream(Partition(0)));
        let at = |ms| claim(&id, Timestamp(ms), &stream, Offset(u64::MAX));
        let end = claims_end("n", &id, Timestamp(10));
        assert!(at(9) < at(10) && at(10) < end && end < at(11));
        assert_eq!(claim_place(&at(9)), Some(("m::f:g", stream.clone(), Offset(u64::MAX))));
        let place = |lane_of| lane_place(&lane(&id, &stream, lane_of));
        assert_eq!(place(None), Some((Partition(0), None)));
        assert_eq!(place(Some(7)), Some((Partition(0), Some(7))));
    }

    #[test]
    fn any_text_has_one_spelling_without_slashes() {
        for text in ["", "a/b", "~", "ü 7", "a~2fb", "\u{0}"] {
            let spelled = escaped(text);
            assert!(!spelled.contains('/'), "{spelled}");
            assert_eq!(unescaped(&spelled).as_deref(), Some(text));
        }
        assert_eq!((unescaped("~g0"), unescaped("~f")), (None, None));
    }
}
