//! A problem that a check reports.

use std::fmt;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    path: String,
    /// The line number, counted from one as editors do.
    line: Option<usize>,
    message: String,
}

impl Problem {
    pub(crate) fn new(path: &str, message: impl Into<String>) -> Self {
        Problem { path: path.to_owned(), line: None, message: message.into() }
    }

    pub(crate) fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Problem { path: path.to_owned(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}
