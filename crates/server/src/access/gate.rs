//! The gate before every handler of HTTP, upgrades included. What comes through carries its [`Caller`].

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use millrace_wire::ErrorCode;

use crate::access::needs::{self, Need};
use crate::access::{Caller, Peer, Scope};
use crate::app::{App, SharedApp};
use crate::observe::Asker;
use crate::params::Params;
use crate::refusal::Refusal;

const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"millrace\"");
const CHALLENGE_AGAIN: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"millrace\", error=\"invalid_token\"");

pub(crate) async fn check(State(app): State<SharedApp>, mut request: Request, next: Next) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().cloned() else {
        return Refusal::new(ErrorCode::Unauthorized, "the request came over no connection").into_response();
    };
    let mut caller = Caller { peer, grant: None };
    let passed = pass(&app, &request, &mut caller);
    // For the audit, which stands further out.
    if let (Some(asker), Some(agent)) = (Asker::current(), caller.agent()) {
        let _ = asker.agent.set(agent.to_owned());
    }
    match passed {
        Ok(()) => {
            request.extensions_mut().insert(caller.clone());
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// In the order of cost: nothing is looked up for a connection that asks too much.
fn pass(app: &App, request: &Request, caller: &mut Caller) -> Result<(), Refusal> {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let need = needs::of(request.method(), route);
    if need == Need::Nothing {
        return Ok(());
    }
    caller.charge_connection(1)?;
    if app.tokens.is_open() {
        return Ok(());
    }
    if let Some(token) = bearer(request)? {
        let grant = app.tokens.find(token).ok_or_else(|| {
            let refusal = Refusal::new(ErrorCode::Unauthorized, "the token is not accepted");
            refusal.header(header::WWW_AUTHENTICATE, CHALLENGE_AGAIN)
        })?;
        caller.grant = Some(grant);
    }
    let Some(grant) = caller.grant.as_deref() else {
        if need == Need::Socket {
            return Ok(());
        }
        let refusal = Refusal::new(ErrorCode::Unauthorized, "send a token: Authorization: Bearer TOKEN");
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
    let params = Params::of_uri(request.uri())?;
    // How the server is doing is of no namespace; what is named there is left out for those it is not for.
    if need == Need::Scopes(&[Scope::Metrics]) && params.text("namespace").is_none() {
        return Ok(());
    }
    let namespace = params.namespace()?;
    if !grant.namespaces.allows(namespace.as_str()) {
        return Err(forbidden(format!("is not for namespace {namespace}")));
    }
    Ok(())
}

/// `None` when there is no such header; any other scheme, or two headers, is a mistake worth an answer.
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
