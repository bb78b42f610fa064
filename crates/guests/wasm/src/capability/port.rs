//! The ports behind `millrace.bus` and `millrace.store`, which a host with a bus or a store provides. This crate is
//! below both, so crates above it implement the ports (`millrace::sandbox`, `millrace run`).

use std::future::Future;
use std::pin::Pin;

use crate::host::outcome::RunNumber;

/// The answer of a port, which may take time.
pub type PortFuture<T> = Pin<Box<dyn Future<Output = Result<T, PortError>> + Send>>;

/// Why a port did not do what a program asked: an answer for the program, not a failure of its run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The request itself is wrong: a bad name, or text that is not JSON.
    #[error("{0}")]
    Invalid(String),
    /// The server or the store refused the request: access, size, schema.
    #[error("{0}")]
    Refused(String),
    /// Whether the request was carried out is not known.
    #[error("{0}")]
    Unreachable(String),
    /// The data that the program read has changed since: the program should read again.
    #[error("{0}")]
    Conflict(String),
    /// This host does not support the request, such as `emit` outside of a durable handler.
    #[error("{0}")]
    Unsupported(String),
}

impl PortError {
    /// The code that programs see; 0 is success.
    pub fn code(&self) -> i32 {
        match self {
            PortError::Invalid(_) => 1,
            PortError::Refused(_) => 2,
            PortError::Unreachable(_) => 3,
            PortError::Conflict(_) => 4,
            PortError::Unsupported(_) => 5,
        }
    }
}

/// An event that a program publishes or emits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestEvent {
    pub topic: String,
    /// JSON text.
    pub payload: String,
    pub key: Option<String>,
    pub headers: Vec<(String, String)>,
    /// Events with the same id on the same topic are stored once.
    pub id: Option<String>,
    pub delay_ms: Option<u64>,
}

/// Where a published event was stored. A delayed event has no offset yet: 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestPublished {
    pub partition: u32,
    pub offset: u64,
    pub id: String,
}

/// The topic and group that a program receives an event from, and how long it waits for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestReceive {
    pub topic: String,
    pub group: String,
    pub wait_ms: u64,
}

/// An event that a program holds until it acknowledges it or its run ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestReceived {
    pub partition: u32,
    pub offset: u64,
    pub id: String,
    pub key: Option<String>,
    /// JSON text.
    pub payload: String,
}

/// Names a received event that the program has finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestAck {
    pub topic: String,
    pub group: String,
    pub partition: u32,
    pub offset: u64,
}

/// The port behind `millrace.bus`. The run tells whose context a request belongs to.
pub trait BusPort: Send + Sync {
    /// Resolves when the event is as durable as its topic promises.
    fn publish(&self, run: RunNumber, event: GuestEvent) -> PortFuture<GuestPublished>;
    /// Adds the event to the commit that the run's context makes later.
    fn emit(&self, run: RunNumber, event: GuestEvent) -> PortFuture<()>;
    /// Resolves to `None` if no event came in time.
    fn receive(&self, run: RunNumber, request: GuestReceive) -> PortFuture<Option<GuestReceived>>;
    fn ack(&self, run: RunNumber, ack: GuestAck) -> PortFuture<()>;
    /// The run has ended: the events that it holds can be given back.
    fn release(&self, run: RunNumber);
}

/// The port behind `millrace.store`: JSON values by key, in the state of the store's namespace.
pub trait StorePort: Send + Sync {
    /// Reads the committed value, as JSON text.
    fn get(&self, run: RunNumber, key: String) -> PortFuture<Option<String>>;
    /// Declares the value that a key is to have. Nothing is written before `commit`.
    fn ensure(&self, run: RunNumber, key: String, value: String) -> PortFuture<()>;
    /// Makes everything that was declared durable, all of it or nothing. Resolves to the number of the commit, or
    /// `None` if nothing changed.
    fn commit(&self, run: RunNumber) -> PortFuture<Option<u64>>;
    /// The run has ended: declared values that it did not commit are dropped.
    fn release(&self, run: RunNumber);
}
