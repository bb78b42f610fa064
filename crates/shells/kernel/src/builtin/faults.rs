//! Turns refusals of the bus into faults of a message: the code, with the bus's own text.

use millrace_broker::Ended;
use millrace_bus::{BusError, ErrorCode, Reply};
use millrace_model::OsFault;
use millrace_shell::RowWriteError;
use millrace_wire as wire;

pub(crate) fn of_bus(error: &BusError) -> OsFault {
    let code = match error.code() {
        ErrorCode::Forbidden => 403,
        ErrorCode::BadTopic => 404,
        ErrorCode::FilterConflict | ErrorCode::GroupBusy => 409,
        ErrorCode::TooLarge => 413,
        ErrorCode::BadGroup | ErrorCode::BadFrame | ErrorCode::UnknownOffset | ErrorCode::SchemaMismatch => {
            422
        }
        ErrorCode::LimitReached => 429,
        ErrorCode::StorageFailed | ErrorCode::ShuttingDown => 503,
    };
    OsFault::new(code, error.to_string())
}

/// Returns the fault for a reply that is not the expected one.
pub(crate) fn of_reply(reply: &Reply) -> OsFault {
    match reply {
        Reply::Refused(error) => of_bus(error),
        other => OsFault::new(500, format!("The bus gave an answer that does not fit: {other:?}")),
    }
}

pub(crate) fn of_rows(error: &RowWriteError) -> OsFault {
    let code = match error {
        RowWriteError::Empty => 422,
        RowWriteError::NotYourRow { .. } => 403,
        RowWriteError::TooLarge { .. } => 413,
        RowWriteError::NoSpace(_) | RowWriteError::StorageFailed(_) | RowWriteError::ShuttingDown => 503,
        RowWriteError::Refused => 409,
    };
    OsFault::new(code, error.to_string())
}

pub(crate) fn of_ended(ended: Ended) -> OsFault {
    OsFault::new(503, ended.to_string())
}

/// Returns the fault for data of a message that is read like a frame or body of the bus.
pub(crate) fn of_frame(error: &wire::FrameError) -> OsFault {
    match error.code {
        wire::ErrorCode::TooLarge => OsFault::new(413, error.to_string()),
        _ => OsFault::new(422, format!("Schema validation failed: {error}")),
    }
}

/// Returns the fault for data that does not fit. The names of Rust types in serde's text are left out: they mean
/// nothing to the sender.
pub(crate) fn of_data(error: &serde_json::Error) -> OsFault {
    let text = error.to_string();
    let text = match text.split_once("expected struct ") {
        Some((before, after)) => {
            let rest = after.split_once(' ').map_or(String::new(), |(_, rest)| format!(" {rest}"));
            format!("{before}expected an object{rest}")
        }
        None => text,
    };
    OsFault::new(422, format!("Schema validation failed: {text}"))
}

pub(crate) fn json(text: &str) -> Result<String, OsFault> {
    serde_json::to_string(text).map_err(|error| OsFault::new(500, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_rust_are_not_named() {
        #[derive(Debug, serde::Deserialize)]
        struct Secret {
            _name: String,
        }
        let error = serde_json::from_str::<Secret>("7").unwrap_err();
        let said = of_data(&error).message.to_string();
        assert!(said.contains("expected an object at line 1") && !said.contains("Secret"), "{said}");
    }
}
