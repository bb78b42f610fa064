//! How a command ends when it does not end well.

use millrace_client::{ClientError, ErrorCode};

/// The server tells clients of its protocol what to send; whoever types a command needs to know which flag does it.
pub(crate) const TOKEN_WANTED: &str =
    "the server wants a token that it accepts: give --token TOKEN or set MILLRACE_TOKEN (unauthorized)";

#[derive(Debug)]
pub(crate) enum Failure {
    /// 1
    Failed(String),
    /// 2
    Usage(String),
    /// 3
    Unreachable(String),
    /// 130, with what is worth knowing about how far it came.
    Interrupted(Option<String>),
    /// Whoever read our output has seen enough, which is a success.
    PipeClosed,
    /// 1, and the output has said why.
    Reported,
    /// The exit code of a guest, and what is worth saying about it.
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

    /// The same failure, and how far it came.
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
