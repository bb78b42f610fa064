//! Sorts errors of the driver and of the engine by what the caller has to do next.
//!
//! The rule: an error is `Unknown` unless it is certain that the request did nothing and that repeating it cannot help.

use std::error::Error as _;

use millrace_journal::JournalError;
use mongodb::error::{Error, ErrorKind, WriteFailure};

pub(crate) const DUPLICATE_KEY: i32 = 11000;
pub(crate) const COMMAND_NOT_FOUND: i32 = 59;
pub(crate) const NAMESPACE_EXISTS: i32 = 48;
const UNAUTHORIZED: i32 = 13;

/// Codes with which the engine answers that it does not allow or does not understand the request.
const REFUSED_CODES: &[i32] = &[
    2,  // BadValue
    9,  // FailedToParse
    14, // TypeMismatch
    UNAUTHORIZED,
    18, // AuthenticationFailed
    20, // IllegalOperation
    COMMAND_NOT_FOUND,
    72,    // InvalidOptions
    73,    // InvalidNamespace
    115,   // CommandNotSupported
    121,   // DocumentValidationFailure: somebody gave a collection a validator
    123,   // NotAReplicaSet
    148,   // ReadConcernMajorityNotEnabled
    166,   // CommandNotSupportedOnView
    10334, // BSONObjectTooLarge
];

/// Codes behind a failed authentication that mean a wrong or missing user. Others, such as a server that shuts down
/// during the exchange, pass.
const AUTHENTICATION_CODES: &[i32] = &[
    11, // UserNotFound
    UNAUTHORIZED,
    18,   // AuthenticationFailed
    334,  // MechanismUnavailable
    8000, // AtlasError: hosted MongoDB answers «bad auth» with it
];

/// Why a request did not succeed.
#[derive(Debug)]
pub(crate) enum RequestError {
    Driver(Error),
    /// Decided by this crate.
    Decided(JournalError),
}

impl From<Error> for RequestError {
    fn from(error: Error) -> RequestError {
        RequestError::Driver(error)
    }
}

impl From<mongodb::bson::error::Error> for RequestError {
    fn from(error: mongodb::bson::error::Error) -> RequestError {
        RequestError::Driver(error.into())
    }
}

impl RequestError {
    pub(crate) fn refused(text: impl Into<String>) -> RequestError {
        RequestError::Decided(JournalError::Refused(text.into().into()))
    }

    /// Returns the code with which the engine answered, if it did answer and did nothing.
    pub(crate) fn code(&self) -> Option<i32> {
        match self {
            RequestError::Driver(error) => code(error),
            RequestError::Decided(_) => None,
        }
    }

