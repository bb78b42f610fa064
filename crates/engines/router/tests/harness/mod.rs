//! A test harness around an engine: tests feed in inputs, and the harness shows effects as short lines of text.

// Each test file uses only a part of the harness.
#![allow(dead_code, clippy::unwrap_used, clippy::needless_pass_by_value)]

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{Boot, JsonText, Mono, Now, Op, OsFault, OsKind, OsMessage, OsType, Timestamp};
use millrace_router::{
    Branch, CapabilityId, CommitToken, ConnId, DeliveryId, Effect, Input, Manifest, NotTrusted, Note,
    Receipt, Router, RouterLimits, Schema, Settled,
};
use serde_json::{Value, json};

pub(crate) struct Harness {
    pub(crate) router: Router,
    pub(crate) now: Now,
    /// Which run of the machine [`Harness::restore`] reports.
    pub(crate) boot: Option<Boot>,
    pub(crate) ids: BTreeMap<String, CapabilityId>,
    /// All posted messages, the newest last.
    pub(crate) posted: Vec<(CapabilityId, DeliveryId, OsMessage)>,
    pub(crate) commits: Vec<(CommitToken, Vec<Op>)>,
    /// The identity on whose behalf the last message was posted.
    pub(crate) by: millrace_model::Requester,
    /// If set, every timer of an agent is refused with this reason.
    pub(crate) refuses: Option<NotTrusted>,
    checks: usize,
    pub(crate) notes: Vec<Note>,
}

pub(crate) fn manifest(name: &str, inbound: &[(OsKind, &str)], subscribes: &[&str]) -> Manifest {
    Manifest {
        name: name.into(),
        description: String::new(),
        inbound: inbound.iter().map(|(kind, ty)| branch(*kind, ty, Schema::any())).collect(),
        outbound: None,
        subscribes: subscribes.iter().map(|ty| OsType::new(ty).unwrap()).collect(),
        bus: Vec::new(),
    }
}

pub(crate) fn branch(kind: OsKind, ty: &str, data: Schema) -> Branch {
    Branch { kind, ty: OsType::new(ty).unwrap(), description: String::new(), data, output: Schema::any() }
}

pub(crate) fn message(kind: &str, ty: &str, id: &str, data: Value) -> OsMessage {
    caused(kind, ty, id, data, None)
}

pub(crate) fn caused(kind: &str, ty: &str, id: &str, data: Value, causation: Option<&str>) -> OsMessage {
    let text = json!({"kind": kind, "type": ty, "data": data,
        "metadata": {"id": id, "timestamp": 1, "causation": causation}});
    millrace_wire::os::parse(text.to_string().as_bytes(), None).unwrap()
}

impl Harness {
    /// The capability Echo handles query Echo.Say and command Echo.Do; Ear subscribes to Echo.Said.
    pub(crate) fn new() -> Harness {
        Harness::with(RouterLimits::default())
    }

    pub(crate) fn with(limits: RouterLimits) -> Harness {
        let mut harness = Harness::bare(limits);
        harness.install(vec![
            manifest("Echo", &[(OsKind::Query, "Echo.Say"), (OsKind::Command, "Echo.Do")], &[]),
            manifest("Ear", &[], &["Echo.Said", "Timer.Fired"]),
        ]);
        harness.open(1);
        harness
    }

    pub(crate) fn bare(limits: RouterLimits) -> Harness {
        let now = Now { mono: Mono(0), wall: Timestamp(1_000_000), steady_since: Mono(0) };
        let (ids, posted, commits) = (BTreeMap::new(), Vec::new(), Vec::new());
        let router = Router::new(limits, 7);
        Harness {
            router,
            boot: None,
            now,
            ids,
            posted,
            commits,
            by: millrace_model::Requester::Trusted,
            refuses: None,
            checks: 0,
            notes: Vec::new(),
        }
    }

    pub(crate) fn install(&mut self, manifests: Vec<Manifest>) {
        let names: Vec<String> = manifests.iter().map(|one| one.name.to_string()).collect();
        let ids = self.router.install(self.now, manifests).unwrap();
        self.ids.extend(names.into_iter().zip(ids));
        let up = self.effects();
        assert!(up.iter().all(|line| line == "note Sys.CapabilityUp"), "{up:?}");
    }

    /// The last step of boot, with the rows of the previous process's timers.
    pub(crate) fn restore(&mut self, rows: BTreeMap<String, Bytes>) {
        self.router.restore(self.now, self.boot, rows.into_iter().collect());
        assert_eq!(self.effects(), ["note Sys.BootComplete"]);
    }

    pub(crate) fn open(&mut self, conn: u64) {
        self.give(Input::Open { conn: ConnId(conn), by: millrace_model::Requester::Trusted });
    }

    pub(crate) fn give(&mut self, input: Input) {
        self.router.handle(self.now, input);
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now.mono = self.now.mono + ms;
        self.now.wall = self.now.wall + ms;
    }

    pub(crate) fn client(&mut self, conn: u64, message: OsMessage) {
        self.give(Input::Client { conn: ConnId(conn), message });
    }

    /// Sends a query Echo.Say on connection 1.
    pub(crate) fn ask(&mut self, id: &str) {
        self.client(1, message("query", "Echo.Say", id, json!(id)));
    }

    pub(crate) fn say(&mut self, from: &str, during: Option<DeliveryId>, message: OsMessage) {
        let from = self.ids[from];
        self.give(Input::Emit { from, during, message, wait: false, trusted: false });
    }

