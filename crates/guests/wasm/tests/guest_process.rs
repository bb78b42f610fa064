//! Processes of zABI guests through the library: neighbours, stopping from outside, and leftovers of a guest.

// A test reports a failure by panicking.
#![allow(clippy::unwrap_used)]

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use millrace_wasm::guest_process::{
    GuestCompiler, GuestFailure, GuestLimits, GuestLoadError, GuestModule, GuestOutcome, GuestProcess,
};
use millrace_zabi::{Grants, ProcessOptions, TcpPolicy};

/// If this time passes before the expected event, the test has failed.
const NEVER: Duration = Duration::from_secs(120);

/// A guest that opens a loop as handle 3, runs `code`, writes a byte, polls for ever, and writes another byte.
fn guest(code: &str) -> String {
    format!(
        r#"(module
  (import "env" "zi_read" (func $read (param i32 i64 i32) (result i32)))
  (import "env" "zi_write" (func $write (param i32 i64 i32) (result i32)))
  (import "env" "zi_cap_open" (func $open (param i64) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "sysloopnettcp127.0.0.1")
  ;; POLL of one event, without a timeout.
  (data (i32.const 64) "ZCL1\01\00\05\00\00\00\00\00\00\00\00\00\00\00\00\00\08\00\00\00\01\00\00\00\ff\ff\ff\ff")
  ;; Opens sys/loop.
  (data (i32.const 128) "\08\00\00\00\00\00\00\00\03\00\00\00\0b\00\00\00\00\00\00\00\04\00\00\00")
  (func $say (drop (call $write (i32.const 1) (i64.const 8) (i32.const 1))))
  (func (export "main") (param i32 i32) (result i32)
    (if (i32.ne (call $open (i64.const 128)) (i32.const 3)) (then (unreachable)))
    {code}
    (call $say)
    (drop (call $write (i32.const 3) (i64.const 64) (i32.const 32)))
    (call $say)
    (i32.const 0)))"#
    )
}

fn load(text: &str) -> GuestModule {
    GuestCompiler::new().unwrap().load(text.as_bytes()).unwrap()
}

/// The other end of a guest's output: reports each write.
struct Telling(Sender<Vec<u8>>);

