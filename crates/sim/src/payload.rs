//! Every event of the workload carries its own number, so that it is known again wherever it turns up.

use millrace_model::{EventBody, JsonText};

pub(crate) fn payload(number: u64) -> JsonText {
    JsonText::from_stored(format!("{{\"n\":{number}}}").into())
}

/// `None` for an event that the workload did not make.
pub(crate) fn number(body: &EventBody) -> Option<u64> {
    body.payload.as_str().strip_prefix("{\"n\":")?.strip_suffix('}')?.parse().ok()
}
