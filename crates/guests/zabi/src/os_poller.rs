//! The operating system's poller: epoll or kqueue through `mio`, made level-triggered.
//!
//! `mio` is edge-triggered: it reports a descriptor once after each change. This poller remembers what `mio` reported,
//! and reports it again in every round until a read or write of the guest shows that it is over. That needs no system
//! call in the common cases: a read that returned fewer bytes than there was room for has drained a stream, so that the
//! next byte is a new edge. Where a read or write leaves it open what is ready now, the descriptor is registered again
//! before the next round, and the operating system reports it if it is ready. Only the process itself reads and writes
//! its descriptors, so readiness does not end without its knowledge.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use millrace_reactor::{HandleNumber, MonoNs, OsReadiness, Readiness, SourceReport, SourceToken, Trigger};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::deadline::DeadlineTimer;

/// Tokens that no handle has: handle numbers are below 2^31.
const WAKER: Token = Token(usize::MAX);
pub(crate) const TIMER: Token = Token(usize::MAX - 1);

#[derive(Debug)]
pub(crate) struct OsPoller {
    poll: Poll,
    events: Events,
    timer: DeadlineTimer,
    sources: HashMap<HandleNumber, OsSource>,
    /// Sources whose remembered state is to be reported in every round.
    ready: BTreeSet<HandleNumber>,
    /// Sources to be registered again before the next round.
    unsure: BTreeSet<HandleNumber>,
}

#[derive(Debug)]
struct OsSource {
    fd: RawFd,
    token: SourceToken,
    interest: Readiness,
    trigger: Trigger,
    /// The state that was reported last, without what reads and writes have shown to be over.
    state: Readiness,
    /// The peer sends no more: reads that drain the stream do not end readability.
    is_read_closed: bool,
}

/// The effect of a guest's call on the readiness of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoEffect {
    /// There was less to read than there was room for, or nothing.
    Drained,
    /// There may be more to read.
    Read,
    /// Not everything could be written.
    Filled,
    /// There may be room for more.
    Wrote,
    /// The end of the stream, an error, or another operation.
    Other,
}

impl OsPoller {
    /// Returns the poller, and the waker that wakes it up from other threads.
    pub(crate) fn new(events_max: usize) -> io::Result<(OsPoller, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let timer = DeadlineTimer::new(poll.registry())?;
        let events = Events::with_capacity(events_max.max(16));
        let (ready, unsure) = (BTreeSet::new(), BTreeSet::new());
        Ok((OsPoller { poll, events, timer, sources: HashMap::new(), ready, unsure }, waker))
    }

