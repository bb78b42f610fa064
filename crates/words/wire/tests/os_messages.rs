//! Lines of the CQRS loop, read and written: which are messages, which are refused and with which text.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;

use millrace_model::{JsonText, OsId, OsKind, OsMessage, OsMetadata, OsType, Timestamp};
use millrace_wire::os::{Lenient, OsRefusal, encode, parse};
use proptest::prelude::*;

fn line(message: &OsMessage) -> String {
    let mut out = Vec::new();
    encode(message, &mut out);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.find('\n'), Some(text.len() - 1), "one line: {text:?}");
    text.trim_end().to_owned()
}

fn read(text: &str) -> OsMessage {
    parse(text.as_bytes(), None).unwrap_or_else(|refusal| panic!("{text}: {refusal}"))
}

fn refused(text: impl AsRef<[u8]>) -> OsRefusal {
    match parse(text.as_ref(), None) {
        Ok(message) => panic!("{message:?} was to be refused"),
        Err(refusal) => refusal,
    }
}

fn id(text: &str) -> OsId {
    OsId::new(text).unwrap()
}

#[test]
fn a_message_is_written_as_it_was_read() {
    for text in [
        r#"{"kind":"query","type":"Syscall.Ping","data":{"payload":1},"metadata":{"id":"a","timestamp":1}}"#,
        r#"{"kind":"reply","type":"A.B","data":null,"metadata":{"id":"a","timestamp":0,"correlation":"c","causation":"b"}}"#,
        r#"{"kind":"event","type":"A.B","data":[],"metadata":{"id":"a\n\"","timestamp":9007199254740991,"tenant":{"x": [1, 2]},"\ud800":-0}}"#,
        r#"{"kind":"error","type":"A.B","data":{"code":500,"message":"x"},"metadata":{"id":"ü","timestamp":5}}"#,
        r#"{"kind":"command","type":"A.B","data":"","metadata":{"id":"\u0000","timestamp":5}}"#,
    ] {
        assert_eq!(line(&read(text)), text);
    }
}

