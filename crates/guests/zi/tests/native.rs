//! C programs that include `zi.h`, link the library, and run as processes of their own.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const WARNINGS: [&str; 4] = ["-std=c99", "-Wall", "-Wextra", "-Werror"];
/// A guest that takes longer counts as hanging.
const GUEST_TIME_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
enum Link {
    Shared,
    Static,
}

/// A compiled guest, in a folder of its own.
struct Guest {
    folder: TempDir,
    program: PathBuf,
}

impl Guest {
    fn compile(source: &str, link: Link) -> Guest {
        Guest::compile_file(&in_crate("tests/guests").join(source), link)
    }

    fn compile_file(source: &Path, link: Link) -> Guest {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("guest");
        let mut compiler = Command::new("cc");
        compiler.args(WARNINGS).arg("-pedantic").arg("-I").arg(in_crate("include"));
        compiler.arg("-o").arg(&program).arg(source);
        match link {
            Link::Shared => {
                let libraries = libraries();
                compiler.arg(libraries.join(format!("libzi{}", std::env::consts::DLL_SUFFIX)));
                compiler.arg(format!("-Wl,-rpath,{}", libraries.display()));
            }
            Link::Static => {
                compiler.arg(libraries().join("libzi.a"));
            }
        }
        // The system libraries that docs/guests-native.md names.
        compiler.args(["-lpthread", "-ldl", "-lm"]);
        succeeds(&mut compiler);
        Guest { folder, program }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // The variables of the shell that runs the tests must not decide what is granted.
        command.env_clear().env("ZI_FS_ROOT", self.folder.path());
        command
    }
}

fn in_crate(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The folder of this test's executable: cargo puts the libraries there, before it builds the test.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{:?}: {error}; these tests need a C compiler (as SQLite does)", command.get_program())
    });
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a guest to its end and returns what it printed. `input: None` leaves its standard input open, without a byte.
#[track_caller]
fn run(command: &mut Command, input: Option<&str>) -> (String, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take();
    if let Some(input) = input {
        stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    }
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > GUEST_TIME_MAX {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("the guest hangs: {output:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    drop(stdin);
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{status}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

/// Returns the port of a server that sends the first bytes of one connection back.
fn echo_server() -> (u16, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 256];
        // Sent in two pieces, so that the guest waits twice.
        let count = stream.read(&mut bytes).unwrap();
        stream.write_all(&bytes[..3]).unwrap();
        thread::sleep(Duration::from_millis(20));
        stream.write_all(&bytes[3..count]).unwrap();
        assert_eq!(stream.read(&mut bytes).unwrap(), 0, "the guest ends its handle");
    });
    (port, server)
}

#[track_caller]
fn a_guest_echoes(link: Link) {
    let guest = Guest::compile("echo.c", link);
    let (port, server) = echo_server();
    let (stdout, stderr) =
        run(guest.command().arg(port.to_string()).arg("two words"), Some("over the wire\n"));
    server.join().unwrap();
    let expected = format!("argument 1: {port}\nargument 2: two words\ntimer 7\necho: over the wire\n");
    assert_eq!((stdout, stderr), (expected, String::new()));
}

#[test]
fn a_guest_with_the_shared_library_waits_and_echoes() {
    a_guest_echoes(Link::Shared);
}

#[test]
fn a_guest_with_the_static_library_waits_and_echoes() {
    a_guest_echoes(Link::Static);
}

#[test]
fn the_core_calls_keep_their_rules() {
    let guest = Guest::compile("rules.c", Link::Shared);
    let (stdout, stderr) = run(&mut guest.command(), Some(""));
    let stock = ["event/bus", "file/aio", "net/tcp", "proc/argv", "proc/env", "sys/info", "sys/loop"];
    assert_eq!(stdout.lines().collect::<Vec<_>>(), stock);
    assert_eq!(stderr, "{\"message\":\"a message\",\"topic\":\"a \\\"topic\\\"\"}\n");
}

#[test]
fn variables_decide_what_is_granted() {
    let guest = Guest::compile("rules.c", Link::Shared);
    let (stdout, _) = run(guest.command().env("ZI_GRANTS", "sys/loop"), Some(""));
    assert_eq!(stdout, "sys/loop\nno listener\n");

    let (stdout, _) = run(guest.command().env("ZI_NET_LISTEN_ALLOW", "example.org:80"), Some(""));
    assert!(stdout.ends_with("sys/loop\nno listener\n"), "{stdout}");

    let (_, stderr) = run(guest.command().env("ZI_GRANTS", "sys/loop").env("ZI_LOG", "debug"), Some(""));
    assert!(stderr.contains("a guest opened what it was not granted"), "{stderr}");

    let (stdout, stderr) = run(guest.command().env("ZI_GRANTS", "sys/lop"), Some(""));
    assert_eq!(stdout, "no listener\n");
    assert!(stderr.starts_with("zi: ZI_GRANTS: `sys/lop` is not"), "{stderr}");
}

#[test]
fn threads_make_calls_while_one_sits_in_poll() {
    let guest = Guest::compile("threads.c", Link::Shared);
    let (stdout, stderr) = run(&mut guest.command(), None);
    assert_eq!((stdout.as_str(), stderr.as_str()), ("all threads have made their calls\n", ""));
}

#[test]
fn a_guest_writes_a_file_and_waits_for_its_completions() {
    let guest = Guest::compile("files.c", Link::Shared);
    let folder = guest.folder.path();
    let written = |command: &mut Command, file: &str| {
        assert_eq!(run(command, Some("")), ("written\n".to_owned(), String::new()));
        assert_eq!(std::fs::read_to_string(folder.join(file)).unwrap(), "from a native guest\n");
    };
    written(guest.command().arg("/granted.txt"), "granted.txt");

    // Without ZI_FS_ROOT paths are interpreted by the operating system: relative, with links and dots.
    std::fs::create_dir(folder.join("real")).unwrap();
    std::os::unix::fs::symlink(folder.join("real"), folder.join("link")).unwrap();
    let mut command = guest.command();
    command.env_remove("ZI_FS_ROOT").current_dir(folder);
    written(command.arg("link/../link/relative.txt"), "real/relative.txt");
    written(command.arg(folder.join("absolute.txt")), "absolute.txt");
}

#[test]
fn a_connection_that_is_gone_is_an_error_and_no_signal() {
    let guest = Guest::compile("closed.c", Link::Shared);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || drop(listener.accept().unwrap()));
    let (stdout, _) = run(guest.command().arg(port.to_string()), Some(""));
    server.join().unwrap();
    assert_eq!(stdout, "gone\n");
}

#[test]
fn the_program_of_the_documentation_ticks() {
    let page = std::fs::read_to_string(in_crate("../../../docs/guests-native.md")).unwrap();
    let program = page.split("```c\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("tick.c");
    std::fs::write(&source, program).unwrap();
    let guest = Guest::compile_file(&source, Link::Static);
    assert_eq!(run(&mut guest.command(), Some("")), ("tick\n".to_owned(), String::new()));
}

#[test]
fn the_header_is_clean_c_and_cpp() {
    let header = in_crate("include/zi.h");
    let check = |compiler: &str, language: &str, standard: &str| {
        let mut command = Command::new(compiler);
        command.args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic", "-x", language, standard]);
        succeeds(command.arg(&header));
    };
    check("cc", "c", "-std=c99");
    check("cc", "c", "-std=c11");
    // A machine with a C compiler need not have one for C++.
    if Command::new("c++").arg("--version").output().is_ok() {
        check("c++", "c++", "-std=c++11");
    }
}
