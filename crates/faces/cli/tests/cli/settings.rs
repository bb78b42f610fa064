//! Settings from defaults, file, environment and flags: each overrides the one before, and each is checked.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::run::{command, finish, run, run_in};
use crate::server::Server;

fn folder_with(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("millrace.toml"), config).unwrap();
    folder
}

fn setting(value: impl Into<Value>, from: &str) -> Value {
    json!({ "value": value.into(), "from": from })
}

#[test]
fn flags_beat_environment_beats_file_beats_default() {
    let folder =
        folder_with("ack_timeout_ms = 1\nmax_attempts = 2\nmax_inflight = 3\nallow_origin = ['http://a']\n");
    let env = [("MILLRACE_MAX_ATTEMPTS", "4"), ("MILLRACE_MAX_INFLIGHT", "5"), ("MILLRACE_TOKEN", "hunter2")];
    let args = ["config", "print", "--json", "--config", "millrace.toml", "--max-inflight", "6"];
    let shown = run_in(folder.path(), &env, &args).json();
    assert_eq!(shown["dedupe-window-ms"], setting(json!(86_400_000), "default"));
    assert_eq!(shown["ack-timeout-ms"], setting(json!(1), "file millrace.toml"));
    assert_eq!(shown["max-attempts"], setting(json!(4), "environment MILLRACE_MAX_ATTEMPTS"));
    assert_eq!(shown["max-inflight"], setting(json!(6), "flag"));
    assert_eq!(shown["allow-origin"], setting(json!(["http://a"]), "file millrace.toml"));
    assert_eq!(shown["token"], setting(json!("(secret)"), "environment MILLRACE_TOKEN"));
}

#[test]
fn the_names_of_the_source_document_work_and_ours_beat_them() {
    let folder = folder_with("");
    let env = [
        ("BUS_PORT", "7171"),
        ("BUS_ACK_TIMEOUT_MS", "9"),
        ("BUS_MAX_INFLIGHT", "8"),
        ("MILLRACE_MAX_INFLIGHT", "7"),
        ("BUS_URL", "ws://h:1/"),
        ("MILLRACE_CONFIG", "millrace.toml"),
        ("MILLRACE_SERVICE_HOST", "10.0.0.1"),
        ("MILLRACE_PORT", "tcp://10.0.0.1:7070"),
        ("MILLRACE_STORE", ""),
    ];
    let shown = run_in(folder.path(), &env, &["config", "print", "--json"]).json();
    assert_eq!(shown["listen"], setting(json!("127.0.0.1:7171"), "environment BUS_PORT"));
    assert_eq!(shown["ack-timeout-ms"], setting(json!(9), "environment BUS_ACK_TIMEOUT_MS"));
    assert_eq!(shown["max-inflight"], setting(json!(7), "environment MILLRACE_MAX_INFLIGHT"));
    assert_eq!(shown["url"], setting(json!("ws://h:1/"), "environment BUS_URL"));
    assert_eq!(shown["store"]["from"], "default", "a variable set to nothing is not set");
}

#[test]
fn the_table_for_people_names_every_setting() {
    let shown = run(&["config", "print"]).ok();
    for name in
        ["listen", "store", "durability", "ack-timeout-ms", "frame-bytes-max", "outbound-bytes-max", "url"]
    {
        assert!(
            shown.lines().any(|line| line.starts_with(name) && line.ends_with("default")),
            "{name}: {shown}"
        );
    }
}

