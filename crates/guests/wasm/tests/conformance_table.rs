//! The table of clauses names tests that exist, and every scenario is a test of both generations.
#![allow(clippy::unwrap_used)]

use std::path::Path;

#[test]
fn every_test_the_table_names_exists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = std::fs::read_to_string(crates.join("../docs/conformance/voyd.md")).unwrap();
    let named: Vec<(&str, &str)> = table
        .split('`')
        .filter_map(|quoted| quoted.split_once("::"))
        // The first name is the explanation of the form.
        .filter(|(file, _)| file.ends_with(".rs") && *file != "path/of/file.rs")
        .collect();
    assert!(named.len() > 60, "only {} are named", named.len());
    // The table names crates without their parent folders (`engines`, `guests`, ...).
    let text_of = |file: &str| {
        let floors = std::fs::read_dir(&crates).unwrap().map(|floor| floor.unwrap().path().join(file));
        floors.filter_map(|path| std::fs::read_to_string(path).ok()).collect::<String>()
    };
    let both = ["wasm/tests/conformance_a.rs", "wasm/tests/conformance_b.rs"].map(text_of);
    let exists = |(file, function): &(&str, &str)| {
        let is_scenario = *file == "wasm/tests/support/scenarios.rs";
        let in_both = || both.iter().all(|text| text.contains(&format!("    {function},")));
        text_of(file).contains(&format!("fn {function}(")) && (!is_scenario || in_both())
    };
    let missing: Vec<String> = named
        .into_iter()
        .filter(|test| !exists(test))
        .map(|(file, function)| format!("{file}::{function}"))
        .collect();
    assert!(missing.is_empty(), "the table names tests that are not there:\n{}", missing.join("\n"));
}
