//! The bounded queue of the engine's notes for logs and audits. The owner never waits for a log: a note that finds the
//! queue full is dropped and counted.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use millrace_bus::Note;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::metrics::Metrics;

/// The owner's end of the queue.
#[derive(Debug)]
pub(crate) struct Notes {
    sender: mpsc::Sender<Note>,
    metrics: Arc<Metrics>,
}

/// The receiving end, until it is taken.
#[derive(Debug)]
pub(crate) struct NotesEnd(Mutex<Option<mpsc::Receiver<Note>>>);

pub(crate) fn channel(notes_max: usize, metrics: Arc<Metrics>) -> (Notes, NotesEnd) {
    let (sender, receiver) = mpsc::channel(notes_max.max(1));
    (Notes { sender, metrics }, NotesEnd(Mutex::new(Some(receiver))))
}

impl Notes {
    pub(crate) fn push(&self, note: Note) {
        if self.sender.try_send(note).is_err() {
            self.metrics.notes_dropped.fetch_add(1, Relaxed);
        }
    }
}

impl NotesEnd {
    pub(crate) fn take(&self) -> Option<mpsc::Receiver<Note>> {
        self.0.lock().take()
    }
}
