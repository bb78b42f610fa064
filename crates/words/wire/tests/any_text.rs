//! Parsing never panics, whatever the text; and a parsed value is written so that it parses to the same value again.

use millrace_wire::http::{EventsPage, PublishBody, Replay, Seek, TopicBody, parse_topic_patch};
use millrace_wire::{ClientFrame, Envelope, ErrorCode, ServerFrame};
use proptest::prelude::*;

const FRAMES: &[&str] = &[
    r#"{"type":"PUBLISH","topic":"a","payload":{"a":[1,null,"x\u00e9"]},"key":"k","headers":{"h":"v"},"id":"i","rid":1}"#,
    r#"{"type":"PUBLISH_BATCH","topic":"a","events":[{"payload":1},{"payload":"\ud83d\ude00","key":"k"}]}"#,
    r#"{"type":"SUBSCRIBE","topic":"a","group":"g","from":{"kind":"offset","value":3,"reset":true},"filter":{"header":["a","b"]}}"#,
    r#"{"type":"NACK","topic":"a","partition":0,"group":"g","offset":5,"reason":"r","delay_ms":7}"#,
    r#"{"type":"PUBLISHED","topic":"a","offsets":[[0,1],[1,2]],"durability":"fsync","rid":"r"}"#,
    r#"{"type":"MESSAGE","topic":"a","partition":0,"group":"g","offset":5,"envelope":{"id":"i","ts":1,"topic":"a","partition":0,"offset":5,"payload":[[]],"attempts":2}}"#,
    r#"{"topic":"a","partitions":4,"retentionMs":1000,"durability":"os","compact":false}"#,
    r#"[{"payload":1,"headers":{"a":"b"}},{"payload":null}]"#,
];

fn read_every_way(text: &str) {
    if let Ok(frame) = ClientFrame::parse(text) {
        let mut out = String::new();
        frame.write(&mut out);
        assert_eq!(ClientFrame::parse(&out).as_ref(), Ok(&frame), "{text} became {out}");
    }
    if let Ok(frame) = ServerFrame::parse(text) {
        let mut out = String::new();
        frame.write(&mut out);
        assert_eq!(ServerFrame::parse(&out).as_ref(), Ok(&frame), "{text} became {out}");
    }
    let _ = (PublishBody::parse(text), TopicBody::parse(text), parse_topic_patch(text), Seek::parse(text));
    let _ = (Replay::parse(text), EventsPage::parse(text), Envelope::parse(text));
}

/// Exactly the texts that are not JSON are refused as not JSON.
fn check_verdict(text: &str) {
    let grammatical = serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok();
    if let Err(error) = ClientFrame::parse(text) {
        let too_deep = error.message.contains("levels deep");
        assert_eq!(error.code == ErrorCode::BadJson, !grammatical || too_deep, "{text}: {error}");
    } else {
        assert!(grammatical, "{text}");
    }
}

/// Returns frames with a piece cut out, repeated, or replaced by a token of JSON.
fn mutated() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "null",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        ",",
        ":",
        "-1",
        "1e999",
        "\\ud800",
        "\u{0}",
        "true",
        "{}",
        "[]",
        "9",
        "99999999999999999999",
        "\"type\":\"ACK\",",
        "é",
    ]);
    let frame = prop::sample::select(FRAMES.to_vec());
    let cuts = prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, token, any::<bool>()), 1..4);
    (frame, cuts).prop_map(|(frame, cuts)| {
        let mut text: Vec<char> = frame.chars().collect();
        for (at, length, token, replace) in cuts {
            let at = at.index(text.len() + 1);
            let end = if replace { (at + length).min(text.len()) } else { at };
            text.splice(at..end, token.chars());
        }
        text.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        read_every_way(&text);
        check_verdict(&text);
    }

    #[test]
    fn frames_with_damage_get_an_answer(text in mutated()) {
        read_every_way(&text);
        check_verdict(&text);
    }

    #[test]
    fn json_soup_gets_an_answer(text in r#"([\[\]{},:"\\ 0-9a-z.-]|null|true|"type"|"PUBLISH"|\\u[d-e][89a-f]00){0,60}"#) {
        read_every_way(&text);
        check_verdict(&text);
    }
}
