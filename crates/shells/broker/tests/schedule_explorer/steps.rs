//! The steps that a world may take next.

use crate::schedule::{Handover, Happened, Job, Step};
use crate::world::{At, FAR, Kind, Thread, World, instant, tick};

/// Turns of an edge in a row, as in `jobs.rs`.
const INLINE_TURNS_MAX: usize = 4;
/// Requests that make a turn long.
const FLOOD: usize = 17;
/// Milliseconds of a commit after which no edge commits.
const LONG_COMMIT: u64 = 1000;
/// Batches of one commit.
const COMMIT_MAX: usize = 1;
/// Ticks until a commit that wrote nothing is repeated, until maintenance is due again, and until the engine must run.
const RETRY: u64 = 1;
const MAINTENANCE: u64 = 2;
const ALARMS: [u64; 2] = [1, FAR];

/// The ways in which an edge may see to its requests.
#[derive(Clone, Copy)]
struct May {
    commit: bool,
    gather: bool,
}

/// A step, and what it is waiting for.
pub(crate) struct Next {
    pub(crate) name: &'static str,
    pub(crate) thread: usize,
    /// A thread takes this step by itself. Other steps wait for the disk, the clock or the outside and may never come.
    pub(crate) is_certain: bool,
    pub(crate) world: World,
}

struct Steps<'a> {
    world: &'a World,
    thread: usize,
    next: &'a mut Vec<Next>,
}

pub(crate) fn steps(world: &World, next: &mut Vec<Next>) {
    next.clear();
    for thread in 0..world.threads.len() {
        Steps { world, thread, next }.of_thread();
    }
    let mut steps = Steps { world, thread: 0, next };
    if world.budget.ticks > 0 {
        steps.outside("time passes", |world| {
            world.budget.ticks -= 1;
            world.now += 1;
        });
    }
}

