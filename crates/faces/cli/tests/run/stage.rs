//! A test harness: a folder with modules, scripts and recordings, and the command that runs them.

use std::path::PathBuf;

use serde_json::Value;

use crate::program::{Ask, program};
use crate::run::{Ran, run_in};

/// Programs of the wasm crate's own tests: they ask for bump and tick in turns, `limit` times, and return the sum of
/// the replies.
pub const SUM_A: &str = include_str!("../../../../guests/wasm/tests/modules/sum_a.wat");
pub const SUM_B: &str = include_str!("../../../../guests/wasm/tests/modules/sum_b.wat");

/// A script for the sum: bump doubles, tick adds ten.
pub const DOUBLE_AND_TEN: &str = r#"{"handlers":{
    "Hand::bump":[{"do":"resume","value":{"arg":0,"mul":2}}],
    "Hand::tick":[{"do":"tail","value":{"arg":0,"add":10}}]}}"#;

pub struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    /// Returns a folder with the module `m.wat`.
    pub fn with_module(text: &str) -> Stage {
        let stage = Stage { folder: tempfile::tempdir().unwrap() };
        stage.write("m.wat", text);
        stage
    }

    pub fn with_program(asks: &[Ask]) -> Stage {
        Stage::with_module(&program(asks))
    }

    pub fn write(&self, name: &str, text: &str) -> &Stage {
        std::fs::write(self.path(name), text).unwrap();
        self
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `millrace run m.wat` with these flags, in the folder.
    pub fn run(&self, flags: &[&str]) -> Ran {
        self.run_with_env(&[], flags)
    }

    pub fn run_with_env(&self, env: &[(&str, &str)], flags: &[&str]) -> Ran {
        run_in(self.folder.path(), env, &[&["run", "m.wat"], flags].concat())
    }

    /// The same with a script.
    pub fn run_script(&self, script: &str, flags: &[&str]) -> Ran {
        self.write("script.json", script);
        self.run(&[&["--script", "script.json"], flags].concat())
    }
}

impl Ran {
    /// Returns the results, one per run.
    #[track_caller]
    pub fn results(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the only result.
    #[track_caller]
    pub fn result(&self) -> Value {
        match self.results().as_slice() {
            [result] => result.clone(),
            other => panic!("{} results: {}{}", other.len(), self.stdout, self.stderr),
        }
    }

    /// Returns the value of the only run, which must have succeeded.
    #[track_caller]
    pub fn value(&self) -> Value {
        let result = self.result();
        assert_eq!(
            (self.code, &result["kind"]),
            (Some(0), &"value".into()),
            "{}{}",
            self.stdout,
            self.stderr
        );
        result["value"].clone()
    }

    /// Returns the error of the only run, which must have failed.
    #[track_caller]
    pub fn failure(&self) -> String {
        let result = self.result();
        assert_eq!(
            (self.code, &result["kind"]),
            (Some(1), &"failed".into()),
            "{}{}",
            self.stdout,
            self.stderr
        );
        result["error"]["message"].as_str().unwrap().to_owned()
    }

    /// Returns the lines of the trace.
    pub fn trace(&self) -> Vec<Value> {
        self.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}