    pub(crate) fn register(
        &mut self,
        handle: HandleNumber,
        fd: RawFd,
        token: SourceToken,
        interest: Readiness,
    ) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&fd), key_of(handle), os_interest(interest))?;
        let (state, trigger) = (Readiness::NONE, Trigger::Level);
        self.sources.insert(handle, OsSource { fd, token, interest, trigger, state, is_read_closed: false });
        Ok(())
    }

    /// Changes what a descriptor is watched for. The operating system reports it once more if it is ready.
    pub(crate) fn modify(
        &mut self,
        handle: HandleNumber,
        interest: Readiness,
        trigger: Trigger,
    ) -> io::Result<()> {
        let Some(source) = self.sources.get_mut(&handle) else { return Err(io::ErrorKind::NotFound.into()) };
        self.poll.registry().reregister(&mut SourceFd(&source.fd), key_of(handle), os_interest(interest))?;
        (source.interest, source.trigger) = (interest, trigger);
        (source.state, source.is_read_closed) = (Readiness::NONE, false);
        self.ready.remove(&handle);
        self.unsure.remove(&handle);
        Ok(())
    }

    pub(crate) fn deregister(&mut self, handle: HandleNumber) {
        self.ready.remove(&handle);
        self.unsure.remove(&handle);
        let Some(source) = self.sources.remove(&handle) else { return };
        if let Err(error) = self.poll.registry().deregister(&mut SourceFd(&source.fd)) {
            tracing::debug!(%error, handle = handle.get(), "the poller did not know a descriptor");
        }
    }

    /// Records that the guest has used a descriptor.
    pub(crate) fn used(&mut self, handle: HandleNumber, effect: IoEffect) {
        let Some(source) = self.sources.get_mut(&handle) else { return };
        let is_ending =
            source.is_read_closed || !(source.state & (Readiness::HUP | Readiness::ERROR)).is_empty();
        match effect {
            IoEffect::Drained if !is_ending => source.forget(Readiness::READABLE),
            IoEffect::Filled if !is_ending => source.forget(Readiness::WRITABLE),
            IoEffect::Read if !source.interest.contains(Readiness::READABLE) => {}
            IoEffect::Wrote if !source.interest.contains(Readiness::WRITABLE) => {}
            _ => {
                self.unsure.insert(handle);
            }
        }
        if !source.is_ready() {
            self.ready.remove(&handle);
        }
    }

    /// Waits until a descriptor is ready, the waker was used, or `deadline` has come; without a deadline as long as it
    /// takes. Appends a report for every descriptor that is ready.
    ///
    /// # Errors
    ///
    /// Errors of the operating system. A signal is not an error; the round ends without reports.
    pub(crate) fn round(
        &mut self,
        now: MonoNs,
        deadline: Option<MonoNs>,
        reports: &mut Vec<SourceReport>,
    ) -> io::Result<()> {
        self.register_unsure();
        let timeout = match deadline {
            _ if !self.ready.is_empty() => Some(Duration::ZERO),
            Some(deadline) if deadline <= now => Some(Duration::ZERO),
            Some(deadline) => self.timer.timeout(now, deadline)?,
            None => None,
        };
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Err(_) => {}
            Ok(()) => self.read_events(reports)?,
        }
        for handle in &self.ready {
            if let Some(source) = self.sources.get(handle) {
                reports.push(SourceReport { token: source.token, state: source.state });
            }
        }
        Ok(())
    }

    /// Reads the events. A full buffer means that there may be more; each further call finds events that the calls
    /// before did not.
    fn read_events(&mut self, reports: &mut Vec<SourceReport>) -> io::Result<()> {
        let calls_max = self.sources.len() / self.events.capacity() + 2;
        for _ in 0..calls_max {
            let mut count = 0;
            for event in &self.events {
                count += 1;
                let source = handle_of(event.token())
                    .and_then(|handle| self.sources.get_mut(&handle).map(|source| (handle, source)));
                let Some((handle, source)) = source else { continue };
                source.observe(event);
                if source.is_ready() {
                    self.ready.insert(handle);
                } else {
                    self.ready.remove(&handle);
                    reports.push(SourceReport { token: source.token, state: source.state });
                }
            }
            if count < self.events.capacity() {
                break;
            }
            match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Err(_) => break,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn register_unsure(&mut self) {
        for handle in std::mem::take(&mut self.unsure) {
            let Some(source) = self.sources.get(&handle) else { continue };
            let (interest, trigger) = (source.interest, source.trigger);
            if let Err(error) = self.modify(handle, interest, trigger) {
                // The remembered state stays: a watch that reports too much is better than one that reports nothing.
                tracing::error!(%error, handle = handle.get(), "a descriptor could not be registered again");
            }
        }
    }
}

impl OsSource {
    fn observe(&mut self, event: &Event) {
        let os = OsReadiness {
            readable: event.is_readable(),
            writable: event.is_writable(),
            read_closed: event.is_read_closed(),
            write_closed: event.is_write_closed(),
            error: event.is_error(),
        };
        self.is_read_closed = os.read_closed;
        // kqueue reports reading and writing separately, so an event of one must not end the other.
        let kept = if cfg!(target_os = "linux") { Readiness::NONE } else { self.state };
        self.state = Readiness::from(os) | kept;
    }

    fn forget(&mut self, bit: Readiness) {
        let others = Readiness::BITS.into_iter().filter(|other| *other != bit && self.state.contains(*other));
        self.state = others.fold(Readiness::NONE, |all, bit| all | bit);
    }

    /// Whether the state is to be reported in every round.
    fn is_ready(&self) -> bool {
        self.trigger == Trigger::Level && !self.state.reported_to(self.interest).is_empty()
    }
}

/// The interest for the operating system. Hup and error are always reported; a watch on nothing else asks for readable
/// as well, because `mio` needs some interest.
fn os_interest(interest: Readiness) -> Interest {
    match (interest.contains(Readiness::READABLE), interest.contains(Readiness::WRITABLE)) {
        (true, true) => Interest::READABLE | Interest::WRITABLE,
        (false, true) => Interest::WRITABLE,
        (_, false) => Interest::READABLE,
    }
}

fn key_of(handle: HandleNumber) -> Token {
    Token(handle.get() as usize)
}

fn handle_of(token: Token) -> Option<HandleNumber> {
    u32::try_from(token.0).ok().and_then(HandleNumber::new)
}
