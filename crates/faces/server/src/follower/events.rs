//! `GET /topics/{topic}/events`: pages of history, from the copy.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use crate::access::Caller;
use crate::follower::SharedFollower;
use crate::follower::app::Via;
use crate::http::events::is_search;
use crate::http::page::{self, PageQuery};
use crate::http::withheld;
use crate::params::AtTopic;
use crate::refusal::Refusal;

pub(crate) async fn read(
    State(app): State<SharedFollower>,
    caller: Caller,
    at: AtTopic,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    // Searches are the leader's; answering with a plain page would leave the filter out without a word.
    if is_search(&at.params) {
        return Err(app.moved(Via::Http).refusal());
    }
    withheld::check_params(&caller, &at.params)?;
    let query = PageQuery::of(&app.edge, &at.params)?;
    let fetched = page::fetch(&app.edge, &app.store()?, caller.by(), at.topic.clone(), query).await?;
    app.count_damaged(fetched.page.damaged.len());
    Ok(fetched.for_caller(&app.edge, &caller, &at.topic).answer(&at.topic, &query, page::form(&headers)))
}
