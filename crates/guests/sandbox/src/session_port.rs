//! The store of a session for programs that run outside of handlers.

use std::collections::BTreeMap;
use std::io;
use std::thread::Builder;

use millrace_session::{Session, Transaction};
use millrace_wasm::RunNumber;
use millrace_wasm::capability::{
    BusPort, GuestAck, GuestEvent, GuestPublished, GuestReceive, GuestReceived, PortError, PortFuture,
    StorePort,
};
use tokio::sync::mpsc;

use crate::guest_value::GuestValue;
use crate::request::{PortRequest, answer, guest_value, outgoing, port_error, send_request};

/// Serves `millrace.store` and the publishing half of `millrace.bus` with a session. Each run has a transaction of its
/// own: its commit fails with a conflict if values that the run read have changed.
///
/// The session is used on a thread of its own, because it waits for the disk; the thread ends when the port is dropped.
#[derive(Clone, Debug)]
pub struct SessionPort(mpsc::UnboundedSender<PortRequest>);

impl SessionPort {
    /// # Errors
    ///
    /// Those of starting a thread.
    pub fn new(session: Session) -> io::Result<SessionPort> {
        // Bounded by the runs of the host: a run has one request under way, and at its end one release.
        let (requests, mut inbox) = mpsc::unbounded_channel();
        let serve = move || {
            let mut served = Served { session, transactions: BTreeMap::new() };
            while let Some(request) = inbox.blocking_recv() {
                served.serve(request);
            }
        };
        Builder::new().name("millrace-sandbox".to_owned()).spawn(serve)?;
        Ok(SessionPort(requests))
    }
}

struct Served {
    session: Session,
    /// The transaction of each run, removed when the run is released; so there are no more than runs.
    transactions: BTreeMap<RunNumber, Transaction>,
}

impl Served {
    fn serve(&mut self, request: PortRequest) {
        match request {
            PortRequest::Get { run, key, reply } => answer(reply, self.get(run, &key)),
            PortRequest::Ensure { run, key, value, reply } => answer(reply, self.ensure(run, key, &value)),
            PortRequest::Commit { run, reply } => {
                let committed = self.transaction(run).commit();
                answer(reply, committed.map_err(|error| port_error(&error)));
            }
            PortRequest::Publish { event, reply } => answer(reply, self.publish(event)),
            PortRequest::Emit { reply, .. } => {
                let reason = "emit needs a durable handler around the run: use publish here";
                answer(reply, Err(PortError::Unsupported(reason.to_owned())));
            }
            PortRequest::Release { run } => drop(self.transactions.remove(&run)),
        }
    }

    fn transaction(&mut self, run: RunNumber) -> &mut Transaction {
        self.transactions.entry(run).or_insert_with(|| self.session.transaction())
    }

    fn get(&mut self, run: RunNumber, key: &str) -> Result<Option<String>, PortError> {
        let found = self.transaction(run).get::<GuestValue>(key).map_err(|error| port_error(&error))?;
        Ok(found.map(|found| found.value.value.to_string()))
    }

    fn ensure(&mut self, run: RunNumber, key: String, value: &str) -> Result<(), PortError> {
        let value = guest_value(key, value)?;
        self.transaction(run).ensure(value).map_err(|error| port_error(&error))
    }

    fn publish(&self, event: GuestEvent) -> Result<GuestPublished, PortError> {
        let published = self.session.publish(outgoing(event)?).map_err(|error| port_error(&error))?;
        Ok(GuestPublished {
            partition: published.partition.0,
            offset: published.offset.0,
            id: published.id.to_string(),
        })
    }
}

impl StorePort for SessionPort {
    fn get(&self, run: RunNumber, key: String) -> PortFuture<Option<String>> {
        send_request(&self.0, |reply| PortRequest::Get { run, key, reply })
    }

    fn ensure(&self, run: RunNumber, key: String, value: String) -> PortFuture<()> {
        send_request(&self.0, |reply| PortRequest::Ensure { run, key, value, reply })
    }

    fn commit(&self, run: RunNumber) -> PortFuture<Option<u64>> {
        send_request(&self.0, |reply| PortRequest::Commit { run, reply })
    }

    fn release(&self, run: RunNumber) {
        // An error means that the thread has ended: it holds nothing.
        let _ = self.0.send(PortRequest::Release { run });
    }
}

impl BusPort for SessionPort {
    fn publish(&self, _: RunNumber, event: GuestEvent) -> PortFuture<GuestPublished> {
        send_request(&self.0, |reply| PortRequest::Publish { event, reply })
    }

    fn emit(&self, _: RunNumber, event: GuestEvent) -> PortFuture<()> {
        send_request(&self.0, |reply| PortRequest::Emit { event, reply })
    }

    fn receive(&self, _: RunNumber, _: GuestReceive) -> PortFuture<Option<GuestReceived>> {
        unsupported()
    }

    fn ack(&self, _: RunNumber, _: GuestAck) -> PortFuture<()> {
        unsupported()
    }

    fn release(&self, run: RunNumber) {
        StorePort::release(self, run);
    }
}

/// The error for `receive` and `ack`: groups belong to servers; a session hands events to handlers.
pub(super) fn unsupported<T>() -> PortFuture<T> {
    let reason = "a session has no groups: receive through a server, or let a handler start the run";
    Box::pin(async move { Err(PortError::Unsupported(reason.to_owned())) })
}
