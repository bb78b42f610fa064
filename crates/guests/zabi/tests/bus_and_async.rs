//! `event/bus` and `async/default`.
#![allow(clippy::unwrap_used)]

mod harness;

use std::sync::Arc;
use std::thread;

use harness::{FOREVER, Guest, READABLE, Reply, everything_here};
use millrace_reactor::zcl1::FieldWriter;
use millrace_zabi::{BusEvent, BusPort, Grants, LocalBus, ProcessOptions};

fn texts(parts: &[&[u8]]) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut fields = FieldWriter::new(&mut payload);
    parts.iter().for_each(|part| {
        fields.prefixed(part);
    });
    payload
}

fn subscribe(guest: &mut Guest, bus: i32, topic: &str) -> u32 {
    let payload = [texts(&[topic.as_bytes()]), vec![0; 4]].concat();
    let reply = guest.request(bus, 1, &payload);
    assert!(reply.is_ok, "{:?}", reply.error());
    u32::from_le_bytes(reply.payload.try_into().unwrap())
}

fn publish(guest: &mut Guest, bus: i32, topic: &str, data: &[u8]) -> Vec<Reply> {
    let frame = guest.frame(3, &texts(&[topic.as_bytes(), data]));
    assert_eq!(guest.write(bus, &frame), frame.len() as i32);
    guest.replies(bus)
}

fn event(id: u32, topic: &str, data: &[u8]) -> Vec<u8> {
    [&id.to_le_bytes()[..], &texts(&[topic.as_bytes(), data])].concat()
}

#[test]
fn a_guest_hears_itself_before_its_reply() {
    let mut guest = Guest::new(everything_here());
    let bus = guest.open_ok("event", "bus");
    let (first, second) = (subscribe(&mut guest, bus, "a"), subscribe(&mut guest, bus, "a"));
    assert_eq!((first, second), (1, 2));
    let frames = publish(&mut guest, bus, "a", b"data");
    let (reply, events) = frames.split_last().unwrap();
    assert_eq!((reply.op, reply.payload.as_slice()), (3, &2u32.to_le_bytes()[..]));
    let expected = [(100, event(1, "a", b"data")), (100, event(2, "a", b"data"))];
    assert_eq!(events.iter().map(|frame| (frame.op, frame.payload.clone())).collect::<Vec<_>>(), expected);
    assert!(events.iter().all(|frame| frame.rid == reply.rid && frame.is_ok));
    assert_eq!(publish(&mut guest, bus, "A", b"")[0].payload, [0; 4], "topics are compared exactly");
    assert_eq!(guest.request(bus, 2, &first.to_le_bytes()).payload, 1u32.to_le_bytes());
    assert_eq!(guest.request(bus, 2, &first.to_le_bytes()).payload, 0u32.to_le_bytes());
    assert_eq!(publish(&mut guest, bus, "a", b"").len(), 2);
}

#[test]
fn events_wake_another_guest_in_poll() {
    let shared = Arc::new(LocalBus::default());
    let grants = || Grants::none().sys_loop().event_bus(Arc::clone(&shared) as Arc<dyn BusPort>);
    let mut listener = Guest::new(grants());
    let bus = listener.open_ok("event", "bus");
    let sys_loop = listener.open_ok("sys", "loop");
    let id = subscribe(&mut listener, bus, "chat");
    assert!(listener.watch(sys_loop, bus, READABLE, 7).is_ok);
    assert_eq!(listener.ready(sys_loop, 0), []);
    let mut speaker = Guest::new(grants());
    let thread = thread::spawn(move || {
        let bus = speaker.open_ok("event", "bus");
        publish(&mut speaker, bus, "chat", b"hello")[0].payload.clone()
    });
    assert_eq!(listener.ready(sys_loop, FOREVER), [(7, READABLE)]);
    let frame = Reply::of(&listener.read(bus).unwrap());
    assert_eq!(frame.payload, event(id, "chat", b"hello"));
    assert_eq!(thread.join().unwrap(), 1u32.to_le_bytes());
    assert_eq!(listener.ready(sys_loop, 0), []);
    let outside = BusEvent { topic: b"chat", data: b"from the host", rid: 0 };
    assert_eq!(shared.publish(&outside), 1);
    assert_eq!(listener.ready(sys_loop, FOREVER), [(7, READABLE)]);
    drop(listener);
    assert_eq!(shared.publish(&outside), 0, "an ended guest is not subscribed");
}

