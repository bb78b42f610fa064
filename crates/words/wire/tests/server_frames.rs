//! Every frame the server may send, as the protocol spells it, and back.

use std::sync::Arc;

use millrace_model::{
    Event, EventBody, EventId, Group, Headers, JsonText, Lineage, Namespace, Offset, Partition, Priority,
    Timestamp, TopicKey, TopicName,
};
use millrace_wire::{ErrorCode, FrameError, ServerFrame, Shown, write_message};

#[test]
fn frames_are_read_and_written_as_they_were() {
    for text in [
        r#"{"type":"PUBLISHED","topic":"a","partition":2,"offset":7,"id":"01912f3a-4b5c-7dea-9bee-fcafef00d123","durability":"fsync"}"#,
        r#"{"type":"PUBLISHED","topic":"a","partition":0,"offset":1,"id":"\"quoted\\","durability":"os","rid":"x"}"#,
        r#"{"type":"PUBLISHED","topic":"a","due":1723140000000,"id":"i","durability":"memory","rid":4}"#,
        r#"{"type":"PUBLISHED","topic":"a","offsets":[[0,1],[3,9]],"durability":"fsync","rid":4}"#,
        r#"{"type":"OK","op":"ACK","rid":9}"#,
        r#"{"type":"OK","op":"UNSUBSCRIBE"}"#,
        r#"{"type":"OK","op":"SUBSCRIBE","rid":9,"topic":"a","group":"g","partitions":[{"partition":0,"next":1},{"partition":1,"next":8}]}"#,
        r#"{"type":"MESSAGE","topic":"a","partition":0,"group":"g","offset":5,"envelope":{"id":"i","ts":1,"topic":"a","partition":0,"offset":5,"payload":null}}"#,
        r#"{"type":"MESSAGE","topic":"a","partition":1,"group":"g","offset":5,"envelope":{"id":"i","ts":1,"topic":"a","key":"k\n\u0001","partition":1,"offset":5,"headers":{"x":"y"},"payload":{"b":1.50},"attempts":3}}"#,
        r#"{"type":"MESSAGES","topic":"a","partition":1,"group":"g","envelopes":[{"id":"i","ts":1,"topic":"a","partition":1,"offset":5,"payload":1e400},{"id":"j","ts":1,"topic":"a","partition":1,"offset":9,"payload":[{}],"attempts":2}]}"#,
        r#"{"type":"MESSAGES","topic":"a","partition":1,"group":"g","envelopes":[]}"#,
        r#"{"type":"PONG"}"#,
        r#"{"type":"PONG","rid":"p"}"#,
        r#"{"type":"ERROR","code":"group_busy","message":"busy","rid":1,"topic":"a","group":"g","partition":0,"offset":3}"#,
        r#"{"type":"ERROR","code":"shutting_down","message":"later"}"#,
        r#"{"type":"ERROR","code":"moved","message":"there","leader":"wss://b:7070/"}"#,
        r#"{"type":"ERROR","code":"moved","message":"nowhere","rid":2,"leader":null}"#,
    ] {
        let frame = ServerFrame::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut out = String::new();
        frame.write(&mut out);
        assert_eq!(out, text);
    }
}

#[test]
fn only_the_answer_to_subscribe_tells_positions() {
    for text in [
        r#"{"type":"OK","op":"ACK","rid":1,"topic":"a","group":"g","partitions":[{"partition":0,"next":3}]}"#,
        r#"{"type":"OK","op":"ACK","rid":1,"partitions":"another member of this name"}"#,
    ] {
        let mut out = String::new();
        ServerFrame::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).write(&mut out);
        assert_eq!(out, r#"{"type":"OK","op":"ACK","rid":1}"#);
    }
}

#[test]
fn frames_no_client_can_use_are_refused() {
    for (text, message) in [
        (
            r#"{"type":"HELLO"}"#,
            r#"type is "HELLO": it must be PUBLISHED, OK, MESSAGE, MESSAGES, PONG or ERROR"#,
        ),
        (
            r#"{"type":"PUBLISHED","topic":"a","partition":0,"offset":1,"id":"i","durability":"disk"}"#,
            r#"durability is "disk": it must be "fsync", "os" or "memory""#,
        ),
        (
            r#"{"type":"MESSAGE","topic":"a","partition":0,"group":"g","offset":5,"envelope":{}}"#,
            "envelope.payload is missing: it must be any JSON value, null included",
        ),
        (
            r#"{"type":"MESSAGES","topic":"a","partition":0,"group":"g","envelopes":[{"payload":1}]}"#,
            "envelopes[0].id is missing: it must be a string of 1 to 255 printable ASCII characters",
        ),
        (
            r#"{"type":"MESSAGES","topic":"a","partition":0,"group":"g","envelopes":[1]}"#,
            "envelopes[0] is no object: it must be an event",
        ),
        (
            r#"{"type":"MESSAGES","topic":"a","partition":0,"group":"g","envelopes":{}}"#,
            "envelopes is an object: it must be an array of events",
        ),
    ] {
        assert_eq!(ServerFrame::parse(text).unwrap_err().message, message);
    }
}

