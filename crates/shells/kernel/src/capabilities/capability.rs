//! A capability: its contract (the messages it takes and emits) and the functions or the actor that do its work.
//!
//! ```text
//! Capability::new("Greeter", "Says hello")
//!     .query("Greeter.Hello", "Greets by name", json!({"type": "object", "required": ["name"]}), |ctx, _| async move {
//!         let Hello { name } = ctx.data()?;
//!         ctx.emit("Greeter.Greeted", &json!({ "name": name })).await?;
//!         ctx.reply(&json!({ "text": format!("Hello, {name}") }))
//!     })
//!     .on_event("User.Created", |ctx, event| async move { ... Ok(()) })
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use millrace_model::{JsonText, OsFault, OsKind, OsMessage, OsNameError, OsType};
use millrace_router::BusTopic;
use serde_json::Value;

use crate::capabilities::context::Context;
use crate::capabilities::port::Port;

/// The future of an actor written by hand ([`Capability::actor`]). Runs on the loop's own thread.
pub type ActorFuture = std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// Handles one message and returns the reply's `data`, or the error. For an event the returned data is ignored.
pub(crate) type MessageHandler =
    Arc<dyn Fn(Context, Arc<OsMessage>) -> BoxFuture<'static, Result<JsonText, OsFault>> + Send + Sync>;

pub(crate) type Spawn = Box<dyn FnOnce(Port) -> ActorFuture + Send>;

/// Where the handlers of a capability run. In both places a capability handles one message at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandlerPlace {
    /// On the tokio runtime the loop was given: for handlers that wait for input or output.
    #[default]
    Runtime,
    /// On the loop's own thread: only for handlers that never compute for long, because the loop stands still
    /// meanwhile.
    Kernel,
}

/// Where a capability comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapabilityOrigin {
    /// Every loop has it.
    BuiltIn,
    /// Added by the program around the loop.
    Rust,
    /// A child process.
    Child,
    /// A child process that runs a WebAssembly guest.
    Wasm,
}

impl CapabilityOrigin {
    pub fn as_str(self) -> &'static str {
        match self {
            CapabilityOrigin::BuiltIn => "built-in",
            CapabilityOrigin::Rust => "rust",
            CapabilityOrigin::Child => "child",
            CapabilityOrigin::Wasm => "wasm",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    #[error("{0}")]
    Name(#[from] OsNameError),
    /// Two handlers of one capability for the same kind and type.
    #[error("{kind} {ty} has two handlers: leave one")]
    Twice { kind: OsKind, ty: String },
    #[error("the schema of {ty} {reason}")]
    Schema { ty: String, reason: String },
}

/// A branch of a contract (a kind and type of message), before it is checked.
pub(crate) struct Declared {
    pub(crate) kind: OsKind,
    pub(crate) ty: String,
    pub(crate) description: String,
    /// The JSON Schema of the data; `None` accepts anything.
    pub(crate) data: Option<Value>,
    /// Whether data is checked against the schema. If not, the schema is only shown by `Syscall.Describe`.
    pub(crate) checked: bool,
    pub(crate) output: Option<Value>,
}

/// The functions or the actor that handle the messages of a capability.
pub(crate) enum CapabilityWork {
    Handlers {
        by: BTreeMap<(OsKind, String), MessageHandler>,
        place: HandlerPlace,
    },
    /// An actor written by hand: takes messages from its mailbox when it wants to.
    Actor(Spawn),
}

/// A contract (RFC 0032, section 10.1) and the functions behind it. Mistakes in the contract are reported when the
/// capability is installed.
pub struct Capability {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) inbound: Vec<Declared>,
    pub(crate) outbound: Option<Vec<Declared>>,
    pub(crate) subscribes: Vec<String>,
    pub(crate) bus: Vec<BusTopic>,
    pub(crate) work: CapabilityWork,
    pub(crate) origin: CapabilityOrigin,
    pub(crate) mistakes: Vec<CapabilityError>,
}

impl Capability {
    pub fn new(name: &str, description: &str) -> Capability {
        Capability::with(
            name,
            description,
            CapabilityWork::Handlers { by: BTreeMap::new(), place: HandlerPlace::default() },
        )
    }

