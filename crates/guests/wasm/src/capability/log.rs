//! The capability `log`: writes the lines of programs to the host's own log, under the target `millrace::guest`.

use std::fmt::Write;

use super::call::{CapabilityAnswer, CapabilityCall, CapabilityError};
use crate::value::Value;

pub(super) const OPS: &[&str] = &["emit"];

/// Longest message and longest list of fields in the log: the rest is left out.
const TEXT_BYTES_MAX: usize = 8 << 10;

pub(super) fn call(call: &CapabilityCall<'_>) -> Result<CapabilityAnswer, CapabilityError> {
    if call.op != "emit" {
        return Err(call.unknown("log", OPS));
    }
    let message = call.text_field("message", "a line must be a record {level, message, fields}")?;
    let message = one_line(message);
    let fields = one_line(&fields(call.optional("fields")));
    let level = call.optional("level").and_then(Value::as_str).unwrap_or("info").to_ascii_lowercase();
    // The log may go to a pipe that nobody reads, so the line is not written on the scheduler's thread.
    Ok(CapabilityAnswer::Stream(Box::new(move || {
        match level.as_str() {
            "trace" => tracing::trace!(target: "millrace::guest", fields, "{message}"),
            "debug" => tracing::debug!(target: "millrace::guest", fields, "{message}"),
            "warn" => tracing::warn!(target: "millrace::guest", fields, "{message}"),
            "error" => tracing::error!(target: "millrace::guest", fields, "{message}"),
            _ => tracing::info!(target: "millrace::guest", fields, "{message}"),
        }
        Value::Nil
    })))
}

/// Formats fields as `key=value` pairs. A value of generation B is a union record that holds the value itself.
fn fields(list: Option<&Value>) -> String {
    let mut text = String::new();
    for field in list.and_then(Value::as_array).unwrap_or_default() {
        let (Some(key), Some(value)) = (field.get("key"), field.get("value")) else { continue };
        let value = value.get("value").unwrap_or(value);
        let separator = if text.is_empty() { "" } else { " " };
        let key = key.as_str().unwrap_or_default();
        let _ = match value.as_str() {
            Some(value) => write!(text, "{separator}{key}={value}"),
            None => write!(text, "{separator}{key}={value}"),
        };
        if text.len() > TEXT_BYTES_MAX {
            break;
        }
    }
    text
}

/// Makes one line of a text, without control characters: a program must not be able to add lines of its own to the log,
/// nor codes that a terminal obeys.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for character in text.chars() {
        if line.len() >= TEXT_BYTES_MAX {
            line.push_str("...");
            break;
        }
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(one_line("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert_eq!(one_line(&"x".repeat(9000)).len(), TEXT_BYTES_MAX + 3);
    }

    #[test]
    fn fields_of_both_generations_are_pairs() {
        let pair = |key: &str, value| Value::record([("key", key.into()), ("value", value)]);
        let union = Value::record([("$variant", "LogInt".into()), ("value", 3.into())]);
        let list = Value::Array(vec![pair("a", "x".into()), pair("b", union), Value::Nil]);
        assert_eq!(fields(Some(&list)), "a=x b=3");
        assert_eq!(fields(None), "");
    }
}
