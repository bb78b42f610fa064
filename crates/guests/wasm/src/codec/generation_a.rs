//! Generation A: a request is a map of six keys, replies and results are bare values.

use super::msgpack;
use super::schema::TypeMismatch;
use super::{Codec, EffectRequest, ProtocolError, check_kind, check_op_id, op_at};
use crate::table::{EffectOp, resume_kind};
use crate::value::Value;

const REQUEST: &str = "effect request";

#[derive(Debug)]
pub(crate) struct GenerationA;

impl Codec for GenerationA {
    fn entry(&self, _export: &str, args: Vec<Value>, _out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        if args.is_empty() {
            return Ok(());
        }
        Err(ProtocolError::Shape { what: "start", problem: "effectful exports do not accept arguments yet" })
    }

    fn request(&self, bytes: &[u8], table: &[EffectOp]) -> Result<EffectRequest, ProtocolError> {
        let fields = RequestFields::read(bytes)?;
        let kind = resume_kind(fields.resume_kind).ok_or(ProtocolError::ResumeKind(fields.resume_kind))?;
        let handle_is_valid = usize::try_from(fields.handle).is_ok_and(|handle| handle < table.len());
        let index = if handle_is_valid { fields.handle } else { fields.op_index };
        let op = op_at(table, index)?;
        // The wire carries the same 64 bits as the table, read as a signed number.
        if op.effect_hash.cast_signed() != fields.effect_id {
            let expected = format!("0x{:016x}", op.effect_hash);
            return Err(ProtocolError::EffectId { op_index: index, expected });
        }
        if i64::from(op.index) != fields.op_index {
            return Err(ProtocolError::OpIndex {
                handle: fields.handle,
                expected: op.index,
                got: fields.op_index,
            });
        }
        check_op_id(op, fields.op_id)?;
        check_kind(op, kind)?;
        Ok(EffectRequest { op: op.index, args: fields.args, reply_fingerprint: String::new() })
    }

    fn reply(&self, _op: &EffectOp, _: &str, value: Value, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        Ok(msgpack::write(out, &value)?)
    }

    fn result(&self, _export: &str, bytes: &[u8]) -> Result<Value, ProtocolError> {
        Ok(msgpack::read(bytes)?)
    }

    fn end_value(&self, _export: &str, value: Value) -> Result<Value, TypeMismatch> {
        Ok(value)
    }
}

struct RequestFields {
    effect_id: i64,
    op_id: i64,
    op_index: i64,
    resume_kind: i64,
    handle: i64,
    args: Vec<Value>,
}

impl RequestFields {
    /// Keys may come in any order: modules write them in the order of their hash.
    fn read(bytes: &[u8]) -> Result<RequestFields, ProtocolError> {
        let Value::Map(entries) = msgpack::read(bytes)? else {
            return Err(shape("is not a map"));
        };
        let [mut effect_id, mut op_id, mut op_index, mut resume_kind, mut handle] = [None; 5];
        let mut args = None;
        for (key, value) in entries {
            match (key.as_str(), value) {
                (Some("effectId"), Value::Int(number)) => effect_id = Some(number),
                // A module that wrote the id as an unsigned number means the same 64 bits.
                (Some("effectId"), Value::Uint(number)) => effect_id = Some(number.cast_signed()),
                (Some("opId"), Value::Int(number)) => op_id = Some(number),
                (Some("opIndex"), Value::Int(number)) => op_index = Some(number),
                (Some("resumeKind"), Value::Int(number)) => resume_kind = Some(number),
                (Some("handle"), Value::Int(number)) => handle = Some(number),
                (Some("args"), Value::Array(items)) => args = Some(items),
                _ => {}
            }
        }
        Ok(RequestFields {
            effect_id: effect_id.ok_or_else(|| shape("lacks the integer effectId"))?,
            op_id: op_id.ok_or_else(|| shape("lacks the integer opId"))?,
            op_index: op_index.ok_or_else(|| shape("lacks the integer opIndex"))?,
            resume_kind: resume_kind.ok_or_else(|| shape("lacks the integer resumeKind"))?,
            handle: handle.ok_or_else(|| shape("lacks the integer handle"))?,
            args: args.ok_or_else(|| shape("lacks the array args"))?,
        })
    }
}

