//! Checks the `Origin` header of requests from browsers: a web page must not reach a local broker by accident.
//!
//! Browsers name the page's origin on every upgrade and on every request that could do harm. The origin of this very
//! host is accepted, other origins only if a setting names them. Those also get the CORS headers without which a
//! browser would hide the response from the page. Other programs send no `Origin` and are not affected. `host.rs` says
//! which names count as this host.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use millrace_wire::ErrorCode;

use crate::edge::SharedEdge;
use crate::host;
use crate::refusal::Refusal;

/// Headers that pages of allowed origins may send.
const HEADERS: [&str; 5] =
    ["authorization", "content-type", "traceparent", "tracestate", "x-millrace-min-position"];

pub(crate) async fn check(State(edge): State<SharedEdge>, request: Request, next: Next) -> Response {
    if let Err(refusal) = host::check(request.headers(), edge.listen.ip(), &edge.settings) {
        return refusal.into_response();
    }
    let Some(origin) = request.headers().get(header::ORIGIN).cloned() else {
        return next.run(request).await;
    };
    if is_same_host(&origin, request.headers()) {
        return next.run(request).await;
    }
    if !is_allowed(&origin, &edge.settings.allow_origins) {
        return refuse(&origin).into_response();
    }
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let allowed = is_preflight.then(|| allowed_headers(request.headers()));
    let mut response =
        if is_preflight { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    // The headers that say where the next page begins, how far it is, when to retry and where: a web page sees no header
    // that is not named here.
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("millrace-next, retry-after, x-millrace-leader, x-millrace-position"),
    );
    if is_preflight {
        let methods = HeaderValue::from_static("GET, POST, PATCH, DELETE");
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        headers.insert(header::VARY, HeaderValue::from_static("origin, access-control-request-headers"));
    }
    if let Some(allowed) = allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    response
}

/// The headers that a page may send: ours, and those attributes of a CloudEvent that it asks for. Extensions may have
/// any name, so no list could hold them.
fn allowed_headers(headers: &HeaderMap) -> HeaderValue {
    let asked = headers
        .get_all(header::ACCESS_CONTROL_REQUEST_HEADERS)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let attributes = asked
        .flat_map(|names| names.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| {
            let attribute = name.strip_prefix("ce-").unwrap_or_default();
            !attribute.is_empty()
                && attribute.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        });
    let ours = HEADERS.iter().map(|name| (*name).to_owned());
    let all = ours.chain(attributes).collect::<Vec<_>>().join(", ");
    HeaderValue::from_str(&all).unwrap_or(HeaderValue::from_static("content-type"))
}

/// Compares origin and host. The scheme does not matter: a proxy may speak TLS for us.
fn is_same_host(origin: &HeaderValue, headers: &HeaderMap) -> bool {
    let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    matches!((authority, host), (Some((_, authority)), Some(host)) if authority.eq_ignore_ascii_case(host))
}

fn is_allowed(origin: &HeaderValue, allowed: &[String]) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    allowed.iter().any(|allowed| allowed == "*" || allowed.trim_end_matches('/').eq_ignore_ascii_case(origin))
}

fn refuse(origin: &HeaderValue) -> Refusal {
    let origin = origin.to_str().unwrap_or("(not text)");
    Refusal::new(
        ErrorCode::Forbidden,
        format!("origin {origin:.100?} is not this host: start the server with --allow-origin to let it in"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same_host(origin: &str, host: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        is_same_host(&HeaderValue::from_str(origin).unwrap(), &headers)
    }

    #[test]
    fn only_the_very_host_and_port_is_the_same() {
        assert!(same_host("http://127.0.0.1:7070", "127.0.0.1:7070"));
        assert!(same_host("https://Broker.example", "broker.EXAMPLE"));
        for origin in
            ["null", "http://127.0.0.1:7071", "http://evil.example", "http://127.0.0.1:7070.evil.example", ""]
        {
            assert!(!same_host(origin, "127.0.0.1:7070"), "{origin}");
        }
    }

    #[test]
    fn a_page_may_send_the_attributes_of_a_cloud_event_and_nothing_else_of_its_own() {
        let mut headers = HeaderMap::new();
        let ours = "authorization, content-type, traceparent, tracestate, x-millrace-min-position";
        assert_eq!(allowed_headers(&headers), ours);
        let asked = "content-type, CE-Id,ce-myext1, x-mine, ce-, ce-a-b, ce-a_b, *, cookie";
        headers.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static(asked));
        assert_eq!(allowed_headers(&headers), format!("{ours}, ce-id, ce-myext1").as_str());
    }

    #[test]
    fn allowed_origins_are_compared_whole() {
        let allowed = ["https://app.example".to_owned()];
        let check = |origin| is_allowed(&HeaderValue::from_static(origin), &allowed);
        assert!(check("https://app.example") && check("HTTPS://APP.example"));
        assert!(!check("https://app.example.evil") && !check("http://app.example") && !check("null"));
        assert!(is_allowed(&HeaderValue::from_static("null"), &["*".to_owned()]));
    }
}
