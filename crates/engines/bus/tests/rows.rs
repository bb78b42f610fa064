//! Rows of other engines on their way through the one commit queue.

mod harness;

use bytes::Bytes;
use harness::Harness;
use millrace_bus::*;
use millrace_model::*;

fn put(key: &str, value: &str) -> Op {
    Op::Put { space: Space::Kv, key: key.to_owned(), value: Bytes::copy_from_slice(value.as_bytes()) }
}

fn delete(key: &str) -> Op {
    Op::Delete { space: Space::Kv, key: key.to_owned() }
}

fn write(harness: &mut Harness, ops: Vec<Op>) {
    harness.call(Request::Write { ops, durability: None });
}

fn row(harness: &Harness, key: &str) -> Option<String> {
    let value = harness.find_row(Space::Kv, key)?;
    Some(String::from_utf8(value.to_vec()).expect("text"))
}

#[test]
fn rows_are_answered_after_their_commit_and_not_before() {
    let mut harness = Harness::new();
    harness.hold = true;
    write(&mut harness, vec![put("router/a", "1"), put("router/b", "2"), delete("router/c")]);
    harness.expect(&[]);
    let [(_, batch)] = &harness.held[..] else { panic!("one batch, not {:?}", harness.held) };
    assert_eq!(batch.ops.len(), 3);
    assert_eq!(batch.durability, Durability::Fsync);
    harness.release();
    harness.expect(&["written"]);
    assert_eq!(row(&harness, "router/a").as_deref(), Some("1"));
    write(&mut harness, vec![delete("router/a")]);
    harness.expect(&["written"]);
    assert_eq!(row(&harness, "router/a"), None);
}

#[test]
fn rows_and_events_leave_in_the_order_they_were_asked_for() {
    let mut harness = Harness::new();
    harness.publish("t", "0");
    harness.out();
    harness.hold = true;
    write(&mut harness, vec![put("router/a", "1")]);
    harness.publish("t", "1");
    write(&mut harness, vec![put("router/a", "2")]);
    harness.release();
    harness.expect(&["written", "published 0/2", "written"]);
    assert_eq!(row(&harness, "router/a").as_deref(), Some("2"));
}

#[test]
fn a_row_that_is_there_is_left_alone_by_put_new() {
    let mut harness = Harness::new();
    let new = |value: &'static str| Op::PutNew {
        space: Space::Kv,
        key: "router/a".to_owned(),
        value: Bytes::from_static(value.as_bytes()),
    };
    write(&mut harness, vec![new("first")]);
    write(&mut harness, vec![new("second")]);
    harness.expect(&["written", "written"]);
    assert_eq!(row(&harness, "router/a").as_deref(), Some("first"));
}

#[test]
fn whoever_asks_may_weaken_or_strengthen_what_durable_means() {
    let mut harness = Harness::with(BusLimits { durability: Durability::Os, ..BusLimits::default() });
    harness.hold = true;
    write(&mut harness, vec![put("router/a", "1")]);
    harness.call(Request::Write { ops: vec![put("router/a", "2")], durability: Some(Durability::Fsync) });
    let wishes: Vec<Durability> = harness.held.iter().map(|(_, batch)| batch.durability).collect();
    assert_eq!(wishes, [Durability::Os, Durability::Fsync]);
}

#[test]
fn everything_but_the_routers_rows_is_refused_and_writes_nothing() {
    let mut harness = Harness::new();
    let topics = Op::Put { space: Space::Topics, key: "router/t".to_owned(), value: Bytes::new() };
    let drop = Op::Drop { topic: harness::topic("t") };
    for foreign in [put("quarantine/due/1", "1"), put("router", "1"), delete("state/commits"), topics, drop] {
        write(&mut harness, vec![put("router/a", "1"), foreign.clone()]);
        let out = harness.out();
        assert!(
            matches!(&out[..], [line] if line.starts_with("refused forbidden: ")
                && line.ends_with("may not be written this way: only rows of kv below router/")),
            "{foreign:?}: {out:?}"
        );
    }
    write(&mut harness, Vec::new());
    harness.expect(&["refused bad_frame: there is nothing to write: give at least one row"]);
    assert_eq!(harness.commits, 0);
}

#[test]
fn without_room_rows_can_be_removed_and_not_added() {
    let mut harness = Harness::new();
    write(&mut harness, vec![put("router/a", "1")]);
    harness.input(Input::NoSpace { reason: Some("full".to_owned()) });
    write(&mut harness, vec![put("router/b", "1")]);
    write(&mut harness, vec![delete("router/a")]);
    let [first, refused, last] = &harness.out()[..] else { panic!("three answers") };
    assert!(refused.starts_with("refused storage_failed: full"), "{refused}");
    assert_eq!((first.as_str(), last.as_str()), ("written", "written"));
    assert_eq!((row(&harness, "router/a"), row(&harness, "router/b")), (None, None));
}

#[test]
fn more_than_a_batch_holds_is_refused() {
    let mut harness = Harness::new();
    let value = "x".repeat(BATCH_BYTES_MAX);
    write(&mut harness, vec![put("router/a", &value)]);
    let [line] = &harness.out()[..] else { panic!("one answer") };
    assert!(line.starts_with("refused too_large: the batch holds 1258"), "{line}");
    assert_eq!(harness.commits, 0);
}

#[test]
fn nobody_waits_for_ever_when_the_store_fails_or_the_server_stops() {
    let mut harness = Harness::new();
    harness.hold = true;
    write(&mut harness, vec![put("router/a", "1")]);
    harness.input(Input::StorageFailed { reason: "disk full".to_owned() });
    write(&mut harness, vec![put("router/a", "2")]);
    let refused = "refused storage_failed: the store has failed and nothing is written any more (disk full): \
                   the server ends, send again when it is back";
    harness.expect(&[refused, refused]);

    let mut harness = Harness::new();
    harness.hold = true;
    write(&mut harness, vec![put("router/a", "1")]);
    harness.input(Input::Stop);
    write(&mut harness, vec![put("router/a", "2")]);
    harness.expect(&["refused shutting_down: the server is shutting down: connect again later"]);
    harness.release();
    harness.expect(&["written", "stopped"]);
}
