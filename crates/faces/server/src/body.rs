//! Reading the body of a request within bounds of bytes and time.

use std::error::Error;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use millrace_wire::{ErrorCode, FrameError, http::body_text};

use crate::edge::Edge;
use crate::fairness::RoomShare;
use crate::observe::HttpRequester;
use crate::refusal::{Refusal, overloaded};

/// The body of a request and its share of the memory for bodies. Keep it until the request is answered.
pub(crate) struct BodyText {
    pub(crate) text: String,
    pub(crate) share: RoomShare,
}

/// The same for a body that need not be text.
pub(crate) struct BodyBytes {
    pub(crate) bytes: Bytes,
    pub(crate) share: RoomShare,
}

/// Reads a body of at most `bytes_max` as text. Waits for its share of the memory.
pub(crate) async fn read_text(edge: &Edge, body: Body, bytes_max: usize) -> Result<BodyText, Refusal> {
    let BodyBytes { bytes, share } = read_bytes(edge, body, bytes_max).await?;
    Ok(BodyText { text: body_text(&bytes)?.to_owned(), share })
}

pub(crate) async fn read_bytes(edge: &Edge, body: Body, bytes_max: usize) -> Result<BodyBytes, Refusal> {
    // A body without a length may become as long as is allowed.
    let expected = body.size_hint().upper().unwrap_or(bytes_max as u64);
    if expected > bytes_max as u64 {
        return Err(too_large(bytes_max));
    }
    let limit = Duration::from_millis(edge.settings.request_read_ms_max);
    let http_requester = HttpRequester::current();
    let place = http_requester.as_ref().and_then(|http_requester| http_requester.place.clone());
    let Some(caller) =
        http_requester.as_ref().and_then(|http_requester| http_requester.caller.get().cloned())
    else {
        return Err(Refusal::new(ErrorCode::Unauthorized, "the request was not checked"));
    };
    let room = HttpRequester::wait_for(edge.bodies.reserve(caller, place.clone(), expected as usize));
    let share = match tokio::time::timeout(limit, room).await {
        Ok(share) => share?,
        Err(_) => {
            let detail = format!("other bodies left no room for this one within {} ms", limit.as_millis());
            return Err(overloaded(detail));
        }
    };
    let sent_away = async {
        match &place {
            Some(place) => place.sent_away().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        read = tokio::time::timeout(limit, collect(body, bytes_max, &share)) => match read {
            Ok(bytes) => Ok(BodyBytes { bytes: bytes?, share }),
            Err(_) => {
                let detail = format!("the body did not arrive within {} ms", limit.as_millis());
                Err(Refusal::new(ErrorCode::BadFrame, detail).status(StatusCode::REQUEST_TIMEOUT))
            }
        },
        sent_away = sent_away => Err(sent_away.into()),
    }
}

/// Reads the whole body. Each piece is accounted for before the next one is read.
async fn collect(body: Body, bytes_max: usize, share: &RoomShare) -> Result<Bytes, Refusal> {
    let mut body = Limited::new(body, bytes_max);
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
            true => too_large(bytes_max),
            false => broke_off(&*error),
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.is_empty() && body.is_end_stream() {
            // The body came in one piece: nothing is copied.
            HttpRequester::wait_for(share.fill(data.len())).await?;
            share.settle(data.len());
            return Ok(data);
        }
        whole.extend_from_slice(&data);
        HttpRequester::wait_for(share.fill(whole.len())).await?;
    }
    share.settle(whole.len());
    Ok(whole.freeze())
}

fn too_large(bytes_max: usize) -> Refusal {
    FrameError::too_large("body", bytes_max).into()
}

fn broke_off(error: &dyn Error) -> Refusal {
    Refusal::new(ErrorCode::BadFrame, format!("the body broke off: {error}"))
}
