//! Requests of programs to the thread that may touch a transaction or a handler's context, and their answers.

use millrace_model::{DeliverAt, EventId, JsonText, Priority, TopicName};
use millrace_session::{Event, EventName, Outgoing, SessionError};
use millrace_wasm::RunNumber;
use millrace_wasm::capability::{GuestEvent, GuestPublished, PortError, PortFuture};
use tokio::sync::{mpsc, oneshot};

use crate::guest_value::GuestValue;

/// A request with the sender of its answer. A run has at most one at a time, which bounds the queue.
#[derive(Debug)]
pub(super) enum PortRequest {
    Get { run: RunNumber, key: String, reply: Reply<Option<String>> },
    Ensure { run: RunNumber, key: String, value: String, reply: Reply<()> },
    Commit { run: RunNumber, reply: Reply<Option<u64>> },
    Publish { event: GuestEvent, reply: Reply<GuestPublished> },
    Emit { event: GuestEvent, reply: Reply<()> },
    Release { run: RunNumber },
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, PortError>>;

/// Sends a request and returns the future of its answer.
pub(super) fn send_request<T: Send + 'static>(
    to: &mpsc::UnboundedSender<PortRequest>,
    request: impl FnOnce(Reply<T>) -> PortRequest,
) -> PortFuture<T> {
    let (reply, answer) = oneshot::channel();
    let sent = to.send(request(reply)).is_ok();
    Box::pin(async move {
        let gone = || PortError::Unreachable("nobody answers for the store any more".to_owned());
        if !sent {
            return Err(gone());
        }
        answer.await.unwrap_or_else(|_| Err(gone()))
    })
}

/// Sends an answer. An error means that the run has ended and nobody waits for it.
pub(super) fn answer<T>(reply: Reply<T>, result: Result<T, PortError>) {
    let _ = reply.send(result);
}

pub(super) fn guest_value(key: String, value: &str) -> Result<GuestValue, PortError> {
    let value = serde_json::from_str(value);
    let value = value.map_err(|error| PortError::Invalid(format!("the value is not valid JSON: {error}")))?;
    Ok(GuestValue { key, value })
}

/// The type under which events of programs are sent: their names are known only at run time.
#[derive(serde::Serialize, serde::Deserialize)]
struct GuestSent {}

impl Event for GuestSent {
    const TYPE: &'static str = "millrace.guest.event";
    const NAME_GIVEN: bool = true;

    fn schema() -> millrace_state::Schema {
        millrace_state::Schema::new(Self::TYPE, &[])
    }
}

pub(super) fn outgoing(event: GuestEvent) -> Result<Outgoing, PortError> {
    let invalid =
        |what: &str, error: &dyn std::fmt::Display| PortError::Invalid(format!("the {what}: {error}"));
    let id = event.id.map(|id| EventId::parse(&id)).transpose();
    Ok(Outgoing {
        name: EventName::of::<GuestSent>(),
        topic: TopicName::new(&event.topic).map_err(|error| invalid("topic", &error))?,
        priority: Priority(GuestSent::PRIORITY),
        payload: JsonText::parse(&event.payload).map_err(|error| invalid("payload", &error))?,
        key: event.key,
        headers: event.headers.into_iter().collect(),
        id: id.map_err(|error| invalid("id", &error))?,
        deliver_at: event.delay_ms.map(DeliverAt::AfterMs),
    })
}

pub(super) fn port_error(error: &SessionError) -> PortError {
    let text = error.to_string();
    match error {
        SessionError::Conflict { .. } => PortError::Conflict(text),
        SessionError::Store(_) | SessionError::Stopped | SessionError::Damaged(_) => {
            PortError::Unreachable(text)
        }
        SessionError::Event(_) | SessionError::State(_) | SessionError::Name(_) => PortError::Invalid(text),
        _ => PortError::Refused(text),
    }
}
