//! Why a benchmark could not be completed.

use millrace::SessionError;
use millrace_journal::JournalError;
use millrace_runs::{InputRefused, StartRefused};
use millrace_store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("there is no scenario {name:?}: known are {known}")]
    UnknownScenario { name: String, known: String },
    #[error("{doing}: {source}")]
    Io { doing: &'static str, source: std::io::Error },
    #[error("the server under test did not start: it printed {0:?}")]
    NotReady(String),
    #[error("the connection to the server under test broke: {0}")]
    Socket(#[from] Box<tungstenite::Error>),
    #[error("the server under test could not be asked: {0}")]
    Http(#[from] Box<ureq::Error>),
    #[error("the server under test answered with something else than expected: {0}")]
    Unexpected(String),
    #[error("the URL of the store to measure: {0}")]
    StoreUrl(String),
    #[error("the engine under test: {0}")]
    Engine(String),
    #[error("a claim took {taken} events where {expected} waited: the figures would mean something else")]
    Claim { taken: usize, expected: usize },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Session(#[from] Box<SessionError>),
    #[error("the engine of runs did not start a run of the load: {0}")]
    RunRefused(StartRefused),
    #[error("the engine of runs refused an input of the load: {0}")]
    InputRefused(#[from] InputRefused),
    #[error("interrupted")]
    Interrupted,
    /// Replaced in the report by the error of the part that failed.
    #[error("another part of the load failed")]
    Halted,
    #[error("a load thread panicked")]
    Panicked,
}

impl BenchError {
    pub(crate) fn io(doing: &'static str, source: std::io::Error) -> BenchError {
        BenchError::Io { doing, source }
    }
}

impl From<tungstenite::Error> for BenchError {
    fn from(error: tungstenite::Error) -> Self {
        BenchError::Socket(Box::new(error))
    }
}

impl From<JournalError> for BenchError {
    fn from(error: JournalError) -> Self {
        BenchError::Engine(error.to_string())
    }
}

impl From<ureq::Error> for BenchError {
    fn from(error: ureq::Error) -> Self {
        BenchError::Http(Box::new(error))
    }
}

impl From<SessionError> for BenchError {
    fn from(error: SessionError) -> Self {
        BenchError::Session(Box::new(error))
    }
}