    /// Runs turns until idle. Returns all effects, one line each.
    pub(crate) fn run(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            while self.router.turn(self.now) {}
            let checks = self.checks;
            lines.extend(self.effects());
            // A timer that was trusted for goes on.
            if self.checks == checks {
                return lines;
            }
        }
    }

    pub(crate) fn turn(&mut self) -> Vec<String> {
        self.router.turn(self.now);
        self.effects()
    }

    pub(crate) fn effects(&mut self) -> Vec<String> {
        let effects: Vec<Effect> = self.router.drain().collect();
        effects.into_iter().filter_map(|effect| self.line(effect)).collect()
    }

    fn line(&mut self, effect: Effect) -> Option<String> {
        let show = |message: &OsMessage| {
            let cause = message.metadata.causation.as_ref().map_or(String::new(), |id| format!(" <{id}"));
            format!("{} {} {}{cause}", message.kind, message.ty, message.data.as_str())
        };
        Some(match effect {
            Effect::Post { to, delivery, message, by, .. } => {
                self.by = by;
                let line = format!("{} gets {}", self.name(to), show(&message));
                self.posted.push((to, delivery, (*message).clone()));
                line
            }
            Effect::Outcome { to, message } => format!("{} awaited {}", self.name(to), show(&message)),
            Effect::Answer { conn, message } => format!("{} is told {}", conn.0, show(&message)),
            Effect::Release { .. } | Effect::Trace(_) => return None,
            Effect::CheckSender { timer, by, .. } => {
                self.checks += 1;
                let result = self.refuses.clone().map_or_else(|| Ok(by.into()), Err);
                self.give(Input::SenderChecked { timer, result });
                return None;
            }
            Effect::Commit { token, ops } => {
                let line = format!("commit {}", ops.iter().map(op).collect::<Vec<_>>().join(", "));
                self.commits.push((token, ops));
                line
            }
            Effect::Settle { receipt, settled } => {
                let settled = match settled {
                    Settled::Processed => "processed".to_owned(),
                    Settled::Failed(fault) => format!("failed {}", fault.code),
                    Settled::Unseen => "unseen".to_owned(),
                };
                format!("settle {} {settled}", receipt.0)
            }
            Effect::Retired { capability } => format!("{} may go", self.name(capability)),
            Effect::Note(note) => {
                self.notes.push(note.clone());
                format!("note {}", note.ty())
            }
            Effect::Stopped => "stopped".to_owned(),
        })
    }

    fn name(&self, id: CapabilityId) -> String {
        self.ids.iter().find(|(_, one)| **one == id).map_or("?".to_owned(), |(name, _)| name.clone())
    }

    /// The last delivery of the message with this id.
    pub(crate) fn delivery(&self, id: &str) -> DeliveryId {
        self.posted.iter().rev().find(|(_, _, message)| message.metadata.id.as_str() == id).unwrap().1
    }

    /// Echo answers a request that it was given, and is done with it.
    pub(crate) fn answer(&mut self, id: &str, data: Value) {
        let delivery = self.delivery(id);
        self.say("Echo", Some(delivery), caused("reply", "Echo.Say", &format!("re-{id}"), data, Some(id)));
        self.done("Echo", delivery);
    }

    pub(crate) fn done(&mut self, from: &str, delivery: DeliveryId) {
        let from = self.ids[from];
        self.give(Input::Done { from, delivery, result: Ok(()) });
    }

    pub(crate) fn fails(&mut self, from: &str, delivery: DeliveryId, fault: OsFault) {
        let from = self.ids[from];
        self.give(Input::Done { from, delivery, result: Err(fault) });
    }

    /// Finishes everything that was posted to this capability so far.
    pub(crate) fn finish_all(&mut self, name: &str) {
        let id = self.ids[name];
        let (own, others) = std::mem::take(&mut self.posted).into_iter().partition(|(to, _, _)| *to == id);
        self.posted = others;
        let own: Vec<_> = own;
        for (from, delivery, _) in own {
            self.give(Input::Done { from, delivery, result: Ok(()) });
        }
    }

    pub(crate) fn bus_event(&mut self, to: &str, receipt: u64) {
        let message = message("event", "Bus.Message", &format!("bus-{receipt}"), json!({}));
        let to = self.ids[to];
        self.give(Input::BusEvent { to, receipt: Receipt(receipt), message });
    }

    /// The store carries out and confirms all commits; `rows` is its contents.
    pub(crate) fn commit(&mut self, rows: &mut BTreeMap<String, Bytes>) {
        for (token, ops) in std::mem::take(&mut self.commits) {
            for op in ops {
                match op {
                    Op::Put { key, value, .. } => drop(rows.insert(key, value)),
                    Op::Delete { key, .. } => drop(rows.remove(&key)),
                    other => panic!("{other:?}"),
                }
            }
            self.give(Input::Committed { token, result: Ok(()) });
        }
    }
}

fn op(op: &Op) -> String {
    match op {
        Op::Put { .. } => "put".to_owned(),
        Op::Delete { .. } => "delete".to_owned(),
        other => format!("{other:?}"),
    }
}

/// The member `name` of the JSON object in a line.
pub(crate) fn member(line: &str, name: &str) -> Value {
    let from = line.find('{').unwrap();
    let to = line.rfind('}').unwrap();
    let value: Value = serde_json::from_str(&line[from..=to]).unwrap();
    value[name].clone()
}

pub(crate) fn text(data: &JsonText) -> &str {
    data.as_str()
}
