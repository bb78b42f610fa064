//! `/metrics` as a scraper reads it: the text format strictly, names as documented, a bounded number of labels.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::server::{Server, eventually};

#[derive(Debug)]
struct Family {
    kind: String,
    /// Values by name and labels.
    samples: BTreeMap<String, f64>,
}

/// Parses the page strictly by the description of the format, and panics at anything else.
#[track_caller]
fn scrape(server: &Server) -> BTreeMap<String, Family> {
    let (status, text) = server.request("GET", "/metrics", None);
    assert_eq!(status, 200);
    assert!(text.ends_with('\n'));
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect("a name and words");
            assert!(words.ends_with('.'), "{line}");
            let kind =
                lines.next().and_then(|line| line.strip_prefix("# TYPE ")).expect("a type after the help");
            let (typed, kind) = kind.split_once(' ').expect("a name and a type");
            assert_eq!(typed, name);
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            let family = Family { kind: kind.to_owned(), samples: BTreeMap::new() };
            assert!(families.insert(name.to_owned(), family).is_none(), "{name} has two heads");
            name.clone_into(&mut current);
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a series and a value");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let name = series.split('{').next().expect("a name");
        let family = families.get_mut(&current).expect("a head before its samples");
        let fits = match family.kind.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"].iter().any(|end| name == format!("{current}{end}")),
            _ => name == current,
        };
        assert!(fits, "{line} stands under {current}");
        check_labels(series);
        assert!(family.samples.insert(series.to_owned(), value).is_none(), "{series} stands twice");
    }
    families
}

/// Returns the value of a series, requested with a token; zero if the series is missing.
pub fn value_as(server: &Server, token: &str, series: &str) -> f64 {
    let headers = [("authorization", format!("Bearer {token}"))];
    let mut response = server.send("GET", "/metrics", &headers, Vec::new());
    let text = response.body_mut().read_to_string().expect("a page");
    let line = text.lines().find_map(|line| line.strip_prefix("millrace_")?.strip_prefix(series));
    line.map_or(0.0, |value| value.trim().parse().expect("a number"))
}

fn check_labels(series: &str) {
    let Some((_, labels)) = series.split_once('{') else { return };
    let labels = labels.strip_suffix('}').expect("a closing brace");
    for label in labels.split("\",") {
        let (name, value) = label.split_once("=\"").expect("a name and a quoted value");
        assert!(
            [
                "namespace",
                "topic",
                "group",
                "handler",
                "schedule",
                "code",
                "class",
                "lane",
                "le",
                "reason",
                "durability",
                "version"
            ]
            .contains(&name),
            "{series}"
        );
        assert!(!value.trim_end_matches('"').contains(['"', '\\', '\n']), "{series}");
    }
}

