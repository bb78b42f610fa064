//! Drives the processes under the recorder, and notes what they confirmed.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::check::STORE;
use crate::client::Client;
use crate::dice::Dice;
use crate::facts::{Fact, Ledger};
use crate::record::Recorder;
use crate::run;
use crate::server::{Server, eventually};
use crate::session::SessionProcess;
use crate::socket::Socket;
use crate::workload::Step;

const WAL_BYTES: &str = "60000";
const FOLD_EVENTS: &str = "40";
/// Long after every test has ended.
const FAR_MS: u64 = 24 * 3600 * 1000;
const PAYLOAD_BYTES_MAX: u64 = 2500;
const PATHS: u64 = 12;
/// The most events between a backup and its restore.
const RESTORED_OVER_MAX: u64 = 12;
/// The most unsynced commits in a row: the longer nothing is synced, the more a disk can reorder.
const LOOSE_MAX: u64 = 12;

/// A topic that is synced before the answer.
const ORDERS: &str = "orders";
/// Topics whose commits are not synced.
const LOOSE: [(&str, &str); 2] = [("notes", "os"), ("hints", "memory")];
/// A topic with a single attempt: an event that is refused once becomes a dead letter.
const JOBS: &str = "jobs";

pub struct Driver {
    pub recorder: Recorder,
    pub ledger: Ledger,
    pub dice: Dice,
    has_session: bool,
    processes: Option<Processes>,
    /// Numbers everything that is created, so that every item is unique.
    made: u64,
    topics: Vec<String>,
    timers: Vec<String>,
}

struct Processes {
    server: Server,
    socket: Socket,
    client: Client,
    session: Option<SessionProcess>,
    /// The members of the groups, connected once there is an event for them.
    worker: Option<Socket>,
    refuser: Option<Socket>,
}

impl Driver {
    pub fn start(has_session: bool, dice: Dice) -> Driver {
        let mut driver = Driver {
            recorder: Recorder::new(),
            ledger: Ledger::default(),
            dice,
            has_session,
            processes: None,
            made: 0,
            topics: Vec::new(),
            timers: Vec::new(),
        };
        driver.start_processes();
        for (topic, durability) in LOOSE {
            driver.post(&json!({"topic": topic, "durability": durability}));
        }
        // So many attempts, because deliveries that end with their connection count as attempts.
        driver.post(&json!({"topic": ORDERS, "maxAttempts": 100_000}));
        driver.post(&json!({"topic": JOBS, "maxAttempts": 1}));
        driver
    }

    pub fn step(&mut self, step: Step) {
        match step {
            Step::Publish => self.publish(),
            Step::Batch => self.batch(),
            Step::Delayed => self.delayed(),
            Step::Ack => self.ack(),
            Step::DeadLetter => self.dead_letter(),
            Step::TopicMade => self.make_topic(),
            Step::TopicChanged => self.change_topic(),
            Step::TopicDeleted => self.delete_topic(),
            Step::Loose => self.loose(),
            Step::SetValue => self.set_value(),
            Step::DeleteValue => self.delete_value(),
            Step::SetTimer => self.set_timer(),
            Step::CancelTimer => self.cancel_timer(),
            Step::Order => self.order(),
            Step::Backup => {
                self.backup();
            }
            Step::Restore => self.restore(),
            Step::Restart => self.restart(),
            Step::Kill => self.kill(),
        }
    }

    pub fn store(&self) -> PathBuf {
        self.recorder.root().join(STORE)
    }

    fn running(&mut self) -> &mut Processes {
        self.processes.as_mut().expect("the processes run")
    }

    fn confirm(&mut self, fact: Fact) {
        self.ledger.confirm(self.recorder.position(), fact);
    }

    fn end(&mut self, ends: impl Fn(&Fact) -> bool) {
        self.ledger.end(self.recorder.position(), ends);
    }

    fn start_processes(&mut self) {
        let store = format!("sqlite:///{}", self.store().display());
        let flags = [
            "--store",
            &store,
            "--socket",
            "os.sock",
            "--store-wal-bytes",
            WAL_BYTES,
            "--store-fold-events",
            FOLD_EVENTS,
            "--metrics-interval-ms",
            "0",
        ];
        let server = Server::with_env(&flags, &self.recorder.environment());
        let session = self.has_session.then(|| SessionProcess::start(&self.recorder, &self.store()));
        let (socket, client) = (server.socket(), Client::of(&server));
        self.processes = Some(Processes { server, socket, client, session, worker: None, refuser: None });
    }

    fn restart(&mut self) {
        let mut processes = self.processes.take().expect("the processes run");
        assert_eq!(processes.server.terminate(), Some(0));
        if let Some(session) = processes.session.take() {
            session.stop();
        }
        self.recorder.assert_complete();
        self.start_processes();
    }

    fn kill(&mut self) {
        for _ in 0..4 {
            let (topic, payload) = (self.any_topic(), self.payload("killed"));
            self.running().socket.send(&json!({"type": "PUBLISH", "topic": topic, "payload": payload}));
        }
        self.kill_processes();
        self.start_processes();
    }

