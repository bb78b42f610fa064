//! The middle of a cluster: time, the schedule, and everything that servers, clients and the engine share.
//!
//! A call of a handle goes on while the world does: each request to the engine and each pause of a process runs
//! whatever happens in the meantime, inside that call ([`Hub::wait`]). So other servers act while a commit is under
//! way, without threads. The lock is never held while a handle is called.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use millrace_journal::{JournalError, ManifestVersion, Placed};
use millrace_store_journal::JournalStore;
use parking_lot::{Mutex, MutexGuard};

use super::engine::{SentRecord, SharedEngine};
use super::load::Client;
use super::plan::Plan;
use super::sabotage::Sabotage;
use super::server::{Server, draw_clock};
use super::truth::Truth;
use super::wire::LateRequest;
use super::{Happening, Writer};
use crate::check::Violation;
use crate::dice::Dice;
use crate::fault::{Fault, FaultCounts};
use crate::schedule::Schedule;
use crate::trace::Trace;

/// How deep calls may be inside one another. Every server is in one call at most, or in two while it makes a snapshot.
const DEPTH_MAX: usize = 16;

pub(super) struct Hub {
    world_ms: Arc<AtomicU64>,
    state: Mutex<State>,
}

pub(super) struct State {
    world_ms: Arc<AtomicU64>,
    pub(super) plan: Plan,
    pub(super) sabotage: Option<Sabotage>,
    pub(super) schedule: Schedule<Happening>,
    pub(super) dice: Dice,
    pub(super) servers: Vec<Server>,
    pub(super) clients: Vec<Client>,
    pub(super) engine: SharedEngine,
    pub(super) truth: Truth,
    pub(super) trace: Trace,
    pub(super) faults: FaultCounts,
    pub(super) steps: u64,
    /// The step at which all faults end.
    pub(super) steps_max: u64,
    /// Commits that were confirmed.
    pub(super) commits: u64,
    pub(super) calm: bool,
    /// No call may be under way any more at this time.
    pub(super) over_ms: u64,
    depth: usize,
    /// Handles of processes that have ended, to be dropped without the lock.
    pub(super) buried: Vec<Arc<JournalStore>>,
    /// The first violation: everything ends after it.
    pub(super) violation: Option<Violation>,
}

