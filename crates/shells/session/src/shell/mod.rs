//! The parts that drive the engine: time, the committer, the loop, the threads that call handlers, and the simulation.

mod call;
mod clock;
mod committer;
mod mailbox;
mod pool;
mod reads;
mod run_loop;
mod signals;
pub(crate) mod simulated;
mod threads;

pub use clock::VirtualClock;
pub use simulated::{Simulation, SimulationBuilder};
pub use threads::{Running, StopHandle};

pub(crate) use clock::Clock;
pub(crate) use committer::Committer;
pub(crate) use mailbox::{Mail, Mailbox};
