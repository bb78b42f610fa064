//! Generation B: every payload is an array frame, and every value in it carries the fingerprint of its type.

use std::collections::BTreeMap;

use super::abi::{ExportTypes, export_id};
use super::msgpack::{self, write_array_len, write_int, write_str};
use super::schema::{Signature, TypeMismatch};
use super::{Codec, EffectRequest, ProtocolError, check_kind, check_op_id, op_at};
use crate::table::{EffectOp, resume_kind};
use crate::value::Value;

const FRAME_VERSION: i64 = 2;
const EXPORT_INVOCATION: i64 = 0;
const EXPORT_COMPLETION: i64 = 1;
const EFFECT_REQUEST: i64 = 2;
const EFFECT_OUTCOME: i64 = 3;

const OUTCOME_VALUE: i64 = 0;
const OUTCOME_FAILURE: i64 = 1;

/// Position of the message in a failure.
const FAILURE_MESSAGE: usize = 6;

const REQUEST: &str = "effect request frame";
const COMPLETION: &str = "export completion frame";

#[derive(Debug)]
pub(crate) struct GenerationB {
    pub(crate) exports: BTreeMap<String, ExportTypes>,
    pub(crate) operations: BTreeMap<u32, Signature>,
}

impl GenerationB {
    pub(crate) fn export_id(&self, export: &str) -> u32 {
        self.exports.get(export).map_or_else(|| export_id(export), |types| types.id)
    }
}

impl Codec for GenerationB {
    fn entry(&self, export: &str, args: Vec<Value>, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        let types = self.exports.get(export);
        let expected = types.map_or(0, |types| types.signature.params.len());
        if args.len() != expected {
            let at = format!("typed export {export}");
            let (expected, got) = (format!("{expected} args"), args.len().to_string());
            return Err(TypeMismatch { at, expected, got }.into());
        }
        frame(out, 4, EXPORT_INVOCATION, i64::from(self.export_id(export)))?;
        write_array_len(out, args.len())?;
        let Some(types) = types else { return Ok(()) };
        for (index, arg) in args.into_iter().enumerate() {
            let at = format!("typed export {export} arg{index}");
            let arg = types.signature.params[index].fit(arg, &types.signature.names, &at)?;
            payload(out, types.fingerprints.get(index).map_or("", String::as_str), &arg)?;
        }
        Ok(())
    }

    fn request(&self, bytes: &[u8], table: &[EffectOp]) -> Result<EffectRequest, ProtocolError> {
        let fields = open_frame(bytes, EFFECT_REQUEST, REQUEST)?;
        let fields: Result<[Value; 7], _> = fields.try_into();
        let Ok([index, effect_id, op_id, signature, kind, args, fingerprint]) = fields else {
            return Err(shape(REQUEST, "has not 9 elements"));
        };
        let integer =
            |value: &Value| value.as_i64().ok_or_else(|| shape(REQUEST, "has a field that is no integer"));
        let (index, op_id, signature, kind) =
            (integer(&index)?, integer(&op_id)?, integer(&signature)?, integer(&kind)?);
        let kind = resume_kind(kind).ok_or(ProtocolError::ResumeKind(kind))?;
        let op = op_at(table, index)?;
        if effect_id.as_str() != Some(&*op.effect_id) {
            return Err(ProtocolError::EffectId { op_index: index, expected: op.effect_id.to_string() });
        }
        check_op_id(op, op_id)?;
        // The wire carries the table's 32 bits as a signed number.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let signature = signature as u32;
        if signature != op.signature {
            let (label, expected) = (op.label.to_string(), op.signature);
            return Err(ProtocolError::Signature { label, expected, got: signature });
        }
        check_kind(op, kind)?;
        let Value::Array(args) = args else { return Err(shape(REQUEST, "has arguments that are no array")) };
        let args =
            args.into_iter().map(|arg| open_payload(arg, REQUEST)).collect::<Result<Vec<Value>, _>>()?;
        let Value::Str(reply_fingerprint) = fingerprint else {
            return Err(shape(REQUEST, "has a result fingerprint that is no string"));
        };
        Ok(EffectRequest { op: op.index, args: self.typed_args(op, args)?, reply_fingerprint })
    }

    fn reply(
        &self,
        op: &EffectOp,
        fingerprint: &str,
        value: Value,
        out: &mut Vec<u8>,
    ) -> Result<(), ProtocolError> {
        let value = match self.operations.get(&op.index) {
            Some(Signature { result: Some(result), names, .. }) => {
                result.fit(value, names, &format_args!("typed export effect {} arg0", op.label))?
            }
            _ => value,
        };
        frame(out, 4, EFFECT_OUTCOME, i64::from(op.index))?;
        write_array_len(out, 2)?;
        write_int(out, OUTCOME_VALUE);
        payload(out, fingerprint, &value)
    }

