//! Which scopes each route needs: one table. A route that is missing here is for administrators only.

use axum::http::Method;

use crate::access::Scope;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// No token: probes have none, and the description of the protocol is no secret.
    Nothing,
    /// No token needed to connect. Until it has sent AUTH a connection may do nothing else; browsers depend on that
    /// because they cannot set headers on an upgrade.
    Socket,
    /// Any token, whatever namespace it is for.
    Token,
    /// Any token, and all of these scopes.
    Scopes(&'static [Scope]),
    /// Any token with at least one of these scopes.
    AnyOf(&'static [Scope]),
}

/// Reads that `subscribe` allows. A caller with `inspect` alone gets them without content (`http/withheld.rs`), so a route
/// may name this need only if its handler withholds; `faces/cli/tests/bus/inspect.rs` walks all of them.
pub(crate) const READS: Need = Need::AnyOf(&[Scope::Subscribe, Scope::Inspect]);

/// Whether a route is about the server as a whole: it belongs to no namespace.
pub(crate) fn is_of_server(route: &str) -> bool {
    matches!(
        route,
        "/capabilities"
            | "/os/messages"
            | "/connections"
            | "/connections/{connection}"
            | "/settings"
            | "/log"
    )
}

/// Probes need no place among the connections: monitoring must get an answer while all places are taken.
pub(crate) fn is_probe(route: &str) -> bool {
    matches!(route, "/healthz" | "/readyz" | "/metrics")
}

/// The need of a route as `routes.rs` writes it; `None` for a path that matches no route.
pub(crate) fn of(method: &Method, route: Option<&str>) -> Need {
    let reads = method == Method::GET || method == Method::HEAD;
    // A path without a route: any token may learn that nothing is there.
    let Some(route) = route else { return Need::Scopes(&[]) };
    match route {
        "/healthz" | "/readyz" | "/openapi.json" | "/asyncapi.json" => Need::Nothing,
        // The files of the console say nothing about this server; what they show asks for itself.
        "/console" | "/console/" | "/console/a/{digest}/{file}" | "/console/a/{digest}/{folder}/{file}" => {
            Need::Nothing
        }
        "/whoami" | "/namespaces" => Need::Token,
        "/" | "/ws" | "/os" => Need::Socket,
        "/topics" | "/topics/{topic}" | "/topics/{topic}/groups/{group}" if !reads => {
            Need::Scopes(&[Scope::Admin])
        }
        "/topics/{topic}/events" if !reads => Need::Scopes(&[Scope::Publish]),
        "/topics"
        | "/topics/{topic}"
        | "/topics/{topic}/offsets"
        | "/topics/{topic}/schemas"
        | "/topics/{topic}/events"
        | "/topics/{topic}/tail"
        | "/events/{id}"
        | "/trace"
        | "/topics/{topic}/groups"
        | "/topics/{topic}/groups/{group}"
        | "/topics/{topic}/groups/{group}/inflight"
        | "/dead-letters"
        | "/dead-letters/{topic}/summary"
            if reads =>
        {
            READS
        }
        "/topics/{topic}/groups/{group}/pause"
        | "/topics/{topic}/groups/{group}/resume"
        | "/topics/{topic}/groups/{group}/seek" => Need::Scopes(&[Scope::Subscribe]),
        "/dead-letters/{topic}/delete" => Need::Scopes(&[Scope::Admin]),
        "/jobs" | "/jobs/{job}" if reads => READS,
        // Jobs that delete ask for `admin` besides (`http/jobs.rs`).
        "/jobs" | "/jobs/{job}" | "/dead-letters/{topic}/replay" => {
            Need::Scopes(&[Scope::Subscribe, Scope::Publish])
        }
        "/handlers" | "/handlers/{handler}/claims" | "/sessions" | "/schedules" | "/delayed" => READS,
        "/handlers/{handler}/dead-letters/replay" => Need::Scopes(&[Scope::Subscribe, Scope::Publish]),
        "/timers" => Need::Scopes(&[Scope::Os]),
        // Acts on what all sessions share.
        "/handlers/{handler}"
        | "/handlers/{handler}/dead-letters/delete"
        | "/schedules/{schedule}/run"
        | "/schedules/{schedule}/pause"
        | "/schedules/{schedule}/resume"
        | "/delayed/{entry}"
        | "/delayed/{entry}/now"
        | "/timers/{timer}" => Need::Scopes(&[Scope::Admin]),
        "/stats" | "/stats/history" | "/metrics" => Need::Scopes(&[Scope::Metrics]),
        "/capabilities" => Need::AnyOf(&[Scope::Os, Scope::Inspect]),
        "/os/messages" => Need::Scopes(&[Scope::Os]),
        "/connections" | "/connections/{connection}" | "/settings" | "/log" => Need::Scopes(&[Scope::Admin]),
        _ => Need::Scopes(&[Scope::Admin]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_in_the_table_is_for_administrators() {
        assert_eq!(of(&Method::GET, Some("/new")), Need::Scopes(&[Scope::Admin]));
        assert_eq!(of(&Method::PUT, Some("/topics/{topic}")), Need::Scopes(&[Scope::Admin]));
        assert_eq!(of(&Method::GET, None), Need::Scopes(&[]));
    }

    #[test]
    fn every_route_is_in_the_table() {
        let routes = include_str!("../routes.rs");
        let table = include_str!("needs.rs");
        let paths = routes.split(".route(\"").skip(1).filter_map(|rest| rest.split('"').next());
        for path in paths {
            assert!(table.contains(&format!("\"{path}\"")), "{path} has no entry in access/needs.rs");
        }
    }
}
