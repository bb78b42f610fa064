//! The tests' harness (`Harness`): the loop with a bus of the kernel's own tests, with child processes written for each
//! test.

// Each test file uses its own part of the harness.
#![allow(dead_code, unused_imports)]

#[path = "../../../../shells/kernel/tests/harness/mod.rs"]
mod kernel;

use std::ops::Deref;
use std::path::{Path, PathBuf};

pub(crate) use kernel::{Client, fault, no_dead_letters, once, publish, until_committed, until_members};
use millrace_bus::BusLimits;
use millrace_child::{ChildLimits, ChildSettings, Children};
use millrace_kernel::Capability;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) struct Harness {
    kernel: kernel::Harness,
    pub(crate) children: Children,
    folder: TempDir,
}

/// Short waits where they cost time, long ones where a busy machine needs them.
pub(crate) fn limits() -> ChildLimits {
    ChildLimits { restart_pause_ms: 10, manifest_ms: 60_000, ..ChildLimits::default() }
}

impl Deref for Harness {
    type Target = kernel::Harness;

    fn deref(&self) -> &kernel::Harness {
        &self.kernel
    }
}

impl Harness {
    pub(crate) async fn new() -> Harness {
        Harness::with(limits(), BusLimits::default(), Vec::new()).await
    }

    pub(crate) async fn with(limits: ChildLimits, bus_limits: BusLimits, more: Vec<Capability>) -> Harness {
        let kernel = kernel::Harness::with(bus_limits, more).await;
        let children = Children::new(kernel.handle.clone(), limits);
        Harness { kernel, children, folder: TempDir::new().expect("a folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A child in Python: `body` handles each `message`, and may call `say` and `answer`.
    pub(crate) fn script(&self, name: &str, manifest: &Value, body: &str) -> ChildSettings {
        let path = self.path(&format!("{name}.py"));
        let body = body.lines().fold(String::new(), |all, line| all + "    " + line + "\n");
        let text = format!(
            "import json, os, sys, time\n\
             def say(message):\n    print(json.dumps(message), flush=True)\n\
             def answer(kind, data):\n    \
                 say({{'kind': kind, 'type': message['type'], 'data': data, 'metadata': {{'causation': message['metadata']['id']}}}})\n\
             say(json.loads({manifest:?}))\n\
             for line in sys.stdin:\n    message = json.loads(line)\n{body}",
            manifest = manifest.to_string(),
        );
        std::fs::write(&path, text).expect("a script");
        python(name, &path)
    }

    pub(crate) async fn run(&mut self, settings: Vec<ChildSettings>) {
        self.children.become_these(settings).await.expect("they start");
    }
}

pub(crate) fn python(name: &str, path: &Path) -> ChildSettings {
    command(name, &["python3", path.to_str().expect("UTF-8")])
}

pub(crate) fn command(name: &str, command: &[&str]) -> ChildSettings {
    ChildSettings {
        name: name.to_owned(),
        command: command.iter().map(|&word| word.to_owned()).collect(),
        restart: true,
        env: std::collections::BTreeMap::default(),
        cwd: None,
    }
}

pub(crate) fn example(name: &str, program: &str, path: &str) -> ChildSettings {
    let path = format!("{}/../../../examples/capabilities/{path}", env!("CARGO_MANIFEST_DIR"));
    command(name, &[program, &path])
}

/// The manifest of a child that handles a single query, `NAME.Do`.
pub(crate) fn doer(name: &str) -> Value {
    json!({"name": name, "inbound": [{"kind": "query", "type": format!("{name}.Do")}]})
}
