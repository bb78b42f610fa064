//! The contacts between the engine, its store and its clients, which the checkers get to see.

use std::sync::Arc;

use millrace_bus::{ConnId, Input, Reply, ReplyTo};
use millrace_model::{Batch, Event, Group, Mono, Outcome};
use millrace_store::Store;

use crate::disk::Ending;

#[derive(Clone, Copy)]
pub(crate) enum Seen<'a> {
    /// The store was opened after a crash or a stop, before an engine runs on it.
    Opened {
        store: &'a dyn Store,
    },
    /// An engine was restored from the store.
    Started,
    /// An input is about to be given to the engine.
    Told {
        input: &'a Input,
    },
    /// The engine asked for a commit.
    Wanted {
        batch: &'a Batch,
    },
    /// A batch became durable. Shown before the ledger contains it.
    Durable {
        batch: &'a Batch,
        outcome: &'a Outcome,
    },
    /// The next batch to become durable is of another process.
    Neighbour {
        batch: &'a Batch,
    },
    Answered {
        to: ReplyTo,
        reply: &'a Reply,
    },
    Delivered {
        conn: ConnId,
        group: &'a Group,
        event: &'a Arc<Event>,
        attempts: u32,
    },
    /// The engine has settled and says when it wants to be woken. `quiet`: nothing went in and nothing came out.
    Settled {
        deadline: Option<Mono>,
        quiet: bool,
    },
    /// The engine has settled, none of its commits and reads is in progress, and no input waits.
    Idle,
    /// The engine said that it may end.
    Stopped,
    /// The server has ended, and whatever its disk did not keep is lost: the ledger already shows what is left.
    Ended {
        ending: Ending,
    },
    /// The world ends, after a time without faults.
    End {
        store: &'a dyn Store,
    },
}
