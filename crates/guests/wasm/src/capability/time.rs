//! The capability `time`: the scheduler's clock, the wall clock, and sleeping through the scheduler's timers.

use super::call::{CapabilityAnswer, CapabilityCall, CapabilityError};
use super::shape::done;
use crate::value::Value;

pub(super) const OPS: &[&str] = &["monotonic_now_millis", "system_now_millis", "sleep_millis"];

pub(super) fn call(call: &CapabilityCall<'_>) -> Result<CapabilityAnswer, CapabilityError> {
    let millis = |ms: u64| CapabilityAnswer::Now(Value::Int(i64::try_from(ms).unwrap_or(i64::MAX)));
    match call.op {
        "monotonic_now_millis" => Ok(millis(call.monotonic_ms)),
        "system_now_millis" => Ok(millis(call.system_ms)),
        "sleep_millis" => {
            let ms = call.integer("the time to sleep must be an integer of milliseconds")?;
            // A negative time is over already.
            let ms = u64::try_from(ms).unwrap_or(0);
            Ok(CapabilityAnswer::AfterMs(ms, done(call.generation, Ok(()))))
        }
        _ => Err(call.unknown("time", OPS)),
    }
}
