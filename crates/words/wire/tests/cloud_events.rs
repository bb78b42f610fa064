//! CloudEvents: which are refused and why, and that accepted ones come back without loss.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::{
    Event, EventBody, EventId, Headers, JsonText, Namespace, NewEvent, Offset, Partition, Timestamp,
    TopicKey, TopicName,
};
use millrace_wire::{CloudEvent, parse_cloud_event, parse_cloud_events, write_cloud_event};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn stored(event: NewEvent) -> Event {
    let topic = TopicName::new("orders").expect("a name");
    Event {
        stream: TopicKey::new(&Namespace::default(), &topic).stream(Partition(2)),
        offset: Offset(7_000_000_000),
        ts: Timestamp(1_794_780_400_319),
        id: event.id.unwrap_or_else(|| EventId::mint(Timestamp(1), 2, 3)),
        body: event.body,
    }
}

fn out(event: &Event) -> Value {
    let mut text = String::new();
    write_cloud_event(&mut text, event);
    serde_json::from_str(&text).expect("JSON")
}

#[track_caller]
fn there_and_back(event: &Value) -> Event {
    let read = parse_cloud_event(&event.to_string()).unwrap_or_else(|error| panic!("{event}: {error}"));
    let stored = stored(read.into_event().expect("an event"));
    assert_eq!(&out(&stored), event);
    stored
}

fn least() -> Value {
    json!({"specversion": "1.0", "id": "A-1", "source": "/s", "type": "t"})
}

fn with(members: &Value) -> Value {
    let mut event = least();
    for (name, value) in members.as_object().expect("members") {
        event[name] = value.clone();
    }
    event
}

#[test]
fn what_was_published_comes_back_whole() {
    for members in [
        json!({}),
        json!({"data": null}),
        json!({"data": {"a": [1, 2.5, "x"]}, "datacontenttype": "application/json; charset=utf-8"}),
        json!({"data": "just text", "datacontenttype": "text/plain"}),
        json!({"data_base64": "AAEC/w==", "datacontenttype": "application/octet-stream"}),
        json!({"data_base64": ""}),
        json!({"subject": "sub ject", "time": "2026-11-15T12:00:00.123456789+01:00", "dataschema": "urn:x:y"}),
        json!({"ext1": "text", "flag": true, "off": false, "num": -7, "numtext": "7", "booltext": "true", "empty": ""}),
        json!({"partitionkey": "k1", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}),
        json!({"offset": "own", "partition": 5, "millraceheaders": "own", "subject": "täglich 🙂"}),
    ] {
        there_and_back(&with(&members));
    }
}

