//! Runs the binary once, in a folder and an environment of its own.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    // Settings of the user who runs the tests must not affect them.
    for (name, _) in std::env::vars_os() {
        if ["MILLRACE_", "BUS_", "MONGO_", "RUST_LOG"]
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
    command.args(args);
    command
}

pub fn run(args: &[&str]) -> Ran {
    finish(command(args).stdin(Stdio::null()).output().expect("the binary runs"))
}

pub fn run_in(folder: &Path, env: &[(&str, &str)], args: &[&str]) -> Ran {
    let output = command(args).current_dir(folder).envs(env.iter().copied()).stdin(Stdio::null()).output();
    finish(output.expect("the binary runs"))
}

pub fn run_with_stdin(args: &[&str], input: &str) -> Ran {
    let mut child = command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("the binary reads");
    drop(stdin);
    finish(child.wait_with_output().expect("the binary ends"))
}

pub fn finish(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Ran {
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stderr: {}", self.stderr);
        self.stdout
    }

    #[track_caller]
    pub fn json(self) -> Value {
        let stdout = self.ok();
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
    }

    /// Checks that the command ended with `code`, printed nothing on stdout, and that stderr contains each of `parts`.
    #[track_caller]
    pub fn refused(self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "stderr: {}", self.stderr);
        assert_eq!(self.stdout, "");
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in: {}", self.stderr);
        }
    }
}
