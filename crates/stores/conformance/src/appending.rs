//! Appends: the offsets, times and ids that events get, and what the commit returns for them.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{
    BATCH_BYTES_MAX, Batch, EventBody, EventId, Headers, JsonText, Lineage, Offset, Op, Priority, Space,
    Timestamp,
};

use crate::Subject;
use crate::build::{append, append_body, append_id, batch, body, put, stream};
use crate::subject::WHOLE;
use millrace_store::StoreError;

pub(super) fn offsets_are_dense_from_one(subject: &mut Subject) {
    let s = stream("dense", 0);
    let mut expected = 1;
    for size in [1, 3, 1, 20, 2] {
        let appended = subject.done(batch(1000, (0..size).map(|_| append(&s, "x")).collect()));
        for one in appended {
            assert_eq!((one.offset, one.partition, one.duplicate), (Offset(expected), s.partition, false));
            expected += 1;
        }
    }
    let offsets: Vec<u64> = subject.page(&s, 1, WHOLE).events.iter().map(|event| event.offset.0).collect();
    assert_eq!(offsets, (1..expected).collect::<Vec<_>>());
}

pub(super) fn appended_events_read_back_as_they_were_given(subject: &mut Subject) {
    let s = stream("whole", 3);
    let id = |text: &str| EventId::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let uuid = id("01912f3a-4b5c-7dea-9bee-fcafef00d123");
    let headers = BTreeMap::from([("trace".to_owned(), "ä\u{0}\"".to_owned())]);
    let full = EventBody {
        key: Some("customer 7\u{0}ß".into()),
        headers: Some(Headers::from_map(&headers)),
        priority: Priority(-5),
        lineage: Lineage {
            root: Some(uuid.clone()),
            depth: u32::MAX,
            causation: Some(id("caused by")),
            correlation: Some(id("~")),
        },
        payload: JsonText::from_stored(Bytes::from_static("{\"n\":1e400,\"s\":\"\u{1F600}\"}".as_bytes())),
    };
    let mut bare = body("");
    bare.key = Some("".into());
    let given = [
        (None, full.clone()),
        (Some(uuid), full),
        (Some(id("order 7")), bare),
        (Some(id(&"x".repeat(255))), EventBody::of(JsonText::null())),
    ];
    let ops = given.iter().map(|(id, body)| append_body(&s, id.clone(), body.clone(), 10)).collect();
    let appended = subject.done(batch(77, ops));
    for _ in 0..2 {
        let events = subject.page(&s, 1, WHOLE).events;
        assert_eq!(events.len(), given.len());
        for ((event, (id, body)), one) in events.iter().zip(&given).zip(&appended) {
            assert_eq!(&event.stream, &s);
            assert_eq!((event.offset, event.ts, &event.id), (one.offset, one.ts, &one.id));
            assert_eq!(event.body.as_ref(), body);
            assert!(id.as_ref().is_none_or(|id| *id == event.id));
        }
        subject.reopen();
    }
}

pub(super) fn minted_ids_are_a_function_of_time_nonce_and_ordinal(subject: &mut Subject) {
    let (s, other) = (stream("ids", 0), stream("ids", 1));
    let ops =
        vec![append(&s, "a"), put(Space::Kv, "k", "v"), append_id(&s, "own", "b", 0), append(&other, "c")];
    let appended = subject.done(Batch { nonce: 42, ..batch(500, ops) });
    let ids: Vec<EventId> = appended.iter().map(|one| one.id.clone()).collect();
    let minted = |ordinal| EventId::mint(Timestamp(500), 42, ordinal);
    assert_eq!(ids, [minted(0), EventId::Text("own".into()), minted(2)]);
}

pub(super) fn time_never_falls_within_a_stream(subject: &mut Subject) {
    let (s, other) = (stream("clock", 0), stream("clock", 1));
    let ts = |subject: &Subject, now, s| subject.done(batch(now, vec![append(s, "x")]))[0].ts.0;
    assert_eq!(ts(subject, 1000, &s), 1000);
    assert_eq!(ts(subject, 400, &s), 1000);
    assert_eq!(ts(subject, 400, &other), 400);
    subject.reopen();
    assert_eq!(ts(subject, 900, &s), 1000);
    assert_eq!(ts(subject, 1001, &s), 1001);
    let both = [batch(2000, vec![append(&s, "x")]), batch(1500, vec![append(&s, "x")])];
    subject.commit(&both);
    let all: Vec<u64> = subject.page(&s, 1, WHOLE).events.iter().map(|event| event.ts.0).collect();
    assert_eq!(all, [1000, 1000, 1000, 1001, 2000, 2000]);
    let late = subject.done(batch(0, vec![append(&s, "x")]));
    assert_eq!(late[0].id.to_string()[..13], EventId::mint(Timestamp(2000), 0, 0).to_string()[..13]);
}

pub(super) fn many_streams_interleave(subject: &mut Subject) {
    const STREAMS: usize = 60;
    const ROUNDS: usize = 12;
    let streams: Vec<_> = (0..STREAMS).map(|n| stream(&format!("many{}", n / 4), (n % 4) as u32)).collect();
    for round in 0..ROUNDS {
        let ops = |from: usize| {
            (from..STREAMS)
                .step_by(2)
                .map(|n| append(&streams[n], &format!("{n}.{round}")))
                .collect::<Vec<Op>>()
        };
        subject.commit(&[batch(round as u64, ops(0)), batch(round as u64, ops(1)), batch(9, ops(0))]);
    }
    for _ in 0..2 {
        for (n, s) in streams.iter().enumerate() {
            let copies = if n % 2 == 0 { 2 } else { 1 };
            let expected: Vec<String> =
                (0..ROUNDS).flat_map(|round| vec![format!("\"{n}.{round}\""); copies]).collect();
            assert_eq!(subject.payloads(s), expected, "{s}");
        }
        subject.maintain_all(50);
        subject.reopen();
    }
}

pub(super) fn a_full_batch_is_taken(subject: &mut Subject) {
    let s = stream("large", 0);
    let one_mib = "x".repeat(1 << 20);
    let mut ops: Vec<Op> = (0..11).map(|_| append(&s, &one_mib)).collect();
    ops.extend((0..5000).map(|n| append(&s, &format!("{n}"))));
    assert_eq!(subject.done(batch(1, ops)).len(), 5011);
    let page = subject.page(&s, 1, WHOLE);
    assert_eq!((page.events.len(), page.through), (5011, Offset(5011)));
    assert_eq!(page.events[10].body.payload.bytes().len(), (1 << 20) + 2);
    assert_eq!(page.events[5010].body.payload.as_str(), "\"4999\"");
}

pub(super) fn a_batch_over_the_limit_is_refused_and_nothing_is_written(subject: &mut Subject) {
    let s = stream("limit", 0);
    let over = batch(1, vec![append(&s, &"x".repeat(BATCH_BYTES_MAX))]);
    let bytes = over.bytes();
    let refused = subject.store().commit(&[batch(1, vec![append(&s, "fine")]), over]);
    assert_eq!(refused, Err(StoreError::TooLarge { bytes, max: BATCH_BYTES_MAX }));
    assert!(subject.payloads(&s).is_empty());
    subject.done(batch(1, vec![append(&s, "the store is not poisoned")]));
    assert_eq!(subject.payloads(&s).len(), 1);
}
