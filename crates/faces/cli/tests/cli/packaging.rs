//! The files that put the binary on machines: every flag, setting and path in them must exist. The commands
//! that a container engine would run in the image are run with the binary itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use toml::Table;

use crate::run::{Ran, command, finish, run, run_in};
use crate::server::Server;

const STATE: &str = "/var/lib/millrace";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap().to_owned()
}

fn source(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The instructions of the Dockerfile: lines that end in a backslash go on.
fn instructions() -> Vec<(String, String)> {
    let text = source("Dockerfile").replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parts = lines.map(|line| line.split_once(' ').expect("an instruction and its arguments"));
    parts.map(|(name, rest)| (name.to_owned(), rest.trim().to_owned())).collect()
}

fn instruction(name: &str) -> String {
    let (_, rest) = instructions().into_iter().find(|(found, _)| found == name).unwrap();
    rest
}

/// The words of a JSON list, as Dockerfiles and our compose files write commands.
fn words(list: &str) -> Vec<String> {
    serde_json::from_str(list).unwrap_or_else(|error| panic!("{error}: {list}"))
}

fn image_settings() -> BTreeMap<String, String> {
    let settings = instruction("ENV");
    let pairs = settings.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn the_image_is_built_from_what_is_there() {
    let build = instructions().into_iter().find(|(_, rest)| rest.starts_with("cargo build")).unwrap().1;
    let flag = |name: &str| build.split(' ').skip_while(|word| *word != name).nth(1).unwrap().to_owned();
    let manifest: Table = source("Cargo.toml").parse().unwrap();
    assert!(manifest["profile"].get(flag("--profile")).is_some(), "{build}");
    // The build takes the package of that name, as Cargo.lock has it.
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--depth", "0", "--package", &flag("--package")])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let built = format!("/src/target/{}/millrace", flag("--profile"));
    for (name, rest) in instructions() {
        match (name.as_str(), rest.strip_prefix("--from=build ")) {
            ("COPY", Some(copied)) => assert!(copied.starts_with(&built), "{copied}"),
            ("COPY", None) => {
                let (sources, _) = rest.rsplit_once(' ').unwrap();
                for source in sources.split(' ') {
                    assert!(root().join(source).exists(), "{source}");
                }
            }
            _ => {}
        }
    }
    assert!(source(".dockerignore").lines().any(|line| line == "target"));
    let user = instruction("USER");
    assert!(
        user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)),
        "not root, and checkable: {user}"
    );
}

#[test]
fn the_image_serves_with_a_token_and_is_found_healthy() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    // The image's own settings; only its folder is elsewhere, and the port is free.
    let here = |value: String| value.replace(STATE, state).replace(":7070", ":0");
    let settings: Vec<_> = image_settings().into_iter().map(|(name, value)| (name, here(value))).collect();
    let settings: Vec<_> = settings.iter().map(|(name, value)| (name.as_str(), Path::new(value))).collect();
    let [entry] = &words(&instruction("ENTRYPOINT"))[..] else { panic!("one word") };
    assert_eq!((entry.as_str(), words(&instruction("CMD"))), ("millrace", vec!["serve".to_owned()]));
    let store = settings.iter().find(|(name, _)| *name == "MILLRACE_STORE").unwrap().1.to_str().unwrap();
    let server = Server::with_env(&["--listen", "0.0.0.0:0", "--store", store], &settings);
    let token = std::fs::read_to_string(folder.path().join("admin-token")).unwrap();
    assert!(folder.path().join("millrace.db").exists());

    let check = instruction("HEALTHCHECK");
    let check = words(check.split_once("CMD ").unwrap().1);
    assert_eq!(check[0], "millrace");
    let arguments: Vec<&str> = check[1..].iter().map(String::as_str).collect();
    let listen = server.http_url().replace("http://", "");
    let healthy = || run_in(folder.path(), &[("MILLRACE_LISTEN", &listen)], &arguments);
    healthy().ok();
    let url = server.http_url().replace("0.0.0.0", "127.0.0.1");
    run(&["topics", "list", "--url", &url]).refused(1, &["wants a token"]);
    run(&["topics", "list", "--url", &url, "--token", token.trim()]).ok();
    drop(server);
    assert_eq!(healthy().code, Some(1));
}