#[test]
fn a_code_from_a_newer_server_is_still_an_error() {
    let frame = ServerFrame::parse(r#"{"type":"ERROR","code":"too_sunny","message":"m"}"#).unwrap();
    assert!(
        matches!(frame, ServerFrame::Error(error) if error.code == ErrorCode::BadFrame && error.message == "m")
    );
}

#[test]
fn a_server_that_does_not_lead_names_the_leader_if_there_is_one() {
    for (leader, written) in [
        (
            Some("ws://b:7070/"),
            r#"{"type":"ERROR","code":"moved","message":"this server does not lead its store: connect to ws://b:7070/","leader":"ws://b:7070/"}"#,
        ),
        (
            None,
            r#"{"type":"ERROR","code":"moved","message":"no server leads this store right now: connect again in a second","leader":null}"#,
        ),
    ] {
        let mut out = String::new();
        FrameError::moved(leader).write(&mut out);
        assert_eq!(out, written);
    }
    // Neither a leader that is no string nor a missing one makes the error unreadable.
    for text in [
        r#"{"type":"ERROR","code":"moved","message":"m","leader":5}"#,
        r#"{"type":"ERROR","code":"moved","message":"m"}"#,
    ] {
        let frame = ServerFrame::parse(text).unwrap();
        assert!(
            matches!(frame, ServerFrame::Error(error) if error.code == ErrorCode::Moved && error.leader.is_none())
        );
    }
}

#[test]
fn a_delivery_shows_the_stored_event_and_its_attempts_from_the_second_on() {
    let topic = TopicKey::new(&Namespace::default(), &TopicName::new("orders").unwrap());
    let event = Event {
        stream: topic.stream(Partition(3)),
        offset: Offset(42),
        ts: Timestamp(1_723_140_000_000),
        id: EventId::parse("01912f3a-4b5c-7dea-9bee-fcafef00d123").unwrap(),
        body: Arc::new(EventBody {
            key: Some("k\"1".into()),
            headers: Some(Headers::from_map(&[("trace".to_owned(), "t".to_owned())].into())),
            priority: Priority(1),
            lineage: Lineage::default(),
            payload: JsonText::parse(r#"{"n": 1.0}"#).unwrap(),
        }),
    };
    let group = Group::new("g").unwrap();
    let written = |attempts| {
        let mut out = String::new();
        write_message(&mut out, &group, &event, Shown { attempts, payload_sha256: false });
        out
    };
    assert_eq!(
        written(1),
        r#"{"type":"MESSAGE","topic":"orders","partition":3,"group":"g","offset":42,"envelope":{"id":"01912f3a-4b5c-7dea-9bee-fcafef00d123","ts":1723140000000,"topic":"orders","key":"k\"1","partition":3,"offset":42,"headers":{"trace":"t"},"priority":1,"payload":{"n": 1.0}}}"#
    );
    assert!(written(2).ends_with(r#""payload":{"n": 1.0},"attempts":2}}"#));
    let ServerFrame::Message(message) = ServerFrame::parse(&written(2)).unwrap() else {
        panic!("no message")
    };
    assert_eq!(message.envelope.attempts, 2);
    assert_eq!(message.envelope.key.as_deref(), Some("k\"1"));
}

#[test]
fn every_code_has_one_spelling() {
    for code in ErrorCode::ALL {
        assert_eq!(ErrorCode::parse(code.as_str()), Some(*code));
    }
    assert_eq!(ErrorCode::ALL.len(), 17);
}

/// A client that did not know a level would wait for its confirmation for ever.
#[test]
fn every_level_of_durability_is_read_back() {
    for level in millrace_model::Durability::ALL {
        let level = level.as_str();
        let one = format!(
            r#"{{"type":"PUBLISHED","topic":"a","partition":0,"offset":1,"id":"x","durability":"{level}","rid":1}}"#
        );
        let many =
            format!(r#"{{"type":"PUBLISHED","topic":"a","offsets":[[0,1]],"durability":"{level}","rid":1}}"#);
        for text in [one, many] {
            let frame = ServerFrame::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let mut out = String::new();
            frame.write(&mut out);
            assert_eq!(out, text);
        }
    }
}
