//! `millrace send` against a fake server that answers only what a test tells it to.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::run::{Ran, command, run, run_in, run_with_stdin};
use crate::server::Server;

struct Fake {
    folder: TempDir,
    path: PathBuf,
    lines: JoinHandle<Vec<String>>,
}

impl Fake {
    /// Starts a server that reads everything until the client stops writing, sends what `answer` returns, and closes.
    fn start(answer: impl FnOnce(&[String]) -> Vec<String> + Send + 'static) -> Fake {
        Fake::serving(|mut stream| {
            let lines: Vec<_> =
                BufReader::new(stream.try_clone().unwrap()).lines().map(|line| line.unwrap()).collect();
            for answer in answer(&lines) {
                writeln!(stream, "{answer}").unwrap();
            }
            lines
        })
    }

    fn serving(serve: impl FnOnce(UnixStream) -> Vec<String> + Send + 'static) -> Fake {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("os.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let lines = std::thread::spawn(move || serve(listener.accept().unwrap().0));
        Fake { folder, path, lines }
    }

    fn socket(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn lines(self) -> Vec<String> {
        self.lines.join().unwrap()
    }
}

fn outcome(kind: &str, causation: &Value, data: &Value) -> String {
    let metadata = json!({ "id": "r", "timestamp": 1, "causation": causation });
    json!({ "kind": kind, "type": "A.B", "data": data, "metadata": metadata }).to_string()
}

fn id_of(line: &str) -> Value {
    serde_json::from_str::<Value>(line).unwrap()["metadata"]["id"].clone()
}

fn reply_to(line: &str) -> String {
    outcome("reply", &id_of(line), &json!(1))
}

fn failed(ran: &Ran, words: &str) {
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains(words), "{}", ran.stderr);
}

const WHOLE: &str =
    r#"{ "kind":"query","type":"A.B","data":1.0e0,"metadata":{"id":"own","timestamp":1}, "x":1}"#;

#[test]
fn metadata_is_added_only_where_it_is_missing() {
    let fake = Fake::start(|lines| lines.iter().map(|line| reply_to(line)).collect());
    let printed =
        run(&["send", "{\"kind\":\"query\",\n\"type\":\"A.B\",\"data\":{}}", "--socket", fake.socket()]).ok();
    let lines = fake.lines();
    assert_eq!(printed, reply_to(&lines[0]) + "\n");
    let sent: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(sent["metadata"]["id"].as_str().map(str::len), Some(36), "{sent}");
    assert!(sent["metadata"]["timestamp"].as_u64() > Some(1_600_000_000_000), "{sent}");

    let fake = Fake::start(|lines| lines.iter().map(|line| reply_to(line)).collect());
    run(&["send", WHOLE, "--socket", fake.socket(), "--json"]).ok();
    assert_eq!(fake.lines(), [WHOLE], "what is whole goes as it is");
}

#[test]
fn lines_of_stdin_go_and_outcomes_are_printed_as_they_come() {
    let fake = Fake::start(|lines| lines.iter().rev().map(|line| reply_to(line)).collect());
    let second = WHOLE.replace("own", "second");
    let printed =
        run_with_stdin(&["send", "-", "--socket", fake.socket()], &format!("{WHOLE}\r\n\n  \n{second}"));
    let lines = fake.lines();
    assert_eq!(lines, [WHOLE, &second]);
    assert_eq!(printed.ok(), format!("{}\n{}\n", reply_to(&lines[1]), reply_to(&lines[0])));
}

#[test]
fn an_error_outcome_is_printed_and_is_one() {
    let fake = Fake::start(|lines| {
        let fault = json!({ "code": 404, "message": "no such" });
        vec![reply_to(&lines[0]), outcome("error", &id_of(&lines[1]), &fault)]
    });
    let second = WHOLE.replace("own", "second");
    let ran = run_with_stdin(&["send", "--socket", fake.socket()], &format!("{WHOLE}\n{second}\n"));
    failed(&ran, "1 of 2 outcomes are errors");
    assert_eq!(ran.stdout.lines().count(), 2);
}

