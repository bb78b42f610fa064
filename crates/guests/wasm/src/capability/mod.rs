//! Default capabilities: those that a host may grant its programs, in the shapes that both generations expect. Nothing
//! is granted by default; an effect of a capability that was not granted fails the run with a text that names the
//! grant.
//!
//! The files named after a capability (`time.rs`, `fs.rs`, ...) know the wire shapes; those beside them (`folder.rs`,
//! `environment.rs`, `random_source.rs`, `console.rs`) hold the granted resources and know no wire shapes. `port.rs`
//! declares what a host with a bus and a store provides.
//!
//! Start with [`Grants`].

mod bus;
mod call;
mod console;
mod env;
mod environment;
mod folder;
mod fs;
mod grant;
mod grants;
mod handler;
mod input_output;
mod log;
mod port;
mod random;
mod random_source;
mod shape;
mod store;
mod time;

pub use call::{CapabilityAnswer, CapabilityCall, CapabilityError, CapabilityFuture};
pub use console::{INPUT_BYTES_MAX, Input, Output, OutputStream};
pub use environment::{EnvError, Environment, VARIABLE_BYTES_MAX, VARIABLES_MAX};
pub use folder::{Folder, FolderError, FsError, FsErrorKind};
pub use grant::{Allow, AllowError, Grant};
pub use grants::Grants;
pub use port::{
    BusPort, GuestAck, GuestEvent, GuestPublished, GuestReceive, GuestReceived, PortError, PortFuture,
    StorePort,
};
pub use random_source::{FILL_BYTES_MAX, RandomSource};
