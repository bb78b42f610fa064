//! `millrace man DIR`.

use crate::run::run;

#[test]
fn every_command_gets_a_page() {
    let folder = tempfile::tempdir().unwrap();
    run(&["man", folder.path().to_str().unwrap()]).ok();
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    for (name, part) in [
        ("millrace.1", "durable event broker"),
        ("millrace-serve.1", "first\\-token"),
        ("millrace-health.1", "probe\\-listen"),
        ("millrace-topics-create.1", "partitions"),
    ] {
        assert!(page(name).contains(part), "{name}: {part}");
    }
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let hidden = names
        .filter(|name| ["millrace-man.1", "millrace-capability-guard.1"].iter().any(|hidden| name == hidden));
    assert_eq!(hidden.count(), 0, "nobody calls them by hand");
    run(&["man", "/no/such/folder"]).refused(1, &["/no/such/folder", "cannot write"]);
    run(&["man"]).refused(2, &["DIR"]);
}