impl Steps<'_> {
    fn certain(&mut self, name: &'static str, change: impl FnOnce(&mut World)) {
        self.push(name, true, change);
    }

    fn outside(&mut self, name: &'static str, change: impl FnOnce(&mut World)) {
        self.push(name, false, change);
    }

    fn push(&mut self, name: &'static str, is_certain: bool, change: impl FnOnce(&mut World)) {
        let mut world = self.world.clone();
        change(&mut world);
        self.next.push(Next { name, thread: self.thread, is_certain, world });
    }

    fn of_thread(&mut self) {
        let own = self.thread;
        let thread = self.world.threads[own];
        if let Some(wake) = thread.owes {
            return self.wake_sleepers(wake.is_for_all());
        }
        match thread.at {
            At::Looks => self.certain("looks", |world| world.look(own)),
            At::Sleeps { until, woken } => {
                if woken || self.world.now >= until {
                    self.certain("wakes", |world| {
                        world.schedule.report(Happened::Woke { until: instant(until) });
                        world.look(own);
                    });
                }
            }
            At::Decides { requests } => self.deciding(requests),
            At::Decided => {
                for alarm in ALARMS {
                    self.certain("decided", |world| world.decided(own, alarm));
                }
            }
            At::Commits { batches } => self.committing(batches),
            At::Committed => self.certain("reports the commit", |world| world.committed(own)),
            At::Maintains => self.maintaining(),
            At::Retires => self.certain("retires", |world| {
                world.has_engine = false;
                world.end(own, At::Looks);
            }),
            At::Idle => self.idle(thread.kind),
            At::Gathers => {
                self.certain("has gathered", |world| world.end_gathering(own));
                self.certain("drops its gathering", |world| {
                    let thread = &mut world.threads[own];
                    (thread.at, thread.may_commit) = (At::Idle, false);
                    world.report(own, Happened::GatheringDropped);
                });
            }
            At::LooksInline => self.certain("looks inline", |world| world.look_inline(own)),
            At::Leaves => self.certain("leaves", |world| world.leave(own)),
            At::Finishes => self.certain("finishes", |world| {
                let thread = &mut world.threads[own];
                *thread =
                    Thread { at: At::Idle, turns: 0, may_commit: false, is_last_turn: false, ..*thread };
                world.report(own, Happened::InlineFinished);
            }),
            At::Submitted => self.certain("submitted", |world| {
                world.threads[own].at = At::Idle;
                world.wake_for_rest(own);
            }),
            At::Ending => self.certain("ends", |world| world.end(own, At::Gone)),
            At::Gone => {}
        }
    }

    /// Any of the sleepers may be the one that is woken.
    fn wake_sleepers(&mut self, all: bool) {
        let own = self.thread;
        let asleep =
            |world: &World, index: usize| matches!(world.threads[index].at, At::Sleeps { woken: false, .. });
        let sleepers: Vec<usize> =
            (0..self.world.threads.len()).filter(|index| asleep(self.world, *index)).collect();
        let wake = |world: &mut World, index: usize| {
            if let At::Sleeps { woken, .. } = &mut world.threads[index].at {
                *woken = true;
            }
        };
        if all || sleepers.is_empty() {
            return self.certain("wakes all", |world| {
                world.threads[own].owes = None;
                sleepers.iter().for_each(|index| wake(world, *index));
            });
        }
        for index in sleepers {
            self.certain("wakes one", |world| {
                world.threads[own].owes = None;
                wake(world, index);
            });
        }
    }

    fn deciding(&mut self, requests: usize) {
        let own = self.thread;
        if self.world.budget.panics > 0 {
            self.certain("panics", |world| {
                world.budget.panics -= 1;
                world.has_engine = false;
                world.end(own, if own < 2 { At::Gone } else { At::Finishes });
            });
        }
        self.certain("turn", |world| {
            world.threads[own].at = At::Decided;
            if requests > 0 && !world.has_failed && !world.has_ended {
                world.batches += 1;
            }
        });
    }

    fn committing(&mut self, batches: usize) {
        let own = self.thread;
        self.outside("committed", |world| {
            world.completions += batches;
            world.threads[own].at = At::Committed;
        });
        if self.world.budget.retries > 0 {
            self.outside("wrote nothing", |world| world.wrote_nothing(own, batches));
        }
        if self.world.budget.failures > 0 {
            self.outside("fails", |world| world.fail(own));
        }
    }

    fn maintaining(&mut self) {
        let own = self.thread;
        self.outside("maintained", |world| {
            world.maintenance_at = world.now + MAINTENANCE;
            world.threads[own].at = At::Looks;
            world.report(own, Happened::Maintained { next_at: instant(world.maintenance_at) });
        });
        if self.world.budget.completions > 0 {
            self.outside("finds commits of others", |world| {
                world.budget.completions -= 1;
                world.completions += 1;
            });
        }
        if self.world.budget.failures > 0 {
            self.outside("fails", |world| world.fail(own));
        }
    }

    fn idle(&mut self, kind: Kind) {
        let own = self.thread;
        if let Kind::Edge(edge) = kind {
            if self.world.schedule.has_ended() || self.world.budget.sends[edge] == 0 {
                return;
            }
            for (name, may) in [
                ("sends", May { commit: true, gather: true }),
                ("sends and must not commit", May { commit: false, gather: true }),
                ("sends and cannot gather", May { commit: true, gather: false }),
            ] {
                self.outside(name, |world| world.send(own, edge, 1, may));
            }
            if self.world.budget.floods > 0 {
                self.outside("floods", |world| {
                    world.budget.floods -= 1;
                    world.send(own, edge, FLOOD, May { commit: true, gather: true });
                });
            }
            return;
        }
        if self.world.budget.completions > 0 {
            self.outside("completes", |world| {
                world.budget.completions -= 1;
                world.completions += 1;
                world.report(own, Happened::Arrived);
            });
        }
        if self.world.budget.news > 0 {
            self.outside("tells news", |world| {
                world.budget.news -= 1;
                world.is_told = true;
                world.report(own, Happened::MaintenanceWanted);
            });
        }
        if self.world.budget.rows > 0 && !self.world.has_failed && !self.world.has_ended {
            self.outside("submits a row", |world| {
                world.budget.rows -= 1;
                world.batches += 1;
                world.threads[own].at = At::Submitted;
            });
        }
        if self.world.budget.end {
            self.outside("closes the backlog", |world| {
                world.budget.end = false;
                world.has_ended = true;
                world.threads[own].at = At::Ending;
            });
        }
    }
}

impl World {
    /// A worker asks for its next job (`Inbox::next`).
    fn look(&mut self, own: usize) {
        let step = self.schedule.next(&self.load(), instant(self.now));
        self.threads[own].at = match step {
            Step::SleepUntil(until) => {
                if tick(until) <= self.now {
                    self.violation = Some("a thread sleeps until a time that has passed: it would spin");
                }
                self.threads[own].at = At::Sleeps { until: tick(until), woken: false };
                return;
            }
            Step::Do(Job::Decide) => self.take_turn(),
            Step::Do(Job::Commit) => self.take_batches(),
            Step::Do(Job::Maintenance) => {
                self.is_told = false;
                At::Maintains
            }
            Step::Do(Job::Retire) => At::Retires,
            Step::Do(Job::End) => At::Gone,
        };
        self.wake_for_rest(own);
    }

