//! The dashboard and the alerts of `monitoring/`, tried on the real programs: Prometheus watches the real binary under
//! load, and every expression must be understood and answered. `cargo xtask engines -- cargo test` installs Prometheus.

// Every module uses only some functions of the harness.
#![allow(dead_code, unreachable_pub)]

mod dashboard;
mod load;
mod prometheus;
#[path = "../bus/server.rs"]
mod server;
#[path = "../bus/socket.rs"]
mod socket;

use std::collections::BTreeSet;

use crate::load::Load;
use crate::prometheus::{MONITORING, Prometheus, promtool};
use crate::server::{Server, eventually};

#[test]
fn the_rules_are_valid_and_every_alert_fires_on_what_it_is_for() {
    promtool(&["check", "rules", "alerts.yml"], None);
    promtool(&["test", "rules", "alerts.test.yml"], None);
}

#[test]
fn every_expression_is_answered_under_load() {
    let server = Server::with(&["--max-attempts", "1"]);
    let mut load = Load::begin(&server);
    let prometheus = Prometheus::watching(&server);
    let mut unanswered: Vec<String> = dashboard::expressions();
    assert!(unanswered.len() > 60, "the dashboard has {} expressions", unanswered.len());
    // An alert's expression has no answer while all is well; the series that it looks at must be there.
    let alerts = prometheus.alerts();
    assert!(alerts.len() >= 15, "{alerts:?}");
    let series: BTreeSet<&str> = alerts.iter().flat_map(|alert| series(&alert.expression)).collect();
    unanswered.extend(series.into_iter().map(|name| format!("count({name})")));
    eventually(&format!("some of these have no answer: {unanswered:#?}"), || {
        load.step();
        unanswered.retain(|expression| !prometheus.answers(expression));
        if unanswered.len() < 6 {
            eprintln!("no answer yet: {unanswered:?}");
        }
        unanswered.is_empty()
    });
    for alert in &alerts {
        prometheus.answers(&alert.expression);
    }
}

#[test]
fn the_page_pleases_promtool() {
    let server = Server::start();
    Load::begin(&server).step();
    let (status, page) = server.request("GET", "/metrics", None);
    assert_eq!(status, 200);
    promtool(&["check", "metrics"], Some(&page));
}

#[test]
fn every_alert_has_its_section_in_the_documentation() {
    let docs = std::fs::read_to_string(format!("{MONITORING}/../docs/operations.md")).expect("the document");
    let headings: BTreeSet<String> =
        docs.lines().filter_map(|line| line.strip_prefix("#### ")).map(str::to_lowercase).collect();
    let rules = std::fs::read_to_string(format!("{MONITORING}/alerts.yml")).expect("the rules");
    let named: BTreeSet<String> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .map(str::to_lowercase)
        .collect();
    let linked: BTreeSet<String> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("runbook: docs/operations.md#"))
        .map(str::to_owned)
        .collect();
    assert_eq!(named, linked);
    assert!(linked.is_subset(&headings), "{linked:?} are not all in {headings:?}");
}

/// The names of our series in an expression.
fn series(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("millrace_"))
}
