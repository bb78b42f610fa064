//! `GET /readyz` of a server that follows. A follower is ready while its copy follows: a balancer may send it
//! everything, because it answers history itself and says of everything else where to go.

use axum::extract::State;
use axum::response::Response;

use crate::follower::SharedFollower;
use crate::http::status::{Role, readiness};

pub(crate) async fn readyz(State(app): State<SharedFollower>) -> Response {
    readiness(&app.edge, Role::Follower, None)
}
