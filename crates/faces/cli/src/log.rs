//! Logs on stderr, filtered by `RUST_LOG`.

use tracing_subscriber::EnvFilter;

use crate::settings::Config;

/// Starts logging. `fallback` is the filter if `RUST_LOG` is not set.
pub(crate) fn start(config: &Config, fallback: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(fallback));
    // A log that cannot be written (a full disk, a closed pipe) must not end the broker: without this setting the
    // logger reports its own failure on the same stderr, and panics.
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // Fails if a logger is already installed, which then stays.
    let _ = match config.log_format.as_str() {
        "json" => lines.json().try_init(),
        _ => lines.with_ansi(colours).try_init(),
    };
}
