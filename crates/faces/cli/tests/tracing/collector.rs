//! The collector as a child process: `receiver.py`, on OpenTelemetry's Python package.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::Value;

use crate::server::eventually;

const RECEIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tracing/receiver.py");

pub struct Collector {
    child: Child,
    port: u16,
    arriving: Receiver<Value>,
    spans: Vec<Value>,
}

impl Collector {
    pub fn start() -> Collector {
        let packages = std::env::var_os("TEST_OTLP_PYTHON");
        let packages = packages.expect(
            "TEST_OTLP_PYTHON: run `cargo xtask engines -- cargo test`, which installs OpenTelemetry's definitions",
        );
        let mut child = Command::new("python3")
            .arg(RECEIVER)
            .env("PYTHONPATH", packages)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let port = lines.next().and_then(Result::ok).and_then(|line| line.parse().ok());
        let (sender, arriving) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let span = serde_json::from_str(&line).expect("a line of JSON");
                if sender.send(span).is_err() {
                    return;
                }
            }
        });
        Collector { child, port: port.expect("a port"), arriving, spans: Vec::new() }
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits until there are so many spans with this name, and returns them in the order of their beginning.
    #[track_caller]
    pub fn spans(&mut self, name: &str, count: usize) -> Vec<Value> {
        let named = |spans: &[Value]| spans.iter().filter(|span| span["name"] == name).count();
        eventually(&format!("the collector has {count} spans {name}"), || {
            self.spans.extend(self.arriving.try_iter());
            named(&self.spans) >= count
        });
        let mut found: Vec<Value> = self.spans.iter().filter(|span| span["name"] == name).cloned().collect();
        assert_eq!(found.len(), count, "{found:#?}");
        found.sort_by_key(|span| span["began"].as_u64());
        found
    }

    /// All spans that have come so far.
    pub fn all(&mut self) -> &[Value] {
        self.spans.extend(self.arriving.try_iter());
        &self.spans
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Fails if it has ended already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
