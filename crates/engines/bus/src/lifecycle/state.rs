//! Whether the engine runs, must not let its store grow, keeps events back, is stopping, or has failed.

#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    failed: Option<String>,
    /// Why the store must not grow for now: requests that add to it are refused.
    no_space: Option<String>,
    delivery_paused: bool,
    stopping: bool,
    stopped: bool,
}

impl Lifecycle {
    /// Why the store has failed, if it has.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    pub(crate) fn fail(&mut self, reason: &str) {
        self.failed = Some(reason.to_owned());
    }

    pub(crate) fn no_space(&self) -> Option<&str> {
        self.no_space.as_deref()
    }

    pub(crate) fn set_no_space(&mut self, reason: Option<String>) {
        self.no_space = reason;
    }

    pub(crate) fn is_delivery_paused(&self) -> bool {
        self.delivery_paused
    }

    /// Returns whether that is a change.
    pub(crate) fn set_delivery_paused(&mut self, is_paused: bool) -> bool {
        std::mem::replace(&mut self.delivery_paused, is_paused) != is_paused
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    pub(crate) fn begin_stop(&mut self) {
        self.stopping = true;
    }

    /// Called when nothing is under way. Returns true once, if the engine is stopping.
    pub(crate) fn end_stop(&mut self) -> bool {
        let ends = self.stopping && !self.stopped;
        self.stopped |= ends;
        ends
    }
}
