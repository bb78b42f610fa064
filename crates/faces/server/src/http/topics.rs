//! Topics: creates, lists, shows, changes and deletes them, and shows how far their groups are.

use std::cmp::Reverse;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_bus::{Reply, Request, TopicView};
use millrace_model::{TopicKey, TopicPatch};
use millrace_wire::ErrorCode;
use millrace_wire::http::{TopicBody, TopicDefaults, TopicDoc, TopicList, parse_topic_patch};

use crate::access::Caller;
use crate::app::{App, SharedApp};
use crate::body::read_text;
use crate::http::topic_figures::{AllFigures, TopicSort};
use crate::http::{damaged_name, document};
use crate::params::{AtTopic, Params};
use crate::refusal::Refusal;
use crate::to_wire;

/// Creates a topic. With `If-None-Match: *` a topic that exists is refused and keeps its settings.
pub(crate) async fn create(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let namespace = params.namespace()?;
    let body = read_text(&app.edge, body, app.edge.settings.frame_bytes_max).await?;
    let TopicBody { topic, settings } = TopicBody::parse(&body.text)?;
    let topic = TopicKey::new(&namespace, &topic);
    enforceable(&app, settings.sets_access())?;
    let only_new = headers.get(header::IF_NONE_MATCH).is_some_and(|value| value == "*");
    match app
        .request(caller.by(), Request::CreateTopic { topic, settings: settings.into(), only_new })
        .await?
    {
        Reply::Topic { created: true, topic } => shown(app.topic_defaults, StatusCode::CREATED, *topic),
        Reply::Topic { created: false, topic } => shown(app.topic_defaults, StatusCode::OK, *topic),
        other => Err(Refusal::unexpected(&other)),
    }
}

pub(crate) async fn list(
    State(app): State<SharedApp>,
    caller: Caller,
    params: Params,
) -> Result<Response, Refusal> {
    let sort = TopicSort::parse(params.text("sort"))?;
    let contains = params.text("contains").map(str::to_lowercase);
    let (found, more) = match (sort, &contains) {
        (TopicSort::Name, None) => page(&app, &caller, &params, false).await?,
        _ => all(&app, &caller, &params, contains.as_deref()).await?,
    };
    let figures = AllFigures::read(&app).await?;
    let mut rows: Vec<_> = found.into_iter().map(|view| (figures.of(&view.topic), view)).collect();
    let mut more = more;
    if sort != TopicSort::Name {
        rows.sort_by_key(|(figures, _)| Reverse(sort.weight(figures)));
    }
    let list_max = app.edge.settings.list_max;
    let limit = params.number("limit", 1..=list_max as u64)?.map_or(list_max, |limit| limit as usize);
    more |= rows.len() > limit;
    rows.truncate(limit);
    let topics = rows.into_iter().map(|(figures, view)| {
        let doc = to_wire::topic_in_list(view).map_err(|error| damaged_name(&error))?;
        Ok(TopicDoc { figures: Some(figures), ..doc })
    });
    let topics = topics.collect::<Result<Vec<_>, Refusal>>()?;
    // A list in another order than by name cannot be gone on with.
    let last = topics.last().filter(|_| more && sort == TopicSort::Name);
    let next = last.map(|last| last.topic.clone());
    Ok(document(StatusCode::OK, &TopicList { topics, next }))
}

/// Every topic behind `after` whose name contains the text, page by page; more than the server has topics there are not.
async fn all(
    app: &SharedApp,
    caller: &Caller,
    params: &Params,
    contains: Option<&str>,
) -> Result<(Vec<TopicView>, bool), Refusal> {
    let (mut after, mut found) = (params.topic("after")?, Vec::new());
    loop {
        let request = Request::ListTopics {
            namespace: params.namespace()?,
            after: after.clone(),
            max: app.edge.settings.list_max,
            dead_letters_only: false,
        };
        let (topics, more) = match app.request(caller.by_unless_admin(), request).await? {
            Reply::Topics { topics, more } => (topics, more),
            other => return Err(Refusal::unexpected(&other)),
        };
        after = topics
            .last()
            .map(|last| to_wire::topic_name(&last.topic))
            .transpose()
            .map_err(|error| damaged_name(&error))?;
        let wanted =
            |view: &TopicView| contains.is_none_or(|text| view.topic.topic().to_lowercase().contains(text));
        found.extend(topics.into_iter().filter(wanted));
        if !more || after.is_none() {
            return Ok((found, false));
        }
    }
}

