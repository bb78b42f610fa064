//! The collector of traces: the requests that bring spans to it, over HTTP or HTTPS.

use std::time::Duration;

use millrace_client::{authorities, crypto_provider};
use millrace_telemetry::{Exporter, SendBatch, SendError};
use ureq::Agent;
use ureq::http::{HeaderName, HeaderValue};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::failure::Failure;
use crate::settings::Config;

/// The longest time that one request may take; spans wait or are dropped meanwhile.
const REQUEST_MAX: Duration = Duration::from_secs(5);
const PATH: &str = "/v1/traces";

/// Starts to export if a collector is configured.
pub(super) fn exporter(config: &Config) -> Result<Option<Exporter>, Failure> {
    if config.otlp.endpoint.is_empty() {
        return Ok(None);
    }
    let url = format!("{}{PATH}", config.otlp.endpoint.trim_end_matches('/'));
    let headers = headers(&config.otlp.headers)?;
    let agent = agent(url.starts_with("https://"))?;
    let send: SendBatch = Box::new(move |batch| {
        let mut request = agent.post(&url).header("content-type", "application/x-protobuf");
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        match request.send(batch) {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(SendError(format!("{url} answers {}", answer.status()))),
            Err(error) => Err(SendError(format!("{url}: {error}"))),
        }
    });
    let started = Exporter::start(config.otlp.service_name.clone(), send);
    started.map(Some).map_err(|error| Failure::Failed(format!("cannot start to export traces: {error}")))
}

fn agent(has_tls: bool) -> Result<Agent, Failure> {
    // Reading the system's certificates takes a while, and is useless without TLS.
    let certs = if has_tls { authorities(None)? } else { Vec::new() };
    let certs: Vec<_> = certs.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certs))
        .unversioned_rustls_crypto_provider(crypto_provider())
        .build();
    let agent = Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .timeout_global(Some(REQUEST_MAX))
        .max_redirects(0)
        .proxy(None)
        .build();
    Ok(agent.new_agent())
}

/// Reads `name=value,name=value`. The refusal does not quote them: they are secrets.
fn headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, Failure> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let mut value = HeaderValue::try_from(unescaped(value.trim())?).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::try_from(name.trim()).ok()?, value))
    };
    let refusal = "otlp-headers must be name=value, with commas between them; other characters as %XX";
    pairs.map(|pair| header(pair).ok_or_else(|| Failure::Usage(refusal.to_owned()))).collect()
}

/// Replaces `%XX`, as OpenTelemetry's variable has it.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, more)) = rest.split_first() {
        rest = more;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let (hex, more) = rest.split_at_checked(2)?;
        out.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
        rest = more;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_opentelemetry_writes_them() {
        let found = headers("api-key=a%20b, x-tenant=mill=1,").unwrap_or_default();
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(found, [("api-key", b"a b".as_slice()), ("x-tenant", b"mill=1")]);
        assert!(headers("").is_ok_and(|found| found.is_empty()));
    }

    #[test]
    fn a_refusal_of_headers_does_not_quote_them() {
        for text in ["hush", "key=hu%zzsh", "k y=hush", "key=hush%0a", "key=hush%"] {
            match headers(text) {
                Err(Failure::Usage(why)) => assert!(!why.contains("hush"), "{why}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