/// Asks the binary for the settings that a command line and an environment give: refused if one does not exist.
fn settings_of(words: &[String], env: &BTreeMap<String, String>) -> Value {
    let flags: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(flags[0], "serve", "{words:?}");
    let mut print = command(&[&["config", "print", "--json"], &flags[1..]].concat());
    let ran: Ran = finish(print.envs(env).output().unwrap());
    ran.json()
}

#[test]
fn compose_files_name_settings_that_exist() {
    for (file, servers) in [("one-server.yaml", 1), ("two-servers.yaml", 2)] {
        let text = source(&format!("examples/compose/{file}"));
        let lines = |name: &str| {
            let lines = text.lines().map(str::trim).filter_map(|line| line.strip_prefix(name));
            lines.map(str::trim).map(str::to_owned).collect::<Vec<_>>()
        };
        let commands = lines("command:");
        assert_eq!(commands.len(), servers, "{file}");
        let mut env = image_settings();
        for line in text.lines().map(str::trim).filter(|line| line.starts_with("MILLRACE_")) {
            let (name, value) = line.split_once(": ").unwrap();
            env.insert(name.to_owned(), value.trim_matches('"').to_owned());
        }
        for command in commands {
            let settings = settings_of(&words(&command), &env);
            let is_open = settings["insecure"]["value"] == true;
            let has_token = settings["first-token"]["value"] != "";
            assert!(is_open != has_token, "{file}: open on purpose, or with a token");
        }
        let checks: Vec<_> = lines("test:").iter().map(|list| words(list)).collect();
        assert!(checks.iter().any(|words| words[1..] == ["millrace", "health"]), "{file}: {checks:?}");
        assert!(root().join("examples/compose").join(&lines("build:")[0]).join("Dockerfile").exists());
        // Every named volume is declared.
        let declared = text.split_once("\nvolumes:\n").unwrap().1;
        for volume in lines("volumes:").iter().filter(|list| !list.is_empty()).flat_map(|list| words(list)) {
            let name = volume.split(':').next().unwrap();
            assert!(declared.contains(&format!("  {name}: {{}}")), "{file}: {volume}");
        }
    }
}

#[test]
fn the_service_starts_with_the_shipped_settings() {
    let unit = source("packaging/millrace.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/millrace ")).unwrap();
    let shipped = root().join("packaging/millrace.toml").display().to_string();
    let words: Vec<String> =
        start.split(' ').map(|word| word.replace("/etc/millrace/millrace.toml", &shipped)).collect();
    let settings = settings_of(&words, &BTreeMap::new());
    for (setting, value) in [
        ("store", "sqlite:////var/lib/millrace/millrace.db"),
        ("socket", "/run/millrace/millrace.sock"),
        ("first-token", "/var/lib/millrace/admin-token"),
        ("listen", "127.0.0.1:7070"),
    ] {
        assert_eq!(settings[setting]["value"], value, "{setting}");
    }
    // Lines that are commented out are right, too.
    let uncommented: String = source("packaging/millrace.toml")
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
        .map(|line| line.replace("\"...\"", &format!("\"{}\"", "0".repeat(64))) + "\n")
        .collect();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("all.toml"), uncommented).unwrap();
    let all = run_in(folder.path(), &[], &["config", "print", "--json", "--config", "all.toml"]).json();
    assert_eq!(all["tls-cert"]["value"], "/etc/millrace/cert.pem");
    assert!(all["auth.tokens[0]"]["value"].as_str().unwrap().contains("agent=billing"), "{all}");
}
