//! The engines that the tests run on: a folder always, PostgreSQL where `cargo xtask test` has started it.

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
    match std::env::var("TEST_POSTGRES") {
        Ok(base) => {
            let join = if base.contains('?') { '&' } else { '?' };
            vec![("PostgreSQL", format!("{base}{join}schema={unique}"))]
        }
        Err(_) => {
            println!("skipped: TEST_POSTGRES is not set (cargo xtask test starts the engines)");
            Vec::new()
        }
    }
}
