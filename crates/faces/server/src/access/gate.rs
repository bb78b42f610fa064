//! The check before every HTTP handler, upgrades to WebSocket included. A request that passes carries its [`Caller`].

use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use millrace_wire::ErrorCode;

use crate::access::needs::{self, Need};
use crate::access::{Caller, NotAccepted, Peer, Scope};
use crate::edge::{Edge, SharedEdge};
use crate::observe::HttpRequester;
use crate::params::Params;
use crate::refusal::{Refusal, overloaded};

const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"millrace\"");
const CHALLENGE_AGAIN: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"millrace\", error=\"invalid_token\"");

const CERTIFICATE_UNKNOWN: &str = "the client certificate stands for nobody here: none of its names (DNS or URI) is in \
    auth.certificates; send a token: Authorization: Bearer TOKEN";
const CERTIFICATE_EXPIRED: &str = "the entry of the client certificate in auth.certificates has expired";

pub(crate) async fn check(State(edge): State<SharedEdge>, mut request: Request, next: Next) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().cloned() else {
        return Refusal::new(ErrorCode::Unauthorized, "the request came over no connection").into_response();
    };
    let mut caller = Caller { peer, grant: None };
    let has_body = !request.body().is_end_stream();
    let passed = pass(&edge, &request, &mut caller);
    // For `audit.rs`, whose middleware runs further out, and for code that accounts memory to the caller.
    if let Some(http_requester) = HttpRequester::current() {
        let _ = http_requester.caller.set(caller.key());
        if let Some(agent) = caller.agent() {
            let _ = http_requester.agent.set(agent.to_owned());
        }
    }
    let passed = match passed {
        Ok(needs_place) if needs_place => place(&edge, &caller, has_body).await,
        passed => passed.map(drop),
    };
    match passed {
        Ok(()) => {
            request.extensions_mut().insert(caller.clone());
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Waits for a place among the HTTP connections (`fairness/places.rs`). Probes and upgrades need none: they are
/// answered at once.
async fn place(edge: &Edge, caller: &Caller, has_body: bool) -> Result<(), Refusal> {
    let limit = Duration::from_millis(edge.settings.request_read_ms_max);
    let key = caller.key();
    match tokio::time::timeout(limit, caller.peer.place.count(&key, has_body)).await {
        Ok(counted) => Ok(counted?),
        Err(_) => Err(overloaded(format!("no place became free within {} ms: try again", limit.as_millis()))),
    }
}

/// Checks the request. Returns whether it needs a place among the HTTP connections. The cheapest check comes first: no
/// token is looked up for a connection that is above its rate.
fn pass(edge: &Edge, request: &Request, caller: &mut Caller) -> Result<bool, Refusal> {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let need = needs::of(request.method(), route);
    let needs_place = !(need == Need::Socket || route.is_some_and(needs::is_probe));
    if need == Need::Nothing {
        return Ok(needs_place);
    }
    caller.charge_connection(1)?;
    if edge.tokens.is_open() {
        return Ok(needs_place);
    }
    let mut why = "send a token: Authorization: Bearer TOKEN";
    // A token that was sent decides, even if the connection showed a certificate as well.
    if let Some(token) = bearer(request)? {
        let grant = edge.tokens.find(token).map_err(|not_accepted| {
            let refusal = Refusal::new(ErrorCode::Unauthorized, not_accepted.as_str());
            refusal.header(header::WWW_AUTHENTICATE, CHALLENGE_AGAIN)
        })?;
        caller.grant = Some(grant);
    } else if caller.peer.certificate.shown {
        match edge.tokens.find_certificate(&caller.peer.certificate) {
            Ok(grant) => caller.grant = Some(grant),
            Err(NotAccepted::Unknown) => why = CERTIFICATE_UNKNOWN,
            Err(NotAccepted::Expired) => why = CERTIFICATE_EXPIRED,
        }
    }
    let Some(grant) = caller.grant.as_deref() else {
        if need == Need::Socket {
            return Ok(needs_place);
        }
        let refusal = Refusal::new(ErrorCode::Unauthorized, why);
        return Err(refusal.header(header::WWW_AUTHENTICATE, CHALLENGE));
    };
    caller.charge_token(1)?;
    let agent = &grant.principal.agent;
    let forbidden =
        |why: String| Refusal::new(ErrorCode::Forbidden, format!("the token of agent {agent} {why}"));
    if let Need::Scopes(scopes) = need
        && let Some(missing) = scopes.iter().find(|scope| !grant.has(**scope))
    {
        return Err(forbidden(format!("has no scope {missing}")));
    }
    if let Need::AnyOf(scopes) = need
        && !scopes.iter().any(|scope| grant.has(*scope))
    {
        let names: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
        return Err(forbidden(format!("has no scope {}", names.join(" or "))));
    }
    let params = Params::of_uri(request.uri())?;
    if need == Need::Token {
        return Ok(needs_place);
    }
    // Answers about the server belong to no namespace; `http/metrics.rs` and `http/connections.rs` leave out the
    // namespaces that the token is not for.
    let is_of_server = need == Need::Scopes(&[Scope::Metrics]) || route.is_some_and(needs::is_of_server);
    if is_of_server && params.text("namespace").is_none() {
        return Ok(needs_place);
    }
    let namespace = params.namespace()?;
    if !grant.namespaces.allows(namespace.as_str()) {
        return Err(forbidden(format!("is not for namespace {namespace}")));
    }
    Ok(needs_place)
}

/// The bearer token of a request, or `None` without an `Authorization` header. Refuses any other scheme and a second
/// header.
fn bearer(request: &Request) -> Result<Option<&str>, Refusal> {
    let mut given = request.headers().get_all(header::AUTHORIZATION).iter();
    let (Some(value), second) = (given.next(), given.next()) else { return Ok(None) };
    let token = value.to_str().ok().and_then(|text| text.split_once(' '));
    match (token, second) {
        (Some((scheme, token)), None) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => {
            let refusal =
                Refusal::new(ErrorCode::Unauthorized, "send one header: Authorization: Bearer TOKEN");
            Err(refusal.header(header::WWW_AUTHENTICATE, CHALLENGE))
        }
    }
}
