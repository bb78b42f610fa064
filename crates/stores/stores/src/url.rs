//! Store URLs name the store to open.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// `sqlite:///app.db` (relative), `sqlite:////var/lib/app.db` (absolute) or `memory:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    Memory,
    Sqlite(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    #[error("{0:?} names no file: write sqlite:///app.db (relative) or sqlite:////var/lib/app.db (absolute)")]
    NoFile(String),
    #[error("{0:?} is no store of this version: write sqlite:///FILE or memory:")]
    UnknownScheme(String),
}

impl StoreUrl {
    /// Returns the file of the store; `None` for a store that has none.
    pub fn file(&self) -> Option<&Path> {
        match self {
            StoreUrl::Memory => None,
            StoreUrl::Sqlite(path) => Some(path),
        }
    }
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<StoreUrl, StoreUrlError> {
        if text == "memory:" {
            return Ok(StoreUrl::Memory);
        }
        let Some(rest) = text.strip_prefix("sqlite:") else {
            return Err(StoreUrlError::UnknownScheme(text.to_owned()));
        };
        match rest.strip_prefix("///") {
            Some(path) if !path.is_empty() && !path.ends_with('/') => Ok(StoreUrl::Sqlite(path.into())),
            _ => Err(StoreUrlError::NoFile(text.to_owned())),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Memory => f.write_str("memory:"),
            StoreUrl::Sqlite(path) => write!(f, "sqlite:///{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_stores() {
        for (text, url) in [
            ("memory:", StoreUrl::Memory),
            ("sqlite:///app.db", StoreUrl::Sqlite("app.db".into())),
            ("sqlite:////var/lib/app.db", StoreUrl::Sqlite("/var/lib/app.db".into())),
            ("sqlite:///data/a b.db", StoreUrl::Sqlite("data/a b.db".into())),
        ] {
            assert_eq!(text.parse(), Ok(url.clone()));
            assert_eq!(url.to_string(), text);
        }
        for text in
            ["", "memory", "memory:x", "sqlite:", "sqlite://app.db", "sqlite:///", "sqlite:///dir/", "app.db"]
        {
            let error = text.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(error.contains("sqlite:///"), "{text}: {error}");
        }
    }
}
