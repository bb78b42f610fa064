//! Modules that send whatever a test wants: wrong statuses, false lengths, payloads of any bytes.

use std::fmt::Write;

use millrace_wasm::Generation;

/// A module whose steps are given as bytes.
pub struct Doctored {
    pub generation: Generation,
    pub table: Option<Vec<u8>>,
    pub export_abi: Option<String>,
    pub steps: Vec<Step>,
    /// Instructions before the first step.
    pub entry: String,
    /// Instructions before each later step.
    pub resume: String,
    /// An export that is left out.
    pub without: Option<&'static str>,
    /// Further fields of the module, before its memory.
    pub fields: String,
}

pub struct Step {
    pub status: i32,
    pub payload: Vec<u8>,
    /// Reported instead of the payload's length.
    pub len: Option<i32>,
    pub null_continuation: bool,
    pub null_result: bool,
}

impl Step {
    pub fn new(status: i32, payload: &[u8]) -> Step {
        Step { status, payload: payload.to_vec(), len: None, null_continuation: false, null_result: false }
    }

    pub fn with_len(self, len: i32) -> Step {
        Step { len: Some(len), ..self }
    }
}

pub const EFFECT: &str = "case.ask";
const HASH: u64 = 0xbd3d_f8fa_a3a0_827a;
pub const SIGNATURE: u32 = 0x1111_1111;

/// A table with `number` (resume) and `note` (tail) of the effect `case.ask`.
pub fn ask_table() -> Vec<u8> {
    let names = b"case.ask\0case::Ask.number\0case::Ask.note\0";
    let entry = |op_id: u32, label: u32| {
        let hash = [HASH as u32, (HASH >> 32) as u32];
        [hash[0], hash[1], 0, op_id, op_id, SIGNATURE, label]
    };
    let words = [2, 2].into_iter().chain(entry(0, 9)).chain(entry(1, 25));
    words.flat_map(u32::to_le_bytes).chain(names.iter().copied()).collect()
}

/// A request of generation A for `number(20)`, with some of its numbers changed.
pub fn request_a(changes: &[(&str, i64)]) -> Vec<u8> {
    let mut bytes = vec![0x86];
    let fields =
        [("opIndex", 0), ("resumeKind", 0), ("handle", 0), ("effectId", HASH.cast_signed()), ("opId", 0)];
    for (name, number) in fields {
        let changed =
            changes.iter().find(|(changed, _)| *changed == name).map_or(number, |(_, number)| *number);
        key(&mut bytes, name);
        bytes.push(0xd3);
        bytes.extend(changed.to_be_bytes());
    }
    key(&mut bytes, "args");
    bytes.extend([0x91, 20]);
    bytes
}

/// The numbers of a request of generation B for `number(20)`.
pub struct RequestB {
    pub version: u8,
    pub tag: u8,
    pub op_index: u8,
    pub effect: &'static str,
    pub op_id: u8,
    pub signature: u32,
    pub kind: u8,
}

impl Default for RequestB {
    fn default() -> Self {
        RequestB { version: 2, tag: 2, op_index: 0, effect: EFFECT, op_id: 0, signature: SIGNATURE, kind: 0 }
    }
}

impl RequestB {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x99, self.version, self.tag, self.op_index];
        key(&mut bytes, self.effect);
        bytes.extend([self.op_id, 0xd2]);
        bytes.extend(self.signature.to_be_bytes());
        bytes.extend([self.kind, 0x91, 0x92, 0xa2, b'f', b'p', 20, 0xa2, b'f', b'p']);
        bytes
    }
}

/// The result 42 of `main`, in generation B.
pub fn result_b() -> Vec<u8> {
    vec![0x94, 2, 1, 0xce, 0x75, 0x48, 0x71, 0x04, 0x92, 0, 0x92, 0xa2, b'f', b'p', 42]
}

fn key(bytes: &mut Vec<u8>, name: &str) {
    bytes.push(0xa0 | u8::try_from(name.len()).unwrap());
    bytes.extend(name.as_bytes());
}

