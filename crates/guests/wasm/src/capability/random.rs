//! The capability `random`: random numbers and bytes.

use super::call::{CapabilityAnswer, CapabilityCall, CapabilityError};
use super::random_source::{FILL_BYTES_MAX, RandomSource};
use super::shape::{bytes, bytes_that_fit};
use crate::codec::Generation;
use crate::value::Value;

pub(super) const OPS: &[&str] = &["next_i64", "next_u64", "fill_bytes"];

pub(super) fn call(
    source: &RandomSource,
    call: &CapabilityCall<'_>,
) -> Result<CapabilityAnswer, CapabilityError> {
    match call.op {
        // The wire has no unsigned numbers: their bits are sent as a signed one.
        "next_i64" | "next_u64" => Ok(CapabilityAnswer::Now(Value::Int(source.next_i64()))),
        "fill_bytes" => {
            let wanted = call.integer("the number of bytes must be an integer")?;
            let wanted = usize::try_from(wanted.max(0)).unwrap_or(usize::MAX);
            let max = bytes_that_fit(call.generation, call.reply_bytes_max()).min(FILL_BYTES_MAX);
            match call.generation {
                Generation::B if wanted > max => {
                    let label = call.label.to_owned();
                    Err(CapabilityError::TooManyBytes { label, count: wanted, max })
                }
                generation => Ok(CapabilityAnswer::Now(bytes(generation, source.bytes(wanted.min(max))))),
            }
        }
        _ => Err(call.unknown("random", OPS)),
    }
}
