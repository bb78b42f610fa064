//! The world of a cluster: two to five servers on one journal, each with a real `JournalStore` and a copy in memory.
//! Machines have clocks of their own; processes are killed, stopped and cut off from the engine; requests and answers
//! get lost, come late or twice. Clients publish through whichever server leads, and send again under the same ids. In
//! the end somebody must lead, and everything that was acknowledged must be readable from a new server.

mod clock;
mod compare;
mod copies;
mod engine;
mod fate;
mod hub;
mod load;
mod machine_copy;
mod plan;
mod requests;
mod sabotage;
mod server;
mod truth;
mod verdict;
mod wire;

use std::fmt;
use std::sync::Arc;

use self::hub::Hub;
pub use self::sabotage::Sabotage;
pub(crate) use self::truth::INVARIANTS;
use self::wire::LateRequest;
use crate::check::Violation;
use crate::fault::FaultCounts;
use crate::trace::Trace;

enum Happening {
    /// A process starts on the machine of this server, if none runs.
    Start {
        server: usize,
    },
    /// A round of the keeper of a handle.
    Keep {
        server: usize,
        life: u64,
    },
    /// A server looks whether its handle has ended, and whether it has to take the lead.
    Supervise {
        server: usize,
        life: u64,
    },
    /// An orderly stop, which hands the lead over.
    Stop {
        server: usize,
        life: u64,
    },
    Request {
        client: usize,
    },
    /// A request reaches the engine after its sender has given up, unless the engine has failed over since.
    Arrive {
        by: Writer,
        losses: u64,
        request: Box<LateRequest>,
    },
    Fate,
    /// The copy of a server is compared with the journal.
    Compare,
}

/// A process, as the source of requests to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Writer {
    server: usize,
    /// Rises when the process ends.
    life: u64,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.server)
    }
}

pub(crate) struct ClusterWorld {
    hub: Arc<Hub>,
}

impl ClusterWorld {
    pub(crate) fn new(seed: u64, steps: u64, sabotage: Option<Sabotage>, print: bool) -> ClusterWorld {
        ClusterWorld { hub: Hub::new(seed, steps.max(1), sabotage, print) }
    }

    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        while !self.hub.lock().calm {
            if !self.hub.step(u64::MAX) {
                break;
            }
        }
        self.verdict()?;
        self.hub.settle();
        self.verdict()
    }

    fn verdict(&self) -> Result<(), Violation> {
        match self.hub.lock().violation.clone() {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    pub(crate) fn simulated_ms(&self) -> u64 {
        self.hub.now_ms()
    }

    pub(crate) fn steps(&self) -> u64 {
        self.hub.lock().steps
    }

    /// Returns the trace and the faults, and leaves empty ones.
    pub(crate) fn take_records(&mut self) -> (Trace, FaultCounts) {
        let mut state = self.hub.lock();
        (std::mem::replace(&mut state.trace, Trace::new(false)), std::mem::take(&mut state.faults))
    }
}

impl Drop for ClusterWorld {
    /// Handles and hub hold one another.
    fn drop(&mut self) {
        self.hub.close_all();
    }
}
