//! Which scopes each way in needs: one table. What is not in it needs a token, whichever.

use axum::http::Method;

use crate::access::Scope;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Answers anybody: probes have no token.
    Nothing,
    /// Without a token the connection may only AUTH, which browsers do because they cannot set headers on an upgrade.
    Socket,
    /// Any token, and all of these scopes.
    Scopes(&'static [Scope]),
}

/// By the route as `routes.rs` writes it; `None` for a path that leads nowhere.
pub(super) fn of(method: &Method, route: Option<&str>) -> Need {
    let reads = method == Method::GET || method == Method::HEAD;
    match route.unwrap_or_default() {
        "/healthz" | "/readyz" => Need::Nothing,
        "/" | "/ws" => Need::Socket,
        "/topics" | "/topics/{topic}" if !reads => Need::Scopes(&[Scope::Admin]),
        "/topics/{topic}/events" if !reads => Need::Scopes(&[Scope::Publish]),
        "/topics"
        | "/topics/{topic}"
        | "/topics/{topic}/offsets"
        | "/topics/{topic}/events"
        | "/topics/{topic}/groups/{group}/seek"
        | "/dead-letters" => Need::Scopes(&[Scope::Subscribe]),
        "/dead-letters/{topic}/replay" => Need::Scopes(&[Scope::Subscribe, Scope::Publish]),
        "/stats" | "/metrics" => Need::Scopes(&[Scope::Metrics]),
        _ => Need::Scopes(&[]),
    }
}
