//! The engines that the tests run on: a folder always, the others where `cargo xtask test` has started them.

/// Calls `test` with the URL of a fresh store on each engine.
pub fn each(test: impl Fn(&str)) {
    let folder = tempfile::tempdir().unwrap();
    test(&format!("dir:///{}", folder.path().join("store").display()));
    for (name, url) in started() {
        println!("on {name}");
        test(&url);
    }
}

/// Returns URLs of fresh stores on the engines that run.
pub fn started() -> Vec<(&'static str, String)> {
    let unique = format!("t{:x}", rand::random::<u64>());
    let mut found = Vec::new();
    for (name, variable) in [("PostgreSQL", "MILLRACE_TEST_POSTGRES"), ("MongoDB", "MILLRACE_TEST_MONGO")] {
        match std::env::var(variable) {
            Ok(base) if name == "PostgreSQL" => {
                let join = if base.contains('?') { '&' } else { '?' };
                found.push((name, format!("{base}{join}schema={unique}")));
            }
            Ok(base) => {
                let (base, query) = base.split_once('?').unwrap_or((&base, ""));
                let base = base.trim_end_matches('/');
                found.push((name, format!("{base}/{unique}?{query}")));
            }
            Err(_) => println!("skipped: {variable} is not set (cargo xtask test starts the engines)"),
        }
    }
    found
}
