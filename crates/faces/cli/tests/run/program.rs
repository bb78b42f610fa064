//! Effect programs as module text, built from a list of requests: each program makes them in order and returns the
//! reply to the last one, byte for byte.

use std::fmt::Write;

use serde_json::Value;

/// An operation that a program asks for.
pub struct Ask {
    pub effect: &'static str,
    /// The last part of the label.
    pub op: &'static str,
    pub kind: Kind,
    pub args: Vec<Value>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Resume,
    Tail,
}

pub fn ask(effect: &'static str, op: &'static str, args: Vec<Value>) -> Ask {
    Ask { effect, op, kind: Kind::Tail, args }
}

/// Returns a module of generation A whose export `main` makes these requests.
pub fn program(asks: &[Ask]) -> String {
    let requests: Vec<Vec<u8>> = asks.iter().enumerate().map(|(index, ask)| request(index, ask)).collect();
    let mut text = format!("(module\n  (@custom \"__voyd_effect_table\" \"{}\")\n", escaped(&table(asks)));
    text.push_str(
        r#"  (type $result (struct (field i32) (field anyref) (field i32)))
  (type $request (struct (field $i i32)))
  (memory (export "memory") 1)
  (export "effects_memory" (memory 0))
  (func (export "init_effects") (param i32))
  (func (export "effect_status") (param (ref null $result)) (result i32) (struct.get $result 0 (local.get 0)))
  (func (export "effect_cont") (param (ref null $result)) (result anyref) (struct.get $result 1 (local.get 0)))
  (func (export "effect_len") (param (ref null $result)) (result i32) (struct.get $result 2 (local.get 0)))
"#,
    );
    for (index, bytes) in requests.iter().enumerate() {
        writeln!(text, "  (data $r{index} \"{}\")", escaped(bytes)).unwrap();
    }
    text.push_str(
        "  (func $step (param $i i32) (param $p i32) (param $len i32) (result (ref null $result))\n",
    );
    for (index, bytes) in requests.iter().enumerate() {
        let len = bytes.len();
        writeln!(
            text,
            "    (if (i32.eq (local.get $i) (i32.const {index})) (then
      (memory.init $r{index} (local.get $p) (i32.const 0) (i32.const {len}))
      (return (struct.new $result (i32.const 1) (struct.new $request (local.get $i)) (i32.const {len})))))"
        )
        .unwrap();
    }
    text.push_str(
        r#"    (struct.new $result (i32.const 0) (ref.null any) (local.get $len)))
  (func (export "main_effectful") (param $p i32) (param i32) (result (ref null $result))
    (call $step (i32.const 0) (local.get $p) (i32.const 0)))
  (func (export "resume_effectful") (param $r (ref null $request)) (param $p i32) (param $len i32) (param i32) (result (ref null $result))
    (call $step (i32.add (struct.get $request $i (local.get $r)) (i32.const 1)) (local.get $p) (local.get $len))))
"#,
    );
    text
}

/// Returns the effect table: one entry per request, each a separate operation.
fn table(asks: &[Ask]) -> Vec<u8> {
    let (mut entries, mut names) = (Vec::new(), Vec::new());
    let mut name = |text: &str| {
        let at = names.len() as u32;
        names.extend_from_slice(text.as_bytes());
        names.push(0);
        at
    };
    for (index, ask) in asks.iter().enumerate() {
        let hash = effect_hash(ask.effect);
        let label = format!("test::{}.{}", ask.effect.rsplit([':', '.']).next().unwrap(), ask.op);
        let words = [
            hash as u32,
            (hash >> 32) as u32,
            name(ask.effect),
            index as u32,
            u32::from(ask.kind == Kind::Tail),
            0,
            name(&label),
        ];
        entries.extend(words.into_iter().flat_map(u32::to_le_bytes));
    }
    let head = [2, asks.len() as u32].into_iter().flat_map(u32::to_le_bytes);
    head.chain(entries).chain(names).collect()
}

fn effect_hash(id: &str) -> u64 {
    id.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn request(index: usize, ask: &Ask) -> Vec<u8> {
    let mut out = vec![0x86];
    let mut field = |name: &str, value: &Value| {
        msgpack(&mut out, &Value::from(name));
        msgpack(&mut out, value);
    };
    let index = Value::from(index);
    field("opIndex", &index);
    field("resumeKind", &Value::from(u8::from(ask.kind == Kind::Tail)));
    field("handle", &index);
    field("opId", &index);
    field("args", &Value::from(ask.args.clone()));
    msgpack(&mut out, &Value::from("effectId"));
    out.push(0xd3);
    out.extend(effect_hash(ask.effect).to_be_bytes());
    out
}

/// Encodes a value as modules do.
fn msgpack(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0xc0),
        Value::Bool(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Number(number) => match number.as_i64().unwrap() {
            small @ -32..=127 => out.push(small as u8),
            large => {
                out.push(0xd3);
                out.extend(large.to_be_bytes());
            }
        },
        Value::String(text) => {
            out.push(0xda);
            out.extend((text.len() as u16).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        Value::Array(items) => {
            out.push(0xdc);
            out.extend((items.len() as u16).to_be_bytes());
            items.iter().for_each(|item| msgpack(out, item));
        }
        Value::Object(fields) => {
            out.push(0xde);
            out.extend((fields.len() as u16).to_be_bytes());
            for (name, value) in fields {
                msgpack(out, &Value::from(name.as_str()));
                msgpack(out, value);
            }
        }
    }
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\{byte:02x}")).collect()
}
