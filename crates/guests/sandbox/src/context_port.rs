//! Runs of programs inside durable handlers: state that a program ensures and events that it emits go into the
//! handler's context, and so into its commit.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use millrace_session::{Event, HandlerContext};
use millrace_wasm::capability::{
    BusPort, GuestAck, GuestEvent, GuestPublished, GuestReceive, GuestReceived, PortError, PortFuture,
    StorePort,
};
use millrace_wasm::{EffectOutcome, RunHandle, RunNumber};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::guest_value::GuestValue;
use crate::request::{PortRequest, answer, guest_value, outgoing, port_error, send_request};
use crate::session_port::unsupported;

/// Connects the runs of a host with the contexts of the handlers that started them. Grant it as bus and store, then
/// start runs through [`ContextPort::run`].
///
/// ```no_run
/// # use millrace_sandbox::ContextPort;
/// # use millrace_session::{Event, HandlerContext};
/// # use millrace_wasm::{Instance, Value};
/// # struct Sandbox { port: ContextPort, instance: Instance }
/// # fn price<E: Event>(ctx: &mut HandlerContext<E>, sandbox: &Sandbox) -> Result<(), Box<dyn std::error::Error + Send
/// + Sync>> { let outcome = sandbox.port.run(ctx, || sandbox.instance.start("price", vec![]))?; outcome.into_result()?;
/// // One commit: the state and the events of the program, and the acknowledgement. ctx.commit_and_ack()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct ContextPort(Arc<Mutex<BTreeMap<RunNumber, mpsc::UnboundedSender<PortRequest>>>>);

impl ContextPort {
    pub fn new() -> ContextPort {
        ContextPort::default()
    }

    /// Starts a run and waits for its end, on this thread. Meanwhile the program's requests to store and bus are served
    /// with this context: `get` counts as read, `ensure` and `emit` belong to the next commit, `commit` is
    /// [`HandlerContext::commit`].
    ///
    /// # Errors
    ///
    /// Those of `start`.
    pub fn run<E: Event, X>(
        &self,
        context: &mut HandlerContext<E>,
        start: impl FnOnce() -> Result<RunHandle, X>,
    ) -> Result<EffectOutcome, X> {
        // Unbounded, but only this run sends, with one request under way at a time.
        let (requests, mut inbox) = mpsc::unbounded_channel();
        // Held until the run is registered, so that its first request finds its context.
        let mut contexts = self.0.lock();
        let run = start()?;
        contexts.insert(run.id(), requests);
        drop(contexts);
        let entry = ContextRun { port: self, run: run.id() };
        let outcome = wait(&run, &mut inbox, &mut |request| serve(context, request));
        drop(entry);
        Ok(outcome)
    }

    fn send_request<T: Send + 'static>(
        &self,
        run: RunNumber,
        request: impl FnOnce(super::request::Reply<T>) -> PortRequest,
    ) -> PortFuture<T> {
        let Some(requests) = self.0.lock().get(&run).cloned() else {
            let reason = "this run has no handler around it: start it through ContextPort::run";
            return Box::pin(async move { Err(PortError::Unsupported(reason.to_owned())) });
        };
        send_request(&requests, request)
    }
}

/// A run in the map of contexts: removed from it however the wait ends.
struct ContextRun<'a> {
    port: &'a ContextPort,
    run: RunNumber,
}

impl Drop for ContextRun<'_> {
    fn drop(&mut self) {
        self.port.0.lock().remove(&self.run);
    }
}

/// Serves the run's requests on this thread until the run has ended.
fn wait(
    run: &RunHandle,
    inbox: &mut mpsc::UnboundedReceiver<PortRequest>,
    serve: &mut dyn FnMut(PortRequest),
) -> EffectOutcome {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut outcome = std::pin::pin!(run.outcome());
    loop {
        while let Poll::Ready(Some(request)) = inbox.poll_recv(&mut context) {
            serve(request);
        }
        if let Poll::Ready(outcome) = outcome.as_mut().poll(&mut context) {
            return outcome;
        }
        std::thread::park();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn serve<E: Event>(context: &mut HandlerContext<E>, request: PortRequest) {
    match request {
        PortRequest::Get { key, reply, .. } => {
            let found = context.get::<GuestValue>(key).map_err(|error| port_error(&error));
            answer(reply, found.map(|found| found.map(|found| found.value.value.to_string())));
        }
        PortRequest::Ensure { key, value, reply, .. } => {
            let ensured = guest_value(key, &value)
                .and_then(|value| context.ensure(value).map_err(|error| port_error(&error)));
            answer(reply, ensured);
        }
        PortRequest::Commit { reply, .. } => {
            answer(reply, context.commit().map_err(|error| port_error(&error)));
        }
        PortRequest::Emit { event, reply } => {
            let emitted =
                outgoing(event).and_then(|event| context.emit(event).map_err(|error| port_error(&error)));
            answer(reply, emitted);
        }
        PortRequest::Publish { reply, .. } => {
            let reason = "inside a durable handler events go with its commit: use emit";
            answer(reply, Err(PortError::Unsupported(reason.to_owned())));
        }
        // Nothing to do: [`ContextRun`] removes the run when the wait is over.
        PortRequest::Release { .. } => {}
    }
}

impl StorePort for ContextPort {
    fn get(&self, run: RunNumber, key: String) -> PortFuture<Option<String>> {
        self.send_request(run, |reply| PortRequest::Get { run, key, reply })
    }

    fn ensure(&self, run: RunNumber, key: String, value: String) -> PortFuture<()> {
        self.send_request(run, |reply| PortRequest::Ensure { run, key, value, reply })
    }

    fn commit(&self, run: RunNumber) -> PortFuture<Option<u64>> {
        self.send_request(run, |reply| PortRequest::Commit { run, reply })
    }

    fn release(&self, _: RunNumber) {}
}

impl BusPort for ContextPort {
    fn publish(&self, run: RunNumber, event: GuestEvent) -> PortFuture<GuestPublished> {
        self.send_request(run, |reply| PortRequest::Publish { event, reply })
    }

    fn emit(&self, run: RunNumber, event: GuestEvent) -> PortFuture<()> {
        self.send_request(run, |reply| PortRequest::Emit { event, reply })
    }

    fn receive(&self, _: RunNumber, _: GuestReceive) -> PortFuture<Option<GuestReceived>> {
        unsupported()
    }

    fn ack(&self, _: RunNumber, _: GuestAck) -> PortFuture<()> {
        unsupported()
    }

    fn release(&self, _: RunNumber) {}
}

impl fmt::Debug for ContextPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextPort").field("runs", &self.0.lock().len()).finish()
    }
}
