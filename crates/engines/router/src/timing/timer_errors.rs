//! Why the data of `Timer.Set` is refused, and why the row of a timer cannot be read.

use millrace_model::{JsonError, OsNameError};

use crate::timing::template::TIME_MAX;

/// Why the data of `Timer.Set` is refused. The text is part of the message of a 422, and says what to give instead.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetTimerError {
    #[error("data is {0}: give an object with delayMs or dueAt, and message")]
    NotAnObject(String),
    #[error("delayMs and dueAt are both given: give one of them")]
    TwoTimes,
    #[error("neither delayMs nor dueAt is given: give one of them")]
    NoTime,
    #[error("{name} is {found}: give a number of milliseconds from 0 to {TIME_MAX}")]
    BadTime { name: &'static str, found: String },
    #[error("durable is {0}: give true or false")]
    BadDurable(String),
    #[error("message is missing: give {{kind, type, data}}")]
    NoMessage,
    #[error("message is {0}: give {{kind, type, data}}")]
    BadMessage(String),
    #[error("message.kind is missing: give command, query or event")]
    NoKind,
    #[error("message.kind is {0}: give command, query or event")]
    BadKind(String),
    #[error("message.type is missing: give a type such as Memory.Get")]
    NoType,
    #[error("message.type is {0}: give a type such as Memory.Get")]
    TypeIsNoText(String),
    #[error("message.{0}")]
    BadType(OsNameError),
    #[error("message.data is missing: give any JSON value, null included")]
    NoData,
    #[error("message.metadata is {0}: give an object")]
    BadMetadata(String),
    #[error("message.metadata.correlation is {0}: give a string")]
    CorrelationIsNoText(String),
    #[error(transparent)]
    BadCorrelation(OsNameError),
}

/// Why no message can be built from the row of a timer. Only a row that another version or a person wrote has such a
/// fault: the timer is reported as lost.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TimerRowError {
    #[error("its kind is unknown")]
    UnknownKind,
    #[error(transparent)]
    Name(#[from] OsNameError),
    #[error(transparent)]
    Data(#[from] JsonError),
}
