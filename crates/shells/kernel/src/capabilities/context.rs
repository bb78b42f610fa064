//! The context that a handler is given: the message, its sender, and functions to emit and request with causation and
//! correlation filled in.

use std::fmt;
use std::sync::Arc;

use millrace_model::{JsonText, OsFault, OsKind, OsMessage, OsMetadata, OsType, Principal, Requester};
use millrace_router::{CapabilityId, DeliveryId, Input};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::builtin::of_data;
use crate::kernel_thread::inbox::{KernelCommand, KernelEnded, KernelSender};

/// The context of one message. Cheap to clone; may be sent to other threads.
#[derive(Clone)]
pub struct Context {
    inner: Arc<ContextInner>,
}

struct ContextInner {
    capability: CapabilityId,
    delivery: DeliveryId,
    message: Arc<OsMessage>,
    by: Requester,
    kernel: KernelSender,
}

impl Context {
    pub(crate) fn new(
        capability: CapabilityId,
        delivery: DeliveryId,
        message: Arc<OsMessage>,
        by: Requester,
        kernel: KernelSender,
    ) -> Context {
        Context { inner: Arc::new(ContextInner { capability, delivery, message, by, kernel }) }
    }

    pub fn message(&self) -> &OsMessage {
        &self.inner.message
    }

    /// Returns the principal whose rights apply to the message; `None` for a trusted requester.
    pub fn principal(&self) -> Option<&Principal> {
        self.inner.by.principal()
    }

    /// On whose behalf the message was sent.
    pub fn requester(&self) -> &Requester {
        &self.inner.by
    }

    /// The capability that made this request, with its name; `None` if a client or a timer made it.
    pub(crate) async fn asker(&self) -> Result<Option<(CapabilityId, Arc<str>)>, OsFault> {
        let (request, delivery) = (self.inner.message.metadata.id.clone(), self.inner.delivery);
        self.inner.kernel.with_router(move |router| router.asker(&request, delivery)).await.map_err(ended)
    }

    pub fn kernel(&self) -> &KernelSender {
        &self.inner.kernel
    }

    /// Reads the message's data as `T`.
    ///
    /// # Errors
    ///
    /// 422 if the data does not fit.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, OsFault> {
        serde_json::from_str(&self.inner.message.data.last_members()).map_err(|error| of_data(&error))
    }

    /// The data of a reply, to be returned by the handler.
    pub fn reply<T: Serialize>(&self, data: &T) -> Result<JsonText, OsFault> {
        to_json(data)
    }

    /// Emits an event. Waits while the queue to the loop is full.
    pub async fn emit<T: Serialize>(&self, ty: &str, data: &T) -> Result<(), OsFault> {
        let message = self.follow(OsKind::Event, ty, to_json(data)?)?;
        let from = self.inner.capability;
        let during = Some(self.inner.delivery);
        let input = Input::Emit { from, during, message, wait: false, trusted: true };
        self.inner.kernel.send(KernelCommand::Input(input)).await.map_err(ended)
    }

    /// Sends a query to another capability and waits for its answer: the reply's data, or the error. A capability
    /// handles one message at a time, so a query to itself ends in 504.
    pub async fn query<T: Serialize>(&self, ty: &str, data: &T) -> Result<JsonText, OsFault> {
        self.request(OsKind::Query, ty, to_json(data)?).await
    }

    pub async fn command<T: Serialize>(&self, ty: &str, data: &T) -> Result<JsonText, OsFault> {
        self.request(OsKind::Command, ty, to_json(data)?).await
    }

    pub async fn request(&self, kind: OsKind, ty: &str, data: JsonText) -> Result<JsonText, OsFault> {
        let message = self.follow(kind, ty, data)?;
        let (outcome, answered) = oneshot::channel();
        let (from, during) = (self.inner.capability, self.inner.delivery);
        self.inner
            .kernel
            .send(KernelCommand::Asks { from, during, message, outcome })
            .await
            .map_err(ended)?;
        let answer = answered.await.map_err(|_| ended(KernelEnded))?;
        match answer.kind {
            OsKind::Error => Err(fault_of(&answer.data)),
            _ => Ok(answer.data.clone()),
        }
    }

    /// Waits for a future, such as that of [`Context::emit`], in a handler that blocks.
    pub fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        tokio::runtime::Handle::current().block_on(what)
    }

    /// A new message that is caused by the current one.
    fn follow(&self, kind: OsKind, ty: &str, data: JsonText) -> Result<OsMessage, OsFault> {
        let ty = OsType::new(ty).map_err(|error| OsFault::new(500, error.to_string()))?;
        let (id, timestamp) = self.inner.kernel.stamp();
        let cause = &self.inner.message.metadata;
        let metadata = OsMetadata {
            id,
            timestamp,
            correlation: cause.correlation.clone(),
            causation: Some(cause.id.clone()),
            other: None,
        };
        Ok(OsMessage { kind, ty, data, metadata })
    }
}

fn to_json<T: Serialize>(data: &T) -> Result<JsonText, OsFault> {
    JsonText::from_value(data).map_err(|error| OsFault::new(500, error.to_string()))
}

fn ended(ended: KernelEnded) -> OsFault {
    OsFault::new(503, ended.to_string())
}

/// Reads the fault in an error's data; data without a code counts as 500.
fn fault_of(data: &JsonText) -> OsFault {
    #[derive(serde::Deserialize)]
    struct FaultData {
        code: u16,
        message: String,
    }
    match serde_json::from_str::<FaultData>(data.as_str()) {
        Ok(FaultData { code, message }) => OsFault { code, message },
        Err(_) => OsFault::new(500, data.as_str()),
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("message", &self.inner.message).finish_non_exhaustive()
    }
}
