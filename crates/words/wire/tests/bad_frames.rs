//! Every kind of wrong frame, and its error.

use millrace_wire::{ClientFrame, ErrorCode};

#[test]
fn bad_frames_say_what_was_wrong_and_what_would_be_right() {
    use ErrorCode::*;
    for (text, code, message) in [
        ("", BadJson, "not valid JSON: EOF while parsing a value at line 1 column 0"),
        ("{", BadJson, "not valid JSON: EOF while parsing an object at line 1 column 1"),
        ("[1,", BadJson, "not valid JSON: EOF while parsing a value at line 1 column 3"),
        (r#"{"type":"PING"} x"#, BadJson, "not valid JSON: trailing characters at line 1 column 17"),
        (r#"{"type":"PING",}"#, BadJson, "not valid JSON: key must be a string at line 1 column 16"),
        ("[]", BadFrame, "found an array: one JSON object is expected"),
        ("7", BadFrame, "found a number: one JSON object is expected"),
        ("null", BadFrame, "found null: one JSON object is expected"),
        ("{}", BadFrame, "type is missing: it must be a string naming the kind of frame"),
        (r#"{"type":null}"#, BadFrame, "type is missing: it must be a string naming the kind of frame"),
        (r#"{"type":5}"#, BadFrame, "type is 5: it must be a string naming the kind of frame"),
        (
            r#"{"type":"PUBLSH"}"#,
            UnknownType,
            r#"type is "PUBLSH": it must be PUBLISH, PUBLISH_BATCH, SUBSCRIBE, UNSUBSCRIBE, ACK, NACK, FLOW, PING or AUTH"#,
        ),
        (
            r#"{"type":"PUBLISHED","topic":"a"}"#,
            UnknownType,
            r#"type is "PUBLISHED": it must be PUBLISH, PUBLISH_BATCH, SUBSCRIBE, UNSUBSCRIBE, ACK, NACK, FLOW, PING or AUTH"#,
        ),
        (
            r#"{"type":"PING","rid":1.5}"#,
            BadFrame,
            "rid is 1.5: it must be a string of at most 255 bytes or a whole number",
        ),
        (
            r#"{"type":"PING","rid":{}}"#,
            BadFrame,
            "rid is an object: it must be a string of at most 255 bytes or a whole number",
        ),
        (
            r#"{"type":"PUBLISH","payload":1}"#,
            BadFrame,
            "topic is missing: it must be a string: the topic's name",
        ),
        (
            r#"{"type":"PUBLISH","topic":7,"payload":1}"#,
            BadFrame,
            "topic is 7: it must be a string: the topic's name",
        ),
        (
            r#"{"type":"PUBLISH","topic":"a..b","payload":1}"#,
            BadTopic,
            "topic has an empty dot segment: no leading, trailing or doubled dots",
        ),
        (
            r#"{"type":"PUBLISH","topic":"a\u0007","payload":1}"#,
            BadTopic,
            "topic contains '\\u{7}': only A-Z a-z 0-9 . _ : - are allowed",
        ),
        (
            r#"{"type":"PUBLISH","topic":"a"}"#,
            BadFrame,
            "payload is missing: it must be any JSON value, null included",
        ),
        (
            r#"{"type":"PUBLISH","topic":"a","payload":1,"key":"\ud800"}"#,
            BadFrame,
            r#"key is "\ud800": it must be a string without lone surrogates"#,
        ),
        (
            r#"{"type":"PUBLISH","topic":"a","payload":1,"key":["k"]}"#,
            BadFrame,
            "key is an array: it must be a string without lone surrogates",
        ),
        (
            r#"{"type":"PUBLISH","topic":"a","payload":1,"headers":{"ok":"x","n":1}}"#,
            BadFrame,
            "headers.n is 1: it must be a string without lone surrogates",
        ),
        (
            r#"{"type":"PUBLISH","topic":"a","payload":1,"headers":["x"]}"#,
            BadFrame,
            "headers is an array: it must be an object of strings",
        ),
        (
            r#"{"type":"PUBLISH","topic":"a","payload":1,"id":""}"#,
            BadFrame,
            "id has 0 bytes: 1 to 255 are allowed",
        ),
        (
            r#"{"type":"PUBLISH","topic":"a","payload":1,"id":9}"#,
            BadFrame,
            "id is 9: it must be a string of 1 to 255 printable ASCII characters",
        ),
        (
            r#"{"type":"PUBLISH","topic":"a","payload":1,"priority":2147483648}"#,
            BadFrame,
            "priority is 2147483648: it must be a whole number from -2147483648 to 2147483647",
        ),
        (
            r#"{"type":"PUBLISH","topic":"a","payload":1,"delay_ms":-1}"#,
            BadFrame,
            "delay_ms is -1: it must be a whole number of milliseconds, 0 or more and at most what the server allows (a year unless set)",
        ),
        (
            r#"{"type":"PUBLISH","topic":"a","payload":1,"delay_ms":1,"deliver_at":1}"#,
            BadFrame,
            "delay_ms and deliver_at are both given: give one of them",
        ),
        (
            r#"{"type":"PUBLISH_BATCH","topic":"a"}"#,
            BadFrame,
            "events is missing: it must be an array of objects, each with a payload",
        ),
        (
            r#"{"type":"PUBLISH_BATCH","topic":"a","events":{}}"#,
            BadFrame,
            "events is an object: it must be an array of objects, each with a payload",
        ),
        (
            r#"{"type":"PUBLISH_BATCH","topic":"a","events":[{"payload":1},2]}"#,
            BadFrame,
            "events[1] is no object: it must be an object with a payload",
        ),
        (
            r#"{"type":"PUBLISH_BATCH","topic":"a","events":[{"payload":1},{"key":"k"}]}"#,
            BadFrame,
            "events[1].payload is missing: it must be any JSON value, null included",
        ),
        (
            r#"{"type":"PUBLISH_BATCH","topic":"a","events":[{"payload":1,"delay_ms":5}]}"#,
            BadFrame,
            "events[0].delay_ms is given: events of a batch cannot be delayed, publish them one by one",
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a"}"#,
            BadFrame,
            "group is missing: it must be a string: the group's name",
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"a b"}"#,
            BadGroup,
            "group contains ' ': only A-Z a-z 0-9 . _ : - are allowed",
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":"earliest"}"#,
            BadFrame,
            r#"from is "earliest": it must be an object such as {"kind":"earliest"}"#,
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{}}"#,
            BadFrame,
            r#"from.kind is missing: it must be "latest", "earliest", "offset" or "timestamp""#,
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{"kind":"first"}}"#,
            BadFrame,
            r#"from.kind is "first": it must be "latest", "earliest", "offset" or "timestamp""#,
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{"kind":"timestamp"}}"#,
            BadFrame,
            "from.value is missing: it must be a whole number from 0 to 9007199254740991: the offset, or the time in epoch milliseconds",
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{"kind":"latest","reset":1}}"#,
            BadFrame,
            "from.reset is 1: it must be true or false",
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","max_inflight":0}"#,
            BadFrame,
            "max_inflight is 0: it must be a whole number, 1 or more and at most what the server allows (4096 unless set)",
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","batch_max":1001}"#,
            BadFrame,
            "batch_max is 1001: it must be a whole number from 1 to 1000: events in one MESSAGES frame",
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","ack_mode":"all"}"#,
            BadFrame,
            r#"ack_mode is "all": it must be "cumulative" or "individual""#,
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","filter":{"header":["n"]}}"#,
            BadFrame,
            "filter.header is an array: it must be an array of two strings: name and value",
        ),
        (
            r#"{"type":"SUBSCRIBE","topic":"a","group":"g","filter":{"key":5}}"#,
            BadFrame,
            "filter.key is 5: it must be a string without lone surrogates",
        ),
        (
            r#"{"type":"ACK","topic":"a","group":"g","offset":1}"#,
            BadFrame,
            "partition is missing: it must be a whole number from 0 to 4294967295",
        ),
        (
            r#"{"type":"ACK","topic":"a","partition":-1,"group":"g","offset":1}"#,
            BadFrame,
            "partition is -1: it must be a whole number from 0 to 4294967295",
        ),
        (
            r#"{"type":"ACK","topic":"a","partition":0,"group":"g","offset":1.5}"#,
            BadFrame,
            "offset is 1.5: it must be a whole number from 0 to 9007199254740991",
        ),
        (
            r#"{"type":"ACK","topic":"a","partition":0,"group":"g","offset":1e3}"#,
            BadFrame,
            "offset is 1e3: it must be a whole number from 0 to 9007199254740991",
        ),
        (
            r#"{"type":"ACK","topic":"a","partition":0,"group":"g","offset":99999999999999999999999999999999999999999999999999}"#,
            BadFrame,
            "offset is 9999999999999999999999999999999999999999... (50 bytes): it must be a whole number from 0 to 9007199254740991",
        ),
        (
            r#"{"type":"NACK","topic":"a","partition":0,"group":"g","offset":1,"reason":5}"#,
            BadFrame,
            "reason is 5: it must be a string",
        ),
        (
            r#"{"type":"FLOW"}"#,
            BadFrame,
            "credits is missing: it must be a whole number from 0 to 9007199254740991",
        ),
        (
            r#"{"type":"FLOW","credits":-1}"#,
            BadFrame,
            "credits is -1: it must be a whole number from 0 to 9007199254740991",
        ),
        (r#"{"type":"AUTH","token":12345}"#, BadFrame, "token is a number: it must be a string"),
    ] {
        let error = ClientFrame::parse(text).expect_err(text);
        assert_eq!((error.code, error.message.as_str()), (code, message), "{text}");
    }
}

