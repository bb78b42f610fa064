//! The dispatcher of zABI (`millrace_zabi::Process`), with any sequence of calls.
//!
//! An input is a script: calls one behind the other, as [`Call`] encodes them. The guest may use everything that reaches
//! nothing outside this process: no network, and files in a folder of its own. POLL never waits, because the timeouts in
//! the frames that are written are set to 0 (`polls.rs`).
//!
//! Whatever the script does, nothing panics, every call returns what its documentation says, handles that speak ZCL1
//! return whole and well-formed frames, and afterwards good requests are answered.

mod calls;
mod folder;
mod guest;
mod handle;
mod polls;
mod probes;
mod surroundings;

pub use calls::{Call, encode_script};
pub use surroundings::{CAPABILITIES, Kind};

use folder::with_empty_folder;
use guest::Guest;

/// A longer script finds nothing that a shorter one does not, and takes its time from the others.
const CALLS_MAX: usize = 200;

/// The environment variable with which the calls of a script are printed, for people who look into a finding.
const SHOW_CALLS: &str = "FUZZ_SHOW_CALLS";

pub fn check(input: &[u8]) {
    let shows_calls = std::env::var_os(SHOW_CALLS).is_some();
    with_empty_folder(|folder| {
        let mut guest = Guest::new(folder);
        for call in calls::script(input).take(CALLS_MAX) {
            if shows_calls {
                eprintln!("{call:02x?}");
            }
            guest.perform(&call);
        }
        guest.finish()
    });
}
