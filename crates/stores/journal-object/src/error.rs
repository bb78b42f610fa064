//! Why a journal cannot be opened. Nothing has been sent when such an error is returned.

/// The texts hold no credentials, whatever was in the URL or in the environment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectOpenError {
    /// The URL of the store is not right. The text says what would be.
    #[error("the store's URL: {0}")]
    Url(String),
    /// A setting of the environment is missing or wrong: credentials, region, account, trusted authorities.
    #[error("the store's settings: {0}")]
    Settings(String),
    /// The system gave no threads for the requests.
    #[error("the threads of the journal could not be started: {0}")]
    Threads(String),
}
