//! `millrace health`: the answer of a health check, and why.

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::run::{run, run_in};
use crate::server::{Server, eventually};

/// A URL that nothing listens on (port 1).
const NOWHERE: &str = "http://127.0.0.1:1/";

#[test]
fn a_server_that_is_ready_is_zero() {
    let server = Server::start();
    let url = server.http_url();
    assert_eq!(run(&["health", "--url", &server.ws_url()]).ok(), format!("{url} is ready\n"));
    assert_eq!(run(&["health", "--url", &url, "--json"]).json(), json!({"ready": true, "url": url}));
}

#[test]
fn the_server_of_the_same_settings_is_asked_without_a_url() {
    let server = Server::with(&["--probe-listen", "127.0.0.1:0"]);
    let address = |url: &Value| url.as_str().unwrap().replace("http://", "");
    let (listen, probe) = (address(&server.ready()["http"]), address(&server.ready()["probe"]));
    // A container's health check has the container's environment and nothing else.
    let anywhere = listen.replace("127.0.0.1", "0.0.0.0");
    let folder = tempfile::tempdir().unwrap();
    let asked = |env: &[(&str, &str)]| run_in(folder.path(), env, &["health"]).ok();
    assert_eq!(asked(&[("MILLRACE_LISTEN", &anywhere)]), format!("http://{listen} is ready\n"));
    let both = [("MILLRACE_LISTEN", "127.0.0.1:1"), ("MILLRACE_PROBE_LISTEN", probe.as_str())];
    assert_eq!(asked(&both), format!("http://{probe} is ready\n"));
    std::fs::write(folder.path().join("m.toml"), format!("listen = \"{listen}\"\n")).unwrap();
    assert_eq!(asked(&[("MILLRACE_CONFIG", "m.toml")]), format!("http://{listen} is ready\n"));
}

#[test]
fn the_own_server_is_asked_over_tls_whatever_name_its_certificate_has() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["broker.example".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let server = Server::with(&["--tls-cert", cert, "--tls-key", key]);
    let url = server.http_url();
    let listen = url.replace("https://", "");
    let env = [("MILLRACE_LISTEN", listen.as_str()), ("MILLRACE_TLS_CERT", cert)];
    assert_eq!(run_in(folder.path(), &env, &["health"]).ok(), format!("{url} is ready\n"));
    // Asked by its address, the server must prove that it has that name.
    run(&["health", "--url", &url, "--tls-ca", cert]).refused(1, &["cannot reach", "certificate"]);
}

#[test]
fn a_server_that_is_not_there_or_does_not_answer_is_one() {
    run(&["health", "--url", NOWHERE]).refused(1, &["cannot reach http://127.0.0.1:1", "refused"]);
    let server = Server::start();
    let url = server.http_url();
    server.signal("STOP");
    run(&["health", "--url", &url, "--timeout-ms", "200"]).refused(1, &["did not answer within 200 ms"]);
    server.signal("CONT");
    run(&["health", "--url", &url]).ok();
}

#[test]
fn a_server_that_is_not_ready_says_why() {
    let server = Server::with(&["--commit-stall-ms-max", "100", "--store-busy-timeout-ms", "200"]);
    let url = server.http_url();
    let store = Connection::open(server.folder().join("test.db")).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    let publishing = std::thread::spawn({
        let url = url.clone();
        move || run(&["pub", "t", "1", "--url", &url])
    });
    let waits = "another program has locked the store";
    eventually("the reason is known", || run(&["health", "--url", &url]).stderr.contains(waits));
    run(&["health", "--url", &url]).refused(1, &["is not ready", waits, "storage_failed"]);
    let ran = run(&["health", "--url", &url, "--json"]);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &said["ready"], ran.stderr.as_str()), (Some(1), &json!(false), ""));
    assert!(said["why"].as_str().unwrap().contains(waits), "{said}");
    store.execute_batch("ROLLBACK").unwrap();
    publishing.join().unwrap().ok();
    eventually("the server is ready again", || run(&["health", "--url", &url]).code == Some(0));
}

#[test]
fn wrong_usage_is_two() {
    run(&["health", "--url", "a:1,b:2"]).refused(2, &["names 2 servers", "--url"]);
    run(&["health", "--url", "nonsense"]).refused(2, &["nonsense"]);
    run(&["health", "--timeout-ms", "0"]).refused(2, &["--timeout-ms"]);
    let folder = tempfile::tempdir().unwrap();
    let env = [("MILLRACE_LISTEN", "127.0.0.1:0")];
    run_in(folder.path(), &env, &["health"]).refused(2, &["listen is 127.0.0.1:0", "--url"]);
}
