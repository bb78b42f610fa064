//! The records that both generations use for success and failure.

use super::folder::{FsError, FsErrorKind};
use crate::codec::Generation;
use crate::value::Value;

/// The code of failures that have no code of their own.
pub(super) const CODE_OTHER: i32 = 1;

/// The result of an operation without a value: `{ok}` or `{ok, code, message}` in A, always all three in B.
pub(super) fn done(generation: Generation, result: Result<(), (i32, String)>) -> Value {
    match (generation, result) {
        (Generation::A, Ok(())) => Value::record([("ok", true.into())]),
        (_, result) => {
            let ok = result.is_ok();
            let (code, message) = result.err().unwrap_or_default();
            Value::record([("ok", ok.into()), ("code", code.into()), ("message", message.into())])
        }
    }
}

/// The result of an operation on files; `empty` is the value that B sends beside an error.
pub(super) fn fs_result(generation: Generation, result: Result<Value, FsError>, empty: Value) -> Value {
    match (generation, result) {
        (Generation::A, Ok(value)) if value.is_nil() => Value::record([("ok", true.into())]),
        (Generation::A, Ok(value)) => Value::record([("ok", true.into()), ("value", value)]),
        (Generation::A, Err(error)) => done(generation, Err((error.code, error.message))),
        (Generation::B, result) => {
            let ok = result.is_ok();
            let (value, kind, code, message) = match result {
                Ok(value) if value.is_nil() => (empty, FsErrorKind::Other, 0, String::new()),
                Ok(value) => (value, FsErrorKind::Other, 0, String::new()),
                Err(error) => (empty, error.kind, error.code, error.message),
            };
            Value::record([
                ("ok", ok.into()),
                ("value", value),
                ("error_kind", kind.as_str().into()),
                ("error_code", code.into()),
                ("error_message", message.into()),
            ])
        }
    }
}

/// Bytes as the generation sends them to a module.
pub(super) fn bytes(generation: Generation, bytes: Vec<u8>) -> Value {
    match generation {
        Generation::A => Value::Array(bytes.into_iter().map(|byte| Value::Int(byte.into())).collect()),
        Generation::B => Value::Bin(bytes),
    }
}

/// How many bytes fit a reply of this size: an array of integers takes up to two bytes for each.
pub(super) fn bytes_that_fit(generation: Generation, reply_bytes_max: usize) -> usize {
    match generation {
        Generation::A => reply_bytes_max / 2,
        Generation::B => reply_bytes_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &Value) -> String {
        value.to_string()
    }

    #[test]
    fn done_has_the_shape_of_its_generation() {
        let shown = |generation, result| done(generation, result).to_json();
        assert_eq!(shown(Generation::A, Ok(())), serde_json::json!({"ok": true}));
        assert_eq!(shown(Generation::B, Ok(())), serde_json::json!({"ok": true, "code": 0, "message": ""}));
        for generation in [Generation::A, Generation::B] {
            let failed = shown(generation, Err((7, "no".into())));
            assert_eq!(failed, serde_json::json!({"ok": false, "code": 7, "message": "no"}));
        }
    }

    #[test]
    fn results_of_files_have_the_shape_of_their_generation() {
        let error = || FsError { kind: FsErrorKind::NotFound, code: -2, message: "gone".into() };
        let a = fs_result(Generation::A, Ok("x".into()), "".into());
        assert_eq!(json(&a), r#"{"ok":true,"value":"x"}"#);
        let a = fs_result(Generation::A, Err(error()), "".into());
        assert_eq!(a.to_json(), serde_json::json!({"ok": false, "code": -2, "message": "gone"}));
        let b = fs_result(Generation::B, Ok(Value::Nil), Value::Map(vec![]));
        assert_eq!(
            b.to_json(),
            serde_json::json!({"ok": true, "value": {}, "error_kind": "other", "error_code": 0, "error_message": ""})
        );
        let b = fs_result(Generation::B, Err(error()), "".into());
        assert_eq!(
            b.to_json(),
            serde_json::json!({"ok": false, "value": "", "error_kind": "not-found", "error_code": -2, "error_message": "gone"})
        );
    }

    #[test]
    fn bytes_are_integers_in_a() {
        assert_eq!(json(&bytes(Generation::A, vec![0, 255])), "[0,255]");
        assert_eq!(bytes(Generation::B, vec![1]), Value::Bin(vec![1]));
    }
}
