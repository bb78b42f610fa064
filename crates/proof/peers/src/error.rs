//! Why the comparison could not be completed.

use std::path::PathBuf;

use millrace_bench::BenchError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
    #[error("`{command}` failed: {told}. {remedy}")]
    Install { command: String, told: String, remedy: &'static str },
    #[error("{0} is not there after installing: remove the scratch folder and try again")]
    NotInstalled(PathBuf),
    #[error("{system} did not accept connections: its log is {log}")]
    NotReady { system: &'static str, log: PathBuf },
    #[error("{doing}: {source}")]
    Client { doing: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{consumer} got {got} of {wanted} events and nothing more came for {seconds} s")]
    Stalled { consumer: String, got: u64, wanted: u64, seconds: u64 },
    #[error("a load panicked")]
    Panicked,
    #[error(transparent)]
    Probe(#[from] BenchError),
    #[error("interrupted")]
    Interrupted,
}

impl PeerError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> PeerError {
        let doing = doing.into();
        move |source| PeerError::Io { doing, source }
    }

    /// Converts the errors of the client libraries, which have no type in common.
    pub(crate) fn client<E>(doing: &'static str) -> impl FnOnce(E) -> PeerError
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        move |source| PeerError::Client { doing, source: source.into() }
    }
}
