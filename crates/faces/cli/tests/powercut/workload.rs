//! The work of the recorded processes: a mix of steps, most of which end in a confirmed fact.

use crate::dice::Dice;
use crate::driver::Driver;

/// A step of the work. Commits of durability `os` and `memory` confirm no facts; they move the WAL without syncing it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    Publish,
    Batch,
    Delayed,
    Ack,
    DeadLetter,
    TopicMade,
    TopicChanged,
    TopicDeleted,
    Loose,
    SetValue,
    DeleteValue,
    SetTimer,
    CancelTimer,
    Order,
    Backup,
    /// A backup, more events, SIGKILL, and `millrace restore --force` of that backup over the store and its log.
    Restore,
    /// SIGTERM, and a new server.
    Restart,
    /// SIGKILL of every process in the middle of its work, and new processes.
    Kill,
}

pub struct Workload {
    pub name: &'static str,
    /// Whether a session runs in a process of its own.
    pub has_session: bool,
    /// How many of each step a round has.
    pub round: &'static [(Step, u64)],
}

/// The workloads. The WAL restarts every few dozen commits: these are the moments when syncs matter.
pub const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "bus",
        has_session: false,
        round: &[
            (Step::Publish, 30),
            (Step::Batch, 8),
            (Step::Delayed, 6),
            (Step::Ack, 10),
            (Step::DeadLetter, 4),
            (Step::TopicMade, 4),
            (Step::TopicChanged, 4),
            (Step::TopicDeleted, 3),
            (Step::Loose, 40),
            (Step::Restart, 1),
        ],
    },
    Workload {
        name: "loop",
        has_session: false,
        round: &[
            (Step::Publish, 10),
            (Step::SetValue, 30),
            (Step::DeleteValue, 6),
            (Step::SetTimer, 16),
            (Step::CancelTimer, 6),
            (Step::Loose, 40),
            (Step::Kill, 1),
        ],
    },
    Workload {
        name: "shared",
        has_session: true,
        round: &[
            (Step::Publish, 15),
            (Step::Batch, 4),
            (Step::Order, 20),
            (Step::Ack, 6),
            (Step::Loose, 30),
            (Step::Backup, 2),
            (Step::Restart, 1),
            (Step::Kill, 1),
        ],
    },
    Workload {
        name: "restore",
        has_session: false,
        round: &[
            (Step::Publish, 12),
            (Step::Batch, 4),
            (Step::Ack, 4),
            (Step::SetValue, 6),
            (Step::Loose, 10),
            (Step::Restore, 3),
        ],
    },
];

impl Workload {
    /// Runs the workload, and at the end an orderly restart and a kill.
    pub fn run(&self, rounds: u64, dice: Dice) -> Driver {
        let mut driver = Driver::start(self.has_session, dice);
        for _ in 0..rounds {
            for step in self.shuffled(&mut driver.dice) {
                driver.step(step);
            }
        }
        driver.finish();
        driver
    }

    fn shuffled(&self, dice: &mut Dice) -> Vec<Step> {
        let mut steps: Vec<Step> =
            self.round.iter().flat_map(|(step, times)| (0..*times).map(|_| *step)).collect();
        for at in (1..steps.len()).rev() {
            steps.swap(at, dice.below(at as u64 + 1) as usize);
        }
        steps
    }
}
