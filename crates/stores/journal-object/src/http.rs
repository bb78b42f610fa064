//! The HTTP client under `object_store`: one provider of cryptography (ring), no redirects, and notes on every exchange
//! (`notes.rs`).

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use jiff::fmt::rfc2822;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use crate::answer::Answer;
use crate::error::ObjectOpenError;
use crate::notes::{ExchangeFailure, ExchangeNotes};

/// The body of an answer that is looked at here, an error or the outcome of a deletion, is read up to this length.
/// `object_store` would read all of it.
const ERROR_BODY_BYTES_MAX: usize = 1 << 20;

/// Makes the HTTP clients of one journal.
#[derive(Clone, Debug)]
pub(crate) struct NotingConnector {
    tls: ClientConfig,
}

impl NotingConnector {
    /// Reads the authorities that the system trusts.
    pub(crate) fn new() -> Result<NotingConnector, ObjectOpenError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| ObjectOpenError::Settings(format!("TLS: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(NotingConnector { tls })
    }
}

impl HttpConnector for NotingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let is_http_allowed =
            options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let client = reqwest::Client::builder()
            .user_agent(concat!("millrace/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(self.tls.clone())
            .https_only(!is_http_allowed)
            // A redirected request would be signed for another host, and its condition may get lost.
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()
            .map_err(|error| object_store::Error::Generic { store: "HTTP", source: Box::new(error) })?;
        Ok(HttpClient::new(NotingService { client }))
    }
}

#[derive(Debug)]
struct NotingService {
    client: reqwest::Client,
}

#[async_trait]
impl HttpService for NotingService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let notes = ExchangeNotes::current();
        notes.begin(request.uri().host());
        // The outcome of each deletion of a bulk request is in the body of a success.
        let is_bulk = request.method().as_str() == "POST";
        let response = match HttpService::call(&self.client, request).await {
            Ok(response) => response,
            Err(error) => {
                notes.fail(ExchangeFailure::Broke(broken(&error)));
                return Err(error);
            }
        };
        let header = |name: &str| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        notes.answered(header("date").and_then(|date| time_ms(&date)), header("server"));
        let status = response.status();
        if status.is_success() && !is_bulk {
            return Ok(response);
        }
        let code_header = header("x-ms-error-code");
        let (parts, body) = response.into_parts();
        let body = match collected(body).await {
            Ok(body) => body,
            Err(error) => {
                notes.fail(ExchangeFailure::Broke(broken(&error)));
                return Err(error);
            }
        };
        let text = String::from_utf8_lossy(&body);
        if !status.is_success() || text.contains("<Error>") {
            let answer = Answer::new(status.as_u16(), code_header.as_deref(), &text);
            notes.fail(ExchangeFailure::Answered(answer));
        }
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

async fn collected(body: HttpResponseBody) -> Result<Bytes, HttpError> {
    let mut chunks = body.bytes_stream();
    let mut collected = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        collected.extend_from_slice(&chunk?);
        if collected.len() > ERROR_BODY_BYTES_MAX {
            let text = format!("the answer is longer than {ERROR_BODY_BYTES_MAX} bytes");
            return Err(HttpError::new(HttpErrorKind::Decode, std::io::Error::other(text)));
        }
    }
    Ok(collected.freeze())
}

/// Returns why there was no answer. The texts hold no URL: `object_store` takes it out.
fn broken(error: &HttpError) -> String {
    let what = match error.kind() {
        HttpErrorKind::Connect => "no connection",
        HttpErrorKind::Timeout => "no answer in time",
        _ => "the connection broke",
    };
    format!("{what}: {}", deepest(error))
}

/// Returns why the rest of an answer did not come, if that is what an error of `object_store` is about.
pub(crate) fn broken_body(error: &(dyn Error + 'static)) -> Option<String> {
    let mut errors = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    errors.find_map(|error| error.downcast_ref::<HttpError>()).map(broken)
}

/// Returns the text of the error at the bottom, which says what happened; those above it say during what.
pub(crate) fn deepest(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Reads a `Date` header.
fn time_ms(date: &str) -> Option<u64> {
    let time = rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_is_read() {
        assert_eq!(time_ms("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777_000));
        assert_eq!(time_ms("yesterday"), None);
    }
}
