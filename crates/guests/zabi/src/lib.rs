//! The host of zABI 2.5: everything that one guest process needs, whatever the guest runs in.
//!
//! A [`Process`] answers the calls of one guest (`zi_read`, `zi_write`, `zi_cap_open`, ...), owns the guest's handles,
//! loops and capabilities, and releases all of them when it ends. The calls take the guest's memory as an argument
//! ([`GuestMemory`]), so this crate knows neither wasmtime nor C: a binding translates the arguments of its imports or
//! functions and hands back the number that the call returns.
//!
//! A process may use only what it was granted ([`Grants`]); nothing is granted unless it is named. Every table, queue
//! and buffer has a bound in [`Limits`].
//!
//! A process belongs to one thread at a time, the one that runs the guest. Other threads reach it through its
//! [`Interrupter`], which ends a wait in POLL, or the whole guest.
//!
//! This crate does not run guests, and it does not know the Millrace bus. Start with [`Process`].

mod aio;
mod async_default;
mod budget;
mod bus;
mod catalog;
mod clock;
mod deadline;
mod errno;
mod grants;
mod handle;
mod handles;
mod heap;
mod http;
mod limits;
mod memory;
mod os_poller;
mod proc_lists;
mod process;
mod requests;
mod signals;
mod streams;
mod sys_info;
mod sys_loop;
mod tcp;
mod wait;

pub use aio::{FileRoot, FileRootError};
pub use bus::{BusError, BusEvent, BusPort, BusReceipt, BusSubscriber, LocalBus, Offered, SubscriptionId};
pub use catalog::{Capability, CapsListForm};
pub use grants::Grants;
pub use handle::HandleFlags;
pub use limits::Limits;
pub use memory::{GuestMemory, OutOfBounds, VecMemory};
pub use millrace_reactor::{HandleLimits, LoopLimits, ZabiError};
pub use process::{ABI_VERSION, Process, ProcessOptions};
pub use signals::Interrupter;
pub use streams::StandardStreams;
pub use tcp::{NetAllowList, NetRule, ParseRuleError, TcpPolicy};
pub use wait::{WaitAnswer, WaitError, Waiter};
