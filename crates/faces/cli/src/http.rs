//! The few HTTP requests of the command line. They block, because each command makes one or two and ends.

use std::path::Path;
use std::time::Duration;

use millrace_client::{Endpoint, authorities, client_identity, crypto_provider, in_plain_words};
use millrace_wire::http::Problem;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::Agent;
use ureq::http::{Method, Request, StatusCode};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::commands::client_certificate;
use crate::failure::{Failure, TOKEN_WANTED};
use crate::settings::Config;

/// The longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const BODY_BYTES_MAX: u64 = 256 << 20;

pub(crate) struct Http {
    agent: Agent,
    base: String,
    token: String,
    has_certificate: bool,
    namespace: String,
}

impl Http {
    pub(crate) fn new(config: &Config) -> Result<Http, Failure> {
        let endpoint = Endpoint::parse(&config.url)?;
        let agent = Agent::config_builder()
            .tls_config(tls_config(&endpoint, config)?)
            .http_status_as_error(false)
            .timeout_global(Some(ANSWER_MAX))
            .proxy(None)
            .build()
            .new_agent();
        Ok(Http {
            agent,
            base: endpoint.http_base(),
            token: config.token.clone(),
            has_certificate: !config.client_cert.is_empty(),
            namespace: config.namespace.clone(),
        })
    }

    /// Sends a request and returns the body of the response. An error response becomes a failure that quotes it. Names
    /// need no escaping in a path.
    pub(crate) fn request(&self, method: Method, path: &str, body: &str) -> Result<String, Failure> {
        let (status, body) = self.exchange(method, path, body)?;
        if status.is_success() { Ok(body) } else { Err(self.refusal(status, &body)) }
    }

    /// Creates what the body describes. Returns `None` if it exists already; then it is not changed.
    pub(crate) fn make(&self, path: &str, body: &str) -> Result<Option<String>, Failure> {
        match self.exchange_with(Method::POST, path, body, Some(("if-none-match", "*")))? {
            (StatusCode::PRECONDITION_FAILED, _) => Ok(None),
            (status, body) if status.is_success() => Ok(Some(body)),
            (status, body) => Err(self.refusal(status, &body)),
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

    fn exchange(&self, method: Method, path: &str, body: &str) -> Result<(StatusCode, String), Failure> {
        self.exchange_with(method, path, body, None)
    }

    fn exchange_with(
        &self,
        method: Method,
        path: &str,
        body: &str,
        header: Option<(&str, &str)>,
    ) -> Result<(StatusCode, String), Failure> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let url = format!("{}{path}{mark}namespace={}", self.base, self.namespace);
        let mut request =
            Request::builder().method(method).uri(&url).header("content-type", "application/json");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        if !self.token.is_empty() {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        let request = request.body(body.to_owned()).map_err(|error| Failure::Usage(error.to_string()))?;
        let mut response = self.agent.run(request).map_err(|error| {
            let reason = in_plain_words(error.to_string());
            Failure::Unreachable(format!("cannot reach {}: {reason}", self.base))
        })?;
        let answer =
            response.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_string().map_err(|error| {
                Failure::Unreachable(format!("{} broke off its answer: {error}", self.base))
            })?;
        Ok((response.status(), answer))
    }

    /// Returns whether requests carry neither token nor certificate. Then a refusal means that one is missing, whatever
    /// the server says.
    fn shows_nothing(&self) -> bool {
        self.token.is_empty() && !self.has_certificate
    }

    fn refusal(&self, status: StatusCode, body: &str) -> Failure {
        Failure::Failed(match serde_json::from_str::<Problem>(body) {
            Ok(_) if status == StatusCode::UNAUTHORIZED && self.shows_nothing() => TOKEN_WANTED.into(),
            Ok(problem) => format!("{} ({})", problem.detail, problem.code),
            Err(_) => format!("{} answered with status {status}", self.base),
        })
    }
}

/// Returns a TLS configuration that trusts the same authorities as the WebSocket client.
fn tls_config(endpoint: &Endpoint, config: &Config) -> Result<TlsConfig, Failure> {
    let file = (!config.tls_ca.is_empty()).then(|| Path::new(&config.tls_ca));
    // Reading the system's certificates takes a while, and is useless without TLS.
    let certs = if endpoint.tls { authorities(file)? } else { Vec::new() };
    let certs = certs.iter().map(|cert| Certificate::from_der(cert).to_owned());
    let identity = match client_certificate(config)?.filter(|_| endpoint.tls) {
        None => None,
        Some(files) => {
            // Checked here, so that the error names the wrong file.
            let (chain, _) = client_identity(&files)?;
            let chain: Vec<_> = chain.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect();
            let unusable = |error: &dyn std::fmt::Display| {
                Failure::Failed(format!("{} cannot be used: {error}", files.key.display()))
            };
            let key = std::fs::read(&files.key).map_err(|error| unusable(&error))?;
            let key = PrivateKey::from_pem(&key).map_err(|error| unusable(&error))?;
            Some(ClientCert::new_with_certs(&chain, key))
        }
    };
    Ok(TlsConfig::builder()
        .client_cert(identity)
        .root_certs(RootCerts::new_with_certs(&certs.collect::<Vec<_>>()))
        .unversioned_rustls_crypto_provider(crypto_provider())
        .build())
}

pub(crate) fn read<T: DeserializeOwned>(body: &str) -> Result<T, Failure> {
    serde_json::from_str(body)
        .map_err(|error| Failure::Failed(format!("the server's answer makes no sense: {error}")))
}
