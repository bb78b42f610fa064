//! Logs on stderr, filtered by `RUST_LOG`.

use tracing_subscriber::EnvFilter;

use crate::settings::Config;

/// `fallback` is the level without `RUST_LOG`.
pub(crate) fn start(config: &Config, fallback: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(fallback));
    // A log that cannot be written (a full disk, a closed pipe) must not take the broker with it: without this the
    // logger reports its own failure on the same stderr, and panics.
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // A logger that is already there stays: there is one process and one log.
    let _ = match config.log_format.as_str() {
        "json" => lines.json().try_init(),
        _ => lines.with_ansi(colours).try_init(),
    };
}