    /// Makes the error of the port. `clean` takes secrets out of texts, `doing` names the request.
    pub(crate) fn into_journal_error(self, doing: &str, clean: impl Fn(String) -> String) -> JournalError {
        let error = match self {
            RequestError::Decided(decided) => return decided,
            RequestError::Driver(error) => error,
        };
        let text = clean(format!("{doing}: {}", describe(&error)));
        match meaning(&error) {
            Meaning::Unknown => JournalError::Unknown(text.into()),
            Meaning::Refused => JournalError::Refused(text.into()),
            Meaning::TooOld => JournalError::Unfit(format!("{text}; MongoDB 4.4 or newer is needed")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Unknown,
    Refused,
    /// The engine is older than any that the driver speaks with.
    TooOld,
}

fn meaning(error: &Error) -> Meaning {
    match error.kind.as_ref() {
        ErrorKind::Authentication { .. } => match source(error).and_then(code) {
            Some(code) if !AUTHENTICATION_CODES.contains(&code) => Meaning::Unknown,
            _ => Meaning::Refused,
        },
        ErrorKind::InvalidArgument { .. } | ErrorKind::InvalidTlsConfig { .. } => Meaning::Refused,
        ErrorKind::IncompatibleServer { .. } => Meaning::TooOld,
        // The driver has no kind of its own for this. `tests/answers.rs` notices if its text changes.
        ErrorKind::ServerSelection { message, .. } if message.contains("reports wire version") => {
            Meaning::TooOld
        }
        _ => match code(error) {
            Some(code) if REFUSED_CODES.contains(&code) => Meaning::Refused,
            _ => Meaning::Unknown,
        },
    }
}

/// Returns the code of an answer that says that nothing was done. A write concern error has none here: the write was
/// done, and only its confirmation is missing.
fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        _ => None,
    }
}

fn source(error: &Error) -> Option<&Error> {
    let source = error.source()?;
    source.downcast_ref::<Error>().or_else(|| source.downcast_ref::<Box<Error>>().map(Box::as_ref))
}

/// Returns a line for people. The driver's own texts hold whole answers of the engine in debug notation.
fn describe(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(command) if command.code == UNAUTHORIZED => {
            format!("{} (code 13); the user needs the role readWrite on this database", command.message)
        }
        ErrorKind::Command(command) => format!("{} (code {})", command.message, command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => {
            format!("{} (code {})", write.message, write.code)
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => {
            format!("written, but not confirmed by a majority: {} (code {})", concern.message, concern.code)
        }
        ErrorKind::ServerSelection { message, .. } => without_details(message),
        kind => kind.to_string(),
    }
}

/// Takes out what the driver adds to each error of a server in debug notation. The labels among it come in another order
/// each time, so the same trouble would look new in every line of a log.
fn without_details(message: &str) -> String {
    const START: &str = ", labels: {";
    const END: &str = "server response: None";
    let mut text = String::new();
    let mut rest = message;
    while let Some((before, details)) = rest.split_once(START) {
        let Some((_, after)) = details.split_once(END) else { break };
        text.push_str(before);
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{deserialize_from_document, doc};
    use mongodb::error::{CommandError, WriteConcernError, WriteError};

    use super::*;

    fn command(code: i32) -> Error {
        let error: CommandError =
            deserialize_from_document(doc! { "code": code, "codeName": "Name", "errmsg": "text" }).unwrap();
        ErrorKind::Command(error).into()
    }

    fn write(code: i32) -> Error {
        let error: WriteError = deserialize_from_document(doc! { "code": code, "errmsg": "text" }).unwrap();
        ErrorKind::Write(WriteFailure::WriteError(error)).into()
    }

    fn write_concern(code: i32) -> Error {
        let error: WriteConcernError =
            deserialize_from_document(doc! { "code": code, "codeName": "Name", "errmsg": "text" }).unwrap();
        ErrorKind::Write(WriteFailure::WriteConcernError(error)).into()
    }

    #[test]
    fn missing_rights_are_refused() {
        for code in [13, 18] {
            assert_eq!(meaning(&command(code)), Meaning::Refused, "{code}");
            assert_eq!(meaning(&write(code)), Meaning::Refused, "{code}");
        }
        let error = RequestError::Driver(command(13)).into_journal_error("placing record 1", |text| text);
        let JournalError::Refused(cause) = error else { panic!("{error:?}") };
        assert!(cause.text().contains("placing record 1: text (code 13)"), "{cause}");
        assert!(cause.text().contains("readWrite"), "{cause}");
    }

    #[test]
    fn failovers_and_timeouts_leave_the_outcome_unknown() {
        // NotWritablePrimary, NotPrimaryNoSecondaryOk, PrimarySteppedDown, InterruptedDueToReplStateChange,
        // InterruptedAtShutdown, ShutdownInProgress, MaxTimeMSExpired, WriteConflict, OutOfDiskSpace.
        for code in [10107, 13435, 189, 11602, 11600, 91, 50, 112, 14031] {
            assert_eq!(meaning(&command(code)), Meaning::Unknown, "{code}");
        }
        let io: Error = std::io::Error::from(std::io::ErrorKind::ConnectionReset).into();
        assert_eq!(meaning(&io), Meaning::Unknown);
    }

    #[test]
    fn a_write_without_its_confirmation_is_unknown_whatever_the_code() {
        for code in [64, 91, 13, DUPLICATE_KEY] {
            let error = write_concern(code);
            assert_eq!(meaning(&error), Meaning::Unknown, "{code}");
            assert_eq!(RequestError::Driver(error).code(), None, "{code}");
        }
        assert_eq!(RequestError::Driver(write(DUPLICATE_KEY)).code(), Some(DUPLICATE_KEY));
    }

    #[test]
    fn the_text_about_unreachable_servers_is_the_same_each_time() {
        let server = |address: &str, labels: &str| {
            format!(
                "{{ {address}, Error: refused, labels: {{{labels}}}, source: None, server response: None }}"
            )
        };
        let message = format!("No servers: [ {}, {} ]", server("a", "\"X\", \"Y\""), server("b", ""));
        assert_eq!(without_details(&message), "No servers: [ { a, Error: refused }, { b, Error: refused } ]");
        assert_eq!(without_details("nothing to cut, labels: {"), "nothing to cut, labels: {");
    }

    #[test]
    fn a_text_with_a_secret_is_not_passed_on() {
        let hide = |_: String| "hidden".to_owned();
        let error = RequestError::Driver(command(1)).into_journal_error("reading", hide);
        assert_eq!(error, JournalError::Unknown("hidden".into()));
    }
}
