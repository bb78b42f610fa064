//! A sync does not return for as long as the test likes. Whatever needs no commit goes on meanwhile: pings, reads,
//! deliveries from memory, acknowledgements, new connections, probes, other namespaces. Nothing is confirmed early.

use serde_json::{Value, json};

use crate::disk::faults::Faults;
use crate::disk::{metric, not_ready, publish, ready_again, stored};
use crate::server::{Server, eventually};
use crate::socket::Socket;

/// Events that a consumer gets during the stall, one by one.
const DELIVERED: u64 = 5;
/// Connections that only ping. More than any edge serves alone, so some share their thread with a publisher.
const BYSTANDERS: usize = 8;

/// A server with consumers that have taken their first event of several, in two namespaces.
struct Stage {
    faults: Faults,
    server: Server,
    consumers: [Socket; 2],
    bystanders: Vec<Socket>,
}

impl Stage {
    fn new() -> Stage {
        let faults = Faults::new();
        let server = Server::with_log_and_env(&["--commit-stall-ms-max", "300"], &faults.env());
        let consumers = ["default", "elsewhere"].map(|namespace| {
            let url = format!("{}?namespace={namespace}", server.ws_url());
            let mut socket = Socket::open(&url);
            socket.subscribe("ready", "g", &json!({"from": {"kind": "earliest"}, "max_inflight": 1}));
            let mut publisher = Socket::open(&url);
            for n in 1..=DELIVERED + 1 {
                publisher.publish("ready", &json!(n));
            }
            assert_eq!(socket.message(), 1);
            socket
        });
        let bystanders = (0..BYSTANDERS).map(|_| server.socket()).collect();
        Stage { faults, server, consumers, bystanders }
    }

    /// Does everything that needs no commit.
    #[track_caller]
    fn everything_else_goes_on(&mut self) {
        not_ready(&self.server, "the disk to write and sync it");
        assert_eq!(self.server.get("/healthz").0, 200);
        assert_eq!(stored(&self.server, "ready").len() as u64, DELIVERED + 1);
        assert_eq!(self.server.get("/topics/ready/offsets").0, 200);
        let mut late = self.server.socket();
        for socket in self.bystanders.iter_mut().chain([&mut late]) {
            ping(socket);
        }
        for consumer in &mut self.consumers {
            for offset in 1..=DELIVERED {
                consumer.send_ack("ready", "g", 0, offset);
                assert_eq!(consumer.message(), offset + 1);
            }
            ping(consumer);
        }
    }
}

fn ping(socket: &mut Socket) {
    socket.send(&json!({"type": "PING", "rid": "p"}));
    socket.expect("PONG");
}

fn confirmed(socket: &mut Socket) -> u64 {
    socket.expect("PUBLISHED")["rid"].as_u64().expect("the rid of a publish")
}

#[test]
fn a_disk_that_hangs_for_a_lone_publisher_stops_nobody_else() {
    let mut stage = Stage::new();
    let mut publisher = stage.server.socket();
    // Alone and in a row: the server may commit these on the connection's own thread.
    for n in 1..=20 {
        publish(&mut publisher, n);
        assert_eq!(confirmed(&mut publisher), n);
    }
    stage.faults.begin("hang");
    publish(&mut publisher, 21);
    stage.faults.hangs();
    stage.everything_else_goes_on();
    let mut second = stage.server.socket();
    publish(&mut second, 22);
    eventually("the second publish waits", || metric(&stage.server, "backlog_batches") > 1.0);
    second.expect_nothing();

    stage.faults.end("hang");
    assert_eq!((confirmed(&mut publisher), confirmed(&mut second)), (21, 22));
    ready_again(&stage.server);
    assert_eq!(stored(&stage.server, "t").len(), 22);
}

/// A connection that publishes alone and also consumes is not the one that waits for the disk.
#[test]
fn a_disk_that_hangs_does_not_hold_up_what_its_own_publisher_consumes() {
    let mut stage = Stage::new();
    let [consumer, _] = &mut stage.consumers;
    publish(consumer, 1);
    assert_eq!(confirmed(consumer), 1);
    stage.faults.begin("hang");
    publish(consumer, 2);
    stage.faults.hangs();
    stage.everything_else_goes_on();

    stage.faults.end("hang");
    let [consumer, _] = &mut stage.consumers;
    assert_eq!(confirmed(consumer), 2);
    assert_eq!(stored(&stage.server, "t").len(), 2);
}

#[test]
fn a_disk_that_hangs_for_many_publishers_stops_nobody_else_and_confirms_nothing_early() {
    let mut stage = Stage::new();
    let mut publishers: Vec<Socket> = (0..8).map(|_| stage.server.socket()).collect();
    for (socket, n) in publishers.iter_mut().zip(1..) {
        publish(socket, n);
        assert_eq!(confirmed(socket), n);
    }
    stage.faults.begin("hang");
    // The first commit may be the work of the connection that brought it, which then waits with it.
    let [first, others @ ..] = &mut *publishers else { return };
    publish(first, 9);
    stage.faults.hangs();
    for (socket, n) in others.iter_mut().zip(10..) {
        publish(socket, n);
    }
    eventually("they wait", || metric(&stage.server, "backlog_batches") >= 8.0);
    stage.everything_else_goes_on();
    for socket in others {
        let early: Vec<Value> = socket.drained();
        assert!(early.is_empty(), "confirmed although the sync has not returned: {early:?}");
    }

    stage.faults.end("hang");
    for (socket, n) in publishers.iter_mut().zip(9..) {
        assert_eq!(confirmed(socket), n);
    }
    ready_again(&stage.server);
    assert_eq!(stored(&stage.server, "t").len(), 16);
}