/// The page of `GET /topics`.
pub(crate) fn document_of(topics: Vec<TopicView>, more: bool) -> Result<Response, Refusal> {
    let topics = topics.into_iter().map(to_wire::topic_in_list).collect::<Result<Vec<_>, _>>();
    let topics = topics.map_err(|error| damaged_name(&error))?;
    let next = topics.last().filter(|_| more).map(|last| last.topic.clone());
    Ok(document(StatusCode::OK, &TopicList { topics, next }))
}

/// Returns a page of the topics of a namespace, and whether there are more.
pub(crate) async fn page(
    app: &SharedApp,
    caller: &Caller,
    params: &Params,
    dead_letters_only: bool,
) -> Result<(Vec<TopicView>, bool), Refusal> {
    let list_max = app.edge.settings.list_max;
    let request = Request::ListTopics {
        namespace: params.namespace()?,
        after: params.topic("after")?,
        max: params.number("limit", 1..=list_max as u64)?.map_or(list_max, |limit| limit as usize),
        dead_letters_only,
    };
    match app.request(caller.by_unless_admin(), request).await? {
        Reply::Topics { topics, more } => Ok((topics, more)),
        other => Err(Refusal::unexpected(&other)),
    }
}

pub(crate) async fn show(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
) -> Result<Response, Refusal> {
    match app.request(caller.by_unless_admin(), Request::DescribeTopic { topic: at.topic }).await? {
        Reply::Topic { topic, .. } => shown(app.topic_defaults, StatusCode::OK, *topic),
        other => Err(Refusal::unexpected(&other)),
    }
}

pub(crate) async fn patch(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
    body: Body,
) -> Result<Response, Refusal> {
    let body = read_text(&app.edge, body, app.edge.settings.frame_bytes_max).await?;
    let force_schema = at.params.flag("force")?;
    let patch = TopicPatch { force_schema, ..parse_topic_patch(&body.text)? };
    enforceable(&app, patch.sets_access())?;
    match app.request(caller.by(), Request::PatchTopic { topic: at.topic, patch: patch.into() }).await? {
        Reply::Topic { topic, .. } => shown(app.topic_defaults, StatusCode::OK, *topic),
        other => Err(Refusal::unexpected(&other)),
    }
}

pub(crate) async fn delete(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
) -> Result<Response, Refusal> {
    match app.request(caller.by(), Request::DeleteTopic { topic: at.topic }).await? {
        Reply::TopicDeleted { .. } => Ok(StatusCode::NO_CONTENT.into_response()),
        other => Err(Refusal::unexpected(&other)),
    }
}

pub(crate) async fn offsets(
    State(app): State<SharedApp>,
    caller: Caller,
    at: AtTopic,
) -> Result<Response, Refusal> {
    match app.request(caller.by_unless_admin(), Request::Offsets { topic: at.topic }).await? {
        Reply::Offsets(view) => {
            Ok(document(StatusCode::OK, &to_wire::offsets(view).map_err(|error| damaged_name(&error))?))
        }
        other => Err(Refusal::unexpected(&other)),
    }
}

/// Refuses access lists on a server without tokens: a list that is never checked must not look as if it protected
/// something.
fn enforceable(app: &App, sets_access: bool) -> Result<(), Refusal> {
    if !sets_access || !app.edge.tokens.is_open() {
        return Ok(());
    }
    let detail = "publishACL, subscribeACL and groupACL need agents to check: this server has no tokens configured, so everything \
        is open and the list would have no effect";
    Err(Refusal::new(ErrorCode::BadFrame, detail))
}

/// The document of one topic, with the settings of topics that do not set their own.
pub(crate) fn shown(
    defaults: TopicDefaults,
    status: StatusCode,
    topic: TopicView,
) -> Result<Response, Refusal> {
    let topic = to_wire::topic(topic).map_err(|error| damaged_name(&error))?;
    Ok(document(status, &TopicDoc { defaults: Some(defaults), ..topic }))
}
