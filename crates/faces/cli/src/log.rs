//! Logs on stderr, filtered by `RUST_LOG`. A server also keeps the last lines, for `GET /log`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_model::Timestamp;
use millrace_server::{LogLevel, LogLine, LogRing};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::settings::Config;

/// Starts logging. `fallback` is the filter if `RUST_LOG` is not set.
pub(crate) fn start(config: &Config, fallback: &str) {
    start_with(config, fallback, None);
}

/// The same, and keeps the last lines.
pub(crate) fn start_keeping(config: &Config, fallback: &str) -> Arc<LogRing> {
    let ring = Arc::new(LogRing::default());
    start_with(config, fallback, Some(LineKeeper(ring.clone())));
    ring
}

fn start_with(config: &Config, fallback: &str, keeper: Option<LineKeeper>) {
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
        "json" => lines.json().finish().with(keeper).try_init(),
        _ => lines.with_ansi(colours).finish().with(keeper).try_init(),
    };
}

/// Puts the lines that pass the filter into a ring.
struct LineKeeper(Arc<LogRing>);

impl<S: Subscriber> Layer<S> for LineKeeper {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => LogLevel::Error,
            Level::WARN => LogLevel::Warn,
            Level::INFO => LogLevel::Info,
            _ => return,
        };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut line = LogLine {
            ts: Timestamp(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)),
            level,
            target: event.metadata().target().to_owned(),
            message: String::new(),
            fields: BTreeMap::new(),
        };
        event.record(&mut Members(&mut line));
        self.0.put(line);
    }
}

struct Members<'a>(&'a mut LogLine);

impl Members<'_> {
    fn put(&mut self, field: &Field, value: String) {
        match field.name() {
            "message" => self.0.message = value,
            name => {
                self.0.fields.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Members<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}