#[test]
fn attributes_are_headers_and_the_key_is_the_partition_key() {
    let event = there_and_back(&with(&json!({"partitionkey": "k", "num": 5, "data": [1]})));
    assert_eq!(event.body.key.as_deref(), Some("k"));
    assert_eq!(event.body.payload.as_str(), "[1]");
    let headers = event.body.headers.as_ref().expect("headers").to_map();
    let expected = [
        ("ce-id", "A-1"),
        ("ce-num", "5"),
        ("ce-source", "/s"),
        ("ce-specversion", "1.0"),
        ("ce-type", "t"),
        ("millrace-ce-plain", "num"),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
}

#[test]
fn two_sources_may_use_the_same_id() {
    let id = |source: &str, id: &str| {
        let mut event = least();
        event["source"] = source.into();
        event["id"] = id.into();
        let event = parse_cloud_event(&event.to_string()).expect("an event").into_event().expect("an event");
        event.id.expect("an id").to_string()
    };
    assert_eq!(id("/a", "1"), "/a 1");
    assert_eq!(id("/a", "1"), id("/a", "1"));
    assert_ne!(id("/a", "1"), id("/b", "1"));
    assert_ne!(id("/a", "b c"), id("/a", "b  c"));
    let long = "x".repeat(300);
    assert!(id("/a", &long).starts_with("sha256:") && id("/a", &long) != id("/b", &long));
    assert!(id("/a", "é").starts_with("sha256:"));
}

#[test]
fn what_is_no_cloud_event_is_refused_with_one_clear_reason() {
    for (members, expected) in [
        (
            json!({"specversion": null}),
            "specversion is missing: a CloudEvent has specversion, id, source and type",
        ),
        (json!({"specversion": "0.3"}), "specversion is \"0.3\": it must be \"1.0\""),
        (json!({"specversion": 1}), "specversion is \"1\": it must be a string that is not empty"),
        (json!({"id": ""}), "id is \"\": it must be a string that is not empty"),
        (json!({"type": null}), "type is missing"),
        (
            json!({"source": "a b"}),
            "source is \"a b\": it must be a URI or a relative reference, without spaces",
        ),
        (
            json!({"Ext": "x"}),
            "attribute \"Ext\" is not possible: names of CloudEvents attributes are of a-z and 0-9",
        ),
        (json!({"my_ext": "x"}), "attribute \"my_ext\" is not possible"),
        (
            json!({"ext": {"a": 1}}),
            "attribute \"ext\" is {\"a\":1}: it must be a string, true, false or a whole number",
        ),
        (json!({"ext": 1.5}), "attribute \"ext\" is 1.5"),
        (json!({"ext": 3_000_000_000_u64}), "attribute \"ext\" is 3000000000"),
        (json!({"subject": ""}), "subject is \"\""),
        (json!({"subject": "a\nb"}), "subject is \"a\\nb\": it must be text without control characters"),
        (json!({"time": "yesterday"}), "time is \"yesterday\": it must be a time by RFC 3339"),
        (json!({"datacontenttype": "json"}), "datacontenttype is \"json\": it must be a media type"),
        (json!({"dataschema": "relative"}), "dataschema is \"relative\": it must be an absolute URI"),
        (json!({"partitionkey": ""}), "partitionkey is \"\""),
        (json!({"data": 1, "data_base64": "AA=="}), "data and data_base64 are both given: give one of them"),
        (json!({"data_base64": "A"}), "data_base64 is wrong: it must be a string of base64 with its padding"),
        (json!({"data_base64": 5}), "data_base64 is wrong"),
    ] {
        let error = parse_cloud_event(&with(&members).to_string()).expect_err("a refusal");
        assert!(error.message.starts_with(expected), "{members}: {error}");
    }
    for (text, expected) in [
        ("{", "not valid JSON"),
        ("[]", "a CloudEvent is a JSON object of its attributes and data"),
        ("5", "a CloudEvent is a JSON object of its attributes and data"),
    ] {
        let error = parse_cloud_event(text).expect_err("a refusal");
        assert!(error.message.starts_with(expected), "{text}: {error}");
    }
    let batch = json!([least(), {"specversion": "1.0"}]).to_string();
    let error = parse_cloud_events(&batch).expect_err("a refusal");
    assert!(error.message.starts_with("events[1].id is missing"), "{error}");
    let error = parse_cloud_events(&least().to_string()).expect_err("a refusal");
    assert_eq!(error.message, "a batch of CloudEvents is a JSON array of them");
    assert_eq!(parse_cloud_events("[]").expect("a batch").len(), 0);
}

fn binary(headers: &[(&str, &str)], kind: Option<&str>, body: &[u8]) -> Result<Value, String> {
    let required = [("specversion", "1.0"), ("id", "A-1"), ("source", "/s"), ("type", "t")];
    let headers = required.iter().chain(headers).map(|(name, value)| (*name, value.as_bytes()));
    let event = CloudEvent::from_binary(headers, kind, body).map_err(|error| error.message)?;
    Ok(out(&stored(event.into_event().map_err(|error| error.message)?)))
}

#[test]
fn binary_mode_takes_attributes_from_headers_and_any_body() {
    for (headers, kind, body, expected) in [
        (&[][..], None, &b""[..], json!({})),
        (
            &[],
            Some("application/json"),
            b"{\"a\": 1}",
            json!({"datacontenttype": "application/json", "data": {"a": 1}}),
        ),
        (
            &[],
            Some("application/vnd.x+json"),
            b"null",
            json!({"datacontenttype": "application/vnd.x+json", "data": null}),
        ),
        (&[], None, b"[1]", json!({"data": [1]})),
        (
            &[],
            Some("text/plain"),
            "h\"é".as_bytes(),
            json!({"datacontenttype": "text/plain", "data": "h\"é"}),
        ),
        (&[], Some("text/plain"), b"\xff", json!({"datacontenttype": "text/plain", "data_base64": "/w=="})),
        (&[], Some("image/png"), b"\x00\x01", json!({"datacontenttype": "image/png", "data_base64": "AAE="})),
        (
            &[("subject", "%E2%82%AC%20a"), ("ext", "\"a \\\"b\\\" c\""), ("partitionkey", "k"), ("n", "5")],
            None,
            b"",
            json!({"subject": "€ a", "ext": "a \"b\" c", "partitionkey": "k", "n": "5"}),
        ),
    ] {
        assert_eq!(binary(headers, kind, body), Ok(with(&expected)), "{kind:?}");
    }
    for (headers, kind, body, expected) in [
        (&[("ext", "%zz")][..], None, &b""[..], "header ce-ext is not percent-encoded UTF-8"),
        (&[("ext", "%f")], None, b"", "header ce-ext is not percent-encoded UTF-8"),
        (&[("ext", "%ff")], None, b"", "header ce-ext is not percent-encoded UTF-8"),
        (&[("id", "again")], None, b"", "header ce-id is given twice"),
        (&[("my-ext", "x")], None, b"", "attribute \"my-ext\" is not possible"),
        (&[("data", "x")], None, b"", "attribute \"data\" is not possible"),
        (&[("datacontenttype", "a/b")], None, b"", "header ce-datacontenttype is given"),
        (&[], Some("application/json"), b"{", "not valid JSON"),
        (&[], None, b"text", "not valid JSON"),
        (&[], Some("nonsense"), b"x", "datacontenttype is \"nonsense\": it must be a media type"),
    ] {
        let error = binary(headers, kind, body).expect_err("a refusal");
        assert!(error.starts_with(expected), "{headers:?} {kind:?}: {error}");
    }
}

fn plain(headers: &[(&str, &str)], key: Option<&str>) -> Event {
    let map: BTreeMap<String, String> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let body = EventBody {
        key: key.map(Into::into),
        headers: (!map.is_empty()).then(|| Headers::from_map(&map)),
        ..EventBody::of(JsonText::parse("{\"n\": 1}").expect("JSON"))
    };
    stored(NewEvent { id: EventId::parse("e1").ok(), body: Arc::new(body) })
}

#[test]
fn any_other_event_comes_out_as_a_cloud_event_too() {
    let described = json!({
        "specversion": "1.0", "id": "e1", "source": "/namespaces/default/topics/orders", "type": "orders",
        "time": "2026-11-15T22:06:40.319Z", "datacontenttype": "application/json", "data": {"n": 1},
        "partition": 2, "offset": "7000000000",
    });
    assert_eq!(out(&plain(&[], None))["source"], described["source"]);
    for (headers, key, more) in [
        (&[][..], None, json!({})),
        (&[], Some("k"), json!({"partitionkey": "k"})),
        (&[], Some(""), json!({})),
        (&[("x-a", "b")], None, json!({"millraceheaders": "{\"x-a\":\"b\"}"})),
        // Some attributes of a CloudEvent are missing: the headers are kept, but the event is not taken for a
        // CloudEvent.
        (&[("ce-id", "9")], None, json!({"millraceheaders": "{\"ce-id\":\"9\"}"})),
    ] {
        let found = out(&plain(headers, key));
        let mut expected = described.clone();
        expected["time"] = found["time"].clone();
        for (name, value) in more.as_object().expect("members") {
            expected[name] = value.clone();
        }
        assert_eq!(found, expected);
        assert!(parse_cloud_event(&found.to_string()).is_ok(), "{found}");
    }
    // An event with all of these headers, published on the WebSocket, is a CloudEvent; its other headers are not lost.
    let own = [
        ("ce-specversion", "1.0"),
        ("ce-id", "9"),
        ("ce-source", "/x"),
        ("ce-type", "t"),
        ("x-dlq-reason", "r"),
    ];
    let expected = json!({"specversion": "1.0", "id": "9", "source": "/x", "type": "t", "data": {"n": 1},
        "millraceheaders": "{\"x-dlq-reason\":\"r\"}"});
    assert_eq!(out(&plain(&own, None)), expected);
}

fn text() -> impl Strategy<Value = String> {
    any::<String>().prop_map(|text| text.chars().filter(|c| !c.is_control()).collect())
}

fn extension() -> impl Strategy<Value = Value> {
    prop_oneof![
        text().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from)
    ]
}

