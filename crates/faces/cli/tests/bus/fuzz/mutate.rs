//! Mutations: turn valid input into almost valid input.

use serde_json::{Map, Value, json};

use crate::crash::Dice;

/// Returns a random element.
pub fn pick<T: Copy>(dice: &mut Dice, among: &[T]) -> T {
    among[dice.below(among.len() as u64) as usize]
}

/// Returns a value that fields do not expect, or that is at their limit.
fn odd(dice: &mut Dice, depth: u64) -> Value {
    match dice.below(24) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(1.5),
        5 => json!(u64::MAX),
        6 => json!(i64::MIN),
        7 => json!(9_007_199_254_740_992u64),
        8 => json!(4_294_967_296u64),
        9 => json!(1e308),
        10 => json!(""),
        11 => json!("t"),
        12 => json!("x".repeat(dice.below(400) as usize)),
        13 => json!("\u{0}\u{7f}\u{feff}\u{10ffff}"),
        14 => json!("../..%2f"),
        15 => json!("*"),
        16 => json!("system.metrics"),
        17 => json!([]),
        18 => json!({}),
        19 => json!("fuzz.a"),
        20 => json!(dice.below(1 << 40)),
        21 if depth > 0 => Value::Array((0..dice.below(5)).map(|_| odd(dice, depth - 1)).collect()),
        22 if depth > 0 => {
            let fields = (0..dice.below(4)).map(|_| (name(dice), odd(dice, depth - 1)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        _ => json!(dice.below(10)),
    }
}

fn name(dice: &mut Dice) -> String {
    const NAMES: [&str; 24] = [
        "type",
        "topic",
        "payload",
        "key",
        "headers",
        "id",
        "rid",
        "priority",
        "delay_ms",
        "deliver_at",
        "group",
        "partition",
        "offset",
        "offsets",
        "from",
        "kind",
        "value",
        "filter",
        "max_inflight",
        "ack_mode",
        "events",
        "credits",
        "\u{0}",
        "compact",
    ];
    pick(dice, &NAMES).to_owned()
}

/// Changes, renames, adds or removes some fields, at any depth.
pub fn value(dice: &mut Dice, value: &mut Value) {
    match value {
        Value::Object(fields) if !fields.is_empty() && !dice.one_in(12) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let at = names[dice.below(names.len() as u64) as usize].clone();
            match dice.below(5) {
                0 => drop(fields.remove(&at)),
                1 => drop(fields.insert(name(dice), odd(dice, 2))),
                2 => fields[&at] = odd(dice, 2),
                _ => self::value(dice, &mut fields[&at]),
            }
        }
        Value::Array(items) if !items.is_empty() && !dice.one_in(6) => {
            let at = dice.below(items.len() as u64) as usize;
            match dice.below(4) {
                0 => drop(items.remove(at)),
                1 => items.push(odd(dice, 2)),
                _ => self::value(dice, &mut items[at]),
            }
        }
        other => *other = odd(dice, 3),
    }
}

/// Removes, changes, duplicates or inserts bytes of a text. The result is seldom valid, sometimes almost.
pub fn bytes(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..=dice.below(3) {
        let at = dice.below(bytes.len() as u64 + 1) as usize;
        match dice.below(7) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] = dice.below(256) as u8,
            2 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            3 => drop(bytes.splice(at..at, b"[".repeat(dice.below(300) as usize))),
            4 => drop(bytes.splice(at..at, *b"\\ud800")),
            5 => drop(bytes.splice(at..at, b"9".repeat(dice.below(60) as usize))),
            _ => {
                let part = bytes[at..].to_vec();
                bytes.extend(part);
            }
        }
    }
}

pub fn noise(dice: &mut Dice, bytes_max: u64) -> Vec<u8> {
    (0..dice.below(bytes_max)).map(|_| dice.below(256) as u8).collect()
}
