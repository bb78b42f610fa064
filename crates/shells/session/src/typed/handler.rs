//! A handler as data: `#[on_event]` makes it from a function.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use millrace_claims::HandlerSettings;
use millrace_model::JsonText;

use super::event::Event;
use super::names::EventName;
use super::outcome::HandlerOutcome;
use crate::context::{Core, HandlerContext};

/// Any error that a handler may fail with. Its text is stored with the claim and in the dead letter.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;
pub type HandlerResult = Result<(), HandlerError>;
/// The future of an async handler. Driven on the thread that runs the handler, so it need not be `Send`.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Where a new handler begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the oldest retained event.
    #[default]
    Earliest,
    /// With the first event after its registration.
    Now,
}

/// How a call ended.
#[derive(Debug)]
pub enum Called {
    Succeeded,
    Failed(HandlerError),
    /// The payload does not fit the handler's event type: no retry will change that.
    Undecodable(String),
    /// The handler itself decided what happens to the event.
    Ended(HandlerOutcome),
}

type SyncCall = dyn Fn(Core, &JsonText) -> (Core, Called) + Send + Sync;
type AsyncCall = dyn Fn(Core, JsonText) -> LocalFuture<'static, (Core, Called)> + Send + Sync;

#[derive(Clone)]
enum HandlerFunction {
    Sync(Arc<SyncCall>),
    Async(Arc<AsyncCall>),
}

/// A function that takes events of one type, with the id under which its progress is stored.
#[derive(Clone)]
pub struct Handler {
    pub id: String,
    pub event_type: &'static str,
    /// Higher priorities run first among the handlers of a session.
    pub priority: i32,
    pub start: Start,
    /// Settings of this handler alone; `Config::handlers` may override them.
    pub settings: HandlerSettings,
    name: EventName,
    call: HandlerFunction,
}

/// Implemented by `#[on_event]` for the function; [`crate::handlers!`] uses it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    note = "put #[on_event(SomeEvent)] on the function"
)]
pub trait HandlerSpec {
    fn handler() -> Handler;
}

/// The types that a handler function may return: nothing, an outcome, or a result of one of them with any error.
#[diagnostic::on_unimplemented(
    message = "a handler returns `()`, a `HandlerOutcome`, or a `Result` of one of them with an error, not `{Self}`"
)]
pub trait IntoHandlerResult {
    fn into_handler_result(self) -> HandlerResult;
}

impl IntoHandlerResult for () {
    fn into_handler_result(self) -> HandlerResult {
        Ok(())
    }
}

impl<E: Into<HandlerError>> IntoHandlerResult for Result<(), E> {
    fn into_handler_result(self) -> HandlerResult {
        self.map_err(Into::into)
    }
}

impl Handler {
    pub fn from_fn<E: Event>(
        id: impl Into<String>,
        function: impl Fn(&mut HandlerContext<E>) -> HandlerResult + Send + Sync + 'static,
    ) -> Handler {
        let call = move |core: Core, payload: &JsonText| match decode::<E>(payload) {
            Err(error) => (core, Called::Undecodable(error.to_string())),
            Ok(event) => {
                let mut context = HandlerContext::new(event, core);
                let called = called(function(&mut context));
                (context.into_core(), called)
            }
        };
        Handler::new::<E>(id.into(), HandlerFunction::Sync(Arc::new(call)))
    }

    pub fn from_async_fn<E: Event>(
        id: impl Into<String>,
        function: impl for<'a> Fn(&'a mut HandlerContext<E>) -> LocalFuture<'a, HandlerResult>
        + Send
        + Sync
        + 'static,
    ) -> Handler {
        let function = Arc::new(function);
        let call = move |core: Core, payload: JsonText| -> LocalFuture<'static, (Core, Called)> {
            let function = function.clone();
            Box::pin(async move {
                match decode::<E>(&payload) {
                    Err(error) => (core, Called::Undecodable(error.to_string())),
                    Ok(event) => {
                        let mut context = HandlerContext::new(event, core);
                        let called = called(function(&mut context).await);
                        (context.into_core(), called)
                    }
                }
            })
        };
        Handler::new::<E>(id.into(), HandlerFunction::Async(Arc::new(call)))
    }

    fn new<E: Event>(id: String, call: HandlerFunction) -> Handler {
        let name = EventName::of::<E>();
        let (start, settings) = (Start::Earliest, HandlerSettings::default());
        Handler { id, event_type: E::TYPE, priority: 100, start, settings, name, call }
    }

    /// Returns the event type that the handler takes.
    pub fn event_name(&self) -> EventName {
        self.name
    }

    #[must_use]
    pub fn with_priority(mut self, priority: i32) -> Handler {
        self.priority = priority;
        self
    }

    #[must_use]
    pub fn starting(mut self, start: Start) -> Handler {
        self.start = start;
        self
    }

    #[must_use]
    pub fn with_settings(mut self, settings: HandlerSettings) -> Handler {
        self.settings = settings;
        self
    }

    pub fn is_async(&self) -> bool {
        matches!(self.call, HandlerFunction::Async(_))
    }

    /// Decodes the payload and runs the function to its end. `drive` waits for the future of an async handler, or gives
    /// it up and returns `None`; it is not called for a plain handler.
    pub fn run(
        &self,
        core: Core,
        payload: &JsonText,
        drive: impl FnOnce(LocalFuture<'static, (Core, Called)>) -> Option<(Core, Called)>,
    ) -> Option<(Core, Called)> {
        match &self.call {
            HandlerFunction::Sync(call) => Some(call(core, payload)),
            HandlerFunction::Async(call) => drive(call(core, payload.clone())),
        }
    }
}

/// The payload of an event is no value of the handler's type.
#[derive(Debug, thiserror::Error)]
#[error("not a `{expected}`: {error}")]
struct Undecodable {
    expected: &'static str,
    error: serde_json::Error,
}

fn decode<E: Event>(payload: &JsonText) -> Result<E, Undecodable> {
    serde_json::from_str(payload.as_str()).map_err(|error| Undecodable { expected: E::TYPE, error })
}

fn called(result: HandlerResult) -> Called {
    match result {
        Ok(()) => Called::Succeeded,
        Err(error) => match HandlerOutcome::of(&*error) {
            Some(outcome) => Called::Ended(outcome.clone()),
            None => Called::Failed(error),
        },
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Handler { id, event_type, priority, start, settings, .. } = self;
        f.debug_struct("Handler")
            .field("id", id)
            .field("event_type", event_type)
            .field("priority", priority)
            .field("start", start)
            .field("settings", settings)
            .field("is_async", &self.is_async())
            .finish()
    }
}
