//! Guests of zABI 2.5 on wasmtime: programs compiled to wasm32 that reach the host through its calls (`zi_read`,
//! `zi_write`, `zi_cap_open`, ...) and wait in `sys/loop`.
//!
//! [`GuestCompiler::load`] checks and compiles a module, [`GuestModule::start`] runs it on a thread of its own, and the
//! [`GuestProcess`] that it returns waits for the [`GuestOutcome`]. The calls themselves, handles and capabilities are
//! `millrace-zabi`; this module translates the arguments and bounds the guest's memory and time ([`GuestLimits`]).
//!
//! ```no_run
//! use millrace_wasm::guest_process::{GuestCompiler, GuestLimits};
//! use millrace_zabi::{Grants, ProcessOptions, TcpPolicy};
//!
//! # fn run(bytes: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//! let module = GuestCompiler::new()?.load(bytes)?;
//! let grants = Grants::none().sys_loop().net_tcp(TcpPolicy::loopback());
//! let process = module.start(ProcessOptions::new("echo", grants), &GuestLimits::default())?;
//! let outcome = process.wait();
//! # drop(outcome);
//! # Ok(())
//! # }
//! ```
//!
//! Requirements for a module:
//!
//! - A module imports functions of zABI from `env`, with pointers as `i64`. Other imports are refused on loading.
//! - A module exports its `memory` and `main(req: i32, res: i32)`, with or without a result of `i32`. `main` is called
//!   with the handles 0 (standard input) and 1 (standard output). Its result is the guest's exit code; a `main` without
//!   a result ends with 0. zABI has no call that exits.
//! - A module may export the global `__heap_base: i32`, the first free byte, where `zi_alloc` begins. Without that
//!   global `zi_alloc` returns 0.
//!
//! A guest that ends, in whatever way, gives back all that it held: its memory, handles, sockets and threads.

mod calls;
mod limits;
mod memory;
mod module;
mod outcome;
mod process;
mod state;

pub use limits::GuestLimits;
pub use module::{GuestCompiler, GuestLoadError, GuestModule};
pub use outcome::{GuestFailure, GuestOutcome};
pub use process::{GuestProcess, GuestStopper};
