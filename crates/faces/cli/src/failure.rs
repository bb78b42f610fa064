//! How a command fails, and with which exit code.

use millrace_client::{ClientError, ErrorCode};

/// Replaces the server's message, which tells a client what to send: a user of the command line needs the name of the
/// flag.
pub(crate) const TOKEN_WANTED: &str =
    "the server wants a token that it accepts: give --token TOKEN or set MILLRACE_TOKEN (unauthorized)";

#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit code 1.
    Failed(String),
    /// Exit code 2.
    Usage(String),
    /// Exit code 3.
    Unreachable(String),
    /// Exit code 130, with a message about how far the command came.
    Interrupted(Option<String>),
    /// The reader of our output has closed it, which is a success.
    PipeClosed,
    /// Exit code 1; the output has already said why.
    Reported,
    /// The exit code of a guest, with a message if there is one.
    ExitCode(u8, Option<String>),
}

impl Failure {
    pub(crate) const USAGE: u8 = 2;

    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Failed(_) | Failure::Reported => 1,
            Failure::Usage(_) => Failure::USAGE,
            Failure::Unreachable(_) => 3,
            Failure::Interrupted(_) => 130,
            Failure::PipeClosed => 0,
            Failure::ExitCode(code, _) => *code,
        }
    }

    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Failure::Failed(message) | Failure::Usage(message) | Failure::Unreachable(message) => {
                Some(message)
            }
            Failure::Interrupted(message) | Failure::ExitCode(_, message) => message.as_deref(),
            Failure::PipeClosed | Failure::Reported => None,
        }
    }

    /// Returns the same failure with more text, such as how far the command came.
    pub(crate) fn adding(self, more: &str) -> Failure {
        let longer = |message: String| format!("{message}; {more}");
        match self {
            Failure::Failed(message) => Failure::Failed(longer(message)),
            Failure::Usage(message) => Failure::Usage(longer(message)),
            Failure::Unreachable(message) => Failure::Unreachable(longer(message)),
            Failure::Interrupted(message) => Failure::Interrupted(message.map(longer)),
            Failure::ExitCode(code, message) => Failure::ExitCode(code, message.map(longer)),
            failure @ (Failure::PipeClosed | Failure::Reported) => failure,
        }
    }

    pub(crate) fn output(error: &std::io::Error) -> Failure {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::PipeClosed,
            _ => Failure::Failed(format!("cannot write the output: {error}")),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        match error {
            ClientError::BadUrl { .. }
            | ClientError::BadAuthority { .. }
            | ClientError::BadName(_)
            | ClientError::BadId(_)
            | ClientError::BadPayload(_) => Failure::Usage(error.to_string()),
            ClientError::Refused(error) if error.code == ErrorCode::Unauthorized => {
                Failure::Failed(TOKEN_WANTED.into())
            }
            error if error.is_unreachable() => Failure::Unreachable(error.to_string()),
            error => Failure::Failed(error.to_string()),
        }
    }
}
