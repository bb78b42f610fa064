//! The error codes of the protocol: a closed list, the same on WebSocket and HTTP.

use std::fmt;

macro_rules! codes {
    ($($variant:ident $text:literal $status:literal $title:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ErrorCode {
            $($variant,)*
        }

        impl ErrorCode {
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$variant,)*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $text,)*
                }
            }

            pub fn parse(text: &str) -> Option<ErrorCode> {
                match text {
                    $($text => Some(ErrorCode::$variant),)*
                    _ => None,
                }
            }

            /// Returns the status of an HTTP answer that carries this code.
            pub fn http_status(self) -> u16 {
                match self {
                    $(ErrorCode::$variant => $status,)*
                }
            }

            /// Returns the title of problems with this code: always the same text, as RFC 9457 requires.
            pub fn title(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $title,)*
                }
            }
        }
    };
}

codes! {
    BadJson "bad_json" 400 "Not valid JSON",
    BadFrame "bad_frame" 400 "Bad request",
    UnknownType "unknown_type" 400 "Unknown type of frame",
    BadTopic "bad_topic" 400 "Bad topic",
    BadGroup "bad_group" 400 "Bad group",
    Unauthorized "unauthorized" 401 "Not authorized",
    Forbidden "forbidden" 403 "Forbidden",
    RateLimited "rate_limited" 429 "Too many requests",
    TooLarge "too_large" 413 "Too large",
    UnknownOffset "unknown_offset" 400 "Unknown offset",
    FilterConflict "filter_conflict" 409 "The group has another filter",
    GroupBusy "group_busy" 409 "The group is busy",
    LimitReached "limit_reached" 429 "A limit is reached",
    SchemaMismatch "schema_mismatch" 422 "The payload does not match the topic's schema",
    StorageFailed "storage_failed" 503 "The store has failed",
    ShuttingDown "shutting_down" 503 "The server is shutting down",
    Moved "moved" 503 "Another server leads",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
