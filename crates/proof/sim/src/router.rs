//! The world of the CQRS loop: clients that vanish, reuse ids and forge answers; actors that are slow, silent, answer
//! twice, lie about causes and crash; timers that outlive crashes of the whole process. After the calm every request of
//! a client that stayed has had exactly one answer, and no request, message or timer is left over.

mod actor;
mod client;
mod record;
mod sabotage;

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_model::{Mono, Op, OsKind, OsMessage, Requester};
use millrace_router::{CapabilityId, CommitToken, ConnId, Effect, Input, Note, Router, RouterLimits};

use self::actor::{Actor, MANNERS};
use self::client::Client;
pub(crate) use self::record::INVARIANTS;
use self::record::{Record, violation};
pub use self::sabotage::Sabotage;
use self::sabotage::Saboteur;
use crate::check::Violation;
use crate::clock::Clock;
use crate::dice::Dice;
use crate::fault::{Fault, FaultCounts};
use crate::schedule::Schedule;
use crate::trace::Trace;

/// By then every request has timed out and every timer has fired.
const CALM_MS_MAX: u64 = 600_000;
const REQUEST_TIMEOUT_MS: u64 = 2_000;
const SYSTEM_LANE_MAX: usize = 2;
const MAILBOX_MAX: usize = 6;
/// So small that the loop often forgets lineages.
const LINEAGE_MAX: usize = 12;

#[derive(Debug)]
enum Happening {
    Client {
        client: usize,
    },
    /// An actor goes on with the message it is working on.
    Actor {
        life: u64,
        actor: usize,
    },
    Turn {
        life: u64,
    },
    Stored {
        life: u64,
        token: CommitToken,
        ops: Vec<Op>,
        fails: bool,
    },
    Fate,
}

pub(crate) struct RouterWorld {
    clock: Clock,
    schedule: Schedule<Happening>,
    dice: Dice,
    limits: RouterLimits,
    router: Router,
    saboteur: Saboteur,
    /// The number of the running process.
    life: u64,
    rows: BTreeMap<String, Bytes>,
    actors: Vec<Actor>,
    by_id: BTreeMap<CapabilityId, usize>,
    clients: Vec<Client>,
    next_conn: u64,
    record: Record,
    turn_at: Option<u64>,
    turn_ms: u64,
    /// The host gives the loop no turn before this time.
    stalled_ms: u64,
    pub(crate) trace: Trace,
    pub(crate) faults: FaultCounts,
    pub(crate) steps: u64,
    calm: bool,
}

