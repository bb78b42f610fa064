//! The progress of a `pub`, kept where the interrupt handler can read it too.

use std::cell::Cell;

/// Counts of events. An event that was sent but neither confirmed nor refused may or may not be stored.
#[derive(Debug)]
pub(super) struct Tally {
    /// How many events to publish; `None` for stdin, whose end is not known beforehand.
    total: Option<u64>,
    sent: Cell<u64>,
    confirmed: Cell<u64>,
    refused: Cell<u64>,
    lines_read: Cell<u64>,
    at_end: Cell<bool>,
}

impl Tally {
    pub(super) fn new(total: Option<u64>) -> Tally {
        Tally {
            total,
            sent: Cell::new(0),
            confirmed: Cell::new(0),
            refused: Cell::new(0),
            lines_read: Cell::new(0),
            at_end: Cell::new(false),
        }
    }

    pub(super) fn sent(&self) {
        self.sent.set(self.sent.get() + 1);
    }

    pub(super) fn confirmed(&self) {
        self.confirmed.set(self.confirmed.get() + 1);
    }

    /// Counts an event that the server, or already the client, refused: it is certainly not stored.
    pub(super) fn refused(&self) {
        self.refused.set(self.refused.get() + 1);
    }

    /// Counts a line and returns its number.
    pub(super) fn line_read(&self) -> u64 {
        self.lines_read.set(self.lines_read.get() + 1);
        self.lines_read.get()
    }

    pub(super) fn input_ended(&self) {
        self.at_end.set(true);
    }

    pub(super) fn total(&self) -> Option<u64> {
        self.total
    }

    pub(super) fn sent_count(&self) -> u64 {
        self.sent.get()
    }

    pub(super) fn confirmed_count(&self) -> u64 {
        self.confirmed.get()
    }

    /// Returns whether the input has ended and every event is confirmed.
    pub(super) fn is_complete(&self) -> bool {
        self.at_end.get() && self.confirmed.get() == self.sent.get()
    }

    /// Returns whether the outcome of some events is unknown.
    pub(super) fn is_unsure(&self) -> bool {
        self.unsure() > 0
    }

    fn unsure(&self) -> u64 {
        self.sent.get().saturating_sub(self.confirmed.get() + self.refused.get())
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let confirmed = self.confirmed.get();
        match self.total {
            Some(total) => write!(f, "{confirmed} of {} confirmed", events(total))?,
            None => write!(f, "{} confirmed", events(confirmed))?,
        }
        if self.unsure() > 0 {
            write!(f, ", {} sent and perhaps stored", self.unsure())?;
        }
        let unsent = self.total.map(|total| total.saturating_sub(self.sent.get()) + self.refused.get());
        match unsent {
            Some(0) => Ok(()),
            Some(unsent) => write!(f, ", {unsent} not published"),
            None if self.at_end.get() => Ok(()),
            None => write!(f, ", what follows line {} of stdin not published", self.lines_read.get()),
        }
    }
}

pub(super) fn events(count: u64) -> String {
    format!("{count} {}", if count == 1 { "event" } else { "events" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_tells_what_is_known_from_what_is_not() {
        let tally = Tally::new(Some(5));
        (0..3).for_each(|_| tally.sent());
        tally.confirmed();
        tally.refused();
        assert_eq!(tally.to_string(), "1 of 5 events confirmed, 1 sent and perhaps stored, 3 not published");
        let tally = Tally::new(None);
        tally.line_read();
        tally.sent();
        tally.confirmed();
        assert_eq!(tally.to_string(), "1 event confirmed, what follows line 1 of stdin not published");
        tally.input_ended();
        assert_eq!(tally.to_string(), "1 event confirmed");
        assert!(tally.is_complete());
    }
}