fn payload() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn every_cloud_event_comes_back(
        id in "[^\\p{Cc}]{1,300}",
        source in "[a-zA-Z0-9/:#?é._-]{1,40}",
        kind in "[^\\p{Cc}]{1,20}",
        subject in prop::option::of("[^\\p{Cc}]{1,20}"),
        key in prop::option::of("[^\\p{Cc}]{1,20}"),
        extensions in prop::collection::btree_map("x[a-z0-9]{0,19}", extension(), 0..6),
        data in prop::option::of(payload()),
        bytes in prop::option::of("([A-Za-z0-9+/]{4}){0,8}"),
    ) {
        let mut event = json!({"specversion": "1.0", "id": id, "source": source, "type": kind});
        for (name, value) in extensions {
            event[name] = value;
        }
        for (name, value) in [("subject", subject), ("partitionkey", key)] {
            if let Some(value) = value {
                event[name] = value.into();
            }
        }
        match (data, bytes) {
            (Some(data), _) => event["data"] = data,
            (None, Some(bytes)) => event["data_base64"] = bytes.into(),
            (None, None) => {}
        }
        there_and_back(&event);
    }

    #[test]
    fn no_text_breaks_the_readers(text in any::<String>(), value in any::<Vec<u8>>(), body in any::<Vec<u8>>()) {
        let _ = parse_cloud_event(&text);
        let _ = parse_cloud_events(&text);
        let _ = CloudEvent::from_binary([(text.as_str(), value.as_slice())], Some(&text), &body);
    }
}
