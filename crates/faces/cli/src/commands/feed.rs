//! The events that `pub` publishes: the event of the command line some number of times, or one event per line of stdin.

use std::fmt::Display;
use std::rc::Rc;

use millrace_client::{JsonText, NewMessage};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Stdin, stdin};

use crate::commands::tally::Tally;
use crate::failure::Failure;

/// The longest line of stdin.
const LINE_BYTES_MAX: u64 = 16 << 20;

pub(super) struct StdinFeed {
    left: Option<u64>,
    stdin: BufReader<Stdin>,
    tally: Rc<Tally>,
}

/// A message, and the number of its line if it came from stdin.
pub(super) struct Fed {
    pub(super) message: NewMessage,
    pub(super) line: Option<u64>,
}

impl StdinFeed {
    pub(super) fn new(tally: Rc<Tally>) -> StdinFeed {
        StdinFeed { left: tally.total(), stdin: BufReader::new(stdin()), tally }
    }

    pub(super) async fn next(&mut self, template: &NewMessage) -> Result<Option<Fed>, Failure> {
        let next = match &mut self.left {
            None => self.next_line(template).await?,
            Some(0) => None,
            Some(left) => {
                *left -= 1;
                Some(Fed { message: template.clone(), line: None })
            }
        };
        if next.is_none() {
            self.tally.input_ended();
        }
        Ok(next)
    }

    /// Reads the next line that is not empty.
    async fn next_line(&mut self, template: &NewMessage) -> Result<Option<Fed>, Failure> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.stdin).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
            read.map_err(|error| Failure::Failed(format!("cannot read stdin: {error}")))?;
            if line.is_empty() {
                return Ok(None);
            }
            let number = self.tally.line_read();
            if line.len() as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") {
                return Err(at_line(number, format_args!("it is longer than {LINE_BYTES_MAX} bytes")));
            }
            let text = String::from_utf8(line).map_err(|_| at_line(number, "it is not UTF-8"))?;
            if text.trim().is_empty() {
                continue;
            }
            // The parser saw only this line; its «line 1» would contradict our line number.
            let payload = JsonText::parse(text.trim()).map_err(|error| {
                at_line(number, error.to_string().replace("at line 1 column", "at column"))
            })?;
            return Ok(Some(Fed { message: NewMessage { payload, ..template.clone() }, line: Some(number) }));
        }
    }
}

pub(super) fn at_line(number: u64, error: impl Display) -> Failure {
    Failure::Failed(format!("line {number} of stdin: {error}"))
}