impl Doctored {
    pub fn new(generation: Generation, steps: Vec<Step>) -> Doctored {
        let export_abi = match generation {
            Generation::A => None,
            Generation::B => Some(r#"{"version":2,"hostAbi":2,"exports":[]}"#.to_owned()),
        };
        Doctored {
            generation,
            table: Some(ask_table()),
            export_abi,
            steps,
            entry: String::new(),
            resume: String::new(),
            without: None,
            fields: String::new(),
        }
    }

    /// A module of generation A whose `main` asks for one operation, of kind `tail`, and then returns 42.
    pub fn asking(effect: &str, op: &str, args: &[u8]) -> Doctored {
        let hash = effect.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let label = u32::try_from(effect.len() + 1).unwrap();
        let entry = [1, hash as u32, (hash >> 32) as u32, 0, 0, 1, SIGNATURE, label];
        let words = [2].into_iter().chain(entry).flat_map(u32::to_le_bytes);
        let table = words.chain(format!("{effect}\0test::Effect.{op}\0").into_bytes()).collect();
        let mut request = request_a(&[("effectId", hash.cast_signed()), ("resumeKind", 1)]);
        request.truncate(request.len() - 2);
        request.extend(args);
        let steps = vec![Step::new(1, &request), Step::new(0, &[42])];
        Doctored { table: Some(table), ..Doctored::new(Generation::A, steps) }
    }

    /// A module of generation A that only executes these instructions.
    pub fn body(instructions: &str) -> Doctored {
        Doctored { entry: instructions.to_owned(), ..Doctored::new(Generation::A, vec![]) }
    }

    pub fn wat(&self) -> String {
        let mut wat = String::from("(module\n");
        let mut section =
            |name: &str, bytes: &[u8]| writeln!(wat, "(@custom \"{name}\" \"{}\")", escaped(bytes)).unwrap();
        if let Some(table) = &self.table {
            section("__voyd_effect_table", table);
        }
        if let Some(abi) = &self.export_abi {
            section("voyd.export_abi", abi.as_bytes());
        }
        wat.push_str("(type $result (struct (field i32) (field anyref) (field i32)))\n");
        wat.push_str("(type $request (struct (field $n i32)))\n");
        writeln!(wat, "{}", self.fields).unwrap();
        writeln!(wat, "(memory {} 1)", self.export("memory")).unwrap();
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(wat, "(data $s{index} \"{}\")", escaped(&step.payload)).unwrap();
        }
        let field = |wat: &mut String, name: &str, result: &str, index: usize| {
            let export = self.export(name);
            writeln!(wat, "(func {export} (param (ref null $result)) (result {result}) (struct.get $result {index} (local.get 0)))")
                .unwrap();
        };
        field(&mut wat, "effect_status", "i32", 0);
        field(&mut wat, "effect_cont", "anyref", 1);
        field(&mut wat, "effect_len", "i32", 2);
        writeln!(wat, "(func {} (param i32))", self.export("init_effects")).unwrap();
        self.step_function(&mut wat);
        let (entry, resume) = match self.generation {
            Generation::A => ("(param i32 i32)", "(param (ref null $request) i32 i32 i32)"),
            Generation::B => ("(param i32 i32 i32 i32)", "(param (ref null $request) i32 i32 i32 i32 i32)"),
        };
        let returns = "(result (ref null $result))";
        writeln!(wat, "(func {} {entry} {returns} {}", self.export("main_effectful"), self.entry).unwrap();
        wat.push_str("(call $step (i32.const 0) (local.get 0)))\n");
        writeln!(wat, "(func {} {resume} {returns} {}", self.export("resume_effectful"), self.resume)
            .unwrap();
        wat.push_str(
            "(call $step (i32.add (i32.const 1) (struct.get $request $n (local.get 0))) (local.get 1))))\n",
        );
        wat
    }

    /// Writes the payload of step `n` to the buffer and returns its result.
    fn step_function(&self, wat: &mut String) {
        wat.push_str("(func $step (param $n i32) (param $p i32) (result (ref null $result))\n");
        for (index, Step { status, payload, len, null_continuation, null_result }) in
            self.steps.iter().enumerate()
        {
            let written = payload.len();
            let len = len.unwrap_or(i32::try_from(written).unwrap());
            let continuation = match null_continuation {
                true => "(ref.null any)",
                false => "(struct.new $request (local.get $n))",
            };
            let result = match null_result {
                true => "(ref.null $result)".to_owned(),
                false => {
                    format!("(struct.new $result (i32.const {status}) {continuation} (i32.const {len}))")
                }
            };
            writeln!(wat, "(if (i32.eq (local.get $n) (i32.const {index})) (then").unwrap();
            writeln!(wat, "(memory.init $s{index} (local.get $p) (i32.const 0) (i32.const {written}))")
                .unwrap();
            writeln!(wat, "(return {result})))").unwrap();
        }
        wat.push_str("(unreachable))\n");
    }

    fn export(&self, name: &str) -> String {
        if self.without == Some(name) { String::new() } else { format!("(export \"{name}\")") }
    }
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "\\{byte:02x}").unwrap();
        text
    })
}
