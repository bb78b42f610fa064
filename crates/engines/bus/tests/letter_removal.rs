//! Removing single dead letters: those that are named go, everything else stays.

mod harness;

use harness::{Harness, subscription, topic};
use millrace_bus::*;
use millrace_model::{Offset, Partition, TopicPatch};

/// A topic whose group has given up on three events.
fn with_letters() -> Harness {
    let mut harness = Harness::new();
    let settings = TopicPatch { max_attempts: Some(Some(1)), ..TopicPatch::default() };
    harness.call(Request::CreateTopic { topic: topic("t"), settings: settings.into(), only_new: false });
    harness.open(1);
    let subscribe = Subscribe { max_inflight: Some(3), ..subscription("t", "g") };
    harness.request(1, Request::Subscribe(subscribe));
    for (payload, offset) in [("1", 1), ("2", 2), ("3", 3)] {
        harness.publish("t", payload);
        harness.nack(1, "t", "g", offset, None);
    }
    harness.out();
    harness
}

fn remove(harness: &mut Harness, name: &str, partition: u32, offsets: &[u64]) -> Vec<String> {
    let offsets = offsets.iter().copied().map(Offset).collect();
    harness.call(Request::RemoveLetters { topic: topic(name), partition: Partition(partition), offsets });
    harness.out()
}

fn offsets(harness: &Harness, name: &str) -> Vec<u64> {
    harness.log(name).iter().map(|event| event.offset.0).collect()
}

#[test]
fn named_letters_go_and_the_others_stay() {
    let mut harness = with_letters();
    assert_eq!(offsets(&harness, "t.DLQ"), [1, 2, 3]);
    let told = remove(&mut harness, "t.DLQ", 0, &[3, 1, 1, 99]);
    assert!(told.len() == 1 && told[0].starts_with("LettersRemoved"), "{told:?}");
    assert_eq!(offsets(&harness, "t.DLQ"), [2]);
    assert_eq!(offsets(&harness, "t"), [1, 2, 3], "the events are where they were");
    harness.restart();
    harness.out();
    harness.open(2);
    let subscribe = Subscribe { from: Some(From::Earliest), ..subscription("t.DLQ", "w") };
    harness.request(2, Request::Subscribe(subscribe));
    let told = harness.out();
    let delivered: Vec<_> = told.iter().filter(|line| line.starts_with("2<-")).collect();
    assert!(delivered.len() == 1 && delivered[0].contains("t.DLQ/0/2"), "{told:?}");
}

#[test]
fn only_letters_can_be_removed() {
    let mut harness = with_letters();
    for (name, partition, offsets, code) in [
        ("t", 0, vec![1], "bad_frame"),
        ("nothing.DLQ", 0, vec![1], "bad_topic"),
        ("t.DLQ", 7, vec![1], "unknown_offset"),
        ("t.DLQ", 0, vec![99], "bad_frame"),
        ("t.DLQ", 0, vec![], "bad_frame"),
        ("t.DLQ", 0, vec![1; 1001], "limit_reached"),
    ] {
        let told = remove(&mut harness, name, partition, &offsets);
        assert!(told.len() == 1 && told[0].contains(code), "{name} {partition}: {told:?}");
    }
    assert_eq!(offsets(&harness, "t.DLQ"), [1, 2, 3]);
}
