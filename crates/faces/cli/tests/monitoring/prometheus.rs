//! Prometheus and promtool as child processes.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::server::{Server, eventually};

pub const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../monitoring");

/// Several scrapes fall into each interval of the expressions, also where the machine is slow.
const SCRAPE: &str = "500ms";

pub struct Prometheus {
    child: Child,
    url: String,
    _folder: TempDir,
}

#[derive(Debug)]
pub struct Alert {
    pub expression: String,
}

impl Prometheus {
    pub fn watching(server: &Server) -> Prometheus {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let target = server.http_url();
        let target = target.trim_start_matches("http://");
        let config = format!(
            "global: {{scrape_interval: {SCRAPE}, scrape_timeout: {SCRAPE}, evaluation_interval: 1s}}\n\
             rule_files: ['{MONITORING}/alerts.yml']\n\
             scrape_configs: [{{job_name: millrace, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        let config_file = folder.path().join("prometheus.yml");
        std::fs::write(&config_file, config).expect("a file");
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        let log = std::fs::File::create(folder.path().join("log")).expect("a file");
        let child = Command::new(program("prometheus"))
            .arg(format!("--config.file={}", config_file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("Prometheus starts");
        let prometheus = Prometheus { child, url, _folder: folder };
        eventually("Prometheus is ready", || prometheus.get("/-/ready").is_some());
        prometheus
    }

    /// Whether an expression has an answer that is not empty. Panics if Prometheus does not understand it.
    pub fn answers(&self, expression: &str) -> bool {
        let path = format!("/api/v1/query?query={}", encoded(expression));
        let answer = self.get(&path).unwrap_or_else(|| panic!("Prometheus refuses {expression}"));
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().is_some_and(|result| !result.is_empty())
    }

    /// The alerts that Prometheus has read, each of which must be one that it can evaluate.
    pub fn alerts(&self) -> Vec<Alert> {
        let mut alerts = Vec::new();
        eventually("Prometheus has evaluated every alert", || {
            let rules = self.get("/api/v1/rules").expect("the rules");
            let groups = rules["data"]["groups"].as_array().expect("groups").iter();
            let rules: Vec<Value> =
                groups.filter_map(|group| group["rules"].as_array()).flatten().cloned().collect();
            assert!(rules.iter().all(|rule| rule["health"] != "err"), "{rules:?}");
            let expression = |rule: &Value| rule["query"].as_str().expect("an expression").to_owned();
            alerts = rules.iter().map(|rule| Alert { expression: expression(rule) }).collect();
            rules.iter().all(|rule| rule["health"] == "ok")
        });
        alerts
    }

    fn get(&self, path: &str) -> Option<Value> {
        let mut answer = ureq::get(format!("{}{path}", self.url)).call().ok()?;
        let text = answer.body_mut().read_to_string().expect("a body");
        Some(serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Fails if it has ended already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs promtool in the folder of the alerts, and panics with what it says if it is not content.
#[track_caller]
pub fn promtool(args: &[&str], input: Option<&str>) {
    let mut child = Command::new(program("promtool"))
        .args(args)
        .current_dir(MONITORING)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.unwrap_or_default().as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = child.wait_with_output().expect("promtool ends");
    let told = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {args:?}: {}", String::from_utf8_lossy(&told));
}

fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("TEST_PROMETHEUS_BIN");
    let folder = folder
        .expect("TEST_PROMETHEUS_BIN: run `cargo xtask engines -- cargo test`, which installs Prometheus");
    PathBuf::from(folder).join(name)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
