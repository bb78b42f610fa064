//! Parameters of a request outside its body: names in the path and the query string.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::Uri;
use axum::http::request::Parts;
use millrace_model::{EventId, Group, HandlerId, NameError, Namespace, TopicKey, TopicName};
use millrace_wire::ErrorCode;

use crate::connections::ConnectionId;
use crate::http::connections::connection_id;
use crate::refusal::Refusal;

/// The query parameters of a request. If a name is given twice, the last value counts.
#[derive(Debug)]
pub(crate) struct Params(HashMap<String, String>);

impl Params {
    pub(crate) fn of(parts: &Parts) -> Result<Params, Refusal> {
        Params::of_uri(&parts.uri)
    }

    pub(crate) fn of_uri(uri: &Uri) -> Result<Params, Refusal> {
        let Query(given) = Query::try_from_uri(uri).map_err(|error| {
            Refusal::new(ErrorCode::BadFrame, format!("the query cannot be read: {error}"))
        })?;
        Ok(Params(given))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    pub(crate) fn number(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| range.contains(number));
        let (min, max) = range.into_inner();
        number.map(Some).ok_or_else(|| {
            let detail = format!("{name} is {text:.40?}: it must be a whole number from {min} to {max}");
            Refusal::new(ErrorCode::BadFrame, detail)
        })
    }

    /// Returns the most entries of a page of a list.
    pub(crate) fn list_limit(&self, list_max: usize) -> Result<usize, Refusal> {
        let list_max = list_max as u64;
        Ok(self.number("limit", 1..=list_max)?.unwrap_or(list_max) as usize)
    }

    /// Returns false if the parameter is absent or `false`, true if it is `true`; refuses anything else.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(text) => {
                let detail = format!("{name} is {text:.40?}: it must be true or false");
                Err(Refusal::new(ErrorCode::BadFrame, detail))
            }
        }
    }

    pub(crate) fn topic(&self, name: &str) -> Result<Option<TopicName>, Refusal> {
        let named = self.text(name).map(TopicName::new).transpose();
        named.map_err(|error| bad_name(ErrorCode::BadTopic, &error))
    }

    pub(crate) fn namespace(&self) -> Result<Namespace, Refusal> {
        let named = self.text("namespace").map(Namespace::new).transpose();
        Ok(named.map_err(|error| bad_name(ErrorCode::BadFrame, &error))?.unwrap_or_default())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Params, Refusal> {
        Params::of(parts)
    }
}

/// The topic named in the path, in the namespace named in the query.
#[derive(Debug)]
pub(crate) struct AtTopic {
    pub(crate) topic: TopicKey,
    pub(crate) params: Params,
}

impl<S: Send + Sync> FromRequestParts<S> for AtTopic {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<AtTopic, Refusal> {
        let params = Params::of(parts)?;
        let names = names(parts, state).await?;
        let topic = topic_key(&params, names.get("topic").map_or("", String::as_str))?;
        Ok(AtTopic { topic, params })
    }
}

/// The group and topic named in the path.
#[derive(Debug)]
pub(crate) struct AtGroup {
    pub(crate) topic: TopicKey,
    pub(crate) group: Group,
}

impl<S: Send + Sync> FromRequestParts<S> for AtGroup {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<AtGroup, Refusal> {
        let AtTopic { topic, .. } = AtTopic::from_request_parts(parts, state).await?;
        let names = names(parts, state).await?;
        let group = Group::new(names.get("group").map_or("", String::as_str))
            .map_err(|error| bad_name(ErrorCode::BadGroup, &error))?;
        Ok(AtGroup { topic, group })
    }
}

/// The job named in the path, in the namespace named in the query.
#[derive(Debug)]
pub(crate) struct AtJob {
    pub(crate) job: u64,
    pub(crate) namespace: Namespace,
}

impl<S: Send + Sync> FromRequestParts<S> for AtJob {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<AtJob, Refusal> {
        let params = Params::of(parts)?;
        let names = names(parts, state).await?;
        let text = names.get("job").map_or("", String::as_str);
        let job = text.parse().map_err(|_| {
            let detail = format!("job is {text:.40?}: it must be the number of a job");
            Refusal::new(ErrorCode::BadFrame, detail)
        })?;
        Ok(AtJob { job, namespace: params.namespace()? })
    }
}

/// The id of an event named in the path.
#[derive(Debug)]
pub(crate) struct AtEvent {
    pub(crate) id: EventId,
    pub(crate) params: Params,
}

impl<S: Send + Sync> FromRequestParts<S> for AtEvent {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<AtEvent, Refusal> {
        let params = Params::of(parts)?;
        let names = names(parts, state).await?;
        let id = EventId::parse(names.get("id").map_or("", String::as_str))
            .map_err(|error| Refusal::new(ErrorCode::BadFrame, format!("the id is refused: {error}")))?;
        Ok(AtEvent { id, params })
    }
}

/// The durable handler named in the path.
#[derive(Debug)]
pub(crate) struct AtHandler {
    pub(crate) handler: HandlerId,
    pub(crate) params: Params,
}

impl<S: Send + Sync> FromRequestParts<S> for AtHandler {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<AtHandler, Refusal> {
        let params = Params::of(parts)?;
        let names = names(parts, state).await?;
        let handler = HandlerId::new(names.get("handler").map_or("", String::as_str))
            .map_err(|error| bad_name(ErrorCode::BadFrame, &error))?;
        Ok(AtHandler { handler, params })
    }
}

/// Something that the path names by a text of its own: a schedule, a delayed event, a timer.
#[derive(Debug)]
pub(crate) struct AtNamed {
    pub(crate) name: String,
    pub(crate) namespace: Namespace,
}

impl<S: Send + Sync> FromRequestParts<S> for AtNamed {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<AtNamed, Refusal> {
        let params = Params::of(parts)?;
        // The routes with this extractor have one name in their path.
        let name = names(parts, state).await?.into_values().next().unwrap_or_default();
        Ok(AtNamed { name, namespace: params.namespace()? })
    }
}

/// The connection named in the path.
#[derive(Debug)]
pub(crate) struct AtConnection(pub(crate) ConnectionId);

impl<S: Send + Sync> FromRequestParts<S> for AtConnection {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<AtConnection, Refusal> {
        let names = names(parts, state).await?;
        connection_id(names.get("connection").map_or("", String::as_str)).map(AtConnection)
    }
}

pub(crate) fn topic_key(params: &Params, topic: &str) -> Result<TopicKey, Refusal> {
    let name = TopicName::new(topic).map_err(|error| bad_name(ErrorCode::BadTopic, &error))?;
    Ok(TopicKey::new(&params.namespace()?, &name))
}

async fn names<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<HashMap<String, String>, Refusal> {
    let Path(names) = Path::from_request_parts(parts, state)
        .await
        .map_err(|error| Refusal::new(ErrorCode::BadFrame, format!("the path cannot be read: {error}")))?;
    Ok(names)
}

fn bad_name(code: ErrorCode, error: &NameError) -> Refusal {
    Refusal::new(code, error.to_string())
}
