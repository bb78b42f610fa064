//! Tests of the record's bytes: round trips, fixed bytes, damage, forged input.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use millrace_model::{
    EventBody, EventId, Headers, JsonText, Lineage, Offset, Partition, Priority, Space, Stream, TopicKey,
};
use millrace_store::RecordedEvent;
use proptest::prelude::*;

use super::*;

fn stream(topic: &str, partition: u32) -> Stream {
    TopicKey::parse(topic).unwrap().stream(Partition(partition))
}

fn event(offset: u64, ts: u64, id: EventId, body: EventBody) -> RecordedEvent {
    RecordedEvent {
        offset: Offset(offset),
        ts: Timestamp(ts),
        id,
        is_brought: offset.is_multiple_of(2),
        body: Arc::new(body),
    }
}

fn changes() -> Vec<RecordedChange> {
    let plain = EventBody::of(JsonText::parse(r#"{"n":1}"#).unwrap());
    let full = EventBody {
        key: Some("k".into()),
        headers: Some(Headers::from_map(&[("a".to_owned(), "b".to_owned())].into())),
        priority: Priority(-5),
        lineage: Lineage {
            root: Some(EventId::Uuid(7)),
            depth: 3,
            causation: Some(EventId::parse("cause").unwrap()),
            correlation: None,
        },
        payload: JsonText::null(),
    };
    let events = vec![
        event(8, 1_000, EventId::parse("brought").unwrap(), full),
        event(9, 1_000, EventId::Uuid(u128::MAX), plain),
    ];
    vec![
        RecordedChange::Put { space: Space::Kv, key: "a".into(), value: "1".into() },
        RecordedChange::Delete { space: Space::Schemas, key: String::new() },
        RecordedChange::Remove {
            stream: stream("main/a", 2),
            number: 4,
            offsets: vec![Offset(1), Offset(5), Offset(6)],
            compacted_to: Offset(7),
        },
        RecordedChange::Drop { topic: TopicKey::parse("main/b").unwrap(), at: Timestamp(9) },
        RecordedChange::Append { stream: stream("main/a", 2), number: 4, events },
        RecordedChange::Start { stream: stream("main/a", 2), number: 4, start: Offset(6) },
    ]
}

fn head() -> RecordHead {
    RecordHead { writer: 1 << 100, nonce: 2, n: 3, term: 4, time: Timestamp(5), prev: Tip([6; 16]) }
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    for changes in [changes(), Vec::new(), (0..20).flat_map(|_| changes()).collect()] {
        let (bytes, tip) = encode(&head(), &changes);
        let (record, found) = decode(&bytes.clone().into()).unwrap();
        assert_eq!((record.head, found, &record.changes), (head(), tip, &changes));
        assert_eq!(decode_head(&bytes).unwrap(), (head(), tip));
    }
}

/// Journals hold these bytes: no version may write others under the same format.
#[test]
fn the_bytes_of_a_record_never_change() {
    let (bytes, tip) = encode(&head(), &changes()[..2]);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        format!(
            "4d4c4a31010000000000000000000000000010000000020000000000000003000000000000000400000000000000\
             05000000000000000606060606060606060606060606060609000000010701610131021300{tip}"
        )
    );
}

#[test]
fn small_events_of_a_large_record_cost_few_bytes() {
    let payload = JsonText::parse(&format!("{:?}", "x".repeat(254))).unwrap();
    let events: Vec<RecordedEvent> =
        (1..=32).map(|n| event(n, 1_000, EventId::Uuid(n.into()), EventBody::of(payload.clone()))).collect();
    let plain = body::encode(&[RecordedChange::Append { stream: stream("main/a", 0), number: 1, events }]);
    let per_event = (plain.len() + HEAD_BYTES + TIP_BYTES) / 32 - 256;
    assert!(per_event <= 48, "{per_event} bytes beside the payload");
}

#[test]
fn every_changed_bit_is_noticed() {
    let (bytes, _) = encode(&head(), &changes());
    for at in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        assert!(decode(&damaged.into()).is_err(), "bit {at}");
    }
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len].to_vec().into()).is_err(), "{len} bytes");
    }
}

#[test]
fn a_newer_format_says_what_to_do() {
    let (mut bytes, _) = encode(&head(), &changes());
    bytes[4] = 2;
    let error = decode(&bytes.into()).unwrap_err();
    assert_eq!(error.to_string(), "it has format 2, this build reads up to 1: upgrade this server");
}

proptest! {
    /// A forged body has a right checksum: the decoder of the body must stand on its own.
    #[test]
    fn no_body_makes_the_decoder_panic(body: Vec<u8>) {
        let _ = body::decode(&body.into());
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>) {
        let _ = decode(&[MAGIC.as_slice(), &[FORMAT], &bytes].concat().into());
    }

    #[test]
    fn a_body_cut_short_or_changed_never_panics(cut in 0usize..400, at in 0usize..400, byte: u8) {
        let mut body = body::encode(&changes());
        body.truncate(body.len().saturating_sub(cut));
        if let Some(place) = body.get_mut(at) {
            *place = byte;
        }
        let _ = body::decode(&body.into());
    }
}
