//! The expressions of the dashboard, with its variables filled in as Grafana would.

use serde_json::Value;

use crate::prometheus::MONITORING;

/// The values of the dashboard's variables while all is chosen and the load is a few seconds old.
const VARIABLES: [(&str, &str); 5] =
    [("$__rate_interval", "30s"), ("$namespace", ".*"), ("$topic", ".*"), ("$group", ".*"), ("$job", ".*")];

pub fn expressions() -> Vec<String> {
    let text = std::fs::read_to_string(format!("{MONITORING}/grafana.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut found: Vec<String> =
        targets.map(|target| filled_in(target["expr"].as_str().expect("an expression"))).collect();
    let variables = dashboard["templating"]["list"].as_array().expect("variables").iter();
    found.extend(variables.filter_map(|variable| variable["definition"].as_str()).map(of_label_values));
    found
}

fn filled_in(expression: &str) -> String {
    let filled =
        VARIABLES.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value));
    assert!(!filled.contains('$'), "an unknown variable in {filled}");
    filled
}

/// The series behind `label_values(SERIES, LABEL)`, which is a function of Grafana, grouped by the label.
fn of_label_values(query: &str) -> String {
    let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
    let (series, label) = inner.and_then(|inner| inner.rsplit_once(", ")).expect("a series and a label");
    filled_in(&format!("count by ({label}) ({series})"))
}
