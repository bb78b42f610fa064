//! Fuzzing a running server: frames and requests that are almost right, cut short, or random bytes.
//!
//! After every slice a well-behaved client publishes and consumes and the log contains no panic; at the end the server
//! stops normally. `MILLRACE_FUZZ_SECONDS` makes a run longer, `MILLRACE_FUZZ_SEED` repeats the input of an earlier
//! run: see docs/simulator.md.

mod frames;
mod mutate;
mod raw;
mod requests;

use std::time::{Duration, Instant};

use serde_json::json;

use crate::crash::Dice;
use crate::server::Server;
use frames::Frames;
use requests::Requests;

/// Slices of a run in the test command; a slice takes about a tenth of a second.
const SLICES: u64 = 30;
const FRAMES_PER_SLICE: u64 = 60;
const REQUESTS_PER_SLICE: u64 = 25;
const SEED: &str = "MILLRACE_FUZZ_SEED";
const SECONDS: &str = "MILLRACE_FUZZ_SECONDS";

/// The settings are in a file, because the harness then also writes the log to a file.
const CONFIG: &str = "\
listen = \"127.0.0.1:0\"
store = \"sqlite:///test.db\"
";

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: a whole number is expected")))
}

#[test]
fn nonsense_neither_panics_nor_stops_the_server() {
    let seed = number(SEED).unwrap_or_else(rand_seed);
    let until = number(SECONDS).map(|seconds| Instant::now() + Duration::from_secs(seconds));
    println!("{SEED}={seed}");
    let mut server = Server::with_config(CONFIG, &[]);
    let (mut frames, mut requests) = (Frames::default(), Requests::default());
    let mut slice = 0;
    while until.map_or(slice < SLICES, |until| Instant::now() < until) {
        let mut dice = Dice::of(seed, slice, 0);
        frames.slice(&server, &mut dice, FRAMES_PER_SLICE);
        requests.slice(&server, &mut dice, REQUESTS_PER_SLICE);
        still_well(&server, slice);
        slice += 1;
    }
    println!(
        "{slice} slices: {} frames, {} requests, {} connections closed by the server",
        frames.sent, requests.sent, frames.closed
    );
    assert_eq!(server.terminate(), Some(0), "{}", server.log());
    no_panic(&server.log(), slice);
}

fn rand_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a time after 1970").as_micros() as u64
}

/// Checks that an event is published, delivered and acknowledged, on a topic that the fuzzed input cannot name.
fn still_well(server: &Server, slice: u64) {
    let mut socket = server.socket();
    let topic = "well";
    let offset = socket.publish(topic, &json!({"slice": slice}));
    assert_eq!(offset, slice + 1, "nobody else publishes there");
    socket.subscribe(topic, "checker", &json!({"from": {"kind": "earliest"}}));
    let message = socket.expect("MESSAGE");
    assert_eq!(
        (&message["offset"], &message["envelope"]["payload"]),
        (&json!(offset), &json!({"slice": slice}))
    );
    socket.ack(topic, "checker", offset);
    assert_eq!(server.get("/healthz").0, 200);
    assert_eq!(server.get("/readyz").0, 200);
    no_panic(&server.log(), slice);
}

fn no_panic(log: &str, slice: u64) {
    let line = log.lines().find(|line| line.contains("panicked") || line.contains("fell over a bug"));
    assert_eq!(line, None, "in slice {slice}");
}