    /// A capability with an actor that does its own bookkeeping, such as a child process. `spawn` runs on the loop's
    /// thread and must not block. Its branches are declared with [`Capability::takes`].
    pub fn actor(
        name: &str,
        description: &str,
        spawn: impl FnOnce(Port) -> ActorFuture + Send + 'static,
    ) -> Capability {
        Capability::with(name, description, CapabilityWork::Actor(Box::new(spawn)))
    }

    fn with(name: &str, description: &str, work: CapabilityWork) -> Capability {
        Capability {
            name: name.to_owned(),
            description: description.to_owned(),
            inbound: Vec::new(),
            outbound: None,
            subscribes: Vec::new(),
            bus: Vec::new(),
            work,
            origin: CapabilityOrigin::Rust,
            mistakes: Vec::new(),
        }
    }

    /// Sets where the handlers run; the default is [`HandlerPlace::Runtime`].
    pub fn place(mut self, at: HandlerPlace) -> Capability {
        if let CapabilityWork::Handlers { place, .. } = &mut self.work {
            *place = at;
        }
        self
    }

    /// Says where the capability comes from, for listings; the default is [`CapabilityOrigin::Rust`].
    pub fn of_origin(mut self, origin: CapabilityOrigin) -> Capability {
        self.origin = origin;
        self
    }

