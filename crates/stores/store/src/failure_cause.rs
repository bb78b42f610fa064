//! Why a store failed: a text for people, and the error behind it for programs.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The cause of a [`crate::StoreError`]. Clones share the error. Two causes are equal if their texts are.
#[derive(Clone, Debug)]
pub struct FailureCause {
    text: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl FailureCause {
    /// Makes a cause whose text tells more than the error itself, such as the file and what to do.
    pub fn new(text: impl Into<String>, source: impl Error + Send + Sync + 'static) -> FailureCause {
        FailureCause { text: text.into(), source: Some(Arc::new(source)) }
    }

    /// Makes a cause of an error that says everything.
    pub fn of(source: impl Error + Send + Sync + 'static) -> FailureCause {
        FailureCause::new(source.to_string(), source)
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl PartialEq for FailureCause {
    fn eq(&self, other: &FailureCause) -> bool {
        self.text == other.text
    }
}

impl Eq for FailureCause {}

impl From<String> for FailureCause {
    fn from(text: String) -> FailureCause {
        FailureCause { text, source: None }
    }
}

impl From<&str> for FailureCause {
    fn from(text: &str) -> FailureCause {
        text.to_owned().into()
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}
