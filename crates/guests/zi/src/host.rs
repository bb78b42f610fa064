//! The one process of this program: created at the first call that needs it, never dropped. When the program ends, the
//! operating system releases everything that it holds.

use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;

use millrace_zabi::{Interrupter, Process, ProcessOptions};
use parking_lot::Mutex;

use crate::settings::Settings;
use crate::turns::Turns;

static HOST: OnceLock<Host> = OnceLock::new();

#[derive(Debug)]
struct Host {
    turns: Turns,
    /// Never contended: only the thread whose turn it is locks it.
    process: Mutex<Process>,
    interrupter: Interrupter,
}

/// Makes a call of the process when it is the calling thread's turn. A POLL of another thread ends early to make way.
pub(crate) fn call<R>(call: impl FnOnce(&mut Process) -> R) -> R {
    let host = HOST.get_or_init(Host::from_environment);
    let turn = host.turns.wait(|| host.interrupter.interrupt_poll());
    let mut process = host.process.lock();
    let result = call(&mut process);
    drop(process);
    drop(turn);
    result
}

impl Host {
    fn from_environment() -> Host {
        let settings = Settings::read(|name| std::env::var_os(name));
        for mistake in &settings.mistakes {
            // If standard error is closed, there is nobody to tell.
            let _ = writeln!(io::stderr(), "zi: {mistake}");
        }
        // Fails in a Rust program that has set up logging already; then there is nothing to do.
        let _ = tracing_subscriber::fmt()
            .with_max_level(settings.log_level)
            .with_ansi(false)
            .with_writer(io::stderr)
            .try_init();
        let arguments = std::env::args_os().next();
        let name = arguments.as_deref().and_then(|first| Path::new(first).file_name());
        let name = name.map_or_else(|| "native".to_owned(), |name| name.to_string_lossy().into_owned());
        // Handles 0, 1, 2 and `zi_alloc` bypass the process: see `standard.rs` and `blocks.rs`.
        let mut options = ProcessOptions::new(name, settings.grants);
        options.caps_list = settings.caps_list;
        let process = Process::new(options);
        Host { turns: Turns::default(), interrupter: process.interrupter(), process: Mutex::new(process) }
    }
}
