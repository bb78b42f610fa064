//! `cargo xtask fixtures`: builds a store of every schema version with the Millrace that wrote that version.
//!
//! For each version, a late commit of that version is checked out and built, and its server runs a fixed workload. The
//! store is kept as SQL text, together with the responses of that server. The tests (`versions.rs` of `store-sqlite`
//! and of `cli`) open these stores with today's build and compare. The line of a schema version in `VERSIONS` is added
//! when the next schema version is introduced.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::repo;

const FOLDER: &str = "crates/stores/store-sqlite/tests/fixtures";
/// 2100-01-01: an event delayed until then does not become due while these tests are in use.
const FAR_AHEAD_MS: u64 = 4_102_444_800_000;
const POLLS_MAX: u32 = 1000;

struct Version {
    schema: u32,
    commit: &'static str,
    compacts: bool,
    has_handlers: bool,
    has_router: bool,
}

const VERSIONS: [Version; 5] = [
    Version { schema: 1, commit: "2d94ca6", compacts: false, has_handlers: false, has_router: false },
    Version { schema: 2, commit: "95a925b", compacts: true, has_handlers: false, has_router: false },
    Version { schema: 3, commit: "e65b118", compacts: true, has_handlers: true, has_router: false },
    Version { schema: 4, commit: "edbabbd", compacts: true, has_handlers: true, has_router: true },
    Version { schema: 5, commit: "f1de367", compacts: true, has_handlers: true, has_router: true },
];

/// Builds the fixtures of all versions, or only of the schema versions in `wanted`.
pub(crate) fn run(wanted: &[&str]) -> Result<()> {
    let is_wanted = |version: &Version| {
        wanted.is_empty() || wanted.iter().any(|schema| *schema == version.schema.to_string())
    };
    for version in VERSIONS.iter().filter(|version| is_wanted(version)) {
        let tree = Tree::check_out(version)?;
        tree.build(version)?;
        let work = tree.folder.join("store");
        fs::create_dir_all(&work)?;
        let answers = workload(version, &tree, &work).context("the workload")?;
        let sql = repo::output(
            "cargo",
            &[
                "run",
                "-q",
                "-p",
                "millrace-store-sqlite",
                "--example",
                "dump_sql",
                &text(&work.join("store.db")),
            ],
        )?;
        let kept = repo::root().join(FOLDER).join(format!("v{}", version.schema));
        fs::write(kept.with_extension("sql"), sql)?;
        fs::write(kept.with_extension("answers"), answers)?;
        println!("schema {} is in {}", version.schema, kept.with_extension("sql").display());
    }
    Ok(())
}

/// A git worktree with the sources of one version, removed on drop. The build output in `built` stays and is shared
/// with the other versions.
struct Tree {
    folder: PathBuf,
    built: PathBuf,
}

impl Tree {
    fn check_out(version: &Version) -> Result<Tree> {
        let built = repo::target().join("fixtures");
        let tree = Tree { folder: built.join(format!("tree-{}", version.schema)), built };
        tree.remove();
        repo::output("git", &["worktree", "add", "--detach", &text(&tree.folder), version.commit])?;
        Ok(tree)
    }

