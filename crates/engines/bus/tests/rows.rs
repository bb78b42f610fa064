//! Rows of other engines on their way through the one commit queue.

mod desk;

use bytes::Bytes;
use desk::Desk;
use millrace_bus::*;
use millrace_model::*;

fn put(key: &str, value: &str) -> Op {
    Op::Put { space: Space::Kv, key: key.to_owned(), value: Bytes::copy_from_slice(value.as_bytes()) }
}

fn delete(key: &str) -> Op {
    Op::Delete { space: Space::Kv, key: key.to_owned() }
}

fn write(desk: &mut Desk, ops: Vec<Op>) {
    desk.call(Request::Write { ops, durability: None });
}

fn row(desk: &Desk, key: &str) -> Option<String> {
    let value = desk.tables.get(&(Space::Kv, key.to_owned()))?;
    Some(String::from_utf8(value.to_vec()).expect("text"))
}

#[test]
fn rows_are_answered_after_their_commit_and_not_before() {
    let mut desk = Desk::new();
    desk.hold = true;
    write(&mut desk, vec![put("router/a", "1"), put("router/b", "2"), delete("router/c")]);
    desk.expect(&[]);
    let [(_, batch)] = &desk.held[..] else { panic!("one batch, not {:?}", desk.held) };
    assert_eq!(batch.ops.len(), 3);
    assert_eq!(batch.durability, Durability::Fsync);
    desk.release();
    desk.expect(&["written"]);
    assert_eq!(row(&desk, "router/a").as_deref(), Some("1"));
    write(&mut desk, vec![delete("router/a")]);
    desk.expect(&["written"]);
    assert_eq!(row(&desk, "router/a"), None);
}

#[test]
fn rows_and_events_leave_in_the_order_they_were_asked_for() {
    let mut desk = Desk::new();
    desk.publish("t", "0");
    desk.out();
    desk.hold = true;
    write(&mut desk, vec![put("router/a", "1")]);
    desk.publish("t", "1");
    write(&mut desk, vec![put("router/a", "2")]);
    desk.release();
    desk.expect(&["written", "published 0/2", "written"]);
    assert_eq!(row(&desk, "router/a").as_deref(), Some("2"));
}

#[test]
fn a_row_that_is_there_is_left_alone_by_put_new() {
    let mut desk = Desk::new();
    let new = |value: &'static str| Op::PutNew {
        space: Space::Kv,
        key: "router/a".to_owned(),
        value: Bytes::from_static(value.as_bytes()),
    };
    write(&mut desk, vec![new("first")]);
    write(&mut desk, vec![new("second")]);
    desk.expect(&["written", "written"]);
    assert_eq!(row(&desk, "router/a").as_deref(), Some("first"));
}

#[test]
fn whoever_asks_may_weaken_or_strengthen_what_durable_means() {
    let mut desk = Desk::with(BusLimits { durability: Durability::Os, ..BusLimits::default() });
    desk.hold = true;
    write(&mut desk, vec![put("router/a", "1")]);
    desk.call(Request::Write { ops: vec![put("router/a", "2")], durability: Some(Durability::Fsync) });
    let wishes: Vec<Durability> = desk.held.iter().map(|(_, batch)| batch.durability).collect();
    assert_eq!(wishes, [Durability::Os, Durability::Fsync]);
}

#[test]
fn everything_but_the_routers_rows_is_refused_and_writes_nothing() {
    let mut desk = Desk::new();
    let topics = Op::Put { space: Space::Topics, key: "router/t".to_owned(), value: Bytes::new() };
    let drop = Op::Drop { topic: desk::topic("t") };
    for foreign in [put("quarantine/due/1", "1"), put("router", "1"), delete("state/commits"), topics, drop] {
        write(&mut desk, vec![put("router/a", "1"), foreign.clone()]);
        let out = desk.out();
        assert!(
            matches!(&out[..], [line] if line.starts_with("refused forbidden: ")
                && line.ends_with("may not be written this way: only rows of kv below router/")),
            "{foreign:?}: {out:?}"
        );
    }
    write(&mut desk, Vec::new());
    desk.expect(&["refused bad_frame: there is nothing to write: give at least one row"]);
    assert_eq!(desk.commits, 0);
}

#[test]
fn without_room_rows_can_be_removed_and_not_added() {
    let mut desk = Desk::new();
    write(&mut desk, vec![put("router/a", "1")]);
    desk.input(Input::NoSpace { reason: Some("full".to_owned()) });
    write(&mut desk, vec![put("router/b", "1")]);
    write(&mut desk, vec![delete("router/a")]);
    let [first, refused, last] = &desk.out()[..] else { panic!("three answers") };
    assert!(refused.starts_with("refused storage_failed: full"), "{refused}");
    assert_eq!((first.as_str(), last.as_str()), ("written", "written"));
    assert_eq!((row(&desk, "router/a"), row(&desk, "router/b")), (None, None));
}

#[test]
fn more_than_a_batch_holds_is_refused() {
    let mut desk = Desk::new();
    let value = "x".repeat(BATCH_BYTES_MAX);
    write(&mut desk, vec![put("router/a", &value)]);
    let [line] = &desk.out()[..] else { panic!("one answer") };
    assert!(line.starts_with("refused too_large: the batch holds 1258"), "{line}");
    assert_eq!(desk.commits, 0);
}

#[test]
fn nobody_waits_for_ever_when_the_store_fails_or_the_server_stops() {
    let mut desk = Desk::new();
    desk.hold = true;
    write(&mut desk, vec![put("router/a", "1")]);
    desk.input(Input::StorageFailed { reason: "disk full".to_owned() });
    write(&mut desk, vec![put("router/a", "2")]);
    let refused = "refused storage_failed: the store has failed and nothing is written any more (disk full): \
                   the server ends, send again when it is back";
    desk.expect(&[refused, refused]);

    let mut desk = Desk::new();
    desk.hold = true;
    write(&mut desk, vec![put("router/a", "1")]);
    desk.input(Input::Stop);
    write(&mut desk, vec![put("router/a", "2")]);
    desk.expect(&["refused shutting_down: the server is shutting down: connect again later"]);
    desk.release();
    desk.expect(&["written", "stopped"]);
}
