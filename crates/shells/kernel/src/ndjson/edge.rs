//! State that all connections of the socket share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use millrace_model::Principal;
use millrace_model::{OsMessage, Requester};
use millrace_router::ConnId;
use millrace_wire::os::{OsRefusal, encode};

use crate::clients::audit_hook::{AuditEvent, AuditHook};
use crate::clients::conns::Conns;
use crate::clients::credentials::{self, CheckToken, Rights, TokenError};
use crate::kernel_thread::counts::AtomicCounts;
use crate::kernel_thread::inbox::Mint;
use crate::kernel_thread::local_queue::LocalQueue;
use crate::ndjson::writer::LineWriter;
use crate::settings::KernelSettings;

/// Bytes read at once, and handed to the loop before more is read.
const READ_BYTES: usize = 64 << 10;
/// Buffers kept for the next reader: idle connections have none.
const BUFFERS_KEPT_MAX: usize = 16;

#[derive(Clone)]
pub(crate) struct Edge(Rc<EdgeParts>);

pub(crate) struct EdgeParts {
    pub(super) settings: Arc<KernelSettings>,
    pub(super) local_queue: LocalQueue,
    pub(super) conns: Conns,
    pub(super) mint: Arc<Mint>,
    pub(super) counts: Arc<AtomicCounts>,
    check_token: Option<CheckToken>,
    audit_hook: Option<AuditHook>,
    buffers: RefCell<Vec<Box<[u8]>>>,
    open: Cell<usize>,
}

impl std::ops::Deref for Edge {
    type Target = EdgeParts;
    fn deref(&self) -> &EdgeParts {
        &self.0
    }
}

/// The identity and rights of a connection.
pub(super) struct Admitted {
    pub(super) by: Requester,
    pub(super) rights: Rights,
    /// Whether the token it came in with is still valid; `None` without a token.
    valid: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Admitted {
    /// For a connection without a token: only the owner may open the socket's file.
    pub(super) fn owner() -> Admitted {
        Admitted { by: Requester::Trusted, rights: Rights::ALL, valid: None }
    }

    /// Whether the token is still valid: it may be revoked while its connection is open.
    pub(super) fn is_valid(&self) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid())
    }
}

impl Edge {
    pub(crate) fn new(
        settings: Arc<KernelSettings>,
        local_queue: LocalQueue,
        conns: Conns,
        mint: Arc<Mint>,
        counts: Arc<AtomicCounts>,
        check_token: Option<CheckToken>,
        audit_hook: Option<AuditHook>,
    ) -> Edge {
        let (buffers, open) = (RefCell::default(), Cell::new(0));
        Edge(Rc::new(EdgeParts {
            settings,
            local_queue,
            conns,
            mint,
            counts,
            check_token,
            audit_hook,
            buffers,
            open,
        }))
    }
}

impl EdgeParts {
    /// Counts a new connection. Returns false if there is no room for it.
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

    /// The identity that a connection of `now` gets by the token in this message, if it carries one. Tokens are
    /// accepted in any message of a connection, and also where none is required.
    pub(super) fn authenticate(
        &self,
        now: Option<&Principal>,
        message: &OsMessage,
    ) -> Option<Result<Admitted, TokenError>> {
        let (token, check) = credentials::shown_token(message).zip(self.check_token.as_ref())?;
        Some(check(&token).and_then(|known| {
            TokenError::check_change(now, &known.by)?;
            Ok(Admitted { by: Requester::Agent(known.by), rights: known.rights, valid: Some(known.valid) })
        }))
    }

    /// Answers a line that is not passed to the loop. `by` sent it.
    pub(super) fn refuse(
        &self,
        writer: &Rc<LineWriter>,
        conn: ConnId,
        by: Option<&Principal>,
        refusal: OsRefusal,
    ) {
        // A refused permission is worth a line in the log, a mistyped line is not.
        match (refusal.code, &self.audit_hook) {
            (code @ (401 | 403), Some(hook)) => {
                let what = refusal.ty.as_ref().map_or("a line", |ty| ty.as_str());
                hook(&AuditEvent::Refused { by, code, what, why: &refusal.message });
            }
            (401 | 403, None) => {
                tracing::warn!(
                    conn = conn.0,
                    code = refusal.code,
                    why = refusal.message,
                    "a message was refused"
                );
            }
            (code, _) => tracing::debug!(conn = conn.0, code, why = refusal.message, "a line was refused"),
        }
        self.counts.refused_line();
        let (id, timestamp) = self.mint.stamp();
        let error = refusal.into_message(id, timestamp);
        writer.put(|out| encode(&error, out));
        self.conns.mark(writer);
        self.local_queue.wake();
    }
}
