//! Store URLs name the store to open.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// `sqlite:///app.db` (relative), `sqlite:////var/lib/app.db` (absolute), `memory:`, or a store that several servers
/// share: `postgres://…`, `s3://bucket/prefix`, `mongodb://…`, `dir:///folder`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    Memory,
    Sqlite(PathBuf),
    Shared(SharedUrl),
}

/// The address of a shared store. The address may contain a password, so it is only shown without.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedUrl {
    engine: Engine,
    text: String,
}

/// The kind of engine that holds the journal of a shared store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A folder that several machines see, or that several processes of one machine share.
    Directory,
    Postgres,
    /// S3, Google Cloud Storage or Azure Blob Storage.
    Object,
    Mongo,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    #[error("{0:?} names no file: write sqlite:///app.db (relative) or sqlite:////var/lib/app.db (absolute)")]
    NoFile(String),
    #[error(
        "{0:?} is no store of this version: write sqlite:///FILE, memory:, postgres://…, s3://BUCKET/PREFIX, \
         mongodb://… or dir:///FOLDER"
    )]
    UnknownScheme(String),
    #[error("{0:?} names no folder: write dir:///data (relative) or dir:////mnt/data (absolute)")]
    NoFolder(String),
}

const SCHEMES: [(&str, Engine); 8] = [
    ("postgres://", Engine::Postgres),
    ("postgresql://", Engine::Postgres),
    ("s3://", Engine::Object),
    ("gs://", Engine::Object),
    ("az://", Engine::Object),
    ("azure://", Engine::Object),
    ("mongodb://", Engine::Mongo),
    ("mongodb+srv://", Engine::Mongo),
];

impl StoreUrl {
    /// Returns the file of the store; `None` for a store that has none.
    pub fn file(&self) -> Option<&Path> {
        match self {
            StoreUrl::Memory | StoreUrl::Shared(_) => None,
            StoreUrl::Sqlite(path) => Some(path),
        }
    }
}

impl SharedUrl {
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Returns the whole address, with its secrets: for the engine only.
    pub(crate) fn secret_text(&self) -> &str {
        &self.text
    }
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<StoreUrl, StoreUrlError> {
        if text == "memory:" {
            return Ok(StoreUrl::Memory);
        }
        if let Some((_, engine)) = SCHEMES.iter().find(|(scheme, _)| text.starts_with(scheme)) {
            return Ok(StoreUrl::Shared(SharedUrl { engine: *engine, text: text.to_owned() }));
        }
        if let Some(rest) = text.strip_prefix("dir:") {
            return match rest.strip_prefix("///") {
                Some(path) if !path.is_empty() => {
                    Ok(StoreUrl::Shared(SharedUrl { engine: Engine::Directory, text: text.to_owned() }))
                }
                _ => Err(StoreUrlError::NoFolder(text.to_owned())),
            };
        }
        let Some(rest) = text.strip_prefix("sqlite:") else {
            return Err(StoreUrlError::UnknownScheme(without_secrets(text)));
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
            StoreUrl::Shared(url) => url.fmt(f),
        }
    }
}

impl fmt::Display for SharedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_secrets(&self.text))
    }
}

impl fmt::Debug for SharedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedUrl({self})")
    }
}

/// Returns the address of a store without its password, and without the parts of its query where drivers also accept
/// secrets. A misspelt address is shown without everything that may be a password.
pub fn without_secrets(text: &str) -> String {
    if ["sqlite:", "memory:", "dir:"].iter().any(|scheme| text.starts_with(scheme)) {
        return text.to_owned();
    }
    let (text, query) = text.split_once(['?', '#']).unwrap_or((text, ""));
    let named: Vec<&str> = query.split('&').filter(|pair| is_place(pair)).collect();
    let query = if named.is_empty() { String::new() } else { format!("?{}", named.join("&")) };
    format!("{}{query}", without_password(text))
}

/// Returns whether a pair of a query says which store is meant, as opposed to how it is reached.
fn is_place(pair: &str) -> bool {
    ["schema=", "endpoint="].iter().any(|name| pair.starts_with(name)) && !pair.contains('@')
}

fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        // No address of ours: whatever stands before an `@` may be a user and a password.
        let Some((before, host)) = text.rsplit_once('@') else { return text.to_owned() };
        let scheme = before.split([':', '/']).next().unwrap_or_default();
        return format!("{scheme}:…@{host}");
    };
    // The last `@`, because a password may hold others, and a `/` that nobody has escaped.
    let Some((user, place)) = rest.rsplit_once('@') else { return text.to_owned() };
    let user = user.split([':', '/']).next().unwrap_or_default();
    format!("{scheme}://{user}@{place}")
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

    #[test]
    fn addresses_of_shared_stores_show_no_secret() {
        for (text, engine, shown) in [
            ("postgres://ann:pw@db:5432/app?password=pw", Engine::Postgres, "postgres://ann@db:5432/app"),
            ("postgresql://db/app", Engine::Postgres, "postgresql://db/app"),
            (
                "postgres://ann:p/w@db/app?schema=one&x=1",
                Engine::Postgres,
                "postgres://ann@db/app?schema=one",
            ),
            ("s3://bucket/a/b?region=x", Engine::Object, "s3://bucket/a/b"),
            ("s3://b/a?x=1&endpoint=http://h:1", Engine::Object, "s3://b/a?endpoint=http://h:1"),
            ("s3://b/a?endpoint=http://u:p@h:1", Engine::Object, "s3://b/a"),
            ("mongodb://u:p%40@one,two/app", Engine::Mongo, "mongodb://u@one,two/app"),
            ("mongodb+srv://u:p@cluster", Engine::Mongo, "mongodb+srv://u@cluster"),
            ("dir:////mnt/data", Engine::Directory, "dir:////mnt/data"),
        ] {
            let Ok(StoreUrl::Shared(url)) = text.parse() else { panic!("{text}") };
            assert_eq!((url.engine(), url.to_string().as_str()), (engine, shown));
            assert_eq!(format!("{url:?}"), format!("SharedUrl({shown})"));
            assert_eq!(url.secret_text(), text);
        }
        assert!("dir://".parse::<StoreUrl>().is_err());
        for misspelt in
            ["redis://u:pw@host/0", "Postgres://u:pw@h/x", "postgres:/u:pw@h/x", "postgres//u:pw@h/x?a=pw"]
        {
            let error = misspelt.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(!error.contains("pw"), "{error}");
        }
    }
}
