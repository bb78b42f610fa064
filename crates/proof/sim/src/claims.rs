//! The world of workers: several processes on one disk, each with its own engine of durable handlers. Processes are
//! killed between any two steps. Their commits fail, or succeed without an answer. Their handlers are slow, fail,
//! commit and emit; some end their process. The wall clock steps. After the calm every event must have ended exactly
//! once for every handler.

mod commits;
mod counter;
mod effects;
mod fate;
mod plan;
mod process;
mod record;
mod sabotage;
mod starts;
mod verdict;

use millrace_claims::{Input, RunId, Token, Worker};
use millrace_model::{Batch, Now, Timestamp};

use self::plan::Plan;
use self::process::Process;
pub(crate) use self::record::INVARIANTS;
use self::record::{Record, violation};
pub use self::sabotage::Sabotage;
use self::sabotage::Saboteur;
use crate::check::Violation;
use crate::clock::{Clock, Reader};
use crate::dice::Dice;
use crate::disk::Disk;
use crate::fault::FaultCounts;
use crate::plan::FAR_MS_MAX;
use crate::schedule::Schedule;
use crate::trace::Trace;

/// By then everything has ended: many times the longest backoff and lease, plus a lease for every crash that an event
/// causes by ending its process.
const CALM_MS_MAX: u64 = 1_000_000;
/// How many wakes in one millisecond may lead to nothing.
const IDLE_WAKES_MAX: u32 = 20;

#[derive(Debug)]
enum Happening {
    Start {
        process: usize,
    },
    Wake {
        process: usize,
        life: u64,
    },
    CommitApplies {
        process: usize,
        life: u64,
        token: Token,
        batch: Box<Batch>,
    },
    Report {
        process: usize,
        life: u64,
        input: Box<Input>,
    },
    RunGoesOn {
        process: usize,
        life: u64,
        run: RunId,
    },
    Publish,
    Fate,
    /// The wall clock is no longer far off.
    ClockReturns,
}

pub(crate) struct ClaimsWorld {
    seed: u64,
    plan: Plan,
    clock: Clock,
    schedule: Schedule<Happening>,
    dice: Dice,
    disk: Disk,
    processes: Vec<Process>,
    record: Record,
    saboteur: Saboteur,
    pub(crate) trace: Trace,
    pub(crate) faults: FaultCounts,
    pub(crate) steps: u64,
    calm: bool,
}

