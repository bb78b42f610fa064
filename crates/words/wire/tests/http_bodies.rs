//! HTTP bodies in and out.

use std::sync::Arc;

use millrace_model::{
    DeliverAt, Durability, Event, EventBody, EventId, JsonText, Namespace, Offset, Partition, Timestamp,
    TopicConfig, TopicKey, TopicName, TopicPatch,
};
use millrace_wire::http::{
    EventsPage, Problem, PublishBody, Replay, Seek, TopicBody, TopicDoc, parse_topic_patch, write_events_page,
};
use millrace_wire::{About, ErrorCode, FrameError, StartFrom};

#[test]
fn one_event_or_an_array_may_be_published() {
    let PublishBody::One { event, deliver_at } =
        PublishBody::parse(r#"{"payload":{"a":1},"key":"k","delay_ms":5,"topic":"ignored"}"#).unwrap()
    else {
        panic!("one event")
    };
    assert_eq!(event.body.payload.as_str(), r#"{"a":1}"#);
    assert_eq!(deliver_at, Some(DeliverAt::AfterMs(5)));
    let PublishBody::Many(events) = PublishBody::parse(" \n[{\"payload\":1},{\"payload\":null}]").unwrap()
    else {
        panic!("two events")
    };
    assert_eq!(events.len(), 2);
}

#[test]
fn bad_bodies_to_publish_are_refused() {
    use ErrorCode::{BadFrame, BadJson};
    let deep = format!("[{{\"payload\":{}{}}}]", "[".repeat(10_000), "]".repeat(10_000));
    for (text, code, message) in [
        ("", BadJson, "not valid JSON: EOF while parsing a value at line 1 column 0"),
        ("[{]", BadJson, "not valid JSON: key must be a string at line 1 column 3"),
        ("[", BadJson, "not valid JSON: EOF while parsing a list at line 1 column 1"),
        ("7", BadFrame, "found a number: one JSON object is expected"),
        ("{}", BadFrame, "payload is missing: it must be any JSON value, null included"),
        ("[1]", BadFrame, "events[0] is no object: it must be an object with a payload"),
        (deep.as_str(), BadJson, "not valid JSON: nested more than 128 levels deep"),
    ] {
        let error = PublishBody::parse(text).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (code, message));
    }
}

#[test]
fn a_topic_with_its_settings_comes_back() {
    let text = r#"{"topic":"a","partitions":4,"retentionMs":1000,"retentionBytes":9,"maxAttempts":3,"ackTimeoutMs":50,"dedupeWindowMs":0,"durability":"os"}"#;
    let body = TopicBody::parse(text).unwrap();
    assert_eq!(body.settings.durability, Some(Some(Durability::Os)));
    let config = TopicConfig::default().patched(&body.settings).unwrap();
    let doc = serde_json::from_str::<TopicDoc>(text).unwrap();
    assert_eq!(doc.config, config);
    let mut out = String::new();
    doc.write(&mut out);
    assert_eq!(out, text);
}

#[test]
fn null_settings_are_absent_and_unknown_ones_ignored() {
    let body = TopicBody::parse(
        r#"{"topic":"a","partitions":null,"retentionMs":null,"durability":null,"compact":null,"publishACL":null,
            "groupACL":null,"schema":null,"sticky":null,"ackMode":null,"maxAttempts":null,"colour":1}"#,
    )
    .unwrap();
    assert_eq!(body.settings, TopicPatch::default());
    let body = TopicBody::parse(r#"{"topic":"a","compact":false}"#).unwrap();
    assert_eq!(body.settings, TopicPatch { compact: Some(false), ..TopicPatch::default() });
}

#[test]
fn settings_that_cannot_be_kept_are_refused() {
    for (text, message) in [
        (r#"{"partitions":1}"#, "topic is missing: it must be a string: the topic's name"),
        (r#"{"topic":"a","partitions":0}"#, "partitions is 0: it must be a whole number from 1 to 1024"),
        (
            r#"{"topic":"a","partitions":2000}"#,
            "partitions is 2000: it must be a whole number from 1 to 1024",
        ),
        (r#"{"topic":"a","partitions":1.5}"#, "partitions is 1.5: it must be a whole number from 1 to 1024"),
        (
            r#"{"topic":"a","maxAttempts":0}"#,
            "maxAttempts is 0: it must be a whole number from 1 to 4294967295",
        ),
        (
            r#"{"topic":"a","retentionMs":"1d"}"#,
            r#"retentionMs is "1d": it must be a whole number of milliseconds from 1 to 9007199254740991"#,
        ),
        (r#"{"topic":"a","compact":"yes"}"#, "compact is \"yes\": it must be true or false"),
        (
            r#"{"topic":"a","publishACL":"alice"}"#,
            r#"publishACL is "alice": it must be an array of at most 256 names: an agent, a role, * or !AGENT to deny"#,
        ),
        (
            r#"{"topic":"a","subscribeACL":["a b"]}"#,
            "subscribeACL is refused: \"a b\" is no name of an agent or role: give 1 to 255 printable ASCII characters without spaces, not beginning with ! and not *",
        ),
    ] {
        assert_eq!(TopicBody::parse(text).unwrap_err().message, message);
    }
}

#[test]
fn a_patch_tells_absent_from_null() {
    let patch = parse_topic_patch(r#"{"retentionMs":null,"maxAttempts":7,"durability":null}"#).unwrap();
    assert_eq!(patch.retention_ms, Some(None));
    assert_eq!(patch.max_attempts, Some(Some(7)));
    assert_eq!(patch.durability, Some(None));
    let refused = parse_topic_patch(r#"{"durability":"replicated"}"#).unwrap_err();
    assert!(refused.message.contains("durability is"), "{refused:?}");
    assert_eq!((patch.partitions, patch.ack_timeout_ms), (None, None));
}

#[test]
fn a_seek_needs_a_place_to_go() {
    let seek = Seek::parse(r#"{"from":{"kind":"offset","value":5},"partition":1}"#).unwrap();
    assert_eq!(
        seek,
        Seek { from: StartFrom::Offset(Offset(5)), partition: Some(Partition(1)), dry_run: false }
    );
    let error = Seek::parse("{}").unwrap_err();
    assert_eq!(error.message, r#"from is missing: it must be an object such as {"kind":"earliest"}"#);
}

#[test]
fn a_replay_may_say_nothing() {
    for text in ["", " ", "{}"] {
        assert_eq!(
            Replay::parse(text).unwrap(),
            Replay { partition: Partition(0), offset: None, limit: 100 }
        );
    }
    assert!(Replay::parse(r#"{"limit":10001}"#).is_err());
}

#[test]
fn a_page_of_events_is_written_and_read() {
    let topic = TopicKey::new(&Namespace::default(), &TopicName::new("a").unwrap());
    let event = |offset| {
        Arc::new(Event {
            stream: topic.stream(Partition(1)),
            offset: Offset(offset),
            ts: Timestamp(9),
            id: EventId::parse("i").unwrap(),
            body: Arc::new(EventBody::of(JsonText::parse("[1, 2]").unwrap())),
        })
    };
    let mut out = String::new();
    write_events_page(&mut out, "a", Partition(1), &[event(3), event(4)], Offset(5), false);
    assert_eq!(
        out,
        r#"{"topic":"a","partition":1,"events":[{"id":"i","ts":9,"topic":"a","partition":1,"offset":3,"payload":[1, 2]},{"id":"i","ts":9,"topic":"a","partition":1,"offset":4,"payload":[1, 2]}],"next":5}"#
    );
    let page = EventsPage::parse(&out).unwrap();
    assert_eq!((page.events.len(), page.next), (2, Offset(5)));
}

#[test]
fn a_problem_says_what_where_and_which_code() {
    let error = FrameError::new(ErrorCode::GroupBusy, "busy").about(About::topic("a"));
    let mut out = String::new();
    Problem::from(error).write(&mut out);
    assert_eq!(
        out,
        r#"{"type":"urn:millrace:error:group_busy","title":"The group is busy","status":409,"detail":"busy","code":"group_busy","topic":"a"}"#
    );
}

#[test]
fn a_problem_of_a_server_that_does_not_lead_names_the_leader_or_null() {
    for leader in [Some("http://b:7070"), None] {
        let mut out = String::new();
        Problem::from(FrameError::moved(leader)).write(&mut out);
        let problem: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&problem["code"], &problem["status"]), (&"moved".into(), &503.into()));
        assert_eq!(problem.get("leader"), Some(&serde_json::Value::from(leader)));
        let read: Problem = serde_json::from_str(&out).unwrap();
        assert_eq!(read.leader.flatten().as_deref(), leader);
    }
}

#[test]
fn access_lists_are_read_kept_apart_from_absence_and_written() {
    let body = TopicBody::parse(r#"{"topic":"a","publishACL":[],"subscribeACL":["bob","!eve"]}"#).unwrap();
    let config = TopicConfig::default().patched(&body.settings).unwrap();
    let text = serde_json::to_string(&config).unwrap();
    assert!(text.contains(r#""publishACL":[],"subscribeACL":["bob","!eve"]"#), "{text}");
    let patch = millrace_wire::http::parse_topic_patch(r#"{"publishACL":null}"#).unwrap();
    assert_eq!((patch.publish_acl, patch.subscribe_acl), (Some(None), None));
}
