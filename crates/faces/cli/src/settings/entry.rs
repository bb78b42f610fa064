//! Entries of the lists of tables in the file (`[[auth.tokens]]`, `[[auth.certificates]]`, `[[capability]]`): their
//! text members, and why an entry is refused.

use millrace_model::{AccessError, NameError};
use toml::Table;

/// Most names in one list of an entry.
pub(super) const NAMES_MAX: usize = 64;
/// How the error of a wrong command goes on.
const COMMAND: &str = "give the program and its arguments, such as [\"python3\", \"greeter.py\"]";

/// Why an entry is refused. The text never contains a secret: neither a token, nor its digest, nor a value of `env`.
#[derive(Debug, thiserror::Error)]
pub(super) enum EntryError {
    #[error("it is no table")]
    NoTable,
    #[error("{key} is no setting of a {what}: there are {known}")]
    UnknownKey { key: String, what: &'static str, known: String },
    #[error("{0} must be text")]
    NoText(&'static str),
    #[error("{0} must be a list of at most {NAMES_MAX} texts")]
    NoNames(&'static str),

    #[error("agent is missing: name whom the {0} stands for")]
    NoAgent(&'static str),
    #[error("{key} is refused: {error}")]
    BadActor { key: &'static str, error: AccessError },
    #[error("namespaces is refused: {0}")]
    BadNamespace(NameError),
    #[error("name is missing: give a DNS name or URI of the certificate's subject alternative names")]
    NoCertificateName,
    #[error(
        "name is {0:?}: give a DNS name or a URI, 1 to 1024 printable ASCII characters without * or spaces"
    )]
    BadCertificateName(String),
    #[error(
        "expires is {0}: give a time such as 2027-01-31T12:00:00Z, a date such as 2027-01-31 (00:00 UTC), or whole \
         epoch milliseconds"
    )]
    BadExpiry(String),
    #[error("token is empty")]
    EmptyToken,
    #[error("token must be printable ASCII without spaces, as it is sent in a header")]
    BadToken,
    #[error("sha256 must be 64 hexadecimal digits")]
    BadDigest,
    #[error("give either token or sha256")]
    TokenOrDigest,
    #[error("{name:?} is no scope: there are {known} and * for all")]
    NoScope { name: String, known: String },
    #[error("{key} must be a whole number from {min} on")]
    BadNumber { key: &'static str, min: i64 },
    #[error("burst is given without rate: give both")]
    BurstAlone,

    #[error("name is missing: give the name its manifest says")]
    NoCapabilityName,
    #[error("name is {0:?}: it must be 1 to 100 letters, digits, dots, hyphens and underscores")]
    BadCapabilityName(String),
    #[error("restart must be true or false")]
    BadRestart,
    #[error("command is missing: {COMMAND}")]
    NoCommand,
    #[error("command is {0:?}: a quote is not closed")]
    OpenQuote(String),
    #[error("command has an entry that is no text: {COMMAND}")]
    WordIsNoText,
    #[error("command is neither text nor a list of texts: {COMMAND}")]
    BadCommand,
    #[error("command names no program: {COMMAND}")]
    NoProgram,
    #[error("env must be a table of texts, such as {{ LANG = \"C\" }}")]
    EnvIsNoTable,
    #[error("env.{0} must be text under the name of an environment variable")]
    BadVariable(String),
}

/// Reads a member that is text, if it is given.
pub(super) fn text<'a>(table: &'a Table, key: &'static str) -> Result<Option<&'a str>, EntryError> {
    let value = table.get(key);
    value.map(|value| value.as_str().ok_or(EntryError::NoText(key))).transpose()
}