impl ClaimsWorld {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>, print: bool) -> ClaimsWorld {
        let plan = Plan::draw(seed);
        let mut world = ClaimsWorld {
            seed,
            clock: Clock::new(),
            schedule: Schedule::new(),
            dice: Dice::new(seed, "claims world"),
            disk: Disk::new(),
            processes: (0..plan.processes).map(Process::new).collect(),
            record: Record::default(),
            saboteur: Saboteur::new(sabotage, plan.config.event_retention_ms),
            trace: Trace::new(print),
            faults: FaultCounts::default(),
            steps: 0,
            calm: false,
            plan,
        };
        // So that a minute, at which schedules fire, begins soon.
        world.clock.step_wall(38_000);
        for process in 0..world.processes.len() {
            world.processes[process].skew_ms = world.plan.skew(&mut world.dice);
            let at_ms = world.dice.below(300);
            world.schedule.at(at_ms, Happening::Start { process });
        }
        world.schedule.at(5, Happening::Publish);
        world.schedule.at(50, Happening::Fate);
        world
    }

    pub(crate) fn simulated_ms(&self) -> u64 {
        self.clock.world_ms
    }

    pub(crate) fn run(&mut self, steps: u64) -> Result<(), Violation> {
        while self.steps < steps {
            self.step()?;
        }
        self.calm = true;
        self.note("calm");
        let deadline_ms = self.clock.world_ms + CALM_MS_MAX;
        while self.clock.world_ms < deadline_ms && !self.is_over() && self.step()? {}
        self.record.at_the_end(self.seed, &self.plan, self.disk.store())
    }

    /// Whether every process runs, none has anything to do, and nothing is claimed.
    fn is_over(&self) -> bool {
        // Counting everything is expensive.
        if !self.steps.is_multiple_of(64) {
            return false;
        }
        let quiet = self.processes.iter().all(|process| process.worker.as_ref().is_some_and(Worker::is_idle));
        quiet && self.record.at_the_end(self.seed, &self.plan, self.disk.store()).is_ok()
    }

    fn step(&mut self) -> Result<bool, Violation> {
        let Some((at_ms, happening)) = self.schedule.pop() else { return Ok(false) };
        self.steps += 1;
        self.clock.world_ms = at_ms;
        if self.steps.is_multiple_of(64) {
            self.record.look_around(self.disk.store())?;
            self.nobody_sleeps_over_work()?;
        }
        match happening {
            Happening::Start { process } => self.start(process)?,
            Happening::Publish => self.publish()?,
            Happening::Fate => self.fate(),
            Happening::ClockReturns => self.clock_returns(),
            // A wake that does not match `wake_ms` is void: the process has asked for another one since.
            Happening::Wake { process, life }
                if self.alive(process, life) && self.processes[process].wake_ms == Some(at_ms) =>
            {
                self.wake(process)?;
            }
            Happening::CommitApplies { process, life, token, batch } => {
                self.applies(process, life, token, &batch)?;
            }
            Happening::Report { process, life, input } if self.alive(process, life) => {
                self.input(process, *input)?;
            }
            Happening::RunGoesOn { process, life, run } if self.alive(process, life) => {
                self.run_goes_on(process, run)?;
            }
            _ => {}
        }
        Ok(true)
    }

    fn alive(&self, process: usize, life: u64) -> bool {
        let process = &self.processes[process];
        process.life == life && process.worker.is_some()
    }

    /// The clock as a process reads it: the processes need not agree.
    fn read_clock(&mut self, at: usize) -> Now {
        let shown = self.clock.shown();
        let process = &mut self.processes[at];
        let wall = Timestamp(shown.wall.0.saturating_add_signed(process.skew_ms));
        process.reader.read(Now { wall, ..shown })
    }

    fn note(&mut self, line: &str) {
        self.trace.note(self.clock.world_ms, line);
    }

    fn start(&mut self, at: usize) -> Result<(), Violation> {
        if self.processes[at].worker.is_some() {
            return Ok(());
        }
        // A process that started while the clock is far off would take over claims that others hold and fire schedules
        // that are not due: it could not know better.
        if self.clock.is_far_off() {
            self.schedule.at(self.clock.world_ms + FAR_MS_MAX, Happening::Start { process: at });
            return Ok(());
        }
        let seed = self.dice.draw();
        let Plan { config, handlers, schedules, .. } = &self.plan;
        let config = self.saboteur.config(config);
        let process = &mut self.processes[at];
        let worker = Worker::new(config, process.identity(), handlers.clone(), schedules.clone(), seed)
            .map_err(|error| violation("restores", error.to_string()))?;
        process.begin(worker, Reader::new(self.plan.config.clock_settle_ms));
        self.note(&format!("p{at} starts"));
        self.input(at, Input::Tick)
    }

    fn wake(&mut self, at: usize) -> Result<(), Violation> {
        self.processes[at].wake_ms = None;
        let before = self.processes[at].effects;
        self.input(at, Input::Tick)?;
        let (world_ms, process) = (self.clock.world_ms, &mut self.processes[at]);
        process.idle_wakes = if process.effects == before && process.wake_ms == Some(world_ms) {
            process.idle_wakes + 1
        } else {
            0
        };
        if process.idle_wakes > IDLE_WAKES_MAX {
            return Err(violation("no_busy_loop", format!("p{at} asks to be woken again and again")));
        }
        Ok(())
    }

    fn input(&mut self, at: usize, mut input: Input) -> Result<(), Violation> {
        let now = self.read_clock(at);
        self.saboteur.input(at, &mut input);
        let Some(worker) = self.processes[at].worker.as_mut() else { return Ok(()) };
        worker.handle(now, input);
        if !cfg!(debug_assertions) {
            // A debug build of the engine checks itself.
            worker.check_invariants();
        }
        if worker.counts().broken > 0 {
            return Err(violation("never", "the engine was in a state that cannot occur".to_owned()));
        }
        let effects = worker.drain();
        let deadline = worker.next_deadline();
        self.processes[at].effects += effects.len();
        for effect in effects {
            self.effect(at, effect)?;
        }
        if let Some(deadline) = deadline.filter(|_| self.processes[at].worker.is_some()) {
            let at_ms = self.clock.world_at(deadline).max(self.clock.world_ms);
            let process = &mut self.processes[at];
            if process.wake_ms != Some(at_ms) {
                process.wake_ms = Some(at_ms);
                self.schedule.at(at_ms, Happening::Wake { process: at, life: process.life });
            }
        }
        Ok(())
    }

    /// Finds ready work that an idle worker has not taken although it must have polled at least once since.
    fn nobody_sleeps_over_work(&mut self) -> Result<(), Violation> {
        let (now, world_ms) = (self.clock.now(), self.clock.world_ms);
        let seen_by_all = now.wall.saturating_sub(plan::SKEW_MS_MAX);
        let slack_ms = 2 * self.plan.config.event_poll_interval_ms + 200;
        let ready = process::oldest_ready(self.disk.store(), &self.plan.handlers, seen_by_all);
        for process in &mut self.processes {
            let idle = process.worker.as_ref().is_some_and(Worker::is_idle);
            let same = process.slept_over.as_ref().is_some_and(|(what, _)| Some(what) == ready.as_ref());
            if !idle || !same {
                process.slept_over = ready.clone().filter(|_| idle).map(|what| (what, world_ms));
            }
            if let Some((what, since_ms)) = &process.slept_over
                && world_ms > since_ms + slack_ms
            {
                let detail = format!("{} sleeps while {what} is ready since {since_ms}", process.session());
                return Err(violation("no_ready_work_asleep", detail));
            }
        }
        Ok(())
    }
}
