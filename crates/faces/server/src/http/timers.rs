//! `/timers`: timers of the CQRS loop that the caller may see. The loop's thread lists a page of them between two turns; a timer is cancelled by
//! the command `Timer.Cancel`, like any other.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use millrace_kernel::KernelEnded;
use millrace_model::{JsonText, Mono, Namespace, OsKind, OsMessage, OsMetadata, OsType, Requester};
use millrace_router::{TimerPlace, TimerView};
use millrace_wire::ErrorCode;
use millrace_wire::http::{TimerCancelled, TimerDoc, TimerList};
use serde_json::{Value, json};

use crate::access::Caller;
use crate::app::{App, SharedApp};
use crate::http::actions::not_found;
use crate::http::document;
use crate::observe::to_its_end;
use crate::params::{AtNamed, Params};
use crate::refusal::Refusal;

/// Timers of a page: the loop waits while they are listed.
const TIMERS_MAX: u64 = 1000;
const TIMERS_DEFAULT: u64 = 100;
const TIMER_CANCEL: &str = "Timer.Cancel";

pub(crate) async fn list(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    params.namespace()?;
    let limit = params.number("limit", 1..=TIMERS_MAX)?.unwrap_or(TIMERS_DEFAULT) as usize;
    let after = params.text("after").map(place).transpose()?;
    // A timer more than is shown tells whether there is more.
    let mut found = app.kernel.timers(caller.by(), after, limit + 1).await.map_err(ended)?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|last| format!("{}-{}", last.place.0.0, last.place.1));
    let timers = found.into_iter().map(shown).collect();
    Ok(document(StatusCode::OK, &TimerList { timers, next }))
}

fn ended(_: KernelEnded) -> Refusal {
    Refusal::new(ErrorCode::ShuttingDown, "the server is shutting down: connect again later")
}

fn place(text: &str) -> Result<TimerPlace, Refusal> {
    let parsed = text
        .split_once('-')
        .and_then(|(at, number)| Some(TimerPlace(Mono(at.parse().ok()?), number.parse().ok()?)));
    parsed.ok_or_else(|| {
        let detail = format!("after is {text:.40?}: it must be `next` of the page before");
        Refusal::new(ErrorCode::BadFrame, detail)
    })
}

fn shown(view: TimerView) -> TimerDoc {
    TimerDoc {
        timer: view.name,
        due: view.due.0,
        absolute: view.absolute,
        kind: view.kind,
        message_type: view.ty,
        data_bytes: view.data_bytes as u64,
        durable: view.durable,
        agent: view.agent,
        capability: view.capability,
        set_by: view.set_by,
        trying_again: view.trying_again,
    }
}

pub(crate) async fn cancel(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtNamed,
) -> Result<Response, Refusal> {
    let timer = at.name;
    let found = app.kernel.timer(caller.by(), timer.clone()).await.map_err(ended)?;
    let found = found.ok_or_else(|| gone(&timer))?;
    if let Some(capability) = found.capability {
        let detail =
            format!("capability {capability:.80} has set timer {timer:.80}, and only it can cancel it");
        return Err(Refusal::new(ErrorCode::BadFrame, detail).status(StatusCode::CONFLICT));
    }
    let (loop_app, cancelled) = (app.clone(), timer.clone());
    let cancel = async move {
        let answer = request(&loop_app, TIMER_CANCEL, &json!({ "timerId": cancelled })).await?;
        if answer["data"]["cancelled"] == true {
            // The loop has one set of timers for all namespaces.
            loop_app.acted("timer_cancelled", &Namespace::default(), &cancelled);
        }
        Ok(answer)
    };
    let answer = to_its_end(cancel).await?;
    if answer["kind"] == "error" {
        let why = answer["data"]["message"].as_str().unwrap_or("the loop refused the command").to_owned();
        return Err(Refusal::new(ErrorCode::StorageFailed, why));
    }
    if answer["data"]["cancelled"] != true {
        return Err(gone(&timer));
    }
    Ok(document(StatusCode::OK, &TimerCancelled { timer }))
}

fn gone(timer: &str) -> Refusal {
    not_found(format!("there is no timer {timer:.80?} that waits: it has fired, or was cancelled"))
}

/// Sends a command to the loop and returns the answer, an OsMessage as JSON.
async fn request(app: &App, ty: &'static str, data: &Value) -> Result<Value, Refusal> {
    let (sender, mut receiver) = app.kernel.open(Requester::Trusted).await.map_err(ended)?;
    let (id, timestamp) = sender.stamp();
    let message = OsMessage {
        kind: OsKind::Command,
        ty: OsType::known(ty),
        data: JsonText::from_stored(data.to_string().into()),
        metadata: OsMetadata { id, timestamp, correlation: None, causation: None, other: None },
    };
    sender.send(message).await.map_err(ended)?;
    let line = receiver.next().await.ok_or_else(|| ended(KernelEnded))?;
    serde_json::from_str(&line).map_err(|error| {
        Refusal::new(ErrorCode::StorageFailed, format!("the loop's answer cannot be read: {error}"))
    })
}
