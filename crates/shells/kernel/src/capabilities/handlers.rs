//! The actor of a capability made of functions: handles one message at a time and survives errors and panics of its
//! handlers.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use millrace_model::{JsonText, OsFault, OsKind, OsMessage, OsMetadata, OsType};
use tokio::runtime::Handle;

use crate::capabilities::capability::{HandlerPlace, MessageHandler};
use crate::capabilities::context::Context;
use crate::capabilities::port::{Delivery, Port};
use crate::kernel_thread::pause;

/// Messages handled on the loop's own thread before other tasks get their turn.
const SLICE: u32 = 32;

pub(crate) struct MessageHandlers {
    pub(crate) by: BTreeMap<(OsKind, OsType), MessageHandler>,
    pub(crate) place: HandlerPlace,
    pub(crate) runtime: Handle,
}

impl MessageHandlers {
    /// Runs until the capability is retired.
    pub(crate) async fn run(self, port: Port) {
        let mut slice = 0;
        while let Some(delivery) = port.next().await {
            let id = delivery.id;
            let answer = delivery.message.kind.is_request().then(|| delivery.message.clone());
            match (self.handle(&port, delivery).await, answer) {
                (Ok(data), Some(request)) => {
                    port.answer(id, reply(&port, &request, data));
                    port.done(id, Ok(()));
                }
                (Ok(_), None) => port.done(id, Ok(())),
                (Err(fault), _) => port.done(id, Err(fault)),
            }
            slice += 1;
            if slice == SLICE {
                slice = 0;
                pause::yield_now().await;
            }
        }
    }

    async fn handle(&self, port: &Port, delivery: Delivery) -> Result<JsonText, OsFault> {
        let Delivery { id, message, by, .. } = delivery;
        let Some(handler) = self.by.get(&(message.kind, message.ty.clone())).cloned() else {
            // A declared outcome or event without a handler: seen, and nothing else to do.
            return Ok(JsonText::null());
        };
        let ctx = Context::new(port.capability(), id, message.clone(), by, port.kernel().clone());
        let failed = |panic: Box<dyn Any + Send>| {
            OsFault::new(500, format!("Capability '{}' failed: {}", port.name(), said(&*panic)))
        };
        match self.place {
            // The function itself may panic too, not only the future it returns.
            HandlerPlace::Kernel => {
                let work = AssertUnwindSafe(async move { handler(ctx, message).await }).catch_unwind();
                work.await.unwrap_or_else(|panic| Err(failed(panic)))
            }
            HandlerPlace::Runtime => {
                match self.runtime.spawn(async move { handler(ctx, message).await }).await {
                    Ok(result) => result,
                    Err(error) if error.is_panic() => Err(failed(error.into_panic())),
                    Err(_) => Err(OsFault::new(503, "Kernel shutting down")),
                }
            }
        }
    }
}

pub(crate) fn reply(port: &Port, request: &OsMessage, data: JsonText) -> OsMessage {
    let (id, timestamp) = port.kernel().stamp();
    let metadata = OsMetadata {
        id,
        timestamp,
        correlation: request.metadata.correlation.clone(),
        causation: Some(request.metadata.id.clone()),
        other: None,
    };
    OsMessage { kind: OsKind::Reply, ty: request.ty.clone(), data, metadata }
}

/// The text of a panic.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked")
}
