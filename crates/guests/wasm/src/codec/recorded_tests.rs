//! Bytes that compiled programs and the reference host exchanged, in both generations.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_runs::ResumeKind;

use super::abi::ExportTypes;
use super::schema::{Signature, ValueSchema};
use super::{Codec, EffectRequest, GenerationA, GenerationB};
use crate::table::EffectOp;
use crate::value::Value;

/// The fingerprint of i32.
const FINGERPRINT: &str = "36fb38997998636b3157bf1ef24ccd5bbdd63802c4cd2d79b90b4ef113202670";

/// An effect of the recorded programs: operations with their kinds, and where they stand in the tables.
struct Effect {
    id: &'static str,
    hash: u64,
    kinds: &'static [ResumeKind],
    first_index_b: u32,
}

const ASK: Effect =
    Effect { id: "case.ask", hash: 0xbd3d_f8fa_a3a0_827a, kinds: &[ResumeKind::Resume], first_index_b: 5 };

const PIPE: Effect = Effect {
    id: "case.pipe",
    hash: 0x9587_1b72_c4ad_4f11,
    kinds: &[ResumeKind::Resume, ResumeKind::Resume, ResumeKind::Tail],
    first_index_b: 5,
};

impl Effect {
    fn table(&self, first_index: u32) -> Vec<EffectOp> {
        let op = |index: u32, op_id: u32, kind| EffectOp {
            index,
            effect_id: self.id.into(),
            effect_hash: self.hash,
            op_id,
            kind,
            signature: 0xb152_d825,
            label: Arc::from("recorded"),
            operation_id: None,
        };
        // The programs' tables begin with operations of their library.
        let library = (0..first_index)
            .map(|index| EffectOp { effect_id: "std".into(), ..op(index, 0, ResumeKind::Tail) });
        let own = self.kinds.iter().zip(0..).map(|(kind, op_id)| op(first_index + op_id, op_id, *kind));
        library.chain(own).collect()
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let hex = hex.replace("FP", &FINGERPRINT.bytes().map(|byte| format!("{byte:02x}")).collect::<String>());
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn generation_b() -> GenerationB {
    let types =
        |params| Signature { params, result: Some(Arc::new(ValueSchema::I32)), ..Signature::default() };
    let main = ExportTypes { id: 1_967_681_796, signature: types(vec![]), fingerprints: vec![] };
    let operations = (5..8).map(|index| (index, types(vec![Arc::new(ValueSchema::I32)]))).collect();
    GenerationB { exports: BTreeMap::from([("main".to_owned(), main)]), operations }
}

/// Checks recorded steps: a request with its argument, the value of the reply, and the bytes of the reply; then the
/// result.
fn replay(codec: &dyn Codec, table: &[EffectOp], steps: &[(&str, i64, i64, &str)], result: (&str, i64)) {
    for (request, arg, reply, answer) in steps {
        let EffectRequest { op, args, reply_fingerprint } = codec.request(&bytes(request), table).unwrap();
        assert_eq!(args, [Value::Int(*arg)]);
        let mut out = Vec::new();
        codec.reply(&table[op as usize], &reply_fingerprint, Value::Int(*reply), &mut out).unwrap();
        assert_eq!(out, bytes(answer));
    }
    assert_eq!(codec.result("main", &bytes(result.0)), Ok(Value::Int(result.1)));
}

#[test]
fn one_resumed_effect_in_generation_a() {
    let request = "86a76f70496e64657800aa726573756d654b696e6400a668616e646c6500a86566666563744964d3bd3df8faa3a0827aa46f\
                   70496400a4617267739114";
    replay(&GenerationA, &ASK.table(0), &[(request, 20, 40, "28")], ("2a", 42));
}

#[test]
fn one_resumed_effect_in_generation_b() {
    let codec = generation_b();
    let mut entry = Vec::new();
    codec.entry("main", vec![], &mut entry).unwrap();
    assert_eq!(entry, bytes("940200ce7548710490"));
    let request = "99020205a8636173652e61736b00d2b152d825009192d940FP14d940FP";
    let steps = [(request, 20, 40, "94020305920092d940FP28")];
    replay(&codec, &ASK.table(ASK.first_index_b), &steps, ("940201d275487104920092d940FP2a", 42));
}

#[test]
fn three_chained_effects_in_generation_a() {
    let request = |index: &str, kind: &str, arg: &str| {
        format!(
            "86a76f70496e646578{index}aa726573756d654b696e64{kind}a668616e646c65{index}a86566666563744964d395871b72c4ad4f\
             11a46f704964{index}a46172677391{arg}"
        )
    };
    let requests = [request("00", "00", "01"), request("01", "00", "06"), request("02", "01", "7d")];
    let steps = [(&*requests[0], 1, 5, "05"), (&*requests[1], 6, 12, "0c"), (&*requests[2], 125, 124, "7c")];
    replay(&GenerationA, &PIPE.table(0), &steps, ("7c", 124));
}

#[test]
fn three_chained_effects_in_generation_b() {
    let steps = [
        ("99020205a9636173652e7069706500d2b152d825009192d940FP01d940FP", 1, 5, "94020305920092d940FP05"),
        ("99020206a9636173652e7069706501d2b152d825009192d940FP06d940FP", 6, 12, "94020306920092d940FP0c"),
        ("99020207a9636173652e7069706502d2b152d825019192d940FP7dd940FP", 125, 124, "94020307920092d940FP7c"),
    ];
    replay(&generation_b(), &PIPE.table(PIPE.first_index_b), &steps, ("940201d275487104920092d940FP7c", 124));
}