    fn build(&self, version: &Version) -> Result<()> {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "-p", "millrace-cli", "--bin", "millrace", "--target-dir"]).arg(&self.built);
        if version.has_handlers {
            // The old commits have the crate at `crates/millrace`: folders such as `crates/faces` came later.
            let example = self.folder.join("crates/millrace/examples/fixture.rs");
            fs::copy(repo::root().join(FOLDER).join("handlers.rs"), example)?;
            cargo.args(["-p", "millrace", "--example", "fixture"]);
        }
        run_to_end(cargo.current_dir(&self.folder))
    }

    fn program(&self, name: &str) -> PathBuf {
        self.built.join("debug").join(name)
    }

    fn remove(&self) {
        // Fails if there is no such worktree, which is fine.
        let _ = repo::output("git", &["worktree", "remove", "--force", &text(&self.folder)]);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Runs the workload, the same for every version, and returns the server's responses: for each request, a line with the
/// path and a line with the body.
fn workload(version: &Version, tree: &Tree, work: &Path) -> Result<String> {
    let mut server = Server::start(version, tree, work)?;
    server.post("/topics", r#"{"topic":"orders","partitions":2}"#)?;
    server.post("/topics", r#"{"topic":"jobs","maxAttempts":1}"#)?;
    server.post("/topics", r#"{"topic":"short","retentionBytes":200}"#)?;
    server.post("/topics", r#"{"topic":"gone"}"#)?;
    for n in 1..=40 {
        let event = format!(
            r#"{{"payload":{{"n":{n},"note":"größer ✓"}},"key":"k{}","id":"order-{n}","headers":{{"h":"{n}"}}}}"#,
            n % 7
        );
        server.post("/topics/orders/events", &event)?;
        server.post("/topics/short/events", &format!(r#"{{"payload":"{}"}}"#, "x".repeat(40)))?;
    }
    server.post("/topics/jobs/events", r#"[{"payload":1},{"payload":2},{"payload":3}]"#)?;
    server.post("/topics/gone/events", r#"[{"payload":1},{"payload":2}]"#)?;
    let later = format!(r#"{{"payload":"later","id":"later-1","deliver_at":{FAR_AHEAD_MS}}}"#);
    server.post("/topics/orders/events", &later)?;
    server.request("DELETE", "/topics/gone", "")?;
    server.command(&["sub", "orders", "--group", "billing", "--from", "earliest", "--count", "30"])?;
    server
        .command(&["sub", "orders", "--group", "audit", "--from", "earliest", "--no-ack", "--count", "3"])?;
    server
        .command(&["sub", "jobs", "--group", "workers", "--from", "earliest", "--no-ack", "--count", "1"])?;
    let mut topics = vec!["orders", "jobs", "short", "jobs.DLQ"];
    if version.compacts {
        topics.push("prices");
        server.post("/topics", r#"{"topic":"prices","compact":true}"#)?;
        for n in 1..=30 {
            let event = format!(r#"{{"payload":{n},"key":"p{}","id":"price-{n}"}}"#, n % 3);
            server.post("/topics/prices/events", &event)?;
        }
        // Wait until compaction is complete: the store must not change after its responses are recorded.
        server.until("/topics/prices/events", |answer| answer.matches("\"offset\"").count() == 3)?;
    }
    if version.has_router {
        let set = r#"{"kind":"command","type":"Memory.Set","data":{"key":"/a/b","value":{"n":1}}}"#;
        server.send(set)?;
    }
    server.until("/topics/short/offsets", |answer| !answer.contains("\"start\":1,"))?;
    server.until("/topics/jobs.DLQ/events", |answer| answer.contains("\"offset\":1"))?;
    server.until("/topics/orders/offsets", |answer| answer.matches("\"inflight\":0").count() == 4)?;
    let mut answers = String::new();
    for topic in topics {
        let paths = ["", "/offsets", "/events?partition=0", "/events?partition=1"];
        for path in paths.iter().filter(|path| topic == "orders" || !path.ends_with('1')) {
            let path = format!("/topics/{topic}{path}");
            answers.push_str(&format!("{path}\n{}\n", server.request("GET", &path, "")?));
        }
    }
    server.stop()?;
    if version.has_handlers {
        let mut handlers = Command::new(tree.program("examples/fixture"));
        run_to_end(handlers.arg("sqlite:///store.db").current_dir(work))?;
    }
    Ok(answers)
}

struct Server {
    child: Child,
    address: String,
    program: PathBuf,
    work: PathBuf,
}

impl Server {
    fn start(version: &Version, tree: &Tree, work: &Path) -> Result<Server> {
        let program = tree.program("millrace");
        let mut serve = Command::new(&program);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--store", "sqlite:///store.db"]);
        serve.args(["--delay-ms-max", "9000000000000", "--retention-interval-ms", "20"]);
        if version.compacts {
            serve.args(["--compact-interval-ms", "20", "--store-fold-events", "16"]);
        }
        if version.has_router {
            serve.args(["--socket", "os.sock"]);
        }
        let mut child = serve.current_dir(work).stdout(Stdio::piped()).spawn().context("cannot serve")?;
        let mut ready = String::new();
        let stdout = child.stdout.take().context("no stdout")?;
        BufReader::new(stdout).read_line(&mut ready)?;
        let address = ready.split("\"http\":\"http://").nth(1).and_then(|rest| rest.split('"').next());
        let address = address.with_context(|| format!("no address in {ready:?}"))?.to_owned();
        Ok(Server { child, address, program, work: work.to_owned() })
    }

    fn post(&self, path: &str, body: &str) -> Result<String> {
        self.request("POST", path, body)
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let mut stream = TcpStream::connect(&self.address)?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        if !head.starts_with("HTTP/1.1 2") {
            bail!("{method} {path}: {answer}");
        }
        Ok(body.to_owned())
    }

    fn until(&self, path: &str, is_so: impl Fn(&str) -> bool) -> Result<()> {
        for _ in 0..POLLS_MAX {
            // A topic that the server creates itself may not exist yet.
            if self.request("GET", path, "").is_ok_and(|answer| is_so(&answer)) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("{path} never reached the expected state: {:?}", self.request("GET", path, ""))
    }

    fn command(&self, args: &[&str]) -> Result<()> {
        let url = format!("ws://{}/", self.address);
        let mut command = Command::new(&self.program);
        run_to_end(command.args(args).args(["--url", &url]).current_dir(&self.work).stdout(Stdio::null()))
    }

    fn send(&self, message: &str) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["send", message, "--socket", "os.sock"]);
        run_to_end(command.current_dir(&self.work).stdout(Stdio::null()))
    }

    fn stop(&mut self) -> Result<()> {
        run_to_end(Command::new("kill").arg(self.child.id().to_string()))?;
        if !self.child.wait()?.success() {
            bail!("the server failed");
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the server has stopped already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run_to_end(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed");
    }
    Ok(())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
