//! Unplanned ends: signals while nobody reads the output, a killed process, a trace that is written faster than it is
//! read.

use std::fs;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::program::ask;
use crate::run::command;
use crate::stage::{DOUBLE_AND_TEN, SUM_A, Stage};

/// The smallest size of a pipe.
const PIPE_BYTES: usize = 4_096;

const SIGNALS: [Signal; 2] = [Signal::INT, Signal::TERM];

/// Returns a program that asks for effects for ever.
fn endless() -> Stage {
    let limit = "(export \"limit\") (mut i32) (i32.const 3)";
    assert!(SUM_A.contains(limit));
    let stage =
        Stage::with_module(&SUM_A.replace(limit, "(export \"limit\") (mut i32) (i32.const 2000000000)"));
    let script =
        r#"{"handlers":{"Hand::bump":[{"do":"resume","value":0}],"Hand::tick":[{"do":"tail","value":0}]}}"#;
    stage.write("script.json", script);
    stage
}

/// Prepares `millrace run m.wat` with these flags.
fn prepare(stage: &Stage, flags: &[&str]) -> Command {
    let mut command = command(&[&["run", "m.wat"], flags].concat());
    command.current_dir(stage.path("")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Returns a pipe of the smallest size.
fn small_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&reader, PIPE_BYTES).unwrap();
    (reader, writer)
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        sleep(Duration::from_millis(1));
    }
}

