//! Programs that must not compile, with the place and the reason of each error.
//!
//! Each file under `compile_fail` marks a wrong line with `//~`, followed by an error code of the compiler or a part of
//! a message of our macros. The compiler's wording is not compared, so that a new compiler does not break these tests.
//! The files are compiled against the library that this test was built with, so there is no second build.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use serde_json::Value;

/// Returns the folder where cargo put this test and the libraries it uses.
fn libraries() -> PathBuf {
    let this = std::env::current_exe().expect("a test knows where it is");
    this.parent().expect("it is in a folder").to_owned()
}

/// Returns the builds of a library, newest first. There is one build per set of features; ours is the newest or was
/// refreshed since.
fn library(name: &str) -> Vec<PathBuf> {
    let mut found: Vec<(SystemTime, PathBuf)> = fs::read_dir(libraries())
        .expect("the folder can be read")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let file = path.file_name()?.to_str()?;
            let ours = file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib");
            Some((path.metadata().ok()?.modified().ok()?, path)).filter(|_| ours)
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

#[derive(Debug)]
struct Complaint {
    line: u64,
    code: Option<String>,
    message: String,
}

/// Compiles one file and returns the errors. `output` names the output file, so that tests running in parallel do not
/// share one.
fn compile(file: &Path, output: &str, millrace: &Path, serde: &Path) -> Vec<Complaint> {
    let extern_of = |name: &str, path: &Path| format!("{name}={}", path.display());
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let compiled = Command::new(rustc)
        .args(["--edition", "2024", "--error-format", "json", "--emit", "metadata", "--crate-type", "bin"])
        .args(["--extern", &extern_of("millrace", millrace), "--extern", &extern_of("serde", serde)])
        .arg("-L")
        .arg(format!("dependency={}", libraries().display()))
        .arg("-o")
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join(output))
        .arg(file)
        .output()
        .expect("there is a compiler");
    let text = String::from_utf8_lossy(&compiled.stderr).into_owned();
    let complaints: Vec<Complaint> = text.lines().filter_map(complaint).collect();
    assert_eq!(compiled.status.success(), complaints.is_empty(), "{text}");
    complaints
}

/// Reads one line of the compiler's JSON. Returns `None` for warnings and for the summary at the end, which has no
/// line.
fn complaint(line: &str) -> Option<Complaint> {
    let json: Value = serde_json::from_str(line).ok()?;
    let spans = json["spans"].as_array()?;
    let line = spans.iter().find(|span| span["is_primary"] == true)?["line_start"].as_u64()?;
    let code = json["code"]["code"].as_str().map(str::to_owned);
    (json["level"] == "error").then(|| Complaint { line, code, message: json["message"].to_string() })
}

/// Compiles `file` with the libraries that can also compile `control.rs`: with the wrong libraries, that file would
/// fail too.
fn against_the_right_libraries(file: &str) -> Vec<Complaint> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_fail");
    let mut refused = Vec::new();
    for millrace in library("millrace") {
        for serde in library("serde") {
            let control =
                compile(&folder.join("control.rs"), &format!("control for {file}"), &millrace, &serde);
            if control.is_empty() {
                return compile(&folder.join(file), file, &millrace, &serde);
            }
            refused = control;
        }
    }
    panic!("control.rs must compile with a library in {}: {refused:#?}", libraries().display())
}

/// Returns the expected errors marked in a file, by line.
fn expected(file: &str) -> BTreeMap<u64, Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_fail").join(file);
    let text = fs::read_to_string(path).expect("the file is there");
    let marked = text.lines().enumerate().filter_map(|(at, line)| {
        let (_, marks) = line.split_once("//~ ")?;
        let marks = match marks.strip_prefix('"') {
            Some(sentence) => vec![sentence.trim_end_matches('"').to_owned()],
            None => marks.split(' ').map(str::to_owned).collect(),
        };
        Some((at as u64 + 1, marks))
    });
    marked.collect()
}

fn check(file: &str) {
    let expected = expected(file);
    let complaints = against_the_right_libraries(file);
    for complaint in &complaints {
        let marks = expected.get(&complaint.line).map_or(&[][..], Vec::as_slice);
        let is_expected = marks.iter().any(|mark| {
            complaint.code.as_deref() == Some(mark) || complaint.message.contains(&mark.replace('"', "\\\""))
        });
        assert!(is_expected, "{file}: unexpected: {complaint:#?}");
    }
    for (line, marks) in &expected {
        assert!(
            complaints.iter().any(|complaint| complaint.line == *line),
            "{file}:{line}: compiles, but {marks:?}"
        );
    }
    assert!(!expected.is_empty(), "{file} expects nothing");
}

#[test]
fn wrong_types_do_not_compile() {
    check("types.rs");
}

#[test]
fn derives_that_cannot_mean_anything_do_not_compile() {
    check("derives.rs");
}
