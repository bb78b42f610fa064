//! Guests as module text, built around the body of their `main`.

use std::fmt::Write;

/// A request frame of `sys/loop`: the operation and its payload.
pub struct Frame {
    op: u16,
    payload: Vec<u8>,
}

pub fn timer_arm(id: u64, due_ns: u64, interval_ns: u64) -> Frame {
    let mut payload = [id.to_le_bytes(), due_ns.to_le_bytes(), interval_ns.to_le_bytes()].concat();
    payload.extend(1u32.to_le_bytes());
    Frame { op: 3, payload }
}

pub fn watch(handle: u32, conditions: u32, id: u64) -> Frame {
    let words = [handle.to_le_bytes(), conditions.to_le_bytes()].concat();
    Frame { op: 1, payload: [&words[..], &id.to_le_bytes(), &0u32.to_le_bytes()].concat() }
}

pub fn unwatch(id: u64) -> Frame {
    Frame { op: 2, payload: id.to_le_bytes().to_vec() }
}

pub const FOREVER: u32 = u32::MAX;

pub fn poll(events_max: u32, timeout_ms: u32) -> Frame {
    Frame { op: 5, payload: [events_max.to_le_bytes(), timeout_ms.to_le_bytes()].concat() }
}

impl Frame {
    pub fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).unwrap();
        let head =
            [&b"ZCL1"[..], &1u16.to_le_bytes(), &self.op.to_le_bytes(), &[0; 12], &length.to_le_bytes()];
        [head.concat(), self.payload.clone()].concat()
    }
}

fn length(bytes: &[u8]) -> Vec<u8> {
    u32::try_from(bytes.len()).unwrap().to_le_bytes().to_vec()
}

/// Builds a guest: data in its memory, and code that uses it.
///
/// `$loop` is a global for the handle of a loop. The code can call the functions `$open_loop`, `$send` (address and
/// length of a request, returns the length of the reply, which is at [`REPLY`]), `$print` (address, length) and `$must`
/// (a call's result, traps if it is negative).
#[derive(Default)]
pub struct Program {
    data: Vec<u8>,
    code: String,
}

/// The address where the data begins; `REPLY` is the address of replies.
const DATA: usize = 64;
pub const REPLY: u32 = 65_536;

impl Program {
    pub fn new() -> Program {
        Program::default()
    }

    /// Places bytes in the memory. Returns their address and length as two constants.
    pub fn place(&mut self, bytes: &[u8]) -> String {
        let address = self.place_at(bytes);
        format!("(i64.const {address}) (i32.const {})", bytes.len())
    }

    /// Places the request that opens a listener on any port of a host. Returns its address as a constant.
    pub fn listener(&mut self, host: &str) -> String {
        let host_at = self.place_at(host.as_bytes());
        let mut params = [host_at.to_le_bytes().to_vec(), length(host.as_bytes())].concat();
        params.extend([0u32.to_le_bytes(), 1u32.to_le_bytes()].concat());
        self.open_record("net", "tcp", &params)
    }

    /// Places the 40 bytes of an open request. Returns its address as a constant.
    pub fn open_record(&mut self, kind: &str, name: &str, params: &[u8]) -> String {
        let mut record = Vec::new();
        for text in [kind.as_bytes(), name.as_bytes()] {
            record.extend(self.place_at(text).to_le_bytes());
            record.extend(length(text));
        }
        record.extend(0u32.to_le_bytes());
        record.extend(self.place_at(params).to_le_bytes());
        record.extend(length(params));
        format!("(i64.const {})", self.place_at(&record))
    }

    fn place_at(&mut self, bytes: &[u8]) -> u64 {
        let address = DATA + self.data.len();
        self.data.extend_from_slice(bytes);
        address as u64
    }

    pub fn open_loop(self) -> Program {
        self.code("(global.set $loop (call $must (call $open_loop)))")
    }

    /// Sends a request to the loop. The guest traps if there is no reply, or if it is an error.
    pub fn send(mut self, frame: &Frame) -> Program {
        let place = self.place(&frame.bytes());
        self.code(&format!("(call $send {place})"))
    }

    pub fn print(mut self, text: &str) -> Program {
        let place = self.place(text.as_bytes());
        self.code(&format!("(drop (call $must (call $write (i32.const 1) {place})))"))
    }

    /// Adds code as it is.
    pub fn code(mut self, code: &str) -> Program {
        writeln!(self.code, "    {code}").unwrap();
        self
    }

    /// Returns the module; `main` returns `result`.
    pub fn returning(self, result: &str) -> String {
        let data: String = self.data.iter().map(|byte| format!("\\{byte:02x}")).collect();
        format!(
            r#"(module
  (import "env" "zi_read" (func $read (param i32 i64 i32) (result i32)))
  (import "env" "zi_write" (func $write (param i32 i64 i32) (result i32)))
  (import "env" "zi_end" (func $end (param i32) (result i32)))
  (import "env" "zi_alloc" (func $alloc (param i32) (result i64)))
  (import "env" "zi_free" (func $free (param i64) (result i32)))
  (import "env" "zi_abi_version" (func $version (result i32)))
  (import "env" "zi_telemetry" (func $telemetry (param i64 i32 i64 i32) (result i32)))
  (import "env" "zi_cap_open" (func $open (param i64) (result i32)))
  (memory (export "memory") 4)
  (global (export "__heap_base") i32 (i32.const 262144))
  (global $loop (mut i32) (i32.const -1))
  (data (i32.const 8) "sys" "loop")
  (data (i32.const {DATA}) "{data}")
  (func $must (param $result i32) (result i32)
    (if (i32.lt_s (local.get $result) (i32.const 0)) (then (unreachable)))
    (local.get $result))
  (func $open_loop (result i32)
    (i64.store (i32.const 200000) (i64.const 8)) (i32.store (i32.const 200008) (i32.const 3))
    (i64.store (i32.const 200012) (i64.const 11)) (i32.store (i32.const 200020) (i32.const 4))
    (call $open (i64.const 200000)))
  (func $send (param $at i64) (param $len i32)
    (drop (call $must (call $write (global.get $loop) (local.get $at) (local.get $len))))
    (drop (call $must (call $read (global.get $loop) (i64.const {REPLY}) (i32.const 65536))))
    (if (i32.ne (i32.load (i32.const {status})) (i32.const 1)) (then (unreachable))))
  (func (export "main") (param $req i32) (param $res i32) (result i32)
{code}    {result}))
"#,
            code = self.code,
            status = REPLY + 12,
        )
    }

    /// Returns the module; `main` returns 0.
    pub fn end(self) -> String {
        self.returning("(i32.const 0)")
    }
}
