//! What a capability is made of: its contract, and what does its work.
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

use crate::context::Context;
use crate::port::Port;

/// What an actor written by hand runs as, on the loop's own thread.
pub type ActorFuture = std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// Answers one message: the reply's `data`, or the error. For an event the data goes nowhere.
pub(crate) type Handler =
    Arc<dyn Fn(Context, Arc<OsMessage>) -> BoxFuture<'static, Result<JsonText, OsFault>> + Send + Sync>;

pub(crate) type Spawn = Box<dyn FnOnce(Port) -> ActorFuture + Send>;

/// Where handlers run. Whatever the place, one message at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// On the runtime the loop was given: what waits for the world.
    #[default]
    Runtime,
    /// On the loop's own thread: only what never computes for long, because the loop stands still meanwhile.
    Loop,
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

/// One branch of a contract before it is checked.
pub(crate) struct Declared {
    pub(crate) kind: OsKind,
    pub(crate) ty: String,
    pub(crate) description: String,
    /// `None` accepts anything.
    pub(crate) data: Option<Value>,
    /// Otherwise the schema is only shown.
    pub(crate) checked: bool,
    pub(crate) output: Option<Value>,
}

/// How its messages are handled.
pub(crate) enum Work {
    Handlers {
        by: BTreeMap<(OsKind, String), Handler>,
        place: Place,
    },
    /// By hand: it takes from its mailbox what it wants when it wants.
    Actor(Spawn),
}

/// A contract (RFC 0032, section 10.1) and the functions behind it. Mistakes in it are told when it is installed.
pub struct Capability {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) inbound: Vec<Declared>,
    pub(crate) outbound: Option<Vec<Declared>>,
    pub(crate) subscribes: Vec<String>,
    pub(crate) bus: Vec<BusTopic>,
    pub(crate) work: Work,
    pub(crate) mistakes: Vec<CapabilityError>,
}

impl Capability {
    pub fn new(name: &str, description: &str) -> Capability {
        Capability::with(name, description, Work::Handlers { by: BTreeMap::new(), place: Place::default() })
    }

    /// One that does its own bookkeeping, such as a child process: `spawn` runs on the loop's thread and must not block.
    /// It is declared with [`Capability::takes`].
    pub fn actor(
        name: &str,
        description: &str,
        spawn: impl FnOnce(Port) -> ActorFuture + Send + 'static,
    ) -> Capability {
        Capability::with(name, description, Work::Actor(Box::new(spawn)))
    }

    fn with(name: &str, description: &str, work: Work) -> Capability {
        Capability {
            name: name.to_owned(),
            description: description.to_owned(),
            inbound: Vec::new(),
            outbound: None,
            subscribes: Vec::new(),
            bus: Vec::new(),
            work,
            mistakes: Vec::new(),
        }
    }

    /// Handlers run there instead of on the runtime.
    pub fn place(mut self, at: Place) -> Capability {
        if let Work::Handlers { place, .. } = &mut self.work {
            *place = at;
        }
        self
    }

    /// Handles a query: `schema` (JSON Schema) is what its data must be; other data is answered with 422.
    pub fn query<F, R>(self, ty: &str, description: &str, schema: Value, handler: F) -> Capability
    where
        F: Fn(Context, Arc<OsMessage>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<JsonText, OsFault>> + Send + 'static,
    {
        self.handles(OsKind::Query, ty, description, Some(schema), boxed(handler))
    }

    /// A query whose data is not checked against the schema, which is only shown: for numbers that nothing here can
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

    /// Handles a command, in the same way.
    pub fn command<F, R>(self, ty: &str, description: &str, schema: Value, handler: F) -> Capability
    where
        F: Fn(Context, Arc<OsMessage>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<JsonText, OsFault>> + Send + 'static,
    {
        self.handles(OsKind::Command, ty, description, Some(schema), boxed(handler))
    }

    /// A query whose handler blocks: it gets a thread for as long as it runs. [`Context::wait`] waits there for what is
    /// asynchronous.
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

    /// Subscribes to an event. An error counts as a fault of the actor; nobody is told.
    pub fn on_event<F, R>(mut self, ty: &str, handler: F) -> Capability
    where
        F: Fn(Context, Arc<OsMessage>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), OsFault>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |ctx, message| {
            let handled = handler(ctx, message);
            Box::pin(async move { handled.await.map(|()| JsonText::null()) })
        });
        self.subscribes.push(ty.to_owned());
        self.add(OsKind::Event, ty, handler);
        self
    }

    /// The events of a topic of the bus arrive as `Bus.Message`; each is acknowledged once its handler returned `Ok`.
    pub fn on_bus<F, R>(mut self, topics: Vec<BusTopic>, handler: F) -> Capability
    where
        F: Fn(Context, Arc<OsMessage>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), OsFault>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |ctx, message| {
            let handled = handler(ctx, message);
            Box::pin(async move { handled.await.map(|()| JsonText::null()) })
        });
        self.bus = topics;
        self.add(OsKind::Event, BUS_MESSAGE, handler);
        self
    }

    /// What the reply to the branch declared last looks like, for `Syscall.Describe`.
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

    /// Declares what it says; without any, only the envelope of what it says is checked.
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

    /// Subscribes without a handler: for [`Capability::actor`].
    pub fn subscribes(mut self, ty: &str) -> Capability {
        self.subscribes.push(ty.to_owned());
        self
    }

    /// Topics of the bus without a handler: for [`Capability::actor`].
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
        handler: Handler,
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

    fn add(&mut self, kind: OsKind, ty: &str, handler: Handler) {
        let Work::Handlers { by, .. } = &mut self.work else { return };
        if by.insert((kind, ty.to_owned()), handler).is_some() {
            self.mistakes.push(CapabilityError::Twice { kind, ty: ty.to_owned() });
        }
    }
}

/// How an event of the bus arrives.
const BUS_MESSAGE: &str = "Bus.Message";

fn boxed<F, R>(handler: F) -> Handler
where
    F: Fn(Context, Arc<OsMessage>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<JsonText, OsFault>> + Send + 'static,
{
    Arc::new(move |ctx, message| Box::pin(handler(ctx, message)))
}

fn blocking<F>(handler: F) -> Handler
where
    F: Fn(Context, Arc<OsMessage>) -> Result<JsonText, OsFault> + Send + Sync + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |ctx, message| {
        let handler = handler.clone();
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || handler(ctx, message)).await {
                Ok(result) => result,
                // Handed on, so that whoever calls the handler sees the panic as if it had been here.
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