#[test]
fn data_keeps_its_bytes() {
    for data in [
        "1e400",
        "-0",
        "1.0",
        "12345678901234567890",
        "0.1000000000000000055511151231257827",
        r#""\ud800""#,
        r#"{"\udfff":"\u00e9é"}"#,
        r#"{ "a" : 1 , "a":2 }"#,
        "\"\u{7f}\u{2028}\"",
    ] {
        let text =
            format!(r#"{{"kind":"query","type":"A.B","data":{data},"metadata":{{"id":"a","timestamp":1}}}}"#);
        let message = read(&text);
        assert_eq!(message.data.as_str(), data);
        assert_eq!(line(&message), text);
    }
}

#[test]
fn line_breaks_between_tokens_become_spaces() {
    let message = read(
        "{\"kind\":\"query\",\r\n\"type\":\"A.B\",\"data\":[1,\r2,\n3],\"metadata\":{\"id\":\"a\",\"timestamp\":1,\"x\":[\r\n]}}\r",
    );
    assert_eq!(message.data.as_str(), "[1, 2, 3]");
    assert_eq!(message.metadata.other.as_deref(), Some("\"x\":[  ]"));
}

#[test]
fn members_nobody_knows_stay_in_metadata_and_go_at_the_top() {
    let message = read(
        r#"{"v":1,"kind":"query","type":"A.B","data":{"x":1},"metadata":{"a":1,"id":"i","b" : [2] ,"timestamp":1},"\ud800":2}"#,
    );
    assert_eq!(message.metadata.other.as_deref(), Some(r#""a":1,"b":[2]"#));
    assert_eq!(
        line(&message),
        r#"{"kind":"query","type":"A.B","data":{"x":1},"metadata":{"id":"i","timestamp":1,"a":1,"b":[2]}}"#
    );
}

#[test]
fn of_two_members_with_one_name_the_last_counts() {
    let message = read(
        r#"{"kind":"event","kind":"query","type":"A.B","data":1,"data":2,"metadata":1,"metadata":{"id":"a","\u0069d":"b","timestamp":1,"timestamp":2}}"#,
    );
    assert_eq!(
        line(&message),
        r#"{"kind":"query","type":"A.B","data":2,"metadata":{"id":"b","timestamp":2}}"#
    );
}

#[test]
fn null_lineage_counts_as_absent() {
    let message = read(
        r#"{"kind":"query","type":"A.B","data":1,"metadata":{"id":"a","timestamp":1,"correlation":null,"causation":null}}"#,
    );
    assert_eq!((message.metadata.correlation, message.metadata.causation), (None, None));
}

#[test]
fn a_timestamp_is_whole_however_it_is_spelt() {
    let with = |timestamp: &str| {
        format!(r#"{{"kind":"query","type":"A.B","data":1,"metadata":{{"id":"a","timestamp":{timestamp}}}}}"#)
    };
    for (spelt, value) in [("0", 0), ("1.0", 1), ("1e3", 1000), ("-0", 0), ("-0.0", 0), ("1.5e1", 15)] {
        assert_eq!(read(&with(spelt)).metadata.timestamp, Timestamp(value), "{spelt}");
    }
    for spelt in
        ["1.5", "-1", "1e400", "9007199254740992", "99999999999999999999", "\"1\"", "null", "true", "[1]"]
    {
        let refusal = refused(with(spelt));
        assert_eq!(refusal.code, 422, "{spelt}");
        assert!(refusal.message.contains("metadata.timestamp"), "{spelt}: {refusal}");
    }
}

#[test]
fn what_is_no_json_gets_400() {
    let deep = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(
            r#"{{"kind":"query","type":"A.B","data":{open}{close},"metadata":{{"id":"a","timestamp":1}}}}"#
        )
    };
    for bad in [
        &b"{"[..],
        b"",
        b"nul",
        b"{\"kind\":\"query\",}",
        b"{} {}",
        b"\0",
        b"\"\xff\"",
        b"{\"kind\":\"\xed\xa0\x80\"}",
        b"\xef\xbb\xbf{}",
        b"{\"a\":\"\x01\"}",
        "[".repeat(8000).as_bytes(),
    ] {
        let refusal = refused(bad);
        assert_eq!(refusal.code, 400, "{bad:?}");
        assert!(refusal.message.starts_with("Invalid JSON: "), "{refusal}");
        assert_eq!((refusal.ty, refusal.causation), (None, None));
    }
    assert!(parse(deep(127).as_bytes(), None).is_ok());
    let refusal = refused(deep(128));
    assert_eq!((refusal.code, refusal.causation), (400, Some(id("a"))));
    assert_eq!(refusal.message, "Invalid JSON: nested more than 128 levels deep");
    assert_eq!(refused(deep(100_000)).code, 400);
}

#[test]
fn what_is_json_but_no_message_gets_422_and_hears_everything_at_once() {
    for bad in ["null", "[]", "1", "\"x\"", "true"] {
        let refusal = refused(bad);
        assert_eq!(refusal.code, 422, "{bad}");
        assert!(refusal.message.starts_with("Schema validation failed: found "), "{refusal}");
    }
    let refusal = refused("{}");
    let expected = "Schema validation failed: kind is missing: it must be \"command\", \"query\", \"event\", \"reply\" or \
                    \"error\"; type is missing: it must be a domain and an action such as \"Memory.Get\", both beginning \
                    with A-Z and made of A-Z a-z 0-9, at most 256 characters together; data is missing: it must be any \
                    JSON value, null included; metadata is missing: it must be an object with id and timestamp";
    assert_eq!((refusal.code, refusal.message.as_str()), (422, expected));

    let wrong = |text: &str, words: &str| {
        let refusal = refused(text);
        assert_eq!(refusal.code, 422, "{text}");
        assert!(refusal.message.contains(words), "{text}: {refusal}");
        refusal
    };
    wrong(
        r#"{"kind":"Query","type":"A.B","data":1,"metadata":{"id":"a","timestamp":1}}"#,
        "kind is \"Query\"",
    );
    wrong(r#"{"kind":7,"type":"A.B","data":1,"metadata":{"id":"a","timestamp":1}}"#, "kind is 7");
    wrong(
        r#"{"kind":"query","type":"Echo","data":1,"metadata":{"id":"a","timestamp":1}}"#,
        "type is \"Echo\"",
    );
    wrong(r#"{"kind":"query","type":{},"data":1,"metadata":{"id":"a","timestamp":1}}"#, "type is an object");
    wrong(r#"{"kind":"query","type":"A.B","metadata":{"id":"a","timestamp":1}}"#, "data is missing");
    wrong(r#"{"kind":"query","type":"A.B","data":1,"metadata":[]}"#, "metadata is an array");
    wrong(r#"{"kind":"query","type":"A.B","data":1,"metadata":null}"#, "metadata is null");
    wrong(r#"{"kind":"query","type":"A.B","data":1,"metadata":{"timestamp":1}}"#, "metadata.id is missing");
    wrong(
        r#"{"kind":"query","type":"A.B","data":1,"metadata":{"id":"","timestamp":1}}"#,
        "metadata.id is \"\"",
    );
    wrong(r#"{"kind":"query","type":"A.B","data":1,"metadata":{"id":1,"timestamp":1}}"#, "metadata.id is 1");
    wrong(
        r#"{"kind":"query","type":"A.B","data":1,"metadata":{"id":"\ud800","timestamp":1}}"#,
        "metadata.id is",
    );
    let empty =
        r#"{"kind":"query","type":"A.B","data":1,"metadata":{"id":"a","timestamp":1,"correlation":""}}"#;
    wrong(empty, "metadata.correlation is \"\"");
    let number =
        r#"{"kind":"query","type":"A.B","data":1,"metadata":{"id":"a","timestamp":1,"causation":5}}"#;
    wrong(number, "metadata.causation is 5");
    let long = "x".repeat(10_000);
    let refusal = wrong(&format!(r#"{{"type":"{long}","metadata":{{"id":"{long}"}}}}"#), "metadata.id is");
    assert!(refusal.message.len() < 2000, "what is quoted is cut: {}", refusal.message.len());
}

#[test]
fn a_refusal_quotes_what_can_be_read() {
    let refusal = refused(
        r#"{"kind":"x","type":"A.B","metadata":{"id":"a","timestamp":"now","correlation":"c","causation":"other"}}"#,
    );
    assert_eq!(refusal.ty.as_ref().map(OsType::as_str), Some("A.B"));
    let error = refusal.into_message(id("new"), Timestamp(9));
    assert_eq!((error.kind, error.ty.as_str()), (OsKind::Error, "A.B"));
    assert_eq!(error.metadata.causation, Some(id("a")));
    assert_eq!(error.metadata.correlation, Some(id("c")));
    assert_eq!((error.metadata.id, error.metadata.timestamp), (id("new"), Timestamp(9)));

    let error = refused(r#"{"kind":"query","type":"echo","data":1,"metadata":{"timestamp":1}}"#)
        .into_message(id("n"), Timestamp(9));
    assert_eq!((error.ty.as_str(), error.metadata.causation), ("Validation.Failed", None));
    let error = refused("{").into_message(id("n"), Timestamp(9));
    assert_eq!(
        line(&error),
        r#"{"kind":"error","type":"Validation.Failed","data":{"code":400,"message":"Invalid JSON: EOF while parsing an object at line 1 column 1"},"metadata":{"id":"n","timestamp":9}}"#
    );
}

#[test]
fn the_words_for_a_line_that_is_too_long() {
    let refusal = OsRefusal::too_long(16_384);
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (413, "Message exceeds maximum line length of 16KB")
    );
    assert_eq!(OsRefusal::too_long(1000).message, "Message exceeds maximum line length of 1000 bytes");
}

#[test]
fn a_lenient_edge_gives_absent_metadata_and_only_that() {
    let asked = Cell::new(0);
    let make = || {
        asked.set(asked.get() + 1);
        id("made")
    };
    let lenient = Some(Lenient { id: &make, timestamp: Timestamp(7) });
    let read = |text: &str| parse(text.as_bytes(), lenient).unwrap().metadata;
    for text in [
        r#"{"kind":"query","type":"A.B","data":1}"#,
        r#"{"kind":"query","type":"A.B","data":1,"metadata":null}"#,
        r#"{"kind":"query","type":"A.B","data":1,"metadata":{}}"#,
        r#"{"kind":"query","type":"A.B","data":1,"metadata":{"id":null,"timestamp":null}}"#,
    ] {
        let metadata = read(text);
        assert_eq!((metadata.id, metadata.timestamp), (id("made"), Timestamp(7)), "{text}");
    }
    assert_eq!(asked.get(), 4);
    let metadata = read(r#"{"kind":"query","type":"A.B","data":1,"metadata":{"id":"own","x":1}}"#);
    assert_eq!((metadata.id, metadata.timestamp), (id("own"), Timestamp(7)));
    assert_eq!((asked.get(), metadata.other.as_deref()), (4, Some("\"x\":1")));
    for bad in [
        r#"{"kind":"query","type":"A.B","data":1,"metadata":5}"#,
        r#"{"kind":"query","type":"A.B","data":1,"metadata":{"id":""}}"#,
        r#"{"kind":"query","type":"A.B","data":1,"metadata":{"timestamp":-1}}"#,
        r#"{"kind":"query","type":"A.B"}"#,
    ] {
        assert_eq!(parse(bad.as_bytes(), lenient).unwrap_err().code, 422, "{bad}");
    }
}

fn ids() -> impl Strategy<Value = OsId> {
    "\\PC{1,20}|[\\x00-\\x7f]{1,20}".prop_map(|text| OsId::new(&text).unwrap())
}

fn messages() -> impl Strategy<Value = OsMessage> {
    let kind = prop::sample::select(OsKind::ALL.to_vec());
    let data = prop::sample::select(vec![
        "null",
        "1e400",
        "-0",
        "[1, 2 ]",
        "{\"a\":{\"b\":\"\\ud800\"}}",
        "\"\"",
        "12345678901234567890",
    ]);
    let other = prop::sample::select(vec!["\"a\":1", "\"a\":1,\"a\":2", "\"\\ud800\":null,\"Id\":\"x\""]);
    let metadata = (
        ids(),
        0..=9_007_199_254_740_991u64,
        prop::option::of(ids()),
        prop::option::of(ids()),
        prop::option::of(other),
    );
    (kind, "[A-Z][a-zA-Z0-9]{0,9}\\.[A-Z][a-zA-Z0-9]{0,9}", data, metadata).prop_map(
        |(kind, ty, data, (id, timestamp, correlation, causation, other))| OsMessage {
            kind,
            ty: OsType::new(&ty).unwrap(),
            data: JsonText::parse(data).unwrap(),
            metadata: OsMetadata {
                id,
                timestamp: Timestamp(timestamp),
                correlation,
                causation,
                other: other.map(Into::into),
            },
        },
    )
}

/// Returns valid lines with pieces cut out, doubled or replaced by tokens of JSON.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let token = prop::sample::select(vec![
        &b"null"[..],
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b"\\",
        b",",
        b":",
        b"-1",
        b"1e999",
        b"\\ud800",
        b"\0",
        b"\xff",
        b"\r",
        b"\n",
        b"\"id\":1,",
        b"\"kind\":\"query\",",
        b"\xef\xbb\xbf",
    ]);
    let cuts = prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, token), 1..4);
    (messages(), cuts).prop_map(|(message, cuts)| {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes);
        for (at, length, token) in cuts {
            let at = at.index(bytes.len() + 1);
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, token.iter().copied());
        }
        bytes
    })
}

/// Checks that the bytes parse to a message that comes back the same, or to one refusal, which is itself a message.
fn check(bytes: &[u8]) {
    let message = match parse(bytes, None) {
        Ok(message) => message,
        Err(refusal) => {
            assert!(matches!(refusal.code, 400 | 422), "{refusal:?}");
            let grammatical = std::str::from_utf8(bytes)
                .is_ok_and(|text| serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok());
            let too_deep = refusal.message.contains("levels deep");
            assert_eq!(refusal.code == 400, !grammatical || too_deep, "{refusal:?}");
            refusal.into_message(id("x"), Timestamp(1))
        }
    };
    let mut line = Vec::new();
    encode(&message, &mut line);
    assert_eq!(parse(&line, None), Ok(message));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_message_comes_back(message in messages()) {
        let mut line = Vec::new();
        encode(&message, &mut line);
        prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        prop_assert_eq!(parse(&line, None), Ok(message));
    }

    #[test]
    fn any_bytes_get_one_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&bytes);
    }

    #[test]
    fn damaged_lines_get_one_answer(bytes in damaged()) {
        check(&bytes);
    }
}