    /// Handles a query. Data that does not fit `schema` (JSON Schema) is answered with 422.
    pub fn query<F, R>(self, ty: &str, description: &str, schema: Value, handler: F) -> Capability
    where
        F: Fn(Context, Arc<OsMessage>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<JsonText, OsFault>> + Send + 'static,
    {
        self.handles(OsKind::Query, ty, description, Some(schema), boxed(handler))
    }

    /// Handles a query without checking its data. The schema is only shown, for data with numbers that no type here can
    /// hold.
    pub(crate) fn open_query<F, R>(self, ty: &str, description: &str, schema: Value, handler: F) -> Capability
    where
        F: Fn(Context, Arc<OsMessage>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<JsonText, OsFault>> + Send + 'static,
    {
        let mut capability = self.query(ty, description, schema, handler);
        if let Some(last) = capability.inbound.last_mut() {
            last.checked = false;
        }
        capability
    }

    /// Handles a command; otherwise like [`Capability::query`].
    pub fn command<F, R>(self, ty: &str, description: &str, schema: Value, handler: F) -> Capability
    where
        F: Fn(Context, Arc<OsMessage>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<JsonText, OsFault>> + Send + 'static,
    {
        self.handles(OsKind::Command, ty, description, Some(schema), boxed(handler))
    }

    /// Handles a query with a function that blocks: it gets a thread for as long as it runs. To wait for a future in
    /// it, use [`Context::wait`].
    pub fn blocking_query<F>(self, ty: &str, description: &str, schema: Value, handler: F) -> Capability
    where
        F: Fn(Context, Arc<OsMessage>) -> Result<JsonText, OsFault> + Send + Sync + 'static,
    {
        self.handles(OsKind::Query, ty, description, Some(schema), blocking(handler))
    }

    pub fn blocking_command<F>(self, ty: &str, description: &str, schema: Value, handler: F) -> Capability
    where
        F: Fn(Context, Arc<OsMessage>) -> Result<JsonText, OsFault> + Send + Sync + 'static,
    {
        self.handles(OsKind::Command, ty, description, Some(schema), blocking(handler))
    }

    /// Subscribes to an event. An error counts as a fault of the actor; nobody is answered.
    pub fn on_event<F, R>(mut self, ty: &str, handler: F) -> Capability
    where
        F: Fn(Context, Arc<OsMessage>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), OsFault>> + Send + 'static,
    {
        let handler: MessageHandler = Arc::new(move |ctx, message| {
            let handled = handler(ctx, message);
            Box::pin(async move { handled.await.map(|()| JsonText::null()) })
        });
        self.subscribes.push(ty.to_owned());
        self.add(OsKind::Event, ty, handler);
        self
    }

    /// Delivers the events of topics of the bus as `Bus.Message`. Each event is acknowledged once its handler has
    /// returned `Ok`.
    pub fn on_bus<F, R>(mut self, topics: Vec<BusTopic>, handler: F) -> Capability
    where
        F: Fn(Context, Arc<OsMessage>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), OsFault>> + Send + 'static,
    {
        let handler: MessageHandler = Arc::new(move |ctx, message| {
            let handled = handler(ctx, message);
            Box::pin(async move { handled.await.map(|()| JsonText::null()) })
        });
        self.bus = topics;
        self.add(OsKind::Event, BUS_MESSAGE, handler);
        self
    }

    /// Sets the schema of the reply to the branch declared last, as `Syscall.Describe` shows it.
    pub fn answers(mut self, output: Value) -> Capability {
        if let Some(last) = self.inbound.last_mut() {
            last.output = Some(output);
        }
        self
    }

    /// Declares a branch without a handler: for [`Capability::actor`].
    pub fn takes(mut self, kind: OsKind, ty: &str, description: &str, data: Option<Value>) -> Capability {
        self.declare(kind, ty, description, data);
        self
    }

    /// Declares a message that the capability emits. A capability that declares none may emit any; then only the
    /// envelope is checked.
    pub fn says(mut self, kind: OsKind, ty: &str, description: &str, data: Option<Value>) -> Capability {
        let branch = Declared {
            kind,
            ty: ty.to_owned(),
            description: description.to_owned(),
            data,
            checked: true,
            output: None,
        };
        self.outbound.get_or_insert_default().push(branch);
        self
    }

    /// Subscribes to an event without a handler: for [`Capability::actor`].
    pub fn subscribes(mut self, ty: &str) -> Capability {
        self.subscribes.push(ty.to_owned());
        self
    }

    /// Subscribes to topics of the bus without a handler: for [`Capability::actor`].
    pub fn bus_topics(mut self, topics: Vec<BusTopic>) -> Capability {
        self.bus = topics;
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn handles(
        mut self,
        kind: OsKind,
        ty: &str,
        description: &str,
        data: Option<Value>,
        handler: MessageHandler,
    ) -> Capability {
        self.declare(kind, ty, description, data);
        self.add(kind, ty, handler);
        self
    }

    fn declare(&mut self, kind: OsKind, ty: &str, description: &str, data: Option<Value>) {
        if let Err(error) = OsType::new(ty) {
            self.mistakes.push(error.into());
        }
        let branch = Declared {
            kind,
            ty: ty.to_owned(),
            description: description.to_owned(),
            data,
            checked: true,
            output: None,
        };
        self.inbound.push(branch);
    }

    fn add(&mut self, kind: OsKind, ty: &str, handler: MessageHandler) {
        let CapabilityWork::Handlers { by, .. } = &mut self.work else { return };
        if by.insert((kind, ty.to_owned()), handler).is_some() {
            self.mistakes.push(CapabilityError::Twice { kind, ty: ty.to_owned() });
        }
    }
}

/// The type of message in which an event of the bus arrives.
const BUS_MESSAGE: &str = "Bus.Message";

fn boxed<F, R>(handler: F) -> MessageHandler
where
    F: Fn(Context, Arc<OsMessage>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<JsonText, OsFault>> + Send + 'static,
{
    Arc::new(move |ctx, message| Box::pin(handler(ctx, message)))
}

fn blocking<F>(handler: F) -> MessageHandler
where
    F: Fn(Context, Arc<OsMessage>) -> Result<JsonText, OsFault> + Send + Sync + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |ctx, message| {
        let handler = handler.clone();
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || handler(ctx, message)).await {
                Ok(result) => result,
                // Resumes the panic here, so that the caller of the handler sees it as if the function had run in
                // place.
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => Err(OsFault::new(503, "Kernel shutting down")),
            }
        })
    })
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capability").field("name", &self.name).finish_non_exhaustive()
    }
}
