//! Notes on the HTTP exchanges of one request: `object_store` tells neither the code that a server answered with nor
//! the `Date` of an answer, so the HTTP client (`http.rs`) writes them down here.
//!
//! The notes travel as a value of the task, because not all requests of `object_store` carry values of their caller.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::answer::{Answer, Verdict};

tokio::task_local! {
    static NOTES: ExchangeNotes;
}

/// Clones share the notes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExchangeNotes {
    noted: Arc<Mutex<Noted>>,
}

#[derive(Debug, Default)]
struct Noted {
    /// The host of the newest exchange.
    host: Option<String>,
    /// The newest failure.
    failure: Option<ExchangeFailure>,
    server_time_ms: Option<u64>,
    server_name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeFailure {
    /// The server answered, and not with what was asked for.
    Answered(Answer),
    /// No answer: the text says why.
    Broke(String),
}

impl ExchangeNotes {
    /// Runs a request whose exchanges are noted here.
    pub(crate) async fn of<F: Future>(&self, request: F) -> F::Output {
        NOTES.scope(self.clone(), request).await
    }

    /// Returns the notes of the request that is running now.
    pub(crate) fn current() -> ExchangeNotes {
        NOTES.try_with(ExchangeNotes::clone).unwrap_or_default()
    }

    pub(crate) fn begin(&self, host: Option<&str>) {
        let mut noted = self.noted.lock();
        noted.host = host.map(str::to_owned);
        (noted.server_time_ms, noted.server_name) = (None, None);
    }

    pub(crate) fn fail(&self, failure: ExchangeFailure) {
        self.noted.lock().failure = Some(failure);
    }

    pub(crate) fn answered(&self, server_time_ms: Option<u64>, server_name: Option<String>) {
        let mut noted = self.noted.lock();
        noted.server_time_ms = server_time_ms;
        noted.server_name = server_name;
    }

    pub(crate) fn host(&self) -> Option<String> {
        self.noted.lock().host.clone()
    }

    pub(crate) fn failure(&self) -> Option<ExchangeFailure> {
        self.noted.lock().failure.clone()
    }

    /// Returns whether the newest failure is one that will not get better, such as a missing bucket.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(&self.noted.lock().failure, Some(ExchangeFailure::Answered(answer)) if answer.verdict() == Verdict::Refused)
    }

    /// Returns the server's clock in its newest answer.
    pub(crate) fn server_time_ms(&self) -> Option<u64> {
        self.noted.lock().server_time_ms
    }

    /// Returns the software that the server says it is.
    pub(crate) fn server_name(&self) -> Option<String> {
        self.noted.lock().server_name.clone()
    }
}