impl Write for Telling {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn start(module: &GuestModule, limits: &GuestLimits) -> (GuestProcess, Receiver<Vec<u8>>) {
    let (written, output) = mpsc::channel();
    let grants = Grants::none().sys_loop().net_tcp(TcpPolicy::loopback());
    let mut options = ProcessOptions::new("test", grants);
    options.streams.output = Box::new(Telling(written));
    (module.start(options, limits).unwrap(), output)
}

#[test]
fn a_guest_is_stopped_inside_poll() {
    let (process, output) = start(&load(&guest("")), &GuestLimits::default());
    output.recv_timeout(NEVER).unwrap();
    process.stopper().stop();
    assert_eq!(process.wait(), GuestOutcome::Stopped);
    assert!(output.recv().is_err(), "the guest wrote nothing after it was stopped");
}

#[test]
fn an_interrupted_poll_lets_the_guest_go_on() {
    let (process, output) = start(&load(&guest("")), &GuestLimits::default());
    output.recv_timeout(NEVER).unwrap();
    process.stopper().interrupt_poll();
    output.recv_timeout(NEVER).unwrap();
    assert_eq!(process.wait(), GuestOutcome::Returned(0));
}

#[test]
fn a_process_that_is_dropped_is_stopped() {
    let (process, output) = start(&load(&guest("")), &GuestLimits::default());
    output.recv_timeout(NEVER).unwrap();
    drop(process);
    // The output is closed with the guest, and nothing more was written to it.
    assert_eq!(output.recv_timeout(NEVER), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn a_guest_that_was_stopped_before_it_began_does_nothing() {
    let module = load(&guest("(loop $ever (br $ever))"));
    for _ in 0..50 {
        let (process, output) = start(&module, &GuestLimits::default());
        process.stopper().stop();
        assert_eq!(process.wait(), GuestOutcome::Stopped);
        assert!(output.recv().is_err());
    }
}

#[test]
fn neighbours_are_not_harmed() {
    let (limits, short) = (GuestLimits::default(), GuestLimits { step_ms_max: 30, ..GuestLimits::default() });
    let compiler = GuestCompiler::new().unwrap();
    let (quiet, output) = start(&compiler.load(guest("").as_bytes()).unwrap(), &limits);
    output.recv_timeout(NEVER).unwrap();
    let spins = compiler.load(guest("(loop $ever (br $ever))").as_bytes()).unwrap();
    let traps = compiler.load(guest("(unreachable)").as_bytes()).unwrap();
    let spinning: Vec<_> = (0..4).map(|_| start(&spins, &short).0).collect();
    let trapping: Vec<_> = (0..20).map(|_| start(&traps, &limits).0).collect();
    for process in trapping {
        assert!(matches!(process.wait(), GuestOutcome::Failed(GuestFailure::Trapped { .. })));
    }
    for process in spinning {
        assert_eq!(process.wait(), GuestOutcome::Failed(GuestFailure::StepTooLong { max_ms: 30 }));
    }
    assert!(output.try_recv().is_err(), "the neighbour still waits");
    quiet.stopper().interrupt_poll();
    assert_eq!(quiet.wait(), GuestOutcome::Returned(0));
}

#[test]
fn a_guest_that_runs_too_long_is_stopped_while_it_waits() {
    let limits = GuestLimits { wall_ms_max: Some(30), ..GuestLimits::default() };
    let (process, _output) = start(&load(&guest("")), &limits);
    assert_eq!(process.wait(), GuestOutcome::Failed(GuestFailure::TooLong { max_ms: 30 }));
}

/// Opens a listener on a port, as handle 4.
fn listens(port: u16) -> String {
    format!(
        r#"(i64.store (i32.const 300) (i64.const 21)) (i32.store (i32.const 308) (i32.const 9))
    (i32.store (i32.const 312) (i32.const {port})) (i32.store (i32.const 316) (i32.const 1))
    (i64.store (i32.const 400) (i64.const 15)) (i32.store (i32.const 408) (i32.const 3))
    (i64.store (i32.const 412) (i64.const 18)) (i32.store (i32.const 420) (i32.const 3))
    (i64.store (i32.const 428) (i64.const 300)) (i32.store (i32.const 436) (i32.const 20))
    (if (i32.ne (call $open (i64.const 400)) (i32.const 4)) (then (unreachable)))"#
    )
}

#[test]
fn what_a_guest_held_is_released_however_it_ends() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let connects = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
    for end in ["", "(call $say) (unreachable)", "(call $say) (loop $ever (br $ever))"] {
        let limits = GuestLimits { step_ms_max: 50, ..GuestLimits::default() };
        let (process, output) = start(&load(&guest(&format!("{} {end}", listens(port)))), &limits);
        output.recv_timeout(NEVER).unwrap();
        if end.is_empty() {
            assert!(connects());
            process.stopper().stop();
        }
        assert_ne!(process.wait(), GuestOutcome::Returned(0));
        assert!(!connects(), "the listener is closed when `wait` returns: {end}");
    }
}

#[test]
fn unknown_imports_are_named() {
    let text = r#"(module (import "env" "zi_open" (func)) (import "env" "memory" (memory 1))
        (import "wasi" "fd_write" (func)))"#;
    let error = GuestCompiler::new().unwrap().load(text.as_bytes()).unwrap_err();
    let names = ["env.zi_open", "env.memory", "wasi.fd_write"].map(str::to_owned).to_vec();
    assert_eq!(error, GuestLoadError::Imports(names));
}

/// Every call with its parameters; `p` is an address, `i` a number.
const CALLS: [(&str, &str); 13] = [
    ("zi_abi_version", ""),
    ("zi_ctl", "pipi"),
    ("zi_read", "ipi"),
    ("zi_write", "ipi"),
    ("zi_end", "i"),
    ("zi_alloc", "i"),
    ("zi_free", "p"),
    ("zi_telemetry", "pipi"),
    ("zi_cap_count", ""),
    ("zi_cap_get_size", "i"),
    ("zi_cap_get", "ipi"),
    ("zi_cap_open", "p"),
    ("zi_handle_hflags", "i"),
];

/// Every combination of arguments for the parameters, out of edge values.
fn argument_lists(params: &str) -> Vec<String> {
    let numbers = [0, 1, 3, 65_536, -1, i32::MIN].map(|number| format!("(i32.const {number})"));
    let addresses = [0, 64, 65_535, 65_536, 1 << 32, -1, i64::MIN, i64::MAX];
    let addresses = addresses.map(|address| format!("(i64.const {address})"));
    let mut lists = vec![String::new()];
    for param in params.chars() {
        let values = if param == 'p' { &addresses[..] } else { &numbers[..] };
        lists =
            lists.iter().flat_map(|list| values.iter().map(move |value| format!("{list} {value}"))).collect();
    }
    lists
}

#[test]
fn no_argument_of_any_call_traps() {
    let (mut imports, mut body) = (String::new(), String::new());
    for (name, params) in CALLS {
        let types: String = params.chars().map(|param| if param == 'p' { " i64" } else { " i32" }).collect();
        let result = if name == "zi_alloc" { "i64" } else { "i32" };
        imports.push_str(&format!(
            "(import \"env\" \"{name}\" (func ${name} (param{types}) (result {result})))\n"
        ));
        for list in argument_lists(params) {
            body.push_str(&format!("(drop (call ${name}{list}))\n"));
        }
    }
    let text = format!(
        "(module {imports} (memory (export \"memory\") 1) (global (export \"__heap_base\") i32 (i32.const 1024))
         (func (export \"main\") (param i32 i32) (result i32) {body} (i32.const 0)))"
    );
    let limits = GuestLimits { memory_bytes_max: 4 << 20, ..GuestLimits::default() };
    let process = load(&text).start(ProcessOptions::new("test", Grants::none().sys_loop()), &limits).unwrap();
    assert_eq!(process.wait(), GuestOutcome::Returned(0));
}
