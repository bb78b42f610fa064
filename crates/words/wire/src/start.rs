//! The position at which a group begins to read.

use millrace_model::{Offset, Timestamp};

use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, INTEGER_MAX, needed};
use crate::text::{push_display, push_member};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFrom {
    Latest,
    Earliest,
    Offset(Offset),
    Timestamp(Timestamp),
}

impl StartFrom {
    /// Reads `from` of a document with its `reset`; `None` if it is absent.
    pub(crate) fn read(fields: &FrameFields<'_>) -> Result<Option<(StartFrom, bool)>, FrameError> {
        let Some(raw) = fields.get(Field::From) else {
            return Ok(None);
        };
        let from = FrameFields::of_field(Field::From, raw)?;
        StartFrom::read_inside(&from).map(Some).map_err(|error| error.inside("from"))
    }

    fn read_inside(from: &FrameFields<'_>) -> Result<(StartFrom, bool), FrameError> {
        let kind = needed(Field::Kind, from.text(Field::Kind)?)?;
        let value = || needed(Field::Value, from.integer(Field::Value, 0..=INTEGER_MAX)?);
        let start = match kind.as_ref() {
            "latest" => StartFrom::Latest,
            "earliest" => StartFrom::Earliest,
            "offset" => StartFrom::Offset(Offset(value()?)),
            "timestamp" => StartFrom::Timestamp(Timestamp(value()?)),
            _ => {
                return Err(from.get(Field::Kind).map_or_else(
                    || FrameError::missing(Field::Kind),
                    |raw| FrameError::wrong(Field::Kind, raw),
                ));
            }
        };
        Ok((start, from.flag(Field::Reset)?))
    }

    pub(crate) fn push(self, reset: bool, out: &mut String) {
        out.push_str("{\"kind\":");
        match self {
            StartFrom::Latest => out.push_str("\"latest\""),
            StartFrom::Earliest => out.push_str("\"earliest\""),
            StartFrom::Offset(offset) => push_display(out, format_args!("\"offset\",\"value\":{offset}")),
            StartFrom::Timestamp(ts) => push_display(out, format_args!("\"timestamp\",\"value\":{}", ts.0)),
        }
        if reset {
            push_member(out, "reset", true);
        }
        out.push('}');
    }
}