    fn kill_processes(&mut self) {
        let mut processes = self.processes.take().expect("the processes run");
        processes.server.kill();
        if let Some(session) = &mut processes.session {
            session.kill();
        }
        self.recorder.complete();
    }

    pub fn finish(&mut self) {
        self.restart();
        self.kill_processes();
    }

    fn any_topic(&mut self) -> &'static str {
        match self.dice.below(3) {
            0 => ORDERS,
            n => LOOSE[n as usize - 1].0,
        }
    }

    fn number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Returns a unique payload of random length.
    fn payload(&mut self, kind: &str) -> String {
        let fill = "x".repeat(self.dice.below(PAYLOAD_BYTES_MAX) as usize);
        format!("{kind}/{}/{fill}", self.number())
    }

    fn publish(&mut self) {
        let payload = self.payload("plain");
        let offset = self.running().socket.publish(ORDERS, &json!(payload));
        self.confirm(event(ORDERS, 0, offset, &json!(payload)));
    }

    fn batch(&mut self) {
        let (number, size) = (self.number(), 2 + self.dice.below(5));
        let payloads: Vec<Value> = (0..size).map(|n| json!(format!("batch/{number}/{size}/{n}"))).collect();
        let events: Vec<Value> = payloads.iter().map(|payload| json!({"payload": payload})).collect();
        let socket = &mut self.running().socket;
        socket.send(&json!({"type": "PUBLISH_BATCH", "topic": ORDERS, "events": events}));
        let answer = socket.expect("PUBLISHED");
        for (payload, at) in payloads.iter().zip(answer["offsets"].as_array().expect("offsets")) {
            self.confirm(event(ORDERS, number_of(&at[0]), number_of(&at[1]), payload));
        }
    }

    /// Publishes a delayed event, due soon or never. The confirmed fact is that it is either in `due` or in its log.
    fn delayed(&mut self) {
        let (payload, delay) = (json!(self.payload("delayed")), [5, FAR_MS][self.dice.below(2) as usize]);
        let socket = &mut self.running().socket;
        socket.send(&json!({"type": "PUBLISH", "topic": ORDERS, "payload": payload, "delay_ms": delay}));
        socket.expect("PUBLISHED");
        self.confirm(Fact::Delayed { topic: ORDERS.into(), payload: payload.to_string() });
    }

    fn loose(&mut self) {
        let (topic, _) = LOOSE[self.dice.below(2) as usize];
        for _ in 0..=self.dice.below(LOOSE_MAX) {
            let payload = self.payload("loose");
            self.running().socket.publish(topic, &json!(payload));
        }
    }

    fn ack(&mut self) {
        let Processes { server, worker, .. } = self.processes.as_mut().expect("the processes run");
        let (_, offsets) = server.get(&format!("/topics/{ORDERS}/offsets"));
        let row = &offsets["partitions"][0];
        let committed = row["groups"]["workers"]["committed"].as_u64().unwrap_or(0);
        let waiting = number_of(&row["next"]) - 1 - committed;
        let taken = waiting.min(1 + self.dice.below(4));
        if taken == 0 {
            return;
        }
        let worker = worker.get_or_insert_with(|| member(server, ORDERS, "workers"));
        let offset = (0..taken).map(|_| worker.message()).max().expect("at least one");
        worker.ack(ORDERS, "workers", offset);
        // A commit that the server shows is durable.
        let offset = server.committed(ORDERS, "workers", 0);
        self.confirm(done(ORDERS, "workers", offset));
    }

    fn dead_letter(&mut self) {
        let payload = json!(self.payload("poison"));
        let offset = self.running().socket.publish(JOBS, &payload);
        self.confirm(event(JOBS, 0, offset, &payload));
        let Processes { server, refuser, .. } = self.running();
        let refuser = refuser.get_or_insert_with(|| member(server, JOBS, "refusers"));
        let refused = refuser.message();
        refuser.send_nack(JOBS, "refusers", refused, &json!({"reason": "poison"}));
        let (letters, path) = (format!("{JOBS}.DLQ"), format!("/topics/{JOBS}.DLQ/events?from={refused}"));
        // The topic holds only poison events, so the letters have the offsets of their events.
        eventually("the dead letter", || server.get(&path).1["events"][0].is_object());
        self.confirm(event(&letters, 0, refused, &payload));
        self.confirm(done(JOBS, "refusers", refused));
    }

    fn post(&mut self, config: &Value) {
        let (status, answer) = self.running().server.post("/topics", config);
        assert_eq!(status, 201, "{answer}");
        if let Some(max_attempts) = config["maxAttempts"].as_u64() {
            let topic = config["topic"].as_str().expect("a name").to_owned();
            self.confirm(Fact::Topic { topic, max_attempts });
        }
    }

    fn make_topic(&mut self) {
        let topic = format!("topic-{}", self.number());
        self.post(&json!({"topic": topic, "maxAttempts": 7}));
        let offset = self.running().socket.publish(&topic, &json!(topic));
        self.confirm(event(&topic, 0, offset, &json!(topic)));
        self.topics.push(topic);
    }

    fn change_topic(&mut self) {
        let Some(topic) = self.topics.last().cloned() else { return };
        let max_attempts = 10 + self.number();
        self.end(|fact| matches!(fact, Fact::Topic { topic: of, .. } if *of == topic));
        let path = format!("/topics/{topic}");
        let (status, answer) =
            self.running().server.send_json("PATCH", &path, &json!({"maxAttempts": max_attempts}));
        assert_eq!(status, 200, "{answer}");
        self.confirm(Fact::Topic { topic, max_attempts });
    }

    fn delete_topic(&mut self) {
        if self.topics.is_empty() {
            return;
        }
        let at = self.dice.below(self.topics.len() as u64) as usize;
        let topic = self.topics.swap_remove(at);
        self.end(|fact| match fact {
            Fact::Topic { topic: of, .. } | Fact::Event { topic: of, .. } => *of == topic,
            _ => false,
        });
        let (status, answer) = self.running().server.request("DELETE", &format!("/topics/{topic}"), None);
        assert_eq!(status, 204, "{answer}");
        self.confirm(Fact::NoTopic(topic));
    }

    fn any_path(&mut self) -> String {
        format!("/value/{}", self.dice.below(PATHS))
    }

    fn set_value(&mut self) {
        let (path, value) = (self.any_path(), json!(self.payload("value")));
        self.end(|fact| matches!(fact, Fact::Value { path: of, .. } if *of == path));
        self.running().client.reply("command", "Memory.Set", &json!({"key": path, "value": value}));
        self.confirm(Fact::Value { path, value: Some(value.to_string()) });
    }

    fn delete_value(&mut self) {
        let path = self.any_path();
        self.end(|fact| matches!(fact, Fact::Value { path: of, .. } if *of == path));
        self.running().client.reply("command", "Memory.Delete", &json!({"key": path}));
        self.confirm(Fact::Value { path, value: None });
    }

    fn set_timer(&mut self) {
        let message = json!({"kind": "command", "type": "Memory.Set", "data": {"key": "/fired", "value": 1}});
        let timer = json!({"delayMs": FAR_MS, "message": message});
        let answer = self.running().client.reply("command", "Timer.Set", &timer);
        let id = answer["timerId"].as_str().expect("an id").to_owned();
        self.confirm(Fact::Timer(id.clone()));
        self.timers.push(id);
    }

    fn cancel_timer(&mut self) {
        let Some(id) = self.timers.pop() else { return };
        self.end(|fact| *fact == Fact::Timer(id.clone()));
        let answer = self.running().client.reply("command", "Timer.Cancel", &json!({"timerId": id}));
        assert_eq!(answer["cancelled"], true, "{answer}");
        self.confirm(Fact::NoTimer(id));
    }

    fn order(&mut self) {
        let order = format!("order-{}", self.number());
        let payload = json!({"order_id": order});
        let offset = self.running().socket.publish("order.placed", &payload);
        self.confirm(event("order.placed", 0, offset, &payload));
        let session = self.running().session.as_mut().expect("a session runs");
        // An order that a killed session had left may be committed again first.
        while session.committed() != order {}
        self.confirm(Fact::Order(order));
    }

    fn backup(&mut self) -> PathBuf {
        let file = format!("backup-{}", self.number());
        let (path, begun) = (self.recorder.root().join(&file), self.recorder.position());
        self.command(&["backup", path.to_str().expect("a UTF-8 path")]);
        let ended = self.recorder.position();
        self.confirm(Fact::Backup { file, begun, ended });
        path
    }

    /// Restores a backup. Facts confirmed before the backup began hold before, during and after the restore; later
    /// facts hold until the restore.
    fn restore(&mut self) {
        let begun = self.recorder.position();
        let backup = self.backup();
        for _ in 0..=self.dice.below(RESTORED_OVER_MAX) {
            self.publish();
        }
        self.kill_processes();
        self.ledger.end_since(begun, self.recorder.position());
        self.command(&["restore", backup.to_str().expect("a UTF-8 path"), "--force"]);
        self.recorder.assert_complete();
        self.start_processes();
    }

    /// Runs a command on the store, which must succeed.
    fn command(&self, args: &[&str]) {
        let store = format!("sqlite:///{}", self.store().display());
        let mut command = run::command(&[args, &["--store", &store]].concat());
        let output = command.envs(self.recorder.environment()).output().expect("the binary runs");
        run::finish(output).ok();
    }
}

fn event(topic: &str, partition: u64, offset: u64, payload: &Value) -> Fact {
    Fact::Event { topic: topic.into(), partition, offset, payload: payload.to_string() }
}

fn done(topic: &str, group: &str, offset: u64) -> Fact {
    Fact::Done { topic: topic.into(), group: group.into(), partition: 0, offset }
}

fn member(server: &Server, topic: &str, group: &str) -> Socket {
    let mut socket = server.socket();
    socket.subscribe(topic, group, &json!({"from": {"kind": "earliest"}, "max_inflight": 64}));
    socket
}

fn number_of(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number, not {value}"))
}