    fn result(&self, export: &str, bytes: &[u8]) -> Result<Value, ProtocolError> {
        let fields: Result<[Value; 2], _> = open_frame(bytes, EXPORT_COMPLETION, COMPLETION)?.try_into();
        let Ok([id, outcome]) = fields else { return Err(shape(COMPLETION, "has not 4 elements")) };
        if id.as_i64() != Some(i64::from(self.export_id(export))) {
            return Err(shape(COMPLETION, "is of another export"));
        }
        let Value::Array(outcome) = outcome else {
            return Err(shape(COMPLETION, "has an outcome that is no array"));
        };
        let outcome: Result<[Value; 2], _> = outcome.try_into();
        let Ok([kind, content]) = outcome else {
            return Err(shape(COMPLETION, "has an outcome without 2 elements"));
        };
        match kind.as_i64() {
            Some(OUTCOME_VALUE) => Ok(self.typed_result(export, open_payload(content, COMPLETION)?)?),
            Some(OUTCOME_FAILURE) => Err(ProtocolError::ModuleFailure(failure_text(&content))),
            _ => Err(shape(COMPLETION, "has an outcome that is neither a value nor a failure")),
        }
    }

    fn end_value(&self, export: &str, value: Value) -> Result<Value, TypeMismatch> {
        self.typed_result(export, value)
    }
}

impl GenerationB {
    /// Checks the arguments against their types. Arguments whose types the module did not describe pass unchecked.
    fn typed_args(&self, op: &EffectOp, args: Vec<Value>) -> Result<Vec<Value>, ProtocolError> {
        let Some(Signature { params, names, .. }) = self.operations.get(&op.index) else { return Ok(args) };
        if args.len() != params.len() {
            let at = format!("effect {}", op.label);
            let (expected, got) = (format!("{} args", params.len()), args.len().to_string());
            return Err(TypeMismatch { at, expected, got }.into());
        }
        let args = args.into_iter().zip(params).enumerate();
        let args = args.map(|(index, (arg, param))| {
            param
                .fit(arg, names, &format_args!("effect {} arg{index}", op.label))
                .map_err(ProtocolError::from)
        });
        args.collect()
    }

    fn typed_result(&self, export: &str, value: Value) -> Result<Value, TypeMismatch> {
        match self.exports.get(export).map(|types| &types.signature) {
            Some(Signature { result: Some(result), names, .. }) => {
                result.fit(value, names, &format_args!("typed export {export} result"))
            }
            _ => Ok(value),
        }
    }
}

fn frame(out: &mut Vec<u8>, elements: usize, tag: i64, id: i64) -> Result<(), ProtocolError> {
    write_array_len(out, elements)?;
    write_int(out, FRAME_VERSION);
    write_int(out, tag);
    write_int(out, id);
    Ok(())
}

fn payload(out: &mut Vec<u8>, fingerprint: &str, value: &Value) -> Result<(), ProtocolError> {
    write_array_len(out, 2)?;
    write_str(out, fingerprint)?;
    Ok(msgpack::write(out, value)?)
}

/// Returns the fields after version and tag.
fn open_frame(bytes: &[u8], tag: i64, what: &'static str) -> Result<Vec<Value>, ProtocolError> {
    let Value::Array(mut fields) = msgpack::read(bytes)? else { return Err(shape(what, "is not an array")) };
    match fields.first_chunk() {
        Some([Value::Int(FRAME_VERSION), found]) if *found == Value::Int(tag) => Ok(fields.split_off(2)),
        Some([Value::Int(FRAME_VERSION), _]) => Err(shape(what, "has another frame's tag")),
        _ => Err(shape(what, "is not of frame version 2")),
    }
}

/// Returns the value of a payload. Fingerprints are not compared: the value is checked against the schema, where the
/// module has one.
fn open_payload(payload: Value, what: &'static str) -> Result<Value, ProtocolError> {
    let Value::Array(fields) = payload else { return Err(shape(what, "has a payload that is no array")) };
    let fields: Result<[Value; 2], _> = fields.try_into();
    match fields {
        Ok([Value::Str(_), value]) => Ok(value),
        _ => Err(shape(what, "has a payload that is not a fingerprint and a value")),
    }
}

fn failure_text(failure: &Value) -> String {
    let message = failure.as_array().and_then(|fields| fields.get(FAILURE_MESSAGE)).and_then(Value::as_str);
    message.map_or_else(|| failure.to_string(), str::to_owned)
}

fn shape(what: &'static str, problem: &'static str) -> ProtocolError {
    ProtocolError::Shape { what, problem }
}
