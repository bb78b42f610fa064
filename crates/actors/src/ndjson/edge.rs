//! What every connection of the socket shares.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use millrace_model::OsMessage;
use millrace_router::{By, ConnId};
use millrace_wire::os::{OsRefusal, encode};

use crate::conns::Conns;
use crate::counts::Counts;
use crate::credentials::{self, CheckToken, Rights};
use crate::ear::Ear;
use crate::inbox::Mint;
use crate::ndjson::wire::Wire;
use crate::settings::LoopSettings;

/// Read at once, and handed to the loop before more is read.
const READ_BYTES: usize = 64 << 10;
/// Buffers kept for the next who reads: connections that say nothing have none.
const BUFFERS_KEPT_MAX: usize = 16;

#[derive(Clone)]
pub(crate) struct Edge(Rc<Parts>);

pub(crate) struct Parts {
    pub(super) settings: Arc<LoopSettings>,
    pub(super) ear: Ear,
    pub(super) conns: Conns,
    pub(super) mint: Arc<Mint>,
    pub(super) counts: Arc<Counts>,
    check_token: Option<CheckToken>,
    buffers: RefCell<Vec<Box<[u8]>>>,
    open: Cell<usize>,
}

impl std::ops::Deref for Edge {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// Who a connection turned out to be.
pub(super) struct Admitted {
    pub(super) by: By,
    pub(super) rights: Rights,
    /// Of the token it came in with, if any.
    valid: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Admitted {
    /// A token may be taken away while its connection is open.
    pub(super) fn is_valid(&self) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid())
    }
}

impl Edge {
    pub(crate) fn new(
        settings: Arc<LoopSettings>,
        ear: Ear,
        conns: Conns,
        mint: Arc<Mint>,
        counts: Arc<Counts>,
        check_token: Option<CheckToken>,
    ) -> Edge {
        let (buffers, open) = (RefCell::default(), Cell::new(0));
        Edge(Rc::new(Parts { settings, ear, conns, mint, counts, check_token, buffers, open }))
    }
}

impl Parts {
    /// One more connection, if there is room for it.
    pub(super) fn enter(&self) -> bool {
        let room = self.open.get() < self.settings.connections_max;
        if room {
            self.open.set(self.open.get() + 1);
            self.counts.connected();
        }
        room
    }

    pub(super) fn leave(&self) {
        self.open.set(self.open.get().saturating_sub(1));
        self.counts.disconnected();
    }

    pub(super) fn buffer(&self) -> Box<[u8]> {
        self.buffers.borrow_mut().pop().unwrap_or_else(|| vec![0; READ_BYTES].into())
    }

    pub(super) fn give_back(&self, buffer: Box<[u8]>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < BUFFERS_KEPT_MAX {
            buffers.push(buffer);
        }
    }

    /// By its first message. A token that is shown is looked at even where none is asked for.
    pub(super) fn admit(&self, first: &OsMessage) -> Result<Admitted, OsRefusal> {
        let shown = credentials::shown(first).zip(self.check_token.as_ref());
        let known = shown.and_then(|(token, check)| check(&token));
        match known {
            Some(known) => {
                let (by, rights) = (Some(known.by), known.rights);
                Ok(Admitted { by, rights, valid: Some(known.valid) })
            }
            // Whoever may open the socket's file is its owner.
            None if !self.settings.require_auth => {
                Ok(Admitted { by: None, rights: Rights::ALL, valid: None })
            }
            None => Err(OsRefusal::new(401, credentials::REQUIRED).about(first)),
        }
    }

    /// Answers a line that the loop never sees.
    pub(super) fn refuse(&self, wire: &Rc<Wire>, conn: ConnId, refusal: OsRefusal) {
        // Who may not is worth a line of the log, who mistypes is not.
        match refusal.code {
            401 | 403 => {
                tracing::warn!(
                    conn = conn.0,
                    code = refusal.code,
                    why = refusal.message,
                    "a message was refused"
                );
            }
            code => tracing::debug!(conn = conn.0, code, why = refusal.message, "a line was refused"),
        }
        self.counts.refused_line();
        let (id, timestamp) = self.mint.stamp();
        let error = refusal.into_message(id, timestamp);
        wire.put(|out| encode(&error, out));
        self.conns.mark(wire);
        self.ear.wake();
    }
}
