//! The world of the bus: one clock, one schedule, one server on one disk, and everyone who talks to it.

mod crash;
mod fate;
mod neighbour;
mod people;
mod sabotage;
mod shell;

use std::collections::BTreeMap;

use millrace_bus::{ConnId, Effect, Input};
use millrace_shell::Watcher;

pub use self::sabotage::Sabotage;
use self::shell::Shell;
use crate::actor::admin::Admin;
use crate::actor::consumer::Consumer;
use crate::actor::publisher::Publisher;
use crate::actor::{ActorId, Desk, Note};
use crate::check::{Checkers, Violation};
use crate::clock::Clock;
use crate::dice::Dice;
use crate::disk::{Disk, Ending};
use crate::facts::Facts;
use crate::fault::FaultCounts;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::seen::Seen;
use crate::trace::Trace;

/// The calm ends when everything is finished; what is not finished after this long never will be.
const CALM_MS_MAX: u64 = 120_000;

#[derive(Debug)]
enum Happening {
    Wake {
        actor: ActorId,
        note: Note,
    },
    /// Time to draw what goes wrong next.
    Fate,
    /// The wall clock is no longer far off.
    ClockReturns,
    /// Another process writes to the store.
    Neighbour,
    /// The server starts.
    Start,
    /// The variants below are about one life of the server and void in the next.
    Turn {
        life: u64,
    },
    CommitApplies {
        life: u64,
    },
    CommitReports {
        life: u64,
    },
    LookAround {
        life: u64,
    },
    ReadEnds {
        life: u64,
        effect: Box<Effect>,
        early: Option<Box<Input>>,
    },
    End {
        life: u64,
        ending: Ending,
    },
    /// A stop must have ended by now.
    StopIsLate {
        life: u64,
    },
}

pub(crate) struct World {
    clock: Clock,
    schedule: Schedule<Happening>,
    plan: Plan,
    /// For the fate, and for how long commits and reads take.
    dice: Dice,
    disk: Disk,
    shell: Option<Shell>,
    life: u64,
    /// The last commit that the writer has seen when looking around.
    watcher: Option<Watcher>,
    desk: Desk,
    admin: Admin,
    publishers: Vec<Publisher>,
    consumers: Vec<Consumer>,
    callers: BTreeMap<u64, ActorId>,
    owners: BTreeMap<ConnId, ActorId>,
    facts: Facts,
    checkers: Checkers,
    pub trace: Trace,
    pub faults: FaultCounts,
    pub steps: u64,
    /// How far the wall clock is off.
    wall_shift_ms: i64,
    calm_since_ms: Option<u64>,
    finished: bool,
}

impl World {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, print: bool) -> World {
        let plan = Plan::draw(seed, sabotage);
        let topics: Vec<_> = plan.topics.iter().map(|topic| topic.key.clone()).collect();
        let publisher = |n| {
            Publisher::new(
                Dice::new(seed, &format!("publisher {n}")),
                topics.clone(),
                plan.publish_pause_ms_max,
            )
        };
        let mut world = World {
            clock: Clock::new(),
            schedule: Schedule::new(),
            dice: Dice::new(seed, "world"),
            disk: Disk::new(),
            shell: None,
            life: 0,
            watcher: None,
            desk: Desk::new(),
            admin: Admin::new(Dice::new(seed, "admin"), Dice::new(seed, "schemas"), plan.clone()),
            publishers: (0..plan.publishers).map(publisher).collect(),
            consumers: Vec::new(),
            callers: BTreeMap::new(),
            owners: BTreeMap::new(),
            facts: Facts::new(&plan),
            checkers: Checkers::all(),
            trace: Trace::new(print),
            faults: FaultCounts::default(),
            steps: 0,
            wall_shift_ms: 0,
            calm_since_ms: None,
            finished: false,
            plan,
        };
        world.hire_consumers(seed);
        world.schedule.at(0, Happening::Start);
        world.schedule.at(1, Happening::Wake { actor: ActorId(0), note: Note(0) });
        for actor in 1..=world.publishers.len() + world.consumers.len() {
            let at_ms = world.dice.between(50, 200);
            world.schedule.at(at_ms, Happening::Wake { actor: ActorId(actor), note: Note(0) });
        }
        world.schedule.at(100, Happening::Fate);
        world.schedule.at(60, Happening::Neighbour);
        world
    }

    pub(crate) fn simulated_ms(&self) -> u64 {
        self.clock.world_ms
    }

    /// Runs about `steps` steps with faults, then a calm in which everything must come to its end.
    pub(crate) fn run(&mut self, steps: u64) -> Result<(), Violation> {
        while self.steps < steps {
            self.step()?;
        }
        self.calm_down();
        let deadline_ms = self.clock.world_ms + CALM_MS_MAX;
        while !self.finished && self.clock.world_ms < deadline_ms && self.step()? {}
        let World { checkers, facts, disk, .. } = self;
        checkers.see(facts, &Seen::End { store: disk.store() })
    }

    /// Returns false when nothing will ever happen again.
    fn step(&mut self) -> Result<bool, Violation> {
        let Some((at_ms, happening)) = self.schedule.pop() else { return Ok(false) };
        self.steps += 1;
        self.clock.world_ms = at_ms;
        self.facts.tick(at_ms, self.clock.now());
        self.happen(happening)?;
        self.do_deeds();
        Ok(true)
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        let alive = |life: &u64| *life == self.life && self.shell.is_some();
        match happening {
            Happening::Wake { actor, note } => self.wake(actor, note),
            Happening::Fate => self.fate(),
            Happening::ClockReturns => self.clock_returns(),
            Happening::Neighbour => return self.neighbour(),
            Happening::Start => return self.start(),
            Happening::Turn { life } if alive(&life) => return self.turn(),
            Happening::CommitApplies { life } if alive(&life) => return self.commit_applies(),
            Happening::CommitReports { life } if alive(&life) => self.commit_reports(),
            Happening::LookAround { life } if alive(&life) => self.look_around(),
            Happening::ReadEnds { life, effect, early } if alive(&life) => self.read_ends(&effect, early),
            Happening::End { life, ending } if alive(&life) => return self.end(ending),
            Happening::StopIsLate { life } if alive(&life) => {
                let detail = "the engine was told to stop and never said that it has".to_owned();
                return Err(Violation { invariant: "stop_ends", detail });
            }
            _ => {}
        }
        Ok(())
    }

    /// Shows a contact to the checkers and then adds it to the record.
    fn see(&mut self, seen: &Seen<'_>) -> Result<(), Violation> {
        self.checkers.see(&self.facts, seen)?;
        self.facts.apply(seen);
        Ok(())
    }

    fn note(&mut self, line: &str) {
        self.trace.note(self.clock.world_ms, line);
    }
}