impl RouterWorld {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, print: bool) -> RouterWorld {
        let limits = RouterLimits {
            mailbox_max: MAILBOX_MAX,
            system_lane_max: SYSTEM_LANE_MAX,
            lineage_max: LINEAGE_MAX,
            request_timeout_ms: REQUEST_TIMEOUT_MS,
            trace_records_max: 32,
            conn_messages_max: 40,
            ..RouterLimits::default()
        };
        let limits = Saboteur::limits(sabotage, limits);
        let mut dice = Dice::new(seed, "router world");
        let clients = (0..dice.between(2, 6)).map(|at| Client::new(at as usize)).collect();
        let turn_ms = dice.below(3);
        let mut world = RouterWorld {
            clock: Clock::new(),
            schedule: Schedule::new(),
            router: Router::new(limits.clone(), dice.draw()),
            dice,
            limits,
            saboteur: Saboteur::new(sabotage),
            life: 0,
            rows: BTreeMap::new(),
            actors: MANNERS.iter().map(|manners| Actor::new(*manners)).collect(),
            by_id: BTreeMap::new(),
            clients,
            next_conn: 0,
            record: Record::default(),
            turn_at: None,
            turn_ms,
            stalled_ms: 0,
            trace: Trace::new(print),
            faults: FaultCounts::default(),
            steps: 0,
            calm: false,
        };
        world.boot();
        for client in 0..world.clients.len() {
            world.schedule.at(client as u64, Happening::Client { client });
        }
        world.schedule.at(200, Happening::Fate);
        world
    }

    pub(crate) fn simulated_ms(&self) -> u64 {
        self.clock.world_ms
    }

    pub(crate) fn run(&mut self, steps: u64) -> Result<(), Violation> {
        while self.steps < steps && self.step()? {}
        self.calm = true;
        self.note("calm");
        let deadline_ms = self.clock.world_ms + CALM_MS_MAX;
        while self.clock.world_ms < deadline_ms && !self.is_over() && self.step()? {}
        let leftovers = self.router.gauges();
        self.record.at_the_end(&leftovers)
    }

    fn is_over(&self) -> bool {
        self.router.is_quiescent() && self.actors.iter().all(Actor::is_idle)
    }

    fn step(&mut self) -> Result<bool, Violation> {
        let Some((at_ms, happening)) = self.schedule.pop() else { return Ok(false) };
        self.steps += 1;
        self.clock.world_ms = at_ms;
        match happening {
            Happening::Client { client } => self.client_acts(client),
            Happening::Actor { life, actor } if life == self.life => self.actor_acts(actor),
            Happening::Stored { life, token, ops, fails } if life == self.life => {
                self.stored(token, ops, fails);
            }
            // A turn that does not match `turn_at` was replaced by one planned for an earlier moment.
            Happening::Turn { life } if life == self.life && self.turn_at == Some(at_ms) => {
                self.turn_at = None;
                self.turn()?;
            }
            Happening::Fate => self.fate()?,
            _ => {}
        }
        self.effects()?;
        self.wake();
        Ok(true)
    }

    /// Lets the loop take one turn, and records how long users have been waiting for theirs.
    fn turn(&mut self) -> Result<(), Violation> {
        let (waiting, before) = (self.router.gauges().user_lane > 0, self.router.counters().system_turns);
        if self.router.turn(self.clock.now()) {
            let was_system = self.router.counters().system_turns > before;
            self.record.turned(waiting, was_system, SYSTEM_LANE_MAX)?;
        }
        Ok(())
    }

    /// Schedules the next turn, as a host calls back as soon as there is something to do.
    fn wake(&mut self) {
        let gauges = self.router.gauges();
        let busy = gauges.system_lane + gauges.user_lane > 0;
        let due = self.router.next_deadline().map(|at| self.clock.world_at(at).max(self.clock.world_ms));
        // A slow host lets lanes fill up.
        let next = if busy { Some(self.clock.world_ms + self.turn_ms) } else { due };
        let Some(at) = next.map(|at| at.max(self.stalled_ms)) else { return };
        if self.turn_at.is_none_or(|set| at < set) {
            self.turn_at = Some(at);
            self.schedule.at(at, Happening::Turn { life: self.life });
        }
    }

    fn boot(&mut self) {
        let now = self.clock.now();
        let manifests = self.actors.iter().map(Actor::manifest).collect();
        let ids = self.router.install(now, manifests).unwrap_or_default();
        self.by_id = ids.into_iter().zip(0..).collect();
        self.router.restore(now, None, self.rows.clone().into_iter().collect());
        for client in 0..self.clients.len() {
            self.connect(client);
        }
    }

    fn connect(&mut self, client: usize) {
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        self.clients[client].conn = conn;
        self.tell(Input::Open { conn, by: Requester::Trusted });
    }

    fn tell(&mut self, input: Input) {
        if let Some(input) = self.saboteur.input(input) {
            self.router.handle(self.clock.now(), input);
        }
    }

    fn client_acts(&mut self, at: usize) {
        if self.calm {
            return;
        }
        let now = self.clock.now();
        if self.dice.chance(120) {
            self.faults.add(Fault::Disconnect);
            let conn = self.clients[at].conn;
            self.note(&format!("client {} vanishes", conn.0));
            self.tell(Input::Close { conn });
            self.record.closed(conn);
            self.connect(at);
        } else {
            for _ in 0..self.dice.between(1, 8) {
                let conn = self.clients[at].conn;
                let message = self.clients[at].says(&mut self.dice, &mut self.record, now);
                self.note(&format!("client {} sends {} {}", conn.0, message.ty, message.metadata.id));
                self.tell(Input::Client { conn, message });
            }
        }
        let next_ms = self.clock.world_ms + self.dice.between(0, 250);
        self.schedule.at(next_ms, Happening::Client { client: at });
    }

    fn actor_acts(&mut self, at: usize) {
        let Some(id) = self.by_id.iter().find(|(_, actor)| **actor == at).map(|(id, _)| *id) else { return };
        let now = self.clock.now();
        let inputs = self.actors[at].acts(id, &mut self.dice, now, &self.record.asked_elsewhere(at));
        for input in inputs {
            if matches!(input, Input::Crashed { .. }) {
                self.faults.add(Fault::Vanished);
            }
            self.tell(input);
        }
        self.go_on(at);
    }

    /// The actor begins the next message in its mailbox, if it is idle.
    fn go_on(&mut self, at: usize) {
        if let Some(delay_ms) = self.actors[at].begin(&mut self.dice, REQUEST_TIMEOUT_MS) {
            let at_ms = self.clock.world_ms + delay_ms;
            self.schedule.at(at_ms, Happening::Actor { life: self.life, actor: at });
        }
    }

    fn effects(&mut self) -> Result<(), Violation> {
        let effects: Vec<Effect> = self.router.drain().collect();
        for effect in effects {
            if !self.saboteur.passes(&effect, &mut self.rows) {
                continue;
            }
            match effect {
                Effect::Post { to, delivery, message, .. } => {
                    let Some(at) = self.by_id.get(&to).copied() else { continue };
                    self.note(&format!("actor {at} gets {} {}", message.ty, message.metadata.id));
                    self.record.posted(self.clock.now(), self.life, at, &message)?;
                    self.actors[at].mailbox.push_back((delivery, message));
                    if self.actors[at].mailbox.len() > MAILBOX_MAX {
                        return Err(violation(
                            "mailbox_bound",
                            format!("actor {at} has more than {MAILBOX_MAX}"),
                        ));
                    }
                    self.go_on(at);
                }
                Effect::Answer { conn, message } => self.answered(conn, &message)?,
                Effect::Commit { token, ops } => self.store(token, ops),
                Effect::Note(Note::ActorFault { capability, message, .. }) => {
                    self.blamed(&capability, &message)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// An actor that names true causes, early or late, must not be blamed.
    fn blamed(&mut self, capability: &str, why: &str) -> Result<(), Violation> {
        self.note(&format!("{capability} is blamed: {why}"));
        let honest = self.actors.iter().any(|one| one.is_honest() && *one.manifest().name == *capability);
        match honest {
            true => Err(violation("honest_is_no_fault", format!("{capability}: {why}"))),
            false => Ok(()),
        }
    }

    fn answered(&mut self, conn: ConnId, message: &OsMessage) -> Result<(), Violation> {
        let cause = message.metadata.causation.as_ref().map_or("", |id| id.as_str());
        self.note(&format!("client {} is told {} <{cause} {}", conn.0, message.kind, message.data.as_str()));
        if message.kind == OsKind::Reply && message.ty.as_str() == "Timer.Set" {
            self.record.timer_set(cause, message);
        }
        self.record.answered(conn, message)
    }

    fn store(&mut self, token: CommitToken, ops: Vec<Op>) {
        let fails = !self.calm && self.dice.chance(40);
        if fails {
            self.faults.add(Fault::CommitFailed);
        }
        // The rows are on the disk now and reported later, or written and reported later: a kill in between finds
        // either state.
        let early = !fails && self.dice.chance(500);
        let ops = if early {
            self.apply(ops);
            Vec::new()
        } else {
            ops
        };
        let at_ms = self.clock.world_ms + self.dice.between(0, 30);
        self.schedule.at(at_ms, Happening::Stored { life: self.life, token, ops, fails });
    }

    fn stored(&mut self, token: CommitToken, ops: Vec<Op>, fails: bool) {
        let result = if fails { Err("the disk says no".into()) } else { Ok(()) };
        if !fails {
            self.apply(ops);
        }
        self.tell(Input::Committed { token, result });
    }

    fn apply(&mut self, ops: Vec<Op>) {
        for op in ops {
            match op {
                Op::Put { key, value, .. } => drop(self.rows.insert(key, value)),
                Op::Delete { key, .. } => drop(self.rows.remove(&key)),
                _ => {}
            }
        }
    }

    /// Now and then the process dies, a capability is replaced, or the clock is set.
    fn fate(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        match self.dice.below(10) {
            0 => self.kill()?,
            1 | 2 => self.reload(),
            3 => {
                self.faults.add(Fault::WallStep);
                let by_ms = self.dice.below(4000) as i64 - 2000;
                self.note(&format!("the wall clock steps by {by_ms}"));
                self.clock.step_wall(by_ms);
                self.record.wall_stepped(by_ms);
            }
            4 | 5 => {
                self.faults.add(Fault::Congested);
                self.stalled_ms = self.clock.world_ms + self.dice.between(500, 3000);
                self.note(&format!("no turns until {}", self.stalled_ms));
            }
            _ => {}
        }
        let next_ms = self.clock.world_ms + self.dice.between(200, 2000);
        self.schedule.at(next_ms, Happening::Fate);
        Ok(())
    }

    fn kill(&mut self) -> Result<(), Violation> {
        self.note("the process is killed");
        self.faults.add(Fault::Kill);
        let mailboxes = self.actors.iter().flat_map(Actor::timers).collect();
        let patient_since = Mono(self.clock.now().mono.0.saturating_sub(REQUEST_TIMEOUT_MS));
        self.record.killed(&self.rows, &mailboxes, patient_since)?;
        self.life += 1;
        self.turn_at = None;
        self.clock.epoch_ms = self.clock.world_ms;
        self.router = Router::new(self.limits.clone(), self.dice.draw());
        self.saboteur.killed();
        self.actors.iter_mut().for_each(Actor::reset);
        self.boot();
        Ok(())
    }

    fn reload(&mut self) {
        let at = self.dice.below(self.actors.len() as u64) as usize;
        let Some(old) = self.by_id.iter().find(|(_, actor)| **actor == at).map(|(id, _)| *id) else { return };
        // The mailbox of a replaced capability goes on under the old number; the world keeps one actor per place, so
        // only an idle actor is replaced.
        if !self.actors[at].is_idle() {
            return;
        }
        self.note(&format!("actor {at} is replaced"));
        self.faults.add(Fault::Reset);
        self.actors[at].reset();
        let come = vec![self.actors[at].manifest()];
        if let Ok(ids) = self.router.replace(self.clock.now(), &[old], come) {
            self.by_id.remove(&old);
            self.by_id.extend(ids.into_iter().map(|id| (id, at)));
        }
    }

    fn note(&mut self, line: &str) {
        self.trace.note(self.clock.world_ms, line);
    }
}
