//! Who may call from a browser: a web page must not reach a local broker by accident.
//!
//! Browsers name the page's origin on every upgrade and on every request that could do harm. An origin of this very
//! host is welcome, others only if a setting names them; those also get the CORS headers without which a browser
//! would hide the answer from them. Programs send no `Origin` and are not concerned. Which host is «this» one is said
//! in `host.rs`.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use millrace_wire::ErrorCode;

use crate::app::SharedApp;
use crate::host;
use crate::refusal::Refusal;

pub(crate) async fn check(State(app): State<SharedApp>, request: Request, next: Next) -> Response {
    if let Err(refusal) = host::check(request.headers(), app.listen.ip(), &app.settings) {
        return refusal.into_response();
    }
    let Some(origin) = request.headers().get(header::ORIGIN).cloned() else {
        return next.run(request).await;
    };
    if is_same_host(&origin, request.headers()) {
        return next.run(request).await;
    }
    if !is_allowed(&origin, &app.settings.allow_origins) {
        return refuse(&origin).into_response();
    }
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response =
        if is_preflight { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    if is_preflight {
        let methods = HeaderValue::from_static("GET, POST, PATCH, DELETE");
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        let allowed = HeaderValue::from_static("authorization, content-type, traceparent, tracestate");
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    response
}

/// The scheme does not matter: a proxy may speak TLS for us.
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
    fn allowed_origins_are_compared_whole() {
        let allowed = ["https://app.example".to_owned()];
        let check = |origin| is_allowed(&HeaderValue::from_static(origin), &allowed);
        assert!(check("https://app.example") && check("HTTPS://APP.example"));
        assert!(!check("https://app.example.evil") && !check("http://app.example") && !check("null"));
        assert!(is_allowed(&HeaderValue::from_static("null"), &["*".to_owned()]));
    }
}
