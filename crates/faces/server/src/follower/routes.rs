//! The routes of a server that follows: those of `routes.rs`, so that the gate asks for the same scopes. Reads that
//! the copy can answer are answered here, everything else is `moved`.

use axum::Router;
use axum::routing::{delete, get, post};

use crate::follower::app::moved;
use crate::follower::{SharedFollower, dead_letters, events, metrics, status, topics, ws};
use crate::http::{console, openapi, status::healthz};
use crate::routes::checked;

pub(crate) fn router(app: SharedFollower) -> Router {
    let routes = Router::new()
        .route("/", get(ws::root))
        .route("/ws", get(ws::upgrade))
        .route("/os", get(ws::upgrade_os))
        .route("/topics", get(topics::list).post(moved))
        .route("/topics/{topic}", get(topics::show).patch(moved).delete(moved))
        .route("/topics/{topic}/offsets", get(moved))
        .route("/topics/{topic}/schemas", get(topics::schemas))
        .route("/topics/{topic}/events", get(events::read).post(moved))
        .route("/topics/{topic}/groups", get(moved))
        .route("/topics/{topic}/tail", get(moved))
        .route("/topics/{topic}/groups/{group}", get(moved).delete(moved))
        .route("/topics/{topic}/groups/{group}/inflight", get(moved))
        .route("/topics/{topic}/groups/{group}/pause", post(moved))
        .route("/topics/{topic}/groups/{group}/resume", post(moved))
        .route("/topics/{topic}/groups/{group}/seek", post(moved))
        .route("/events/{id}", get(moved))
        .route("/trace", get(moved))
        .route("/dead-letters", get(dead_letters::list))
        .route("/dead-letters/{topic}/replay", post(moved))
        .route("/dead-letters/{topic}/summary", get(moved))
        .route("/dead-letters/{topic}/delete", post(moved))
        .route("/jobs", get(moved).post(moved))
        .route("/jobs/{job}", get(moved).delete(moved))
        .route("/handlers", get(moved))
        .route("/handlers/{handler}", delete(moved))
        .route("/handlers/{handler}/claims", get(moved))
        .route("/handlers/{handler}/dead-letters/replay", post(moved))
        .route("/handlers/{handler}/dead-letters/delete", post(moved))
        .route("/sessions", get(moved))
        .route("/schedules", get(moved))
        .route("/schedules/{schedule}/run", post(moved))
        .route("/schedules/{schedule}/pause", post(moved))
        .route("/schedules/{schedule}/resume", post(moved))
        .route("/delayed", get(moved))
        .route("/delayed/{entry}", delete(moved))
        .route("/delayed/{entry}/now", post(moved))
        .route("/timers", get(moved))
        .route("/timers/{timer}", delete(moved))
        .route("/stats", get(moved))
        .route("/stats/history", get(moved))
        .route("/whoami", get(moved))
        .route("/namespaces", get(moved))
        .route("/capabilities", get(moved))
        .route("/os/messages", post(moved))
        .route("/connections", get(moved))
        .route("/connections/{connection}", delete(moved))
        .route("/settings", get(moved))
        .route("/log", get(moved))
        .route("/metrics", get(metrics::metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(status::readyz))
        .route("/openapi.json", get(openapi::openapi))
        .route("/asyncapi.json", get(openapi::asyncapi))
        .route("/console", get(console::slash::<SharedFollower>))
        .route("/console/", get(console::page::<SharedFollower>))
        .route("/console/a/{digest}/{file}", get(console::file::<SharedFollower>))
        .route("/console/a/{digest}/{folder}/{file}", get(console::file::<SharedFollower>));
    checked(routes, app.edge.clone(), app)
}

/// The routes of the separate listener for probes.
pub(crate) fn probes(app: SharedFollower) -> Router {
    let routes = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(status::readyz));
    checked(routes, app.edge.clone(), app)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Paths and methods, as the source of a router writes them.
    fn routes(source: &str) -> BTreeSet<(&str, &str)> {
        let source = source.split("#[cfg(test)]").next().unwrap();
        let mut found = BTreeSet::new();
        for line in source.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")) {
            let (path, handlers) = line.split_once('"').unwrap();
            for method in ["get", "post", "patch", "delete", "put"] {
                if handlers.contains(&format!("{method}(")) {
                    found.insert((path, method));
                }
            }
        }
        found
    }

    #[test]
    fn a_follower_has_the_routes_of_a_leader() {
        let (leader, follower) = (routes(include_str!("../routes.rs")), routes(include_str!("routes.rs")));
        assert!(leader.len() > 15, "{leader:?}");
        assert_eq!(follower, leader);
    }
}
