//! The capabilities `input` and `output`, which only generation B has.

use std::io;
use std::sync::Arc;

use super::call::{CapabilityAnswer, CapabilityCall, CapabilityError};
use super::console::{Input, Output, OutputStream};
use super::shape::{CODE_OTHER, done};
use crate::codec::Generation;
use crate::value::Value;

pub(super) const INPUT_OPS: &[&str] = &["read_line", "read_bytes", "read_bytes_op", "is_tty", "is_tty_op"];
pub(super) const OUTPUT_OPS: &[&str] =
    &["write", "write_op", "write_bytes", "write_bytes_op", "flush", "flush_op", "is_tty", "is_tty_op"];

/// The code for a stream that is closed.
const CODE_CLOSED: i32 = 2;

pub(super) fn input(
    source: &Arc<Input>,
    output: Option<&Arc<Output>>,
    call: &CapabilityCall<'_>,
) -> Result<CapabilityAnswer, CapabilityError> {
    let source = source.clone();
    let max = call.reply_bytes_max();
    match call.op {
        "read_line" => {
            // A prompt is shown only if the program may also write.
            let prompt = call.optional("prompt").and_then(Value::as_str).map(str::to_owned);
            let prompt = output.cloned().zip(prompt);
            Ok(CapabilityAnswer::Blocking(Box::new(move || {
                if let Some((output, prompt)) = prompt {
                    // The line is read even if the prompt cannot be shown.
                    let _ = output
                        .write(OutputStream::Stdout, prompt.as_bytes())
                        .and_then(|()| output.flush(OutputStream::Stdout));
                }
                read(source.read_line(max).map(|line| line.map(Value::Str)), "".into())
            })))
        }
        "read_bytes" | "read_bytes_op" => {
            let wanted = call.optional("max_bytes").and_then(Value::as_i64).unwrap_or(0);
            let wanted = usize::try_from(wanted.max(0)).unwrap_or(usize::MAX).min(max);
            Ok(CapabilityAnswer::Blocking(Box::new(move || {
                read(source.read_bytes(wanted).map(|bytes| bytes.map(Value::Bin)), Value::Bin(Vec::new()))
            })))
        }
        "is_tty" | "is_tty_op" => Ok(CapabilityAnswer::Now(source.is_tty().into())),
        _ => Err(call.unknown("input", INPUT_OPS)),
    }
}

fn read(result: io::Result<Option<Value>>, empty: Value) -> Value {
    let (ok, value, code, message) = match result {
        Ok(value) => (true, value, 0, String::new()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            (false, None, CODE_CLOSED, error.to_string())
        }
        Err(error) => (false, None, CODE_OTHER, error.to_string()),
    };
    Value::record([
        ("ok", ok.into()),
        ("found", value.is_some().into()),
        ("value", value.unwrap_or(empty)),
        ("code", code.into()),
        ("message", message.into()),
    ])
}

pub(super) fn output(
    output: &Arc<Output>,
    call: &CapabilityCall<'_>,
) -> Result<CapabilityAnswer, CapabilityError> {
    let target = OutputStream::named(call.optional("target").and_then(Value::as_str).unwrap_or("stdout"));
    let bytes = match call.op {
        "write" | "write_op" => {
            let text = call.text_field("value", "output must be a record {value, target}")?;
            Some(text.as_bytes().to_vec())
        }
        "write_bytes" | "write_bytes_op" => {
            Some(call.bytes_field("bytes", "output must be a record {bytes, target}")?)
        }
        "flush" | "flush_op" => None,
        "is_tty" | "is_tty_op" => return Ok(CapabilityAnswer::Now(output.is_tty(target).into())),
        _ => return Err(call.unknown("output", OUTPUT_OPS)),
    };
    let output = output.clone();
    Ok(CapabilityAnswer::Stream(Box::new(move || {
        let written = match bytes {
            Some(bytes) => output.write(target, &bytes),
            None => output.flush(target),
        };
        let written = written.map_err(|error| {
            let closed = error.kind() == io::ErrorKind::BrokenPipe;
            (if closed { CODE_CLOSED } else { CODE_OTHER }, error.to_string())
        });
        done(Generation::B, written)
    })))
}