#[test]
fn a_handle_cannot_end_subscriptions_of_another() {
    let mut guest = Guest::new(everything_here());
    let (one, other) = (guest.open_ok("event", "bus"), guest.open_ok("event", "bus"));
    let id = subscribe(&mut guest, one, "t");
    assert_eq!(guest.request(other, 2, &id.to_le_bytes()).payload, [0; 4]);
    assert_eq!(publish(&mut guest, other, "t", b"")[0].payload, 1u32.to_le_bytes());
}

#[test]
fn a_subscriber_that_does_not_read_is_not_counted_and_replies_have_room() {
    let mut options = ProcessOptions::new("test", everything_here());
    options.limits.bus_output_bytes_max = 0;
    options.limits.bus_subscriptions_max = 1;
    let mut guest = Guest::with(options);
    let (full, speaker) = (guest.open_ok("event", "bus"), guest.open_ok("event", "bus"));
    subscribe(&mut guest, full, "t");
    let payload = [texts(&[b"u"]), vec![0; 4]].concat();
    assert_eq!(guest.request(full, 1, &payload).error().0, "t_event_bus_oom");
    let counts: Vec<Vec<u8>> =
        (0..4).map(|_| publish(&mut guest, speaker, "t", &[1; 30_000])[0].payload.clone()).collect();
    assert_eq!(counts.concat(), [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(guest.write(full, &[0; 3]), -1);
    let frame = guest.frame(2, &9u32.to_le_bytes());
    assert_eq!(guest.write(full, &frame), frame.len() as i32, "a reply fits");
    assert_eq!(guest.replies(full).len(), 3);
}

#[test]
fn requests_of_the_bus_are_checked() {
    let mut guest = Guest::new(everything_here());
    let bus = guest.open_ok("event", "bus");
    let cases: [(u16, Vec<u8>, &str); 9] = [
        (1, vec![], "t_event_bus_bad_sub"),
        (1, [texts(&[b""]), vec![0; 4]].concat(), "t_event_bus_bad_sub"),
        (1, [texts(&[b"t"]), vec![1, 0, 0, 0]].concat(), "t_event_bus_flags"),
        (1, [texts(&[b"t"]), vec![0; 5]].concat(), "t_event_bus_bad_sub"),
        (2, vec![0; 3], "t_event_bus_bad_unsub"),
        (3, texts(&[b"t"]), "t_event_bus_bad_pub"),
        (3, texts(&[b"", b"x"]), "t_event_bus_bad_pub"),
        (3, texts(&[b"t", &[0; 60_001]]), "t_event_bus_bad_pub"),
        (9, vec![], "t_event_bus_unknown_op"),
    ];
    for (op, payload, trace) in cases {
        assert_eq!(guest.request(bus, op, &payload).error().0, trace, "op {op}");
    }
    let frame = guest.frame(2, &[0; 4]);
    assert_eq!(guest.write(bus, &[frame.clone(), frame.clone()].concat()), -1, "two frames");
    assert_eq!(guest.write(bus, &[frame.as_slice(), b"x"].concat()), -1, "trailing bytes");
    assert_eq!(guest.write(bus, &frame), frame.len() as i32);
}

fn invoke(guest: &mut Guest, handle: i32, selector: &str, id: u64) -> Vec<Reply> {
    let mut payload = texts(&[b"async", b"default", selector.as_bytes()]);
    FieldWriter::new(&mut payload).u64(id).prefixed(b"params");
    let frame = guest.frame(2, &payload);
    assert_eq!(guest.write(handle, &frame), frame.len() as i32);
    guest.replies(handle)
}

#[test]
fn futures_complete_fail_and_are_cancelled() {
    let mut guest = Guest::new(everything_here());
    let handle = guest.open_ok("async", "default");
    let ops = |frames: &[Reply]| frames.iter().map(|frame| frame.op).collect::<Vec<u16>>();
    let list = guest.request(handle, 1, &[]);
    assert_eq!(list.payload[..8], [1, 0, 0, 0, 3, 0, 0, 0]);
    let frames = invoke(&mut guest, handle, "ping.v1", 5);
    assert_eq!((ops(&frames), frames[0].payload.as_slice()), (vec![2, 100, 102], &[0; 4][..]));
    assert_eq!(frames[2].payload, [&5u64.to_le_bytes()[..], &texts(&[b"pong"])].concat());
    assert_eq!(ops(&invoke(&mut guest, handle, "fail.v1", 5)), [2, 100, 103]);
    let frames = invoke(&mut guest, handle, "none.v1", 5);
    assert_eq!((ops(&frames), frames[0].payload[0]), (vec![2, 101], 1));
    assert_eq!(frames[1].payload[..8], 5u64.to_le_bytes(), "the id is echoed");
    assert_eq!(ops(&invoke(&mut guest, handle, "hold.v1", 6)), [2, 100]);
    assert_eq!(invoke(&mut guest, handle, "hold.v1", 6)[0].payload[0], 2, "the id is in use");
    let frame = guest.frame(3, &6u64.to_le_bytes());
    assert_eq!(guest.write(handle, &frame), frame.len() as i32);
    assert_eq!(guest.write(handle, &frame), -6, "the reply is unread");
    assert_eq!(ops(&guest.replies(handle)), [3, 104]);
    assert_eq!(guest.request(handle, 3, &6u64.to_le_bytes()).payload[0], 1);
    (1..=64).for_each(|id| assert_eq!(invoke(&mut guest, handle, "hold.v1", id)[0].payload[0], 0));
    assert_eq!(invoke(&mut guest, handle, "hold.v1", 65)[0].payload[0], 3, "64 futures per handle");
    for (op, payload) in [(1, vec![0]), (2, vec![1]), (3, vec![1]), (4, vec![])] {
        assert_eq!(guest.request(handle, op, &payload).error().0, "async.default");
    }
}

#[test]
fn many_handles_do_not_make_the_host_keep_more() {
    let mut options = ProcessOptions::new("test", everything_here());
    options.limits.queued_bytes_max = 300_000;
    let mut guest = Guest::with(options);
    let subscribers: Vec<i32> = (0..20).map(|_| guest.open_ok("event", "bus")).collect();
    for handle in &subscribers {
        subscribe(&mut guest, *handle, "t");
    }
    let speaker = guest.open_ok("event", "bus");
    let count = |replies: Vec<Reply>| u32::from_le_bytes(replies[0].payload.clone().try_into().unwrap());
    assert_eq!(count(publish(&mut guest, speaker, "t", &[1; 50_000])), 5, "more would be above the bound");
    assert_eq!(guest.read(subscribers[0]).unwrap().len(), 24 + 12 + 1 + 50_000);
    assert_eq!(count(publish(&mut guest, speaker, "t", &[1; 50_000])), 1, "what was read has room again");
    assert_eq!(guest.process.zi_end(subscribers[1]), 0);
    assert_eq!(count(publish(&mut guest, speaker, "t", &[1; 50_000])), 1, "what was closed, too");
    // Topics of subscriptions count as well.
    let topic = [texts(&[&[b'x'; 59_000]]), vec![0; 4]].concat();
    assert_eq!(guest.request(speaker, 1, &topic).error().0, "t_event_bus_oom");
}