#[test]
fn what_is_no_message_goes_too_and_the_server_judges_it() {
    let refusal = outcome("error", &Value::Null, &json!({ "code": 400, "message": "Invalid JSON: ..." }));
    let answer = vec![refusal.clone()];
    let fake = Fake::start(|_| answer);
    let ran = run(&["send", "{nonsense", "--socket", fake.socket()]);
    failed(&ran, "1 of 1 outcomes are errors");
    assert_eq!(ran.stdout, refusal + "\n");
    assert_eq!(fake.lines(), ["{nonsense"]);
}

#[test]
fn an_answer_that_does_not_come_is_one() {
    let fake = Fake::start(|_| vec![]);
    let ran = run(&["send", WHOLE, "--socket", fake.socket()]);
    failed(&ran, "1 of 1 requests got no outcome: the server closed the connection");

    // This server holds the connection open until the client is gone.
    let fake = Fake::serving(|stream| {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(|line| line.unwrap()).collect();
        // Writing to a client that is gone fails; a living client ignores a blank line.
        while (&stream).write_all(b"\n").is_ok() {
            std::thread::yield_now();
        }
        lines
    });
    let ran = run(&["send", WHOLE, "--socket", fake.socket(), "--wait-ms", "30"]);
    failed(&ran, "1 of 1 requests got no outcome: no more came within 30 ms");
    drop(fake.lines());
}

#[test]
fn the_same_id_twice_needs_two_outcomes() {
    let fake = Fake::start(|lines| vec![reply_to(&lines[0])]);
    let ran = run_with_stdin(&["send", "--socket", fake.socket()], &format!("{WHOLE}\n{WHOLE}\n"));
    failed(&ran, "1 of 2 requests got no outcome");
}

#[test]
fn an_event_needs_no_answer() {
    let fake = Fake::start(|_| vec![]);
    let event = r#"{"kind":"event","type":"User.Created","data":{}}"#;
    assert_eq!(run(&["send", event, "--socket", fake.socket()]).ok(), "");
    assert_eq!(fake.lines().len(), 1);
}

#[test]
fn a_socket_that_is_not_there_is_three() {
    run(&["send", WHOLE, "--socket", "/nonexistent/os.sock"])
        .refused(3, &["cannot reach /nonexistent/os.sock"]);
    let folder = tempfile::tempdir().unwrap();
    let runtime = folder.path().to_str().unwrap();
    let ran = run_in(folder.path(), &[("XDG_RUNTIME_DIR", runtime)], &["send", WHOLE]);
    ran.refused(3, &["cannot reach", runtime, "/millrace/millrace.sock"]);
    run(&["send", WHOLE, "--wait-ms", "0"]).refused(2, &["--wait-ms"]);
    run(&["send", WHOLE, "--socket", "none"]).refused(2, &["socket is none", "path"]);
}

#[test]
fn the_environment_names_the_socket() {
    let fake = Fake::start(|lines| lines.iter().map(|line| reply_to(line)).collect());
    let ran = run_in(fake.folder.path(), &[("MILLRACE_SOCKET", fake.socket())], &["send", WHOLE]);
    assert_eq!(ran.ok().lines().count(), 1);
    let help = command(&["send", "--help"]).output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains("Metadata that is absent is added"));
}