#[test]
fn the_page_is_valid_and_adds_up() {
    let server = Server::with(&["--max-attempts", "1", "--metrics-interval-ms", "0"]);
    let mut socket = server.socket();
    socket.subscribe("t", "g", &json!({"max_inflight": 2, "ack_mode": "individual"}));
    for n in 0..4 {
        socket.send(&json!({"type": "PUBLISH", "topic": "t", "payload": n}));
    }
    for _ in 0..6 {
        socket.next();
    }
    socket.ack("t", "g", 1);
    socket.send_nack("t", "g", 2, &json!({"rid": 1}));
    socket.send(&json!({"type": "NOPE"}));
    socket.send(&json!({"type": "ACK", "topic": "t", "partition": 0, "group": "g", "offset": 99}));
    socket.drained();
    server.get("/topics/nowhere");
    let mut families = scrape(&server);
    eventually("the dead letter is stored", || {
        families = scrape(&server);
        families["millrace_events_lag"].samples["millrace_events_lag"] < 3.0
    });
    let value = |series: &str| {
        let name = series.split('{').next().expect("a name");
        let name = ["_count", "_sum"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        families[name].samples.get(series).copied().unwrap_or_else(|| panic!("no {series}"))
    };
    for (series, expected) in [
        ("millrace_events_published_total", 5.0),
        ("millrace_events_system_total", 1.0),
        ("millrace_events_delivered_total", 4.0),
        ("millrace_events_acked_total", 1.0),
        ("millrace_events_nacked_total", 1.0),
        ("millrace_events_dead_lettered_total{reason=\"refused\"}", 1.0),
        ("millrace_events_dead_lettered_total{reason=\"timeout\"}", 0.0),
        ("millrace_events_dead_lettered_total{reason=\"disconnect\"}", 0.0),
        ("millrace_dead_letters{namespace=\"default\",topic=\"t\"}", 1.0),
        ("millrace_publish_seconds_count{durability=\"fsync\"}", 4.0),
        ("millrace_publish_seconds_count{durability=\"memory\"}", 0.0),
        ("millrace_deliver_seconds_count", 4.0),
        ("millrace_ack_seconds_count", 1.0),
        ("millrace_group_paused{namespace=\"default\",topic=\"t\",group=\"g\"}", 0.0),
        ("millrace_events_inflight", 2.0),
        ("millrace_events_lag", 2.0),
        ("millrace_connections", 1.0),
        ("millrace_group_events_lag{namespace=\"default\",topic=\"t\",group=\"g\"}", 2.0),
        ("millrace_group_events_inflight{namespace=\"default\",topic=\"t\",group=\"g\"}", 2.0),
        ("millrace_topic_published_total{namespace=\"default\",topic=\"t\"}", 4.0),
        ("millrace_refusals_total{code=\"unknown_type\"}", 1.0),
        ("millrace_refusals_total{code=\"unknown_offset\"}", 1.0),
        ("millrace_refusals_total{code=\"rate_limited\"}", 0.0),
        ("millrace_storage_failed", 0.0),
    ] {
        assert!((value(series) - expected).abs() < 1e-9, "{series} is {}, not {expected}", value(series));
    }
    assert!(value("millrace_refusals_total{code=\"bad_topic\"}") >= 1.0, "over HTTP too");
    for name in ["group_lag_seconds", "group_oldest_inflight_seconds"] {
        let seconds = value(&format!("millrace_{name}{{namespace=\"default\",topic=\"t\",group=\"g\"}}"));
        assert!(seconds > 0.0, "{name} is {seconds}: two events have been in flight for a while");
    }
    assert!(value("process_resident_memory_bytes") > 1e6 && value("process_open_fds") > 3.0);
    assert!(value("process_start_time_seconds") > 1.7e9 && value("process_cpu_seconds_total") >= 0.0);
    let commits = value("millrace_commits_total");
    for name in ["commit_seconds", "commit_size_batches", "commit_size_events"] {
        let samples = &families[&format!("millrace_{name}")].samples;
        let infinite = samples[&format!("millrace_{name}_bucket{{le=\"+Inf\"}}")];
        assert!((infinite - samples[&format!("millrace_{name}_count")]).abs() < 1e-9, "{name}");
        assert!((infinite - commits).abs() < 1.5, "{name}: {infinite} of {commits}");
    }
    let events = families["millrace_commit_size_events"].samples["millrace_commit_size_events_sum"];
    assert!((events - value("millrace_commit_events_total")).abs() < 1e-9);
}

#[test]
fn labels_stay_within_their_bounds() {
    let server = Server::with(&["--topic-labels-max", "2", "--group-labels-max", "2"]);
    let mut socket = server.socket();
    for n in 0..10 {
        socket.subscribe(&format!("t{n}"), "g", &json!({}));
    }
    for n in 0..10 {
        server.post(&format!("/topics/t{n}/events"), &json!({"payload": 1}));
    }
    let families = scrape(&server);
    for name in [
        "topic_published_total",
        "topic_delivered_total",
        "group_events_lag",
        "group_events_inflight",
        "group_lag_seconds",
        "group_oldest_inflight_seconds",
        "group_paused",
    ] {
        let samples = &families[&format!("millrace_{name}")].samples;
        assert_eq!(samples.len(), 3, "{samples:?}");
        assert!(samples.keys().any(|series| series.contains("topic=\"(other)\"")), "{samples:?}");
    }
    let lag: f64 = families["millrace_group_events_lag"].samples.values().sum();
    assert!((lag - 10.0).abs() < 1e-9, "nothing is lost in the sum: {lag}");
}

#[test]
fn the_documented_metrics_are_the_served_ones() {
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/operations.md"))
        .expect("the document");
    // A store that several servers share has further figures, in a table of their own: the server's tests look at it.
    let section =
        docs.split("\n### Metrics\n").nth(1).and_then(|rest| rest.split("\n#").next()).expect("the table");
    let documented: BTreeSet<(String, String)> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter(|row| row.starts_with("millrace_") || row.starts_with("process_"))
        .map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let name = cells.next().and_then(|cell| cell.split(['`', '{']).next()).expect("a name");
            (name.to_owned(), cells.next().expect("a type").to_owned())
        })
        .collect();
    let served = scrape(&Server::start()).into_iter().map(|(name, family)| (name, family.kind)).collect();
    assert_eq!(documented, served);
}
