//! One request: its deadline, and what its failure means.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use millrace_journal::JournalError;
use object_store::path::Path;
use tokio::time::timeout;

use crate::answer::Verdict;
use crate::environment::ObjectEnvironment;
use crate::http::{broken_body, deepest};
use crate::notes::{ExchangeFailure, ExchangeNotes};
use crate::provider::{Provider, RequestKind};
use crate::store_url::ObjectUrl;

/// A slower line than this is taken for a broken one: a request gets this long for each MiB, beside its own deadline.
const MEBIBYTE_TIME_MAX: Duration = Duration::from_secs(2);

/// What requests need to know beside the connection itself.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub(crate) url: ObjectUrl,
    /// The host that requests go to.
    pub(crate) host: String,
    pub(crate) environment: ObjectEnvironment,
    /// The latest time that the server told in any answer; 0 = none.
    pub(crate) server_time_ms: Arc<AtomicU64>,
}

/// A request that did not succeed.
#[derive(Clone, Debug)]
pub(crate) struct RequestFailure {
    pub(crate) verdict: Verdict,
    /// The server does not speak the protocol: it says that something is not implemented, or sent a success that cannot
    /// be read, such as one without an entity tag.
    pub(crate) is_foreign: bool,
    pub(crate) text: String,
}

impl RequestContext {
    /// Runs a request, or the rest of one whose beginning has written into the same notes, with a deadline.
    pub(crate) async fn request<T, F>(
        &self,
        kind: RequestKind,
        key: &Path,
        bytes: usize,
        notes: &ExchangeNotes,
        request: F,
    ) -> Result<T, RequestFailure>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let deadline = self.deadline(bytes);
        let answered = timeout(deadline, notes.of(request)).await;
        self.server_time_ms.fetch_max(notes.server_time_ms().unwrap_or(0), Relaxed);
        let (verdict, is_foreign, text) = match answered {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => self.meaning(kind, notes, &error),
            Err(_) => (Verdict::Unknown, false, format!("no answer within {} ms", deadline.as_millis())),
        };
        let text = self.environment.redact(&self.told(kind, key, notes, &text));
        Err(RequestFailure { verdict, is_foreign, text })
    }

    /// Returns how long a request with this many bytes may take.
    pub(crate) fn deadline(&self, bytes: usize) -> Duration {
        let mebibytes = u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
        self.url.timeout.saturating_add(MEBIBYTE_TIME_MAX.saturating_mul(mebibytes))
    }

    /// Returns the verdict on a failed request, whether the server is a foreign one, and what happened.
    fn meaning(
        &self,
        kind: RequestKind,
        notes: &ExchangeNotes,
        error: &object_store::Error,
    ) -> (Verdict, bool, String) {
        match notes.failure() {
            Some(ExchangeFailure::Answered(answer)) => {
                let is_foreign = matches!(answer.status, 501 | 505);
                let text = match answer.advice(self.url.provider, kind) {
                    Some(advice) => format!("{answer}: {advice}"),
                    None => answer.to_string(),
                };
                (answer.verdict(), is_foreign, text)
            }
            Some(ExchangeFailure::Broke(text)) => (Verdict::Unknown, false, text),
            None if notes.host().is_none() => {
                let text = format!(
                    "{}; nothing was sent: look at the credentials in the environment",
                    deepest(error)
                );
                (Verdict::Refused, false, text)
            }
            None => match broken_body(error) {
                Some(text) => (Verdict::Unknown, false, text),
                None => (Verdict::Unknown, true, format!("the answer cannot be read: {}", deepest(error))),
            },
        }
    }

    fn told(&self, kind: RequestKind, key: &Path, notes: &ExchangeNotes, text: &str) -> String {
        let verb = match kind {
            RequestKind::Put => "writing",
            RequestKind::Get => "reading",
            RequestKind::List => "listing",
            RequestKind::Delete => "deleting",
        };
        let place = format!("{}://{}/{key}", self.url.provider.scheme(), self.url.bucket);
        match notes.host().filter(|host| *host != self.host) {
            Some(other) => {
                let hint = credentials_hint(self.url.provider, &self.environment);
                format!("{verb} {place}: no credentials from {other}: {text}{hint}")
            }
            None => format!("{verb} {place} at {}: {text}", self.host),
        }
    }
}

/// Returns a reminder for the usual mistake: credentials are asked of the machine because none were given.
fn credentials_hint(provider: Provider, environment: &ObjectEnvironment) -> &'static str {
    match provider {
        Provider::S3 if environment.get("AWS_ACCESS_KEY_ID").is_none() => {
            " (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, so this machine was asked for its role)"
        }
        Provider::Google if environment.get("GOOGLE_APPLICATION_CREDENTIALS").is_none() => {
            " (GOOGLE_APPLICATION_CREDENTIALS is not set, so this machine was asked for its account)"
        }
        Provider::Azure if environment.get("AZURE_STORAGE_ACCOUNT_KEY").is_none() => {
            " (AZURE_STORAGE_ACCOUNT_KEY is not set, so this machine was asked for its identity)"
        }
        _ => "",
    }
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// For requests where a missing object or an unmet condition is no answer to what was asked.
impl From<RequestFailure> for JournalError {
    fn from(failure: RequestFailure) -> JournalError {
        match failure.verdict {
            Verdict::Unknown => JournalError::Unknown(failure.text.into()),
            Verdict::Refused | Verdict::Missing | Verdict::ConditionUnmet => {
                JournalError::Refused(failure.text.into())
            }
        }
    }
}