/// The server cannot name the request of such an error, but the error is the request's answer.
#[test]
fn a_line_that_is_too_long_is_told_from_an_answer_that_is_missing() {
    let server = Server::with(&["--socket", "os.sock"]);
    let path = server.folder().join("os.sock");
    let socket = path.to_str().unwrap();
    let ping = |payload: &str| {
        format!(r#"{{"kind":"query","type":"Syscall.Ping","data":{{"payload":"{payload}"}}}}"#)
    };
    let ran = run_with_stdin(
        &["send", "-", "--socket", socket],
        &(ping(&"x".repeat(20_000)) + "\n" + &ping("fine")),
    );
    failed(&ran, "1 of 2 outcomes are errors");
    assert!(ran.stdout.contains("Message exceeds maximum line length of 16KB"), "{}", ran.stdout);
    assert_eq!(ran.stdout.lines().count(), 2);
}

#[test]
fn what_is_missing_beside_metadata_is_all_the_server_speaks_of() {
    let server = Server::with(&["--socket", "os.sock"]);
    let socket = server.folder().join("os.sock");
    let send = |message: &str| run(&["send", message, "--socket", socket.to_str().unwrap()]);
    for message in [
        r#"{"kind":"query","type":"Syscall.Ping"}"#,
        r#"{"kind":"query","type":"Syscall.Ping","metadata":null}"#,
        r#"{"kind":"query","type":"Syscall.Ping","metadata":{"correlation":"c"}}"#,
    ] {
        let ran = send(message);
        failed(&ran, "1 of 1 outcomes are errors");
        assert!(
            ran.stdout.contains("data is missing") && !ran.stdout.contains("metadata is"),
            "{}",
            ran.stdout
        );
        assert!(!ran.stdout.contains("metadata."), "{}", ran.stdout);
    }
    failed(&send("[1]"), "1 of 1 outcomes are errors");
}

#[test]
fn the_default_socket_is_trusted_only_in_a_folder_of_ones_own() {
    use std::os::unix::fs::PermissionsExt;
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("millrace");
    std::fs::create_dir(&folder).unwrap();
    let listener = UnixListener::bind(folder.join("millrace.sock")).unwrap();
    listener.set_nonblocking(true).unwrap();
    // With these permissions the folder cannot be trusted: anybody may have put the socket there.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let env = [("XDG_RUNTIME_DIR", base.path().to_str().unwrap())];
    for args in [
        &["send", WHOLE, "--token", "secret"][..],
        &["send", WHOLE],
        &["trace", "--id", "a", "--token", "secret"],
    ] {
        run_in(base.path(), &env, args).refused(1, &["is not yours alone", "--socket"]);
    }
    let heard = listener.accept();
    assert!(
        heard.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
        "nobody was connected to"
    );
}

#[test]
fn a_message_is_made_of_its_type_and_data() {
    let server = Server::with(&["--socket", "os.sock"]);
    let socket = server.folder().join("os.sock").display().to_string();
    let send = |args: &[&str]| run(&[&["send"], args, &["--socket", &socket]].concat());
    let data = |ran: &Ran| -> Value {
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        serde_json::from_str::<Value>(&ran.stdout).unwrap()["data"].clone()
    };
    // The server knows the kind of the request.
    assert_eq!(data(&send(&["Memory.Set", r#"{"key":"/a","value":[1]}"#]))["message"], "Set /a");
    assert_eq!(data(&send(&["Memory.Get", r#"{"key":"/a"}"#])), json!([1]));
    assert_eq!(data(&send(&["Syscall.Ping"])), json!({}), "data may be left out");
    assert_eq!(send(&["User.Created", "{}", "--kind", "event"]).code, Some(0), "nobody answers an event");
    let nobody = send(&["User.Created"]);
    assert_eq!(nobody.code, Some(1));
    assert!(nobody.stderr.contains("nobody handles User.Created: to send it as an event give --kind event"));
    let wrong = send(&["Memory.Get", r#"{"key":"/a"}"#, "--kind", "command"]);
    assert_eq!(wrong.code, Some(1), "what is said is sent: {}", wrong.stdout);
    for args in [&["Memory.Get", "{oops"][..], &["Memory.Get", "{}", "--kind", "reply"], &["{}", "{}"]] {
        assert_eq!(send(args).code, Some(2), "{args:?}");
    }
}

#[test]
fn capabilities_are_listed_and_shown_in_full() {
    let server = Server::with(&["--socket", "os.sock"]);
    let socket = server.folder().join("os.sock").display().to_string();
    let list = |args: &[&str]| run(&[&["capabilities"], args, &["--socket", &socket]].concat());
    let all = list(&[]);
    assert_eq!(all.code, Some(0), "{}", all.stderr);
    assert!(all.stdout.starts_with("TYPE "), "{}", all.stdout);
    let line = all.stdout.lines().find(|line| line.starts_with("Memory.Set ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..3], ["Memory.Set", "command", "Memory"]);
    let memory = list(&["Memory", "--json"]);
    assert_eq!(memory.stdout.lines().count(), 4, "{}", memory.stdout);
    let first: Value = serde_json::from_str(memory.stdout.lines().next().unwrap()).unwrap();
    assert_eq!((&first["type"], &first["kind"]), (&json!("Memory.Delete"), &json!("command")));
    let one = list(&["Memory.Set"]);
    assert!(one.stdout.starts_with("Memory.Set: command of Memory\n"), "{}", one.stdout);
    assert!(one.stdout.contains("input: {"));
    let none = list(&["Nobody"]);
    assert_eq!(none.code, Some(1));
    assert!(none.stderr.contains("no capability and no type is named Nobody"));
}
