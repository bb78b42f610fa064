//! Checks that the tests named in the table of clauses, `docs/conformance/sys-loop.md`, exist.

const TABLE: &str = include_str!("../../../../docs/conformance/sys-loop.md");

const FILES: [(&str, &str); 22] = [
    ("reactor/tests/fairness.rs", include_str!("fairness.rs")),
    ("reactor/tests/frames.rs", include_str!("frames.rs")),
    ("reactor/tests/handles.rs", include_str!("handles.rs")),
    ("reactor/tests/malformed.rs", include_str!("malformed.rs")),
    ("reactor/tests/messages.rs", include_str!("messages.rs")),
    ("reactor/tests/model.rs", include_str!("model.rs")),
    ("reactor/tests/polls.rs", include_str!("polls.rs")),
    ("reactor/tests/timers.rs", include_str!("timers.rs")),
    ("reactor/tests/vectors.rs", include_str!("vectors.rs")),
    ("reactor/tests/watches.rs", include_str!("watches.rs")),
    ("sim/tests/reactor.rs", include_str!("../../../proof/sim/tests/reactor.rs")),
    ("zabi/tests/aio.rs", include_str!("../../../guests/zabi/tests/aio.rs")),
    ("zabi/tests/bus_and_async.rs", include_str!("../../../guests/zabi/tests/bus_and_async.rs")),
    ("zabi/tests/core_calls.rs", include_str!("../../../guests/zabi/tests/core_calls.rs")),
    ("zabi/tests/http.rs", include_str!("../../../guests/zabi/tests/http.rs")),
    ("zabi/tests/info.rs", include_str!("../../../guests/zabi/tests/info.rs")),
    ("zabi/tests/loops.rs", include_str!("../../../guests/zabi/tests/loops.rs")),
    ("zabi/tests/malformed.rs", include_str!("../../../guests/zabi/tests/malformed.rs")),
    ("zabi/tests/release.rs", include_str!("../../../guests/zabi/tests/release.rs")),
    ("zabi/tests/tcp.rs", include_str!("../../../guests/zabi/tests/tcp.rs")),
    ("zabi/tests/vectors.rs", include_str!("../../../guests/zabi/tests/vectors.rs")),
    ("zi/tests/native.rs", include_str!("../../../guests/zi/tests/native.rs")),
];

#[test]
fn every_test_the_table_names_exists() {
    let named: Vec<(&str, &str)> = TABLE
        .split('`')
        .filter_map(|quoted| quoted.split_once("::"))
        // The table's head explains the form of an entry by this path.
        .filter(|(file, _)| *file != "path/of/file.rs")
        .collect();
    assert!(named.len() > 50, "only {} are named", named.len());
    let text_of = |file: &str| {
        let found = FILES.iter().find(|(path, _)| *path == file);
        found.map_or("", |(_, text)| text)
    };
    let missing: Vec<String> = named
        .into_iter()
        .filter(|(file, function)| !text_of(file).contains(&format!("fn {function}(")))
        .map(|(file, function)| format!("{file}::{function}"))
        .collect();
    assert!(missing.is_empty(), "the table names tests that are not there:\n{}", missing.join("\n"));
}