    fn take_batches(&mut self) -> At {
        let batches = self.batches.min(COMMIT_MAX);
        self.batches -= batches;
        At::Commits { batches }
    }

    fn send(&mut self, own: usize, edge: usize, requests: usize, may: May) {
        self.budget.sends[edge] -= 1;
        self.requests += requests;
        self.threads[own].may_commit = may.commit;
        match self.schedule.hand_over(&self.load(), may.gather) {
            Handover::Turn => self.first_turn(own),
            Handover::Gather => self.threads[own].at = At::Gathers,
            Handover::Other(wake) => {
                self.threads[own].may_commit = false;
                self.owe(own, wake);
            }
        }
    }

    fn end_gathering(&mut self, own: usize) {
        if self.schedule.end_gathering(&self.load()) {
            self.first_turn(own);
        } else {
            let thread = &mut self.threads[own];
            (thread.at, thread.may_commit) = (At::Idle, false);
            self.wake_for_rest(own);
        }
    }

    fn first_turn(&mut self, own: usize) {
        let thread = &mut self.threads[own];
        (thread.turns, thread.is_last_turn) = (1, false);
        self.threads[own].at = self.take_turn();
    }

    fn decided(&mut self, own: usize, alarm: u64) {
        self.decide_at = if alarm == FAR { FAR } else { self.now + alarm };
        self.schedule.report(Happened::Decided { next_at: instant(self.decide_at) });
        let thread = &mut self.threads[own];
        thread.at = match thread.kind {
            Kind::Edge(_) if thread.is_last_turn => {
                // Wakes whoever is needed, and commits no more.
                thread.may_commit = false;
                At::Leaves
            }
            Kind::Edge(_) => At::LooksInline,
            _ => At::Looks,
        };
    }

    fn look_inline(&mut self, own: usize) {
        let more = self.threads[own].turns < INLINE_TURNS_MAX;
        self.threads[own].at = if more && self.schedule.next_inline_turn(&self.load()) {
            self.threads[own].turns += 1;
            self.take_turn()
        } else {
            At::Leaves
        };
    }

    fn leave(&mut self, own: usize) {
        if self.threads[own].may_commit && self.schedule.begin_inline_commit(&self.load()) {
            self.threads[own].at = self.take_batches();
        } else {
            self.threads[own].at = At::Finishes;
            self.wake_for_rest(own);
        }
    }

    fn committed(&mut self, own: usize) {
        self.commit_at = None;
        // The disk is quick until the clock has moved.
        self.report(own, Happened::Committed { took: instant(self.now * LONG_COMMIT) - instant(0) });
        self.threads[own].at = match self.threads[own].kind {
            Kind::Edge(_) if self.schedule.next_inline_turn(&self.load()) => {
                self.threads[own].is_last_turn = true;
                self.take_turn()
            }
            Kind::Edge(_) => {
                self.threads[own].may_commit = false;
                At::Leaves
            }
            _ => At::Looks,
        };
    }

    fn wrote_nothing(&mut self, own: usize, batches: usize) {
        self.budget.retries -= 1;
        self.batches += batches;
        if self.has_ended {
            // Given up: its senders are told, and nothing is written any more.
            self.batches = 0;
            self.has_failed = true;
            self.threads[own].at = self.after_failure(own);
            return;
        }
        self.commit_at = Some(self.now + RETRY);
        self.report(own, Happened::WroteNothing { retry_at: instant(self.now + RETRY) });
        self.threads[own].may_commit = false;
        self.threads[own].at = if own < 2 { At::Looks } else { At::Leaves };
    }

    /// Everybody is told; the schedule is not.
    fn fail(&mut self, own: usize) {
        self.budget.failures -= 1;
        self.has_failed = true;
        self.batches = 0;
        self.completions += 1;
        self.threads[own].at = self.after_failure(own);
        self.report(own, Happened::Arrived);
    }

    fn after_failure(&self, own: usize) -> At {
        if own < 2 { At::Looks } else { At::Finishes }
    }

    fn end(&mut self, own: usize, then: At) {
        self.has_ended = true;
        self.requests = 0;
        self.threads[own].at = then;
        self.report(own, Happened::Ended);
    }
}
