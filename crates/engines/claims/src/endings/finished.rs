//! The row that records how an event has ended for a handler.

use millrace_model::{FinishedRow, Op, Space, Ticket, keys};

/// Writes that the event has ended for the handler, and deletes the dead letter if this was its replay.
pub(crate) fn finished_ops(ticket: &Ticket, row: &FinishedRow) -> impl Iterator<Item = Op> + use<> {
    let key = keys::finished(&ticket.stream, ticket.offset, &ticket.handler);
    let put = Op::Put { space: Space::Finished, key, value: row.encode() };
    let letter = ticket.row.letter.clone().map(|key| Op::Delete { space: Space::DeadLetters, key });
    std::iter::once(put).chain(letter)
}