/// Waits until the pipe holds more than at first, and its writer does not go on. If the writer was only slow, the test
/// proves less, but passes too.
fn wait_until_stuck(pipe: impl AsFd, held_at_first: u64) {
    let (mut held, mut unchanged) = (held_at_first, 0);
    wait_until(|| {
        let now = rustix::io::ioctl_fionread(&pipe).unwrap();
        unchanged = if now == held && now > held_at_first { unchanged + 1 } else { 0 };
        held = now;
        unchanged == 50
    });
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_signal_ends_the_command_while_nobody_reads_the_trace() {
    for signal in SIGNALS {
        let stage = endless();
        let (reader, writer) = small_pipe();
        let mut child =
            prepare(&stage, &["--script", "script.json", "--trace"]).stderr(writer).spawn().unwrap();
        wait_until_stuck(&reader, 0);
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
}

#[test]
fn a_signal_ends_the_command_while_nobody_reads_the_results() {
    for signal in SIGNALS {
        let stage = Stage::with_module(SUM_A);
        let long = "x".repeat(4 * PIPE_BYTES);
        stage.write(
            "script.json",
            &json!({ "handlers": { "Hand::bump": [{ "do": "end", "value": long }] } }).to_string(),
        );
        let (reader, writer) = small_pipe();
        let mut child = prepare(&stage, &["--script", "script.json"]).stdout(writer).spawn().unwrap();
        wait_until_stuck(&reader, 0);
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
}

#[test]
fn a_signal_ends_the_command_while_nobody_reads_what_the_program_prints() {
    let print =
        |text: String| ask("voyd.std.output", "write_op", vec![json!({ "value": text, "target": "stdout" })]);
    let stage = Stage::with_program(&[print("x".repeat(900)), print("x".repeat(900))]);
    let (mut reader, mut writer) = small_pipe();
    // The program's text fits only in part and has no newline: nothing may stay buffered until the process exits.
    let before = PIPE_BYTES - 1_000;
    writer.write_all(&vec![b'x'; before]).unwrap();
    let mut child =
        prepare(&stage, &["--allow", "output"]).stdout(writer.try_clone().unwrap()).spawn().unwrap();
    wait_until_stuck(&reader, before as u64);
    send(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(writer);
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
}

#[test]
fn results_do_not_wait_for_lines_of_a_program_that_nobody_reads() {
    let print = || {
        let text = "x".repeat(900);
        ask("voyd.std.output", "write_op", vec![json!({ "value": text, "target": "stderr" })])
    };
    let stage = Stage::with_program(&[print(), print()]);
    let (_reader, mut writer) = small_pipe();
    writer.write_all(&[b'x'; PIPE_BYTES]).unwrap();
    let mut child = prepare(&stage, &["--allow", "output", "--cancel-at", "50"])
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(r#""kind":"cancelled""#), "{line}");
    // The command's thread still waits for a reader of stderr.
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_signal_ends_the_command_while_it_waits_for_its_module() {
    let stage = Stage::with_module(SUM_A);
    assert!(Command::new("mkfifo").arg(stage.path("m.fifo")).status().unwrap().success());
    for signal in SIGNALS {
        let mut waiting = command(&["run", "m.fifo"]);
        let mut child = waiting.current_dir(stage.path("")).stderr(Stdio::null()).spawn().unwrap();
        wait_until(|| catches_term(child.id()));
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
}

#[test]
fn a_signal_ends_the_command_while_nobody_reads_the_recording() {
    let stage = endless();
    assert!(Command::new("mkfifo").arg(stage.path("r.fifo")).status().unwrap().success());
    // Open, and never read.
    let reader = fs::OpenOptions::new().read(true).write(true).open(stage.path("r.fifo")).unwrap();
    rustix::pipe::fcntl_setpipe_size(&reader, PIPE_BYTES).unwrap();
    let mut child = prepare(&stage, &["--script", "script.json", "--record", "r.fifo"]).spawn().unwrap();
    wait_until_stuck(&reader, 0);
    send(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn signals_end_the_command_while_nobody_reads_its_last_error() {
    let stage = Stage::with_module(SUM_A);
    stage.run_script(DOUBLE_AND_TEN, &["--record", "r.ndjson"]).ok();
    let changed = stage.read("r.ndjson").replace("\"args\":[1]", "\"args\":[5]");
    stage.write("r.ndjson", &changed);
    let (_reader, mut writer) = small_pipe();
    writer.write_all(&[b'x'; PIPE_BYTES]).unwrap();
    let mut child = prepare(&stage, &["--replay", "r.ndjson"]).stderr(writer).spawn().unwrap();
    wait_until(|| catches_term(child.id()));
    let status = loop {
        send(&child, Signal::TERM);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        sleep(Duration::from_millis(1));
    };
    assert_eq!(status.code(), Some(130));
}

/// Returns whether the process has a handler for SIGTERM.
fn catches_term(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (Signal::TERM.as_raw() - 1)) != 0
}

#[test]
fn a_program_waits_when_nobody_reads_its_trace_and_fills_no_memory() {
    const KIB_MAX: u64 = 512 << 10;
    for flags in [&["--trace"][..], &["--trace", "--record", "r.ndjson"]] {
        let stage = endless();
        let (reader, writer) = small_pipe();
        let flags = [&["--script", "script.json"], flags].concat();
        let mut child = prepare(&stage, &flags).stderr(writer).spawn().unwrap();
        wait_until_stuck(&reader, 0);
        // The program never waits by itself: if the host's thread sleeps, the full queue of events blocks it.
        let mut asleep = 0;
        wait_until(|| {
            let kib = resident_kib(child.id());
            assert!(kib < KIB_MAX, "{kib} KiB of memory");
            asleep = if host_sleeps(child.id()) { asleep + 1 } else { 0 };
            asleep == 100
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn host_sleeps(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let stats =
        threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default());
    stats.into_iter().any(|stat| stat.contains("(millrace-runs) S"))
}

#[test]
fn a_killed_process_leaves_a_recording_of_everything_that_was_traced() {
    let stage = Stage::with_module(SUM_A);
    let script = r#"{"handlers":{"Hand::bump":[{"do":"resume","value":1},{"do":"resume","value":1,"after_ms":1000000000}],
        "Hand::tick":[{"do":"tail","value":1}]}}"#;
    stage.write("script.json", script);
    let mut child = prepare(&stage, &["--script", "script.json", "--record", "r.ndjson", "--trace"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut traced = Vec::new();
    while traced.len() < 5 {
        traced.push(lines.next().unwrap().unwrap());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let replay = stage.run(&["--replay", "r.ndjson", "--trace"]);
    assert_eq!(replay.code, Some(1), "{}", replay.stderr);
    assert_eq!(replay.stderr.lines().take(5).collect::<Vec<_>>(), traced, "{}", replay.stderr);
    for part in ["the recording ends at line 7", "before run_1 ended"] {
        assert!(replay.stderr.contains(part), "{}", replay.stderr);
    }
}

#[test]
fn a_recording_is_written_while_the_program_waits() {
    let stage = Stage::with_module(SUM_A);
    stage.write(
        "script.json",
        r#"{"handlers":{"Hand::bump":[{"do":"resume","value":1,"after_ms":1000000000}]}}"#,
    );
    let mut child = prepare(&stage, &["--script", "script.json", "--record", "r.ndjson"]).spawn().unwrap();
    wait_until(|| fs::read_to_string(stage.path("r.ndjson")).unwrap_or_default().contains("\"call\""));
    child.kill().unwrap();
    child.wait().unwrap();
    let replay = stage.run(&["--replay", "r.ndjson"]);
    assert!(replay.stderr.contains("the recording ends at line 3"), "{}", replay.stderr);
}
