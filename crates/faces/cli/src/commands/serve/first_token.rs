//! `--first-token FILE`: the token with which an administrator enters a new server. A server that others can reach needs
//! tokens, and a container or a package must start before anybody has configured one.
//!
//! The first start makes the file, every later one reads it. An existing file is never written to, and the token is
//! never shown: not in the log, not by `config print`.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use millrace_model::Actor;
use millrace_server::{NamespaceRule, Proof, Scope, TOKENS_MAX, TokenDigest, TokenSettings};

use crate::failure::Failure;
use crate::settings::Config;

/// Whom the token stands for in access lists, logs and audits.
const AGENT: &str = "admin";
const TOKEN_BYTES: usize = 32;
/// The longest token that is accepted, for files that somebody else wrote.
const FILE_BYTES_MAX: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    Start,
    /// A file that is missing now was removed: a new one would be a token that nobody asked for.
    Reload,
}

/// Adds the token of the file to those of the settings, if `--first-token` is given.
pub(super) fn add(config: &mut Config, occasion: Occasion) -> Result<(), Failure> {
    if config.first_token.is_empty() {
        return Ok(());
    }
    let file = Path::new(&config.first_token);
    let token = match (read(file), occasion) {
        (Ok(token), _) => token,
        (Err(error), Occasion::Start) if error.kind() == ErrorKind::NotFound => {
            let token = new_token();
            write_new(file, &token).map_err(|error| unusable(file, &error))?;
            tracing::info!(
                "a token for the agent {AGENT} was made and written to {}: read it there (MILLRACE_TOKEN, Authorization: Bearer, or the \
                 console asks for it), configure tokens for others, [[auth.tokens]], and keep the file secret",
                file.display()
            );
            token
        }
        (Err(error), _) => return Err(unusable(file, &error)),
    };
    let agent = Actor::new(AGENT).map_err(|error| Failure::Failed(error.to_string()))?;
    let proof = Proof::Token(TokenDigest::of(&token));
    let tokens = &mut config.server.tokens;
    // Configured by its digest, too: then the entry there decides what the token may do.
    if tokens.iter().any(|token| token.proof == proof) {
        return Ok(());
    }
    if tokens.len() >= TOKENS_MAX {
        return Err(Failure::Usage(format!(
            "first-token is one token too many beside {TOKENS_MAX} entries of auth: leave one of them out"
        )));
    }
    tokens.push(TokenSettings {
        proof,
        agent,
        roles: Vec::new(),
        scopes: Scope::ALL.to_vec(),
        namespaces: NamespaceRule::All,
        rate: None,
        expires: None,
    });
    Ok(())
}

fn unusable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("first-token is {:?}: {error}", file.display().to_string()))
}

/// Returns the token in the file.
fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    // Opening a pipe would wait for somebody who writes to it.
    if !fs::metadata(file)?.is_file() {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    let token = text.trim_ascii();
    let is_token = !token.is_empty()
        && text.len() as u64 <= FILE_BYTES_MAX
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    if is_token {
        return Ok(token.to_owned());
    }
    let what = "the file holds no token (one line of printable ASCII without spaces). It is not overwritten: name \
                another file, or remove this one and start again, which makes a new token";
    Err(std::io::Error::new(ErrorKind::InvalidData, what))
}

/// Makes the file; fails if it exists. A file that could not be written completely is removed again.
fn write_new(file: &Path, token: &str) -> std::io::Result<()> {
    let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    let written = made.write_all(format!("{token}\n").as_bytes()).and_then(|()| made.sync_all());
    if written.is_err() {
        // Whatever remains is refused by the next start, which says what to do.
        let _ = fs::remove_file(file);
    }
    written?;
    // The name must survive a power cut as the token does: clients may be given it at once.
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn new_token() -> String {
    // From the generator of the thread, which the system's own randomness seeds.
    let bytes: [u8; TOKEN_BYTES] = rand::random();
    bytes.iter().fold(String::with_capacity(2 * TOKEN_BYTES), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
