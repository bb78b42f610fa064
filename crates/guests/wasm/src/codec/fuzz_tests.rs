//! No input makes the decoders panic, and none makes them allocate much more than its own size.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_runs::ResumeKind;
use proptest::prelude::*;

use super::abi::{self, ExportTypes};
use super::schema::{Signature, ValueSchema};
use super::{Codec, GenerationA, GenerationB, msgpack};
use crate::sections::custom_section;
use crate::table::{self, EffectOp};
use crate::value::Value;

/// Bytes of memory for each byte of input, at most: an array of one byte may hold four values before it grows.
const MEMORY_FACTOR: usize = 8 * size_of::<Value>();

fn memory(value: &Value) -> usize {
    match value {
        Value::Str(text) => text.capacity(),
        Value::Bin(bytes) => bytes.capacity(),
        Value::Array(items) => {
            items.capacity() * size_of::<Value>() + items.iter().map(memory).sum::<usize>()
        }
        Value::Map(entries) => {
            let own = entries.capacity() * size_of::<(Value, Value)>();
            own + entries.iter().map(|(key, value)| memory(key) + memory(value)).sum::<usize>()
        }
        _ => 0,
    }
}

fn ops() -> Vec<EffectOp> {
    let op = |index, kind| EffectOp {
        index,
        effect_id: "e".into(),
        effect_hash: 1,
        op_id: index,
        kind,
        signature: 1,
        label: Arc::from("e::E.op"),
        operation_id: None,
    };
    vec![op(0, ResumeKind::Resume), op(1, ResumeKind::Tail)]
}

fn generation_b() -> GenerationB {
    let signature = Signature {
        params: vec![Arc::new(ValueSchema::Array(Arc::new(ValueSchema::Ref(1))))],
        result: Some(Arc::new(ValueSchema::Bytes)),
        names: BTreeMap::from([(1, Arc::new(ValueSchema::F64))]),
    };
    let main = ExportTypes { id: 3, signature: signature.clone(), fingerprints: vec![] };
    GenerationB {
        exports: BTreeMap::from([("main".into(), main)]),
        operations: BTreeMap::from([(0, signature)]),
    }
}

/// Any value, a few levels deep.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (i64::MAX as u64 + 1..).prop_map(Value::Uint),
        any::<i32>().prop_map(|bits| Value::F32(bits as f32)),
        any::<i32>().prop_map(|bits| Value::F64(f64::from(bits) / 3.0)),
        ".{0,40}".prop_map(Value::Str),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Value::Bin),
    ];
    leaf.prop_recursive(4, 64, 20, |inner| {
        let pairs = prop::collection::vec((inner.clone(), inner.clone()), 0..20);
        prop_oneof![prop::collection::vec(inner, 0..20).prop_map(Value::Array), pairs.prop_map(Value::Map)]
    })
}

/// Bytes that often begin like real payloads: markers with lengths, frames, requests.
fn payloads() -> impl Strategy<Value = Vec<u8>> {
    let valid = values().prop_map(|value| {
        let mut bytes = Vec::new();
        msgpack::write(&mut bytes, &value).unwrap();
        bytes
    });
    let mutated = (valid, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, byte)| {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes
    });
    let frame = prop::collection::vec(any::<u8>(), 0..40)
        .prop_map(|tail| [&[0x99, 2, 2, 0, 0xa1, b'e'], &*tail].concat());
    let markers = prop::collection::vec(prop_oneof![0x80_u8..=0x9f, 0xc0_u8..=0xdf, any::<u8>()], 0..400);
    prop_oneof![mutated, frame, markers]
}

/// Effect tables with entries and names of any kind, often cut.
fn tables() -> impl Strategy<Value = Vec<u8>> {
    let entry = prop::collection::vec(prop_oneof![0_u32..40, any::<u32>()], 8);
    let parts =
        (2_u32..4, 0_u32..6, prop::collection::vec(entry, 0..5), prop::collection::vec(0_u8..128, 0..60));
    parts.prop_flat_map(|(version, count, entries, names)| {
        let words = [version, count].into_iter().chain(entries.into_iter().flatten());
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).chain(names).collect();
        (0..=bytes.len()).prop_map(move |len| bytes[..len].to_vec())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_value_comes_back_as_it_was_written(value in values()) {
        let mut bytes = Vec::new();
        msgpack::write(&mut bytes, &value).unwrap();
        prop_assert_eq!(msgpack::read(&bytes), Ok(value));
    }

    #[test]
    fn payloads_neither_panic_nor_exhaust_memory(bytes in payloads()) {
        if let Ok(value) = msgpack::read(&bytes) {
            prop_assert!(memory(&value) <= MEMORY_FACTOR * bytes.len(), "{} bytes for {}", memory(&value), bytes.len());
        }
        let codec = generation_b();
        let (_, _) = (GenerationA.request(&bytes, &ops()), GenerationA.result("main", &bytes));
        let (_, _) = (codec.request(&bytes, &ops()), codec.result("main", &bytes));
    }

    #[test]
    fn tables_neither_panic_nor_exhaust_memory(bytes in tables()) {
        if let Ok(ops) = table::parse(&bytes) {
            // Entries are 28 bytes on the wire; their names are bounded by the section.
            prop_assert!(ops.len() * 28 <= bytes.len());
        }
    }

    #[test]
    fn bytes_that_may_be_a_module_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let module = [b"\0asm\x01\0\0\0", &*bytes].concat();
        let _ = custom_section(&module, "x");
        let _ = custom_section(&bytes, "x");
    }

    #[test]
    fn descriptions_of_types_do_not_panic(text in r#"\{"(hostAbi":2,"exports|ops)":\[[\{\}\[\]":a-z0-9,]{0,80}"#) {
        let (_, _) = (abi::exports(text.as_bytes()), abi::operations(text.as_bytes()));
    }
}