#[test]
fn a_field_name_that_is_no_text_is_a_bad_frame_not_bad_json() {
    let error = ClientFrame::parse(r#"{"\ud800":1,"type":"PING"}"#).unwrap_err();
    assert_eq!(error.code, ErrorCode::BadFrame, "{error}");
}

#[test]
fn an_error_repeats_the_request_id_and_what_it_is_about() {
    let error =
        ClientFrame::parse(r#"{"type":"ACK","topic":"a","group":"g","partition":3,"offset":"x","rid":"r"}"#)
            .unwrap_err();
    let mut out = String::new();
    error.write(&mut out);
    assert_eq!(
        out,
        r#"{"type":"ERROR","code":"bad_frame","message":"offset is \"x\": it must be a whole number from 0 to 9007199254740991","rid":"r","topic":"a","group":"g","partition":3}"#
    );
}

#[test]
fn nesting_is_bounded_and_counts_the_frame_itself() {
    let frame = |levels: usize| {
        format!(r#"{{"type":"PUBLISH","topic":"a","payload":{}{}}}"#, "[".repeat(levels), "]".repeat(levels))
    };
    assert!(ClientFrame::parse(&frame(127)).is_ok());
    for levels in [128, 10_000] {
        let error = ClientFrame::parse(&frame(levels)).unwrap_err();
        assert_eq!(error.code, ErrorCode::BadJson);
        assert_eq!(error.message, "not valid JSON: nested more than 128 levels deep");
    }
}

#[test]
fn a_request_id_has_a_longest_length() {
    let frame = |rid: &str| ClientFrame::parse(&format!(r#"{{"type":"PING","rid":{rid}}}"#));
    assert!(frame(&format!("{:?}", "r".repeat(255))).is_ok());
    assert!(frame(&format!("{:?}", "r".repeat(256))).is_err());
    assert!(frame(&"9".repeat(255)).is_ok());
    assert!(frame(&"9".repeat(256)).is_err());
}

#[test]
fn a_token_is_never_shown() {
    let frame = ClientFrame::parse(r#"{"type":"AUTH","token":"hunter2"}"#).unwrap();
    assert!(!format!("{frame:?}").contains("hunter2"));
}
