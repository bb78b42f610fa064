//! `GET /metrics` of a server that follows: how far its copy is, and what its edges did. The figures of the bus, the
//! loop and durable handlers are the leader's, so that a sum over all servers counts nothing twice.

use axum::extract::State;
use axum::response::Response;

use crate::follower::SharedFollower;
use crate::http::metrics::{answer, write_copy, write_doubt, write_edge};
use crate::http::prometheus::Page;
use crate::http::status::Role;

pub(crate) async fn metrics(State(app): State<SharedFollower>) -> Response {
    let mut page = Page::default();
    write_copy(&mut page, Role::Follower, &app.followed.status());
    write_doubt(&mut page, &app.edge.doubt);
    page.head("counter", "moved_total", "Requests and connections answered with moved, by edge.");
    for (via, count) in app.moved.each() {
        page.labelled("moved_total", &[("via", via)], count);
    }
    page.single("counter", "events_damaged_total", "Damaged events met while reading.", app.damaged());
    page.head("gauge", "uptime_seconds", "Time since the server started.");
    page.labelled("uptime_seconds", &[], app.edge.clock.now().mono.0 as f64 / 1e3);
    write_edge(&mut page, &app.edge);
    answer(page)
}
