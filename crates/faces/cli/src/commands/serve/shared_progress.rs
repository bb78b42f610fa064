//! Tells the log, probes and metrics how far the opening of a shared store is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use millrace_stores::OpenProgress;

use crate::commands::serve::shared_state::SharedState;

pub(super) struct ShownProgress {
    state: Arc<SharedState>,
    is_stopped: Arc<AtomicBool>,
    /// The last line of the log.
    said: String,
}

impl ShownProgress {
    pub(super) fn new(state: Arc<SharedState>, is_stopped: Arc<AtomicBool>) -> ShownProgress {
        ShownProgress { state, is_stopped, said: String::new() }
    }

    fn say(&mut self, text: &str) -> bool {
        if self.said != text {
            tracing::info!("{text}");
            text.clone_into(&mut self.said);
        }
        !self.is_stopped.load(Relaxed)
    }
}

impl OpenProgress for ShownProgress {
    fn at(&mut self, text: &str) -> bool {
        self.state.opening(text.to_owned());
        self.say(text)
    }

    fn away(&mut self, text: &str) -> bool {
        self.state.cannot_open(text.to_owned());
        self.say(text)
    }
}
