//! Runs every example that uses a store on one shared store, one after the other: each opens what the one before has
//! closed. The others (`ex8_capability`, `year_of_minutes`) have no store, or are
//! about the console (`ex9_in_the_console`).

#[path = "../../examples/ex1_welcome_email.rs"]
mod ex1_welcome_email;
#[path = "../../examples/ex2_order_chain.rs"]
mod ex2_order_chain;
#[path = "../../examples/ex3_nightly_cleanup.rs"]
mod ex3_nightly_cleanup;
#[path = "../../examples/ex4_bulk_import.rs"]
mod ex4_bulk_import;
#[path = "../../examples/ex5_imperative_and_reactive.rs"]
mod ex5_imperative_and_reactive;
#[path = "../../examples/ex6_two_namespaces.rs"]
mod ex6_two_namespaces;
#[path = "../../examples/ex7_beside_a_server.rs"]
mod ex7_beside_a_server;

use millrace::{Running, Session};

use crate::stores::{LibraryStore, enter_work_folder};

pub(crate) fn all(store: &LibraryStore) {
    enter_work_folder();
    let url = store.url.as_str();
    // First, because it counts the commits of the default namespace.
    assert_eq!(ex4_bulk_import::run(url, 2500).unwrap(), (2500, 3));
    assert_eq!(ex1_welcome_email::run(url).unwrap(), 1);
    assert_eq!(ex2_order_chain::run(url).unwrap(), (Some("completed".to_owned()), Some(2)));
    let title = ex5_imperative_and_reactive::run(url).unwrap();
    assert_eq!(title.as_deref(), Some("workspace of user@example.com"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(ex6_two_namespaces::run(url)).unwrap(), (20, 30));

    let (session, running) = ex7_beside_a_server::start(url).unwrap();
    session.publish(ex7_beside_a_server::placed("o1")).unwrap();
    let order = wait_for(&running, || session.get::<ex7_beside_a_server::Order>("o1").unwrap());
    assert!(order.value.shipped);
    running.stop().unwrap();
    drop(session);

    let (session, running) = ex3_nightly_cleanup::start(url).unwrap();
    wait_for(&running, || (!session.schedules().unwrap().is_empty()).then_some(()));
    running.stop().unwrap();
    drop(session);
    // A schedule is in the store, not in the program.
    let session = Session::builder(url).namespace("system-tasks").open().unwrap();
    assert_eq!(session.schedules().unwrap().len(), 1);
}

/// Looks again and again while the session runs.
fn wait_for<T>(running: &Running, look: impl Fn() -> Option<T>) -> T {
    loop {
        let is_running = running.is_running();
        match look() {
            Some(found) => return found,
            None => assert!(is_running, "the session has ended"),
        }
        std::thread::yield_now();
    }
}
