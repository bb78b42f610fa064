//! The cost of this client per event: how often the caller's task is polled, how often threads of the runtime sleep, and,
//! under valgrind, instructions. The server is a script, so nothing else is measured, and a busy machine matters little.
//!
//! ```text
//! cargo run --release -p millrace-client --example client_cost               # all loads
//! cargo run --release -p millrace-client --example client_cost -- backlog 100000
//! target/release/examples/client_cost serve                                  # the script alone; prints its URL
//! valgrind --tool=callgrind target/release/examples/client_cost inflight 20000 ws://127.0.0.1:PORT/
//! ```

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for the terminal, not part of the product"
)]

mod counts;
mod loads;
mod script;

use std::net::TcpListener;
use std::thread;
use std::time::Instant;

use crate::counts::{Counted, SCRIPT, context_switches};
use crate::loads::{LOADS, Load};

const HEAD: &str = "load       on       events  polls/event  parks/event  switches/event   events/s";
const EVENTS: u64 = 50_000;
const WORKERS: usize = 2;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = format!("ws://{}/", listener.local_addr().unwrap());
    if args.first().is_some_and(|first| first == "serve") {
        println!("{own}");
        script::serve(&listener);
    }
    let named = args.first().filter(|name| *name != "all");
    let events = args.get(1).map_or(EVENTS, |count| count.parse().unwrap());
    let url = args.get(2).cloned().unwrap_or_else(|| {
        thread::Builder::new().name(SCRIPT.to_owned()).spawn(move || script::serve(&listener)).unwrap();
        own
    });
    println!("{HEAD}");
    for (name, load) in LOADS.iter().filter(|(name, _)| named.is_none_or(|wanted| wanted == name)) {
        for on in [On::Task, On::Main] {
            let figures = measure(on, *load, events, &url);
            println!("{name:<10} {:<5} {events:>9} {figures}", format!("{on:?}").to_lowercase());
        }
    }
}

/// Where the load runs: as a task of the runtime, or in `main`, whose thread is none of the runtime's workers.
#[derive(Clone, Copy, Debug)]
enum On {
    Task,
    Main,
}

fn measure(on: On, load: Load, events: u64, url: &str) -> String {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap();
    let client = runtime.block_on(loads::connect(url));
    let (parked, switched) = (parks(&runtime), context_switches());
    let (load, polls) = Counted::new(load(client, events));
    let begun = Instant::now();
    match on {
        On::Task => runtime.block_on(async { tokio::spawn(load).await.unwrap() }),
        On::Main => runtime.block_on(load),
    }
    let took = begun.elapsed().as_secs_f64();
    let each = |count: u64| count as f64 / events as f64;
    let [polls, parks, switches] =
        [polls.get(), parks(&runtime) - parked, context_switches() - switched].map(each);
    format!("{polls:>12.3} {parks:>12.3} {switches:>15.3} {:>10.0}", events as f64 / took)
}

/// How often a worker went to sleep.
fn parks(runtime: &tokio::runtime::Runtime) -> u64 {
    (0..WORKERS).map(|worker| runtime.metrics().worker_park_count(worker)).sum()
}
