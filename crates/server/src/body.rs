//! Reading the body of a request within bounds of bytes and time.

use std::error::Error;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use millrace_wire::{ErrorCode, FrameError, http::body_text};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::app::{App, BODY_UNIT};
use crate::refusal::Refusal;

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
        return Err(too_large(bytes_max));
    }
    let limit = Duration::from_millis(app.settings.request_read_ms_max);
    let Some(share) = share_of(&app.bodies, app.settings.bodies_bytes_max, expected as usize, limit).await
    else {
        return Err(crowded(limit));
    };
    match tokio::time::timeout(limit, Limited::new(&mut body, bytes_max).collect()).await {
        Ok(Ok(whole)) => Ok(BodyBytes { bytes: whole.to_bytes(), share }),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(bytes_max)),
        Ok(Err(error)) => Err(broke_off(&*error)),
        Err(_) => {
            let detail = format!("the body did not arrive within {} ms", limit.as_millis());
            Err(Refusal::new(ErrorCode::BadFrame, detail).status(StatusCode::REQUEST_TIMEOUT))
        }
    }
}

/// `None` if it was not free in time. A body above the bound for all of them is read alone: to wait for more than there
/// is would hold up everyone behind it.
async fn share_of(bodies: &Semaphore, all: usize, expected: usize, limit: Duration) -> Option<Share<'_>> {
    let units = expected.min(all).div_ceil(BODY_UNIT);
    let share = bodies.acquire_many(u32::try_from(units).unwrap_or(u32::MAX));
    // The semaphore is never closed.
    tokio::time::timeout(limit, share).await.ok().map(Result::ok)
}

fn crowded(limit: Duration) -> Refusal {
    let detail = format!("other bodies left no room for this one within {} ms: try again", limit.as_millis());
    Refusal::new(ErrorCode::LimitReached, detail).status(StatusCode::SERVICE_UNAVAILABLE)
}

fn too_large(bytes_max: usize) -> Refusal {
    FrameError::too_large("body", bytes_max).into()
}

fn broke_off(error: &dyn Error) -> Refusal {
    Refusal::new(ErrorCode::BadFrame, format!("the body broke off: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_share_is_never_more_than_there_is_and_is_not_waited_for_without_end() {
        let bodies = Semaphore::new(2);
        let long = Duration::from_secs(24 * 3600);
        let all = share_of(&bodies, 1025, usize::MAX, long).await.unwrap();
        assert_eq!(all.as_ref().map(SemaphorePermit::num_permits), Some(2));
        assert!(share_of(&bodies, 1025, 1, Duration::from_millis(1)).await.is_none());
        drop(all);
        assert!(share_of(&bodies, 1025, 1, long).await.is_some());
    }
}
