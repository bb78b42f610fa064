//! Exports that ask for no effects: called with plain numbers, finished in one step.

use wasmtime::{FuncType, Val, ValType};

use crate::codec::ProtocolError;
use crate::codec::schema::{TypeMismatch, TypeNames, ValueSchema};
use crate::value::Value;

/// Returns the arguments as wasm values, if the function takes and returns only numbers and the arguments fit.
pub(crate) fn arguments(name: &str, ty: &FuncType, args: Vec<Value>) -> Result<Vec<Val>, ProtocolError> {
    let schemas: Option<Vec<ValueSchema>> = ty.params().map(|param| schema(&param)).collect();
    let plain_result = ty.results().len() <= 1 && ty.results().all(|result| schema(&result).is_some());
    let Some(schemas) = schemas.filter(|_| plain_result) else {
        let problem = "the export has no effectful form, and takes or returns more than plain numbers";
        return Err(ProtocolError::Shape { what: "start", problem });
    };
    if args.len() != schemas.len() {
        let (at, expected, got) =
            (format!("export {name}"), format!("{} args", schemas.len()), args.len().to_string());
        return Err(TypeMismatch { at, expected, got }.into());
    }
    let args = args.into_iter().zip(schemas).enumerate();
    args.map(|(index, (arg, schema))| {
        let fitted = schema.fit(arg, &TypeNames::new(), &format_args!("export {name} arg{index}"))?;
        Ok(to_wasm(&schema, &fitted))
    })
    .collect()
}

/// Returns a function's only result; a function without one returns nil.
pub(crate) fn result(results: &[Val]) -> Value {
    match results {
        [Val::I32(number)] => Value::from(*number),
        [Val::I64(number)] => Value::from(*number),
        [Val::F32(bits)] => Value::F32(f32::from_bits(*bits)),
        [Val::F64(bits)] => Value::F64(f64::from_bits(*bits)),
        _ => Value::Nil,
    }
}

fn schema(ty: &ValType) -> Option<ValueSchema> {
    match ty {
        ValType::I32 => Some(ValueSchema::I32),
        ValType::I64 => Some(ValueSchema::I64),
        ValType::F32 => Some(ValueSchema::F32),
        ValType::F64 => Some(ValueSchema::F64),
        _ => None,
    }
}

/// Converts a value to a wasm value. The value has been fitted to the schema, so the other cases do not occur.
fn to_wasm(schema: &ValueSchema, value: &Value) -> Val {
    let integer = value.as_i64().unwrap_or_default();
    let float = value.as_f64().unwrap_or_default();
    match schema {
        #[allow(clippy::cast_possible_truncation)]
        ValueSchema::I32 => Val::I32(integer as i32),
        ValueSchema::I64 => Val::I64(integer),
        #[allow(clippy::cast_possible_truncation)]
        ValueSchema::F32 => Val::from(float as f32),
        _ => Val::from(float),
    }
}
