//! A request to whichever server of `--url` leads its store.
//!
//! A server that cannot be reached is passed over. A server that does not lead answers `moved` and may name the leader,
//! which is followed by the rule of [`ServerList::leader`]. While servers answer `moved` the lead is about to be taken,
//! so the search goes on for `--reconnect-ms`.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use millrace_client::{Endpoint, ErrorCode, ServerList, ServerRound, in_plain_words};
use millrace_wire::LEADER_HEADER;
use millrace_wire::http::Problem;
use parking_lot::Mutex;
use ureq::http::{Method, Request, StatusCode};
use ureq::{Body, Timeout};

use crate::failure::Failure;
use crate::http::agents::Agents;
use crate::settings::Config;

const BODY_BYTES_MAX: u64 = 256 << 20;
/// The pause after all servers have answered that they do not lead; they ask for as much (`Retry-After: 1`).
const SEARCH_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Call<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) body: &'a str,
    pub(super) header: Option<(&'a str, &'a str)>,
}

pub(super) struct Answer {
    pub(super) server: Endpoint,
    pub(super) status: StatusCode,
    pub(super) body: String,
    /// The header that names the leader.
    leader: Option<String>,
}

/// How a request to one server failed.
enum CallError {
    /// The server was not reached, so another one may be asked.
    NotSent(String),
    /// The server may have carried out the request, or no server would accept it.
    Final(Failure),
}

pub(super) struct LeadingServer {
    servers: ServerList,
    agents: Agents,
    /// The server that answered last, which is asked first.
    last: Mutex<Option<Endpoint>>,
    token: String,
    namespace: String,
    search_max: Duration,
}

impl LeadingServer {
    pub(super) fn new(config: &Config) -> Result<LeadingServer, Failure> {
        let servers =
            ServerList::parse(&[&config.url])?.follow(config.follow_leader, !config.token.is_empty());
        let agents = Agents::new(config);
        // Errors in the files of TLS are found before the first request.
        for server in servers.endpoints() {
            agents.agent(server)?;
        }
        Ok(LeadingServer {
            servers,
            agents,
            last: Mutex::new(None),
            token: config.token.clone(),
            namespace: config.namespace.clone(),
            search_max: Duration::from_millis(config.reconnect_ms),
        })
    }

    pub(super) fn exchange(&self, call: &Call<'_>) -> Result<Answer, Failure> {
        let started = Instant::now();
        let mut round = ServerRound::new(self.servers.clone());
        if let Some(last) = &*self.last.lock() {
            round.start_with(last);
        }
        let (mut reasons, mut moved) = (Vec::new(), false);
        loop {
            let Some(server) = round.next() else {
                let left = self.search_max.saturating_sub(started.elapsed());
                if !moved || left.is_zero() {
                    return Err(Failure::Unreachable(reasons.join("; ")));
                }
                std::thread::sleep(SEARCH_PAUSE.min(left));
                (reasons, moved) = (Vec::new(), false);
                round.restart();
                continue;
            };
            match self.send(call, &server) {
                Ok(answer) => {
                    let Some(problem) = moved_problem(&answer) else {
                        *self.last.lock() = Some(server);
                        return Ok(answer);
                    };
                    moved = true;
                    let named = answer.leader.or_else(|| problem.leader.flatten().map(String::from));
                    reasons.push(self.next_after(&server, named.as_deref(), &mut round));
                }
                Err(CallError::NotSent(reason)) => reasons.push(reason),
                Err(CallError::Final(failure)) => return Err(failure),
            }
        }
    }

    /// Notes the leader that a server has named. Returns why that server was of no use.
    fn next_after(&self, server: &Endpoint, named: Option<&str>, round: &mut ServerRound) -> String {
        let not_leading = format!("{} does not lead its store", server.http_base());
        match named.map(|named| (named, self.servers.leader(named, server))) {
            Some((_, Ok(leader))) => {
                round.start_with(&leader);
                format!("{not_leading}, {} does", leader.http_base())
            }
            Some((named, Err(refused))) => {
                tracing::warn!("{not_leading} and names {named:?}, not followed: {refused}");
                format!("{not_leading} and names {named:?}, not followed: {refused}")
            }
            None => format!("{not_leading}, and no server does right now"),
        }
    }

    fn send(&self, call: &Call<'_>, server: &Endpoint) -> Result<Answer, CallError> {
        let base = server.http_base();
        let mark = if call.path.contains('?') { '&' } else { '?' };
        let url = format!("{base}{}{mark}namespace={}", call.path, self.namespace);
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(&url)
            .header("content-type", "application/json");
        if let Some((name, value)) = call.header {
            request = request.header(name, value);
        }
        if !self.token.is_empty() {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        let usage = |error: ureq::http::Error| CallError::Final(Failure::Usage(error.to_string()));
        let request = request.body(call.body.to_owned()).map_err(usage)?;
        let may_repeat = call.method.is_safe();
        let failed = |error: &ureq::Error, reason: String| {
            if may_repeat || is_unsent(error) {
                CallError::NotSent(reason)
            } else {
                CallError::Final(Failure::Unreachable(reason))
            }
        };
        let agent = self.agents.agent(server).map_err(CallError::Final)?;
        let mut response = agent.run(request).map_err(|error| {
            failed(&error, format!("cannot reach {base}: {}", in_plain_words(error.to_string())))
        })?;
        let body = read_body(response.body_mut())
            .map_err(|error| failed(&error, format!("{base} broke off its answer: {error}")))?;
        let leader = response.headers().get(LEADER_HEADER).and_then(|leader| leader.to_str().ok());
        let (status, leader) = (response.status(), leader.map(str::to_owned));
        Ok(Answer { server: server.clone(), status, body, leader })
    }
}

fn read_body(body: &mut Body) -> Result<String, ureq::Error> {
    body.with_config().limit(BODY_BYTES_MAX).read_to_string()
}

/// Returns the problem of a server that does not lead. Such a server has not carried out the request.
fn moved_problem(answer: &Answer) -> Option<Problem> {
    if answer.status.as_u16() != ErrorCode::Moved.http_status() {
        return None;
    }
    let problem: Problem = serde_json::from_str(&answer.body).ok()?;
    (problem.code == ErrorCode::Moved.as_str()).then_some(problem)
}

/// Whether the error came before the request was sent, so that the server cannot have carried it out.
fn is_unsent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        ureq::Error::Timeout(timeout) => matches!(timeout, Timeout::Resolve | Timeout::Connect),
        ureq::Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable
        ),
        _ => false,
    }
}
