//! `millrace man DIR`.

use crate::run::run;

#[test]
fn every_command_gets_a_page() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("share/man1");
    run(&["man", folder.to_str().unwrap()]).ok();
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    for (name, part) in [
        ("millrace.1", "durable event broker"),
        ("millrace-serve.1", "first\\-token"),
        ("millrace-health.1", "probe\\-listen"),
        ("millrace-topics-create.1", "partitions"),
    ] {
        assert!(page(name).contains(part), "{name}: {part}");
    }
    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let hidden = names
        .filter(|name| ["millrace-man.1", "millrace-capability-guard.1"].iter().any(|hidden| name == hidden));
    assert_eq!(hidden.count(), 0, "nobody calls them by hand");
    let below_a_file = folder.join("millrace.1/pages");
    run(&["man", below_a_file.to_str().unwrap()]).refused(1, &["millrace.1/pages", "cannot write"]);
    run(&["man", folder.to_str().unwrap()]).ok();
    run(&["man"]).refused(2, &["DIR"]);
}
