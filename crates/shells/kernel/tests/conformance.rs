//! Checks that the tests named in the table `docs/conformance/rfc0032.md` exist.
#![allow(clippy::unwrap_used)]

use std::path::Path;

#[test]
fn every_test_the_table_names_exists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = std::fs::read_to_string(crates.join("../docs/conformance/rfc0032.md")).unwrap();
    let named: Vec<(&str, &str)> = table
        .split('`')
        .filter_map(|quoted| quoted.split_once("::"))
        .filter(|(file, _)| file.ends_with(".rs"))
        .collect();
    assert!(named.len() > 80, "only {} are named", named.len());
    let missing: Vec<String> = named
        .into_iter()
        // The first name only explains the form.
        .filter(|(file, _)| *file != "path/of/file.rs")
        .filter(|(file, function)| {
            // The table names crates without their folder (floor) under `crates`.
            let floors = std::fs::read_dir(&crates).unwrap().map(|floor| floor.unwrap().path().join(file));
            let text = floors.filter_map(|path| std::fs::read_to_string(path).ok()).collect::<String>();
            !text.contains(&format!("fn {function}("))
        })
        .map(|(file, function)| format!("{file}::{function}"))
        .collect();
    assert!(missing.is_empty(), "the table names tests that are not there:\n{}", missing.join("\n"));
}
