//! Handlers and their results.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use millrace_runs::{HandlerError, ResumeKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call::HandlerCall;
use crate::value::{ConvertError, Value, to_value};

/// The continuation call by which a handler answers an effect request.
#[derive(Clone, Debug, PartialEq)]
pub enum Continuation {
    /// Continue the program with this value; for operations of kind `resume`.
    Resume(Value),
    /// Continue the program with this value; for operations of kind `tail`, which accept nothing else.
    Tail(Value),
    /// End the run with this value, without continuing the program; for operations of kind `resume`.
    End(Value),
    /// Anything that is not a continuation call. Fails the run; scripts use it to test that.
    Plain(Value),
}

impl Continuation {
    /// Returns the call that continues an operation of this kind.
    pub fn of_kind(kind: ResumeKind, value: Value) -> Continuation {
        match kind {
            ResumeKind::Resume => Continuation::Resume(value),
            ResumeKind::Tail => Continuation::Tail(value),
        }
    }

    /// The name that scripts and traces use: `resume`, `tail`, `end` or `plain`.
    pub fn name(&self) -> &'static str {
        match self {
            Continuation::Resume(_) => "resume",
            Continuation::Tail(_) => "tail",
            Continuation::End(_) => "end",
            Continuation::Plain(_) => "plain",
        }
    }

    pub fn value(&self) -> &Value {
        match self {
            Continuation::Resume(value)
            | Continuation::Tail(value)
            | Continuation::End(value)
            | Continuation::Plain(value) => value,
        }
    }
}

/// The result of a handler: a continuation call, or an error that fails the run.
pub type HandlerResult = Result<Continuation, HandlerError>;

/// A handler's answer that is not ready yet.
pub type HandlerFuture = Pin<Box<dyn Future<Output = HandlerResult> + Send>>;

/// How a handler answers.
pub enum Handled {
    Now(HandlerResult),
    /// Polled on the host's thread, inside a tokio runtime. Dropped if the run ends first.
    Later(HandlerFuture),
}

impl fmt::Debug for Handled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Handled::Now(result) => f.debug_tuple("Now").field(result).finish(),
            Handled::Later(_) => f.write_str("Later"),
        }
    }
}

/// Answers the requests of an operation. Called on the host's thread, which all runs share: work that blocks belongs in
/// `tokio::task::spawn_blocking`, awaited under [`HandlerCall::hold_clock`].
///
/// A panic fails the run it happened in.
pub trait EffectHandler: Send + Sync {
    fn call(&self, call: HandlerCall) -> Handled;
}

struct SyncHandler<F>(F);

impl<F: Fn(HandlerCall) -> HandlerResult + Send + Sync> EffectHandler for SyncHandler<F> {
    fn call(&self, call: HandlerCall) -> Handled {
        Handled::Now((self.0)(call))
    }
}

struct AsyncHandler<F>(F);

impl<F, R> EffectHandler for AsyncHandler<F>
where
    F: Fn(HandlerCall) -> R + Send + Sync,
    R: Future<Output = HandlerResult> + Send + 'static,
{
    fn call(&self, call: HandlerCall) -> Handled {
        Handled::Later(Box::pin((self.0)(call)))
    }
}

/// A handler that answers at once.
pub fn handler_fn<F>(function: F) -> impl EffectHandler + 'static
where
    F: Fn(HandlerCall) -> HandlerResult + Send + Sync + 'static,
{
    SyncHandler(function)
}

/// A handler that answers with a future.
pub fn async_handler_fn<F, R>(function: F) -> impl EffectHandler + 'static
where
    F: Fn(HandlerCall) -> R + Send + Sync + 'static,
    R: Future<Output = HandlerResult> + Send + 'static,
{
    AsyncHandler(function)
}

/// A handler with Rust types: `A` is the tuple of the arguments, such as `(String, i64)`, or `()`. The result continues
/// the program, by `resume` or `tail` as the operation's kind demands.
pub fn typed_handler_fn<A, R, F>(function: F) -> impl EffectHandler + 'static
where
    A: DeserializeOwned,
    R: Serialize,
    F: Fn(&HandlerCall, A) -> Result<R, HandlerError> + Send + Sync + 'static,
{
    handler_fn(move |mut call| {
        let args = call.parse_args::<A>()?;
        let result = function(&call, args)?;
        call.answer_with(&result)
    })
}

/// Like [`typed_handler_fn`], with a future.
pub fn typed_async_handler_fn<A, R, F, T>(function: F) -> impl EffectHandler + 'static
where
    A: DeserializeOwned,
    R: Serialize,
    F: Fn(HandlerCall, A) -> T + Send + Sync + 'static,
    T: Future<Output = Result<R, HandlerError>> + Send + 'static,
{
    let function = std::sync::Arc::new(function);
    async_handler_fn(move |mut call| {
        let kind = call.op().kind;
        let label = call.op().label.clone();
        let started = call.parse_args::<A>().map(|args| function(call, args));
        async move {
            let result = started?.await?;
            let value = to_value(&result).map_err(|error| unusable_result(&label, &error))?;
            Ok(Continuation::of_kind(kind, value))
        }
    })
}

pub(crate) fn unusable_result(label: &str, error: &ConvertError) -> HandlerError {
    HandlerError::new(format!("the result of the handler for {label} has no value: {error}"))
}
