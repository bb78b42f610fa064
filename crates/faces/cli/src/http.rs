//! The few HTTP requests of the command line. They block, because each command makes one or two and ends.

mod agents;
mod leading;
mod probe;

use millrace_wire::http::Problem;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::{Method, StatusCode};

pub(crate) use self::agents::ServerIdentity;
use self::leading::{Answer, Call, LeadingServer};
pub(crate) use self::probe::{Readiness, readiness};
use crate::failure::{Failure, TOKEN_WANTED};
use crate::settings::Config;

pub(crate) struct Http {
    server: LeadingServer,
    /// Requests carry neither token nor certificate. Then a refusal means that one is missing, whatever the server says.
    shows_nothing: bool,
}

impl Http {
    pub(crate) fn new(config: &Config) -> Result<Http, Failure> {
        Ok(Http {
            server: LeadingServer::new(config)?,
            shows_nothing: config.token.is_empty() && config.client_cert.is_empty(),
        })
    }

    /// Sends a request and returns the body of the response. An error response becomes a failure that quotes it. Names
    /// need no escaping in a path.
    pub(crate) fn request(&self, method: Method, path: &str, body: &str) -> Result<String, Failure> {
        let answer = self.server.exchange(&Call { method, path, body, header: None })?;
        if answer.status.is_success() { Ok(answer.body) } else { Err(self.refusal(&answer)) }
    }

    /// Creates what the body describes. Returns `None` if it exists already; then it is not changed.
    pub(crate) fn make(&self, path: &str, body: &str) -> Result<Option<String>, Failure> {
        let header = Some(("if-none-match", "*"));
        let answer = self.server.exchange(&Call { method: Method::POST, path, body, header })?;
        match answer.status {
            StatusCode::PRECONDITION_FAILED => Ok(None),
            status if status.is_success() => Ok(Some(answer.body)),
            _ => Err(self.refusal(&answer)),
        }
    }

    /// Returns all pages of a list as one document, with the elements under `name`. Other fields are those of the first
    /// page.
    pub(crate) fn list(&self, path: &str, name: &str) -> Result<Value, Failure> {
        let mut elements = Vec::new();
        let mut after = String::new();
        let mut document = None;
        loop {
            let mut page: Value = read(&self.request(Method::GET, &format!("{path}{after}"), "")?)?;
            if let Some(Value::Array(more)) = page.get_mut(name).map(Value::take) {
                elements.extend(more);
            }
            // Names need no escaping in a query either.
            match page.get("next").and_then(Value::as_str) {
                Some(next) => after = format!("?after={next}"),
                None => {
                    let mut whole = document.unwrap_or(page);
                    if let Value::Object(fields) = &mut whole {
                        fields.remove("next");
                        fields.insert(name.to_owned(), Value::Array(elements));
                    }
                    return Ok(whole);
                }
            }
            document = document.or(Some(page));
        }
    }

    fn refusal(&self, answer: &Answer) -> Failure {
        Failure::Failed(match serde_json::from_str::<Problem>(&answer.body) {
            Ok(_) if answer.status == StatusCode::UNAUTHORIZED && self.shows_nothing => TOKEN_WANTED.into(),
            Ok(problem) => format!("{} ({})", problem.detail, problem.code),
            Err(_) => format!("{} answered with status {}", answer.server.http_base(), answer.status),
        })
    }
}

pub(crate) fn read<T: DeserializeOwned>(body: &str) -> Result<T, Failure> {
    serde_json::from_str(body)
        .map_err(|error| Failure::Failed(format!("the server's answer makes no sense: {error}")))
}