fn shape(problem: &'static str) -> ProtocolError {
    ProtocolError::Shape { what: REQUEST, problem }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_runs::ResumeKind;

    use super::*;

    fn table() -> Vec<EffectOp> {
        let op = |index, op_id, kind| EffectOp {
            index,
            effect_id: "case.ask".into(),
            effect_hash: 0xbd3d_f8fa_a3a0_827a,
            op_id,
            kind,
            signature: 0,
            label: Arc::from("case::Ask.number"),
            operation_id: None,
        };
        vec![op(0, 0, ResumeKind::Resume), op(1, 1, ResumeKind::Tail)]
    }

    fn request(changes: &[(&str, i64)]) -> Result<EffectRequest, String> {
        let effect_id = 0xbd3d_f8fa_a3a0_827a_u64.cast_signed();
        let fields = [("opIndex", 0), ("resumeKind", 0), ("handle", 0), ("effectId", effect_id), ("opId", 0)];
        let number = |(name, number): (&str, i64)| {
            let changed = changes.iter().find(|(changed, _)| *changed == name);
            (Value::from(name), Value::Int(changed.map_or(number, |(_, number)| *number)))
        };
        let mut entries: Vec<_> = fields.into_iter().map(number).collect();
        entries.push((Value::from("args"), Value::Array(vec![Value::Int(20)])));
        let mut bytes = Vec::new();
        msgpack::write(&mut bytes, &Value::Map(entries)).unwrap();
        GenerationA.request(&bytes, &table()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_valid_request_is_read_in_any_order_of_keys() {
        assert_eq!(request(&[]).map(|request| (request.op, request.args)), Ok((0, vec![Value::Int(20)])));
    }

    #[test]
    fn mismatches_are_found_in_the_order_of_the_fact_sheet() {
        let error = |changes: &[(&str, i64)]| request(changes).unwrap_err();
        assert_eq!(error(&[("resumeKind", 2), ("handle", 9)]), "unsupported resume kind 2");
        assert_eq!(error(&[("handle", 9), ("opIndex", 5)]), "Unknown effect op index 5");
        assert_eq!(error(&[("handle", -1), ("opIndex", -5)]), "Unknown effect op index -5");
        let expected = "Effect id mismatch for opIndex 0 (expected 0xbd3df8faa3a0827a)";
        assert_eq!(error(&[("effectId", 1), ("opIndex", 1)]), expected);
        let expected = "Effect op index mismatch for handle 0 (expected 0, got 1)";
        assert_eq!(error(&[("opIndex", 1), ("opId", 9)]), expected);
        let expected = "Effect op id mismatch for case::Ask.number (expected 0, got 9)";
        assert_eq!(error(&[("opId", 9), ("resumeKind", 1)]), expected);
        let expected = "Resume kind mismatch for case::Ask.number (expected resume, got tail)";
        assert_eq!(error(&[("resumeKind", 1)]), expected);
    }

    #[test]
    fn a_handle_outside_of_the_table_yields_to_the_op_index() {
        let request = request(&[("handle", 77), ("opIndex", 1), ("opId", 1), ("resumeKind", 1)]);
        assert_eq!(request.map(|request| request.op), Ok(1));
    }

    #[test]
    fn a_request_that_is_no_map_or_lacks_a_key_is_refused() {
        let error = |bytes: &[u8]| GenerationA.request(bytes, &table()).unwrap_err().to_string();
        assert_eq!(error(&[0x90]), "effect request: is not a map");
        assert_eq!(error(&[0x80]), "effect request: lacks the integer effectId");
    }
}
