//! Reading the body of a request within bounds of bytes and time.

use std::error::Error;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use millrace_wire::{ErrorCode, FrameError, http::body_text};
use tokio::sync::SemaphorePermit;

use crate::app::{App, BODY_UNIT};
use crate::refusal::Refusal;

/// What is left of a body that is too large is thrown away for this long and up to this size: a connection that is
/// closed over unread data may take the answer back.
const DISCARD_MS: u64 = 500;
const DISCARD_BYTES_MAX: usize = 64 << 20;

/// A body and its share of what all bodies together may take. Keep it until the request is answered.
pub(crate) struct BodyText<'a> {
    pub(crate) text: String,
    share: Share<'a>,
}

/// What a body takes of the bound; `None` only if the semaphore were closed.
pub(crate) type Share<'a> = Option<SemaphorePermit<'a>>;

impl<'a> BodyText<'a> {
    pub(crate) fn into_share(self) -> Share<'a> {
        self.share
    }
}

/// The same for a body that need not be text.
pub(crate) struct BodyBytes<'a> {
    pub(crate) bytes: Bytes,
    pub(crate) share: Share<'a>,
}

/// The text of a body of at most `bytes_max`. Waits for its share.
pub(crate) async fn read_text(app: &App, body: Body, bytes_max: usize) -> Result<BodyText<'_>, Refusal> {
    let BodyBytes { bytes, share } = read_bytes(app, body, bytes_max).await?;
    Ok(BodyText { text: body_text(&bytes)?.to_owned(), share })
}

pub(crate) async fn read_bytes(
    app: &App,
    mut body: Body,
    bytes_max: usize,
) -> Result<BodyBytes<'_>, Refusal> {
    // A body that does not say how long it is may become as long as it is allowed to.
    let expected = body.size_hint().upper().unwrap_or(bytes_max as u64);
    if expected > bytes_max as u64 {
        discard(body).await;
        return Err(too_large(bytes_max));
    }
    let units = u32::try_from((expected as usize).div_ceil(BODY_UNIT)).unwrap_or(u32::MAX);
    // The semaphore is never closed.
    let share = app.bodies.acquire_many(units).await.ok();
    let limit = Duration::from_millis(app.settings.request_read_ms_max);
    match tokio::time::timeout(limit, Limited::new(&mut body, bytes_max).collect()).await {
        Ok(Ok(whole)) => Ok(BodyBytes { bytes: whole.to_bytes(), share }),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            discard(body).await;
            Err(too_large(bytes_max))
        }
        Ok(Err(error)) => Err(broke_off(&*error)),
        Err(_) => {
            let detail = format!("the body did not arrive within {} ms", limit.as_millis());
            Err(Refusal::new(ErrorCode::BadFrame, detail).status(StatusCode::REQUEST_TIMEOUT))
        }
    }
}

fn too_large(bytes_max: usize) -> Refusal {
    FrameError::too_large("body", bytes_max).into()
}

fn broke_off(error: &dyn Error) -> Refusal {
    Refusal::new(ErrorCode::BadFrame, format!("the body broke off: {error}"))
}

async fn discard(body: Body) {
    let mut body = Limited::new(body, DISCARD_BYTES_MAX);
    let until_end = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(Duration::from_millis(DISCARD_MS), until_end).await;
}
