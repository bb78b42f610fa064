//! The people around the server: publishers, consumers, an admin. An actor is told what happened to it and returns
//! deeds, which the world carries out; it never touches the world itself.

pub(crate) mod admin;
pub(crate) mod consumer;
pub(crate) mod publisher;

use millrace_bus::{ConnId, Input, ReplyTo, Request};
use millrace_model::{Namespace, Requester, Timestamp};

use crate::fault::Fault;

/// Names an actor: publishers, consumers and the admin are numbered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ActorId(pub usize);

/// Why an actor wanted to be woken. Each actor chooses its own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note(pub u64);

#[derive(Debug)]
pub(crate) enum Deed {
    Tell(Box<Input>),
    WakeIn { ms: u64, note: Note },
    Count(Fault),
}

/// Gives an actor what it needs to know and collects its deeds.
#[derive(Debug)]
pub(crate) struct Desk {
    pub wall: Timestamp,
    /// Whether a server is running.
    pub up: bool,
    /// The faults are over: from now on every actor behaves.
    pub calm: bool,
    pub actor: ActorId,
    pub deeds: Vec<(ActorId, Deed)>,
    next_conn: u64,
    next_request: u64,
    next_event: u64,
}

impl Desk {
    pub(crate) fn new() -> Desk {
        Desk {
            wall: Timestamp(0),
            up: false,
            calm: false,
            actor: ActorId(0),
            deeds: Vec::new(),
            next_conn: 0,
            next_request: 0,
            next_event: 0,
        }
    }

    fn do_it(&mut self, deed: Deed) {
        self.deeds.push((self.actor, deed));
    }

    pub(crate) fn wake_in(&mut self, ms: u64, note: Note) {
        self.do_it(Deed::WakeIn { ms, note });
    }

    pub(crate) fn count(&mut self, fault: Fault) {
        self.do_it(Deed::Count(fault));
    }

    pub(crate) fn tell(&mut self, input: Input) {
        self.do_it(Deed::Tell(Box::new(input)));
    }

    pub(crate) fn open(&mut self) -> ConnId {
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        self.tell(Input::Open { conn, namespace: Namespace::default() });
        conn
    }

    pub(crate) fn send(&mut self, conn: ConnId, request: Request) -> ReplyTo {
        let to = ReplyTo::Conn { conn, request: self.next_number() };
        self.tell(Input::Request { to, by: Requester::Trusted, request, checked: None });
        to
    }

    pub(crate) fn call(&mut self, request: Request) -> ReplyTo {
        let to = ReplyTo::Call { call: self.next_number() };
        self.tell(Input::Request { to, by: Requester::Trusted, request, checked: None });
        to
    }

    fn next_number(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    /// The number of the event that was made last.
    pub(crate) fn newest_event(&self) -> u64 {
        self.next_event
    }

    pub(crate) fn next_event(&mut self) -> u64 {
        self.next_event += 1;
        self.next_event
    }
}
