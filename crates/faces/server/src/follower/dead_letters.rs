//! `GET /dead-letters`, from the copy.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use crate::access::Caller;
use crate::follower::{SharedFollower, topics};
use crate::http::{dead_letters, durable_handlers};
use crate::params::Params;
use crate::refusal::Refusal;

pub(crate) async fn list(
    State(app): State<SharedFollower>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let store = app.store()?;
    if let Some(letters) = dead_letters::of_one(&app.edge, &store, &caller, &params, &headers).await? {
        app.count_damaged(letters.damaged);
        return Ok(letters.response);
    }
    let handlers = match params.text("after") {
        None => durable_handlers::letters(&app.edge, &store, &caller, &params).await?,
        Some(_) => Vec::new(),
    };
    let (topics, more) = topics::page(&app, &caller, &params, true).await?;
    dead_letters::document_of(&app.edge, &store, &topics, more, handlers).await
}
