//! Payloads that cannot be compressed: a journal compresses its records, the tables that it is compared with do not, and
//! real events are somewhere between.

use rand::Rng;
use rand::distr::Alphanumeric;

use crate::bus::link::publish_frame;

/// More than compression looks back over, so that no payload is met again.
const DIFFERENT: usize = 2048;

/// JSON strings of the same size, handed out in turn.
pub(crate) struct Payloads {
    texts: Vec<String>,
    next: usize,
}

impl Payloads {
    pub(crate) fn new(bytes: usize) -> Payloads {
        let text = |_| {
            let letters = rand::rng().sample_iter(&Alphanumeric).take(bytes.saturating_sub(2));
            format!("\"{}\"", letters.map(char::from).collect::<String>())
        };
        Payloads { texts: (0..DIFFERENT).map(text).collect(), next: 0 }
    }

    pub(crate) fn next(&mut self) -> &str {
        self.next = (self.next + 1) % self.texts.len();
        &self.texts[self.next]
    }

    pub(crate) fn take(&mut self, count: usize) -> Vec<&str> {
        let from = self.next;
        self.next = (self.next + count) % self.texts.len();
        self.texts.iter().cycle().skip(from).take(count).map(String::as_str).collect()
    }

    /// The frame of a publish with the next payload.
    pub(crate) fn frame(&mut self, topic: &str) -> String {
        publish_frame(topic, self.next())
    }

    /// The frame of a publish of several events.
    pub(crate) fn batch_frame(&mut self, topic: &str, count: usize) -> String {
        let events: Vec<String> =
            self.take(count).iter().map(|payload| format!("{{\"payload\":{payload}}}")).collect();
        let events = events.join(",");
        format!("{{\"type\":\"PUBLISH_BATCH\",\"topic\":\"{topic}\",\"events\":[{events}]}}")
    }
}
