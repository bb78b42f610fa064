//! The wasm host of effect runs: WebAssembly programs that ask for effects, one at a time, answered by handlers that
//! the host grants.
//!
//! [`Host::load`] reads a module, [`Module::handlers`] takes its handlers, [`Host::instantiate`] makes an instance, and
//! [`Instance::start`] starts a run, whose [`RunHandle`] returns the outcome and can cancel it. All runs of a host
//! share one scheduler (`millrace-runs`) on one thread; [`RunLimits`] stops a guest that does not yield.
//!
//! Programs have no access to anything but their handlers. The crate knows two wire generations (see [`Generation`]),
//! detected from the module; handlers are the same for both.
//!
//! Programs of another kind, guests of zABI 2.5 that block in `sys/loop`, run as processes of their own: see
//! [`guest_process`]. They share nothing with effect runs but the account of an instance's memory.
//!
//! Start with [`Host`], or with [`guest_process::GuestCompiler`].

mod call;
pub mod capability;
mod codec;
mod epoch;
mod fault;
mod guest;
pub mod guest_process;
mod handler;
mod handlers;
mod host;
mod imports;
mod instance;
mod limits;
mod module;
mod pure;
pub mod record;
pub mod replay;
pub mod replayed;
pub mod script;
mod scripted;
mod sections;
mod table;
mod tagged;
pub mod trace;
mod value;

pub use call::HandlerCall;
pub use codec::abi::AbiError;
pub use codec::msgpack::MsgPackError;
pub use codec::schema::{RecordField, Signature, TypeMismatch, TypeNames, ValueSchema, Variant};
pub use codec::{Generation, ProtocolError};
pub use fault::{GuestFault, RunFailure, Transition, TrapEffect, TrapReport};
pub use handler::{Continuation, EffectHandler, Handled, HandlerFuture, HandlerResult};
pub use handler::{async_handler_fn, handler_fn, typed_async_handler_fn, typed_handler_fn};
pub use handlers::{Handlers, OpKey, RegisterError};
pub use host::clock::{Clock, ClockHold};
pub use host::observe::{ErrorSink, Observer, RunEvent};
pub use host::outcome::{EffectOutcome, NoValue, RunNumber};
pub use host::sleep::Sleep;
pub use host::{Host, HostError, HostOptions, HostStopped, Instance, RunHandle, RunStart, RunStartError};
pub use instance::InstantiateError;
pub use limits::{InstanceLimits, RunLimits};
pub use millrace_runs::{CallId, HandlerError, ResumeKind, RunError, RunId, RunsLimits};
pub use module::{CACHED_MODULES_MAX, Compiler, LoadError, MODULE_BYTES_MAX, Module};
pub use sections::SectionError;
pub use table::{EFFECT_TABLE_SECTION, EffectOp, TableError};
pub use tagged::{NumberError, TaggedError, check_numbers, from_tagged, to_tagged};
pub use value::{ConvertError, Value, from_value, to_value};
