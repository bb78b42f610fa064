//! A test harness: a folder with guests, the command that runs them, and guests that keep running.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use crate::run::{Ran, command, run_in};

/// A timeout that never passes unless the test has failed.
pub const NEVER: Duration = Duration::from_secs(120);

pub struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    pub fn empty() -> Stage {
        Stage { folder: tempfile::tempdir().unwrap() }
    }

    /// Returns a folder with the guest `g.wat`.
    pub fn with_module(text: &str) -> Stage {
        let stage = Stage::empty();
        std::fs::write(stage.path("g.wat"), text).unwrap();
        stage
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `millrace guest g.wat` with these flags, in the folder.
    pub fn run(&self, flags: &[&str]) -> Ran {
        self.run_with_env(&[], flags)
    }

    pub fn run_with_env(&self, env: &[(&str, &str)], flags: &[&str]) -> Ran {
        run_in(self.folder.path(), env, &[&["guest", "g.wat"], flags].concat())
    }

    pub fn start(&self, flags: &[&str]) -> Running {
        let path = self.path("g.wat");
        Running::start(path.to_str().unwrap(), flags)
    }
}

/// The examples and the guests of the tests, compiled from C once for all tests.
static COMPILED: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let examples = crate_folder.join("../../../examples/guests");
    let own = crate_folder.join("tests/guest/sources");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let named = ["chat", "copy", "echo", "hello"].map(|name| (name, &examples));
    for (name, sources) in named.into_iter().chain([("caps", &own), ("gather", &own)]) {
        let status = Command::new("clang")
            .args(["@clang.flags", "-I.", "-o"])
            .arg(folder.path().join(name).with_extension("wasm"))
            .arg(sources.join(name).with_extension("c"))
            .current_dir(&examples)
            .status();
        let status = status.expect("clang compiles the guests: `cargo xtask guests` installs it");
        assert!(status.success(), "clang does not compile {name}.c");
    }
    folder
});

/// Returns the path of a guest that was compiled from C.
pub fn compiled(name: &str) -> String {
    COMPILED.path().join(name).with_extension("wasm").to_str().unwrap().to_owned()
}

/// A guest that keeps running. Killed on drop.
pub struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(module: &str, flags: &[&str]) -> Running {
        let mut child = command(&[&["guest", module], flags].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Running { child, stdout }
    }

    /// Starts an example that listens. Returns it and its address.
    pub fn listening(name: &str, flags: &[&str]) -> (Running, String) {
        let mut guest = Running::start(&compiled(name), flags);
        let line = guest.line();
        let address = line.trim_end().strip_prefix("listening on ");
        let address = address.unwrap_or_else(|| panic!("{line:?}: {}", guest.end_now().stderr)).to_owned();
        (guest, address)
    }

    /// Returns the next line of its output; empty at the end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Reads lines of its output up to one that contains `part`, and returns that line.
    pub fn line_with(&mut self, part: &str) -> String {
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "the output ended without {part:?}");
            if line.contains(part) {
                return line;
            }
        }
    }

    pub fn stdin(&mut self) -> &mut ChildStdin {
        self.child.stdin.as_mut().unwrap()
    }

    pub fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Kills the guest (SIGKILL) and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits until the guest has ended.
    pub fn end(mut self) -> Ran {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ran { code: self.child.wait().unwrap().code(), stdout, stderr }
    }

    fn end_now(&mut self) -> Ran {
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Ran { code: self.child.wait().unwrap().code(), stdout: String::new(), stderr }
    }

    /// Ends the guest with a signal such as TERM.
    pub fn interrupt(self, name: &str) -> Ran {
        self.signal(name);
        self.end()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if the guest has ended already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(NEVER)).unwrap();
    stream.set_write_timeout(Some(NEVER)).unwrap();
    stream
}