impl Hub {
    pub(super) fn new(seed: u64, steps_max: u64, sabotage: Option<Sabotage>, print: bool) -> Arc<Hub> {
        let plan = Plan::draw(seed);
        let mut dice = Dice::new(seed, "cluster world");
        let world_ms = Arc::new(AtomicU64::new(0));
        let servers = (0..plan.servers).map(|at| {
            let wire_dice = Dice::new(seed, &format!("wire of server {at}"));
            Server::new(draw_clock(&plan, &mut dice, &world_ms), wire_dice)
        });
        let servers = servers.collect();
        let clients = (0..plan.clients).map(|at| Client::new(seed, at)).collect();
        let mut state = State {
            world_ms: world_ms.clone(),
            sabotage,
            schedule: Schedule::new(),
            servers,
            clients,
            engine: SharedEngine::new(plan.head_guard, sabotage),
            truth: Truth::new(),
            trace: Trace::new(print),
            faults: FaultCounts::default(),
            steps: 0,
            steps_max,
            commits: 0,
            calm: false,
            over_ms: u64::MAX,
            depth: 0,
            buried: Vec::new(),
            violation: None,
            plan,
            dice,
        };
        for server in 0..state.servers.len() {
            let at_ms = state.dice.below(2_000);
            state.schedule.at(at_ms, Happening::Start { server });
        }
        for client in 0..state.clients.len() {
            state.schedule.at(3_000, Happening::Request { client });
        }
        state.schedule.at(5_000, Happening::Fate);
        state.schedule.at(4_000, Happening::Compare);
        Arc::new(Hub { world_ms, state: Mutex::new(state) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.world_ms.load(Relaxed)
    }

    /// Lets everything happen that is due until then.
    pub(super) fn run_until(self: &Arc<Hub>, until_ms: u64) {
        while self.step(until_ms) {}
        self.world_ms.fetch_max(until_ms, Relaxed);
    }

    /// Lets a process wait, and everybody else go on. A stopped process waits longer, a killed one not at all.
    pub(super) fn wait(self: &Arc<Hub>, server: usize, life: u64, ms: u64) {
        let until_ms = self.now_ms() + ms;
        loop {
            let until_ms = {
                let state = self.lock();
                if !state.is_alive(Writer { server, life }) || state.violation.is_some() {
                    return;
                }
                until_ms.max(state.servers[server].stopped_until_ms)
            };
            if self.now_ms() >= until_ms {
                return;
            }
            if !self.step(until_ms) {
                self.world_ms.fetch_max(until_ms, Relaxed);
            }
        }
    }

    /// Lets the next thing happen if it is due until then. Returns whether there was one.
    pub(super) fn step(self: &Arc<Hub>, until_ms: u64) -> bool {
        let happening = {
            let mut state = self.lock();
            let is_due = state.schedule.next_at().is_some_and(|at_ms| at_ms <= until_ms);
            if !is_due || state.depth >= DEPTH_MAX || state.violation.is_some() {
                return false;
            }
            let Some((at_ms, happening)) = state.schedule.pop() else { return false };
            // Later than planned if a call inside another one took longer.
            self.world_ms.fetch_max(at_ms, Relaxed);
            state.steps += 1;
            if state.steps == state.steps_max {
                // A call that has been under way for long must not keep all the others going.
                state.calm_down();
            }
            state.depth += 1;
            happening
        };
        self.happen(happening);
        let buried = {
            let mut state = self.lock();
            state.depth -= 1;
            std::mem::take(&mut state.buried)
        };
        drop(buried);
        true
    }

    fn happen(self: &Arc<Hub>, happening: Happening) {
        match happening {
            Happening::Start { server } => self.start(server),
            Happening::Keep { server, life } => self.keep(Writer { server, life }),
            Happening::Supervise { server, life } => self.supervise(Writer { server, life }),
            Happening::Stop { server, life } => self.stop(Writer { server, life }),
            Happening::Request { client } => self.request(client),
            Happening::Arrive { by, losses, request } => self.lock().arrive(by, losses, &request),
            Happening::Fate => self.lock().fate(),
            Happening::Compare => self.compare_any(),
        }
    }
}

impl State {
    pub(super) fn now_ms(&self) -> u64 {
        self.world_ms.load(Relaxed)
    }

    pub(super) fn is_alive(&self, Writer { server, life }: Writer) -> bool {
        self.servers[server].life == life
    }

    pub(super) fn note(&mut self, line: &str) {
        let now_ms = self.now_ms();
        self.trace.note(now_ms, line);
    }

    pub(super) fn fail(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    pub(super) fn require(&mut self, verdict: Result<(), Violation>) {
        if let Err(violation) = verdict {
            self.fail(violation);
        }
    }

    pub(super) fn place(&mut self, by: Writer, sent: &SentRecord) -> Result<Placed, JournalError> {
        let now_ms = self.now_ms();
        let placed = self.engine.place(sent, now_ms)?;
        if placed == Placed::Yes {
            let is_again = sent.n <= self.truth.head().0;
            let verdict = self.truth.placed(by, sent);
            if is_again {
                self.faults.add(Fault::NumberReused);
            }
            let again = if is_again { " again, where a record was deleted" } else { "" };
            self.note(&format!("{by} places {}{again}", sent.n));
            self.require(verdict);
        }
        Ok(placed)
    }

    pub(super) fn set_manifest(
        &mut self,
        by: Writer,
        new: &[u8],
        was: Option<&ManifestVersion>,
    ) -> Result<bool, JournalError> {
        let is_set = self.engine.set_manifest(new, was)?;
        if is_set {
            let trimmed_to = self.engine.trimmed_to();
            self.note(&format!("{by} sets the manifest, trimmed to {trimmed_to}"));
            self.faults.add(Fault::ManifestSet);
        }
        Ok(is_set)
    }

    pub(super) fn delete_below(&mut self, by: Writer, n: u64) -> Result<(), JournalError> {
        self.note(&format!("{by} deletes below {n}"));
        self.faults.add(Fault::RecordsDeleted);
        self.engine.delete_below(n)
    }

    fn arrive(&mut self, by: Writer, losses: u64, request: &LateRequest) {
        if self.truth.losses != losses {
            return;
        }
        // Nobody waits for these answers any more.
        match request {
            LateRequest::Place(sent) => {
                let _ = self.place(by, sent);
            }
            LateRequest::SetManifest { new, was } => {
                let _ = self.set_manifest(by, new, was.as_ref());
            }
        }
    }
}