#[test]
fn what_is_wrong_is_named_with_its_value_and_what_is_accepted() {
    for (config, env, args, parts) in [
        (
            "",
            None,
            vec!["--max-attempts", "0"],
            vec!["max-attempts", "\"0\"", "flag", "a whole number from 1 to 4294967295"],
        ),
        ("", None, vec!["--list-max", "0"], vec!["list-max", "\"0\"", "a whole number from 1 on"]),
        ("", None, vec!["--durability", "disk"], vec!["durability", "\"disk\"", "fsync, os, memory"]),
        ("", None, vec!["--store", "redis://x"], vec!["store", "redis://x", "sqlite:///FILE"]),
        ("", None, vec!["--listen", "7070"], vec!["listen", "\"7070\"", "127.0.0.1:7070"]),
        (
            "",
            None,
            vec!["--advertise", "broker.example:7070"],
            vec!["advertise", "broker.example:7070", "http://HOST:PORT"],
        ),
        ("", None, vec!["--cache", ""], vec!["cache", "\"\"", "the path of a folder"]),
        ("", Some(("MILLRACE_FOLLOW_MS", "x")), vec![], vec!["follow-ms", "\"x\"", "a whole number"]),
        ("", None, vec!["--socket", ""], vec!["socket", "\"\"", "none"]),
        ("", None, vec!["--allow-origin", "example.org"], vec!["allow-origin", "example.org", "https://"]),
        ("", None, vec!["--insecure=maybe"], vec!["insecure", "maybe", "true or false"]),
        ("", Some(("MILLRACE_GRACE_MS", "5s")), vec![], vec!["grace-ms", "\"5s\"", "MILLRACE_GRACE_MS"]),
        (
            "",
            Some(("MILLRACE_GRACE", "5")),
            vec![],
            vec!["MILLRACE_GRACE=5", "no setting", "MILLRACE_GRACE_MS"],
        ),
        ("", Some(("BUS_PORT", "70000")), vec![], vec!["BUS_PORT", "\"70000\"", "0 to 65535"]),
        ("grace-ms = 5", None, vec![], vec!["grace-ms = 5", "millrace.toml", "no setting", "grace_ms"]),
        ("colour = 'red'", None, vec![], vec!["colour", "red", "no setting"]),
        ("grace_ms = '5'", None, vec![], vec!["grace-ms", "\"5\"", "millrace.toml", "a whole number"]),
        ("grace_ms = -5", None, vec![], vec!["grace-ms", "\"-5\"", "a whole number"]),
        ("[auth]\ntokens = []", None, vec![], vec!["auth.tokens", "empty", "millrace.toml"]),
        ("grace_ms = ", None, vec![], vec!["millrace.toml", "not valid TOML"]),
    ] {
        let folder = folder_with(config);
        let args = [vec!["config", "print", "--config", "millrace.toml"], args].concat();
        run_in(folder.path(), &env.into_iter().collect::<Vec<_>>(), &args).refused(2, &parts);
    }
    run(&["config", "print", "--config", "/no/such/file"]).refused(2, &["config", "/no/such/file"]);
    run(&["config", "print", "--no-such-flag"]).refused(2, &["--no-such-flag"]);
}

#[test]
fn a_leader_is_not_replaced_within_a_moment() {
    run(&["serve", "--lead-timeout-ms", "499"]).refused(2, &["lead-timeout-ms is 499", "at least 500"]);
    // The refusal does not show the password.
    run(&["serve", "--otlp-endpoint", "http://user:secret@collector"])
        .refused(2, &["otlp-endpoint is \"http://***@collector\"", "otlp-headers"]);
}

#[test]
fn a_secret_is_never_shown() {
    let shown = run(&["config", "print", "--token", "hunter2"]).ok();
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn settings_reach_the_server() {
    let folder = folder_with("no_auto_create = true\n");
    let config = folder.path().join("millrace.toml");
    let server = Server::with(&["--config", config.to_str().unwrap()]);
    let ran = run(&["pub", "t", "1", "--url", &server.ws_url()]);
    ran.refused(1, &["not created automatically"]);
}

/// The spellings of the source document name a store that is waited for: nothing listens on this port.
#[test]
fn mongo_url_and_mongo_db_name_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = command(&["serve", "--listen", "127.0.0.1:0", "--socket", "none"])
        .current_dir(folder.path())
        .env("MONGO_URL", "mongodb://someone:secret@127.0.0.1:1")
        .env("MONGO_DB", "orders")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    child.kill().unwrap();
    let ran = finish(child.wait_with_output().unwrap());
    assert!(line.contains("\"store\":\"mongodb://someone@127.0.0.1:1/orders\""), "{line}");
    assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
}

#[test]
fn the_password_of_a_store_is_shown_nowhere() {
    let url = "postgres://ann:s3cret@db/app?schema=one&password=s3cret";
    let folder = folder_with(&format!("store = \"{url}\"\n"));
    let mongo = [("MONGO_URL", "mongodb://ann:s3cret@db/old"), ("MONGO_DB", "app")];
    for (env, args, shown) in [
        (&[][..], &["--config", "millrace.toml"][..], "postgres://ann@db/app?schema=one"),
        (&[("MILLRACE_STORE", url)], &[], "postgres://ann@db/app?schema=one"),
        (&[], &["--store", url], "postgres://ann@db/app?schema=one"),
        (&mongo, &[], "mongodb://ann@db/app"),
    ] {
        for form in [&["config", "print"][..], &["config", "print", "--json"]] {
            let ran = run_in(folder.path(), env, &[form, args].concat());
            let text = ran.ok();
            assert!(text.contains(shown) && !text.contains("s3cret"), "{text}");
        }
    }
    for misspelt in ["Postgres://ann:s3cret@db/app", "postgres:/ann:s3cret@db/app", "mysql://ann:s3cret@db"] {
        let ran = run_in(folder.path(), &[], &["config", "print", "--store", misspelt]);
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
        ran.refused(2, &["store is", "postgres://"]);
    }
}
