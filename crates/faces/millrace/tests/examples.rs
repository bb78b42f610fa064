//! Runs every example on a file and checks its result.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../examples/ex1_welcome_email.rs"]
mod ex1_welcome_email;
#[path = "../examples/ex2_order_chain.rs"]
mod ex2_order_chain;
#[path = "../examples/ex3_nightly_cleanup.rs"]
mod ex3_nightly_cleanup;
#[path = "../examples/ex4_bulk_import.rs"]
mod ex4_bulk_import;
#[path = "../examples/ex5_imperative_and_reactive.rs"]
mod ex5_imperative_and_reactive;
#[path = "../examples/ex6_two_namespaces.rs"]
mod ex6_two_namespaces;
#[cfg(feature = "os")]
#[path = "../examples/ex8_capability.rs"]
mod ex8_capability;
#[path = "../examples/ex9_in_the_console.rs"]
mod ex9_in_the_console;
#[path = "../examples/year_of_minutes.rs"]
mod year_of_minutes;

fn on_a_file<T>(run: impl FnOnce(&str) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    run(&format!("sqlite:///{}", folder.path().join("app.db").display()))
}

#[test]
fn example_1_sends_one_mail() {
    assert_eq!(on_a_file(|store| ex1_welcome_email::run(store).unwrap()), 1);
}

#[test]
fn example_2_runs_the_chain_to_its_end() {
    let done = on_a_file(|store| ex2_order_chain::run(store).unwrap());
    assert_eq!(done, (Some("completed".to_owned()), Some(2)));
}

#[test]
fn example_3_cleans_up_every_night() {
    // The cleanup runs at 02:00 on days 1 to 3 and removes what is older than a day.
    assert_eq!(ex3_nightly_cleanup::run().unwrap(), [48, 46, 22]);
}

#[test]
fn example_4_commits_in_batches() {
    assert_eq!(on_a_file(|store| ex4_bulk_import::run(store, 2500).unwrap()), (2500, 3));
}

#[test]
fn example_5_goes_on_where_the_program_committed() {
    let title = on_a_file(|store| ex5_imperative_and_reactive::run(store).unwrap());
    assert_eq!(title.as_deref(), Some("workspace of user@example.com"));
}

#[test]
fn example_6_serves_two_namespaces_of_one_file() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(on_a_file(|store| runtime.block_on(ex6_two_namespaces::run(store)).unwrap()), (20, 30));
}

#[test]
fn example_9_gives_up_waits_and_holds() {
    on_a_file(|store| {
        let (session, running) = ex9_in_the_console::start(store).unwrap();
        // Letters of the first handler, whose orders wait for the second one and are held by the third.
        while session.dead_letters().unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(session.schedules().unwrap()[0].0, "nightly cleanup");
        running.stop().unwrap();
    });
}

#[cfg(feature = "os")]
#[test]
fn example_8_answers_over_its_socket() {
    use std::io::{BufRead, BufReader, Write};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("greeter.sock");
    let ask = |socket: &std::os::unix::net::UnixStream, ty: &str| -> serde_json::Value {
        let line = format!(
            r#"{{"kind":"query","type":"{ty}","data":{{"name":"Ada"}},"metadata":{{"id":"1","timestamp":0}}}}"#
        );
        writeln!(&*socket, "{line}").unwrap();
        let mut answer = String::new();
        BufReader::new(socket).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let socket_path = path.clone();
    let serving = runtime.spawn(async move {
        ex8_capability::run(&socket_path, async { drop(stopped.await) }).await.unwrap();
    });
    let socket = loop {
        match std::os::unix::net::UnixStream::connect(&path) {
            Ok(socket) => break socket,
            Err(_) => std::thread::yield_now(),
        }
    };
    assert_eq!(ask(&socket, "Greeter.Hello")["data"]["text"], "Hello, Ada");
    assert_eq!(ask(&socket, "Greeter.Count")["data"]["greeted"], 1);
    stop.send(()).unwrap();
    runtime.block_on(serving).unwrap();
    assert!(!path.exists());
}

/// The whole year takes seconds in a release build and is run by `cargo run`; here two days are enough.
#[test]
fn a_schedule_of_every_minute_fires_every_minute() {
    assert_eq!(year_of_minutes::run(2).unwrap(), 2 * 24 * 60);
}
