//! A load in which everything happens that the dashboard shows: publishes, acknowledgements, refusals, dead letters,
//! requests to the loop, a durable handler and a schedule.

use millrace::{Config, Event, Handler, Schedule, Session};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::server::Server;
use crate::socket::Socket;

/// Of each round of deliveries, one is refused and becomes a dead letter, and one is never acknowledged.
const ROUND: u64 = 8;

#[derive(Event, Serialize, Deserialize)]
struct OrderPlaced {
    order: u64,
}

pub struct Load<'a> {
    server: &'a Server,
    publisher: Socket,
    consumer: Socket,
}

impl<'a> Load<'a> {
    pub fn begin(server: &'a Server) -> Load<'a> {
        let config = Config { event_max_attempts: 1, ..Config::default() };
        let session = Session::builder(&server.store_url()).config(config).open().expect("a session");
        session.publish(OrderPlaced { order: 1 }).expect("a publish");
        let bill = Handler::from_fn::<OrderPlaced>("shop:bill", |_| Err("no money".into()));
        let nightly =
            Schedule::cron("30 2 * * *", OrderPlaced { order: 2 }).expect("a rule").named("nightly");
        session.run_until_idle(vec![bill], vec![nightly]).expect("a run");
        let mut consumer = server.socket();
        consumer.subscribe("jobs", "workers", &json!({"max_inflight": 1000, "ack_mode": "individual"}));
        Load { server, publisher: server.socket(), consumer }
    }

    pub fn step(&mut self) {
        for n in 0..ROUND {
            self.publisher.publish("jobs", &json!(n));
        }
        for n in 0..ROUND {
            let offset = self.consumer.message();
            match n {
                0 => self.consumer.send_nack("jobs", "workers", offset, &json!({})),
                1 => {}
                _ => self.consumer.ack("jobs", "workers", offset),
            }
        }
        self.server.get("/topics/nowhere");
    }
}
