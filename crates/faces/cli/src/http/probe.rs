//! Asks one server whether it is ready. Shows no token, follows no leader, and waits no longer than it is told.

use std::time::Duration;

use millrace_client::{Endpoint, in_plain_words};
use millrace_wire::http::Problem;
use ureq::Agent;

use crate::failure::Failure;
use crate::http::agents::{ServerIdentity, tls_config};
use crate::settings::Config;

/// The longest answer that is read: a problem document is far shorter.
const BODY_BYTES_MAX: u64 = 64 << 10;

pub(crate) enum Readiness {
    Ready,
    /// The reason, for people.
    NotReady(String),
}

/// Asks `/readyz`. A server that cannot be reached is not ready; only files of TLS that cannot be used are a failure.
pub(crate) fn readiness(
    config: &Config,
    server: &Endpoint,
    identity: ServerIdentity,
    wait_max: Duration,
) -> Result<Readiness, Failure> {
    let base = server.http_base();
    let agent: Agent = Agent::config_builder()
        .tls_config(tls_config(server.tls, identity, config)?)
        .http_status_as_error(false)
        .timeout_global(Some(wait_max))
        .proxy(None)
        .build()
        .new_agent();
    let no_answer = |error: &ureq::Error| {
        Readiness::NotReady(match error {
            ureq::Error::Timeout(_) => format!("{base} did not answer within {} ms", wait_max.as_millis()),
            error => format!("cannot reach {base}: {}", in_plain_words(error.to_string())),
        })
    };
    let mut response = match agent.get(format!("{base}/readyz")).call() {
        Ok(response) => response,
        Err(error) => return Ok(no_answer(&error)),
    };
    let status = response.status();
    if status.is_success() {
        return Ok(Readiness::Ready);
    }
    let body = match response.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_string() {
        Ok(body) => body,
        Err(error) => return Ok(no_answer(&error)),
    };
    Ok(Readiness::NotReady(match serde_json::from_str::<Problem>(&body) {
        Ok(problem) => format!("{base} is not ready: {} ({})", problem.detail, problem.code),
        Err(_) => format!("{base} answered with status {status}: is it a Millrace server?"),
    }))
}
