//! Listens for commits of other handles: a thread that sleeps until another handle has committed something, or until a
//! handle is opened that does not tell of its commits, and then wakes whoever watches the store.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millrace_store::{NewsWake, OtherHandles};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};

#[cfg(target_os = "linux")]
use crate::locks::arrivals::Arrivals;
use crate::locks::lock_folder::Locks;
use crate::locks::news_sockets::SocketFolder;

/// The least time between two calls: many commits in a row cost their watchers at most a thousand polls a second.
const CALL_GAP: Duration = Duration::from_millis(1);

/// The listener of a handle, from the first call of `wake_on_news` on.
#[derive(Default)]
pub(crate) struct NewsListener(Mutex<Option<Listening>>);

struct Listening {
    folder: SocketFolder,
    name: OsString,
    shared: Arc<ListenerShared>,
    /// Ends the thread when it is dropped.
    end: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

struct ListenerShared {
    wakes: Mutex<Vec<Weak<dyn Fn() + Send + Sync>>>,
    /// Whether the thread is woken when a silent handle is opened.
    notices_arrivals: AtomicBool,
    /// The thread has ended, so nothing is told any more.
    has_ended: AtomicBool,
}

impl ListenerShared {
    fn is_listening(&self) -> bool {
        !self.has_ended.load(Relaxed)
    }
}

/// The thread's part.
struct ListenerThread {
    shared: Arc<ListenerShared>,
    socket: UnixDatagram,
    #[cfg(target_os = "linux")]
    arrivals: Option<Arrivals>,
    end: UnixStream,
}

impl NewsListener {
    /// Adds a wake. The first one starts the thread and announces this handle, for which the write lock is needed.
    pub(crate) fn add(&self, locks: &Locks, wake: &NewsWake) -> io::Result<()> {
        let mut listening = self.0.lock();
        let listening = match &mut *listening {
            Some(listening) => listening,
            none => none.insert(Listening::start(locks)?),
        };
        let mut wakes = listening.shared.wakes.lock();
        wakes.retain(|wake| wake.strong_count() > 0);
        wakes.push(Arc::downgrade(wake));
        Ok(())
    }

    pub(crate) fn other_handles(&self, locks: &Locks) -> OtherHandles {
        let listening = self.0.lock();
        // A socket that somebody has removed is told of nothing.
        let listening = listening
            .as_ref()
            .filter(|listening| listening.shared.is_listening() && listening.folder.has(&listening.name));
        let is_silent = locks.presence.has_silent();
        match listening {
            _ if is_silent => OtherHandles::Silent,
            Some(listening) if listening.shared.notices_arrivals.load(Relaxed) => OtherHandles::Told,
            None if locks.presence.has_telling() => OtherHandles::Silent,
            Some(_) | None => OtherHandles::None,
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        drop(self.0.lock().take());
    }
}

impl Listening {
    fn start(locks: &Locks) -> io::Result<Listening> {
        let folder = SocketFolder::open(locks.folder())?;
        let (name, socket) = folder.bind()?;
        locks.news.set_own(&name);
        let (end, ends) = UnixStream::pair()?;
        #[cfg(target_os = "linux")]
        let arrivals = Arrivals::watch(locks.folder()).ok();
        #[cfg(target_os = "linux")]
        let notices_arrivals = AtomicBool::new(arrivals.is_some());
        #[cfg(not(target_os = "linux"))]
        let notices_arrivals = AtomicBool::new(false);
        let shared = Arc::new(ListenerShared {
            wakes: Mutex::default(),
            notices_arrivals,
            has_ended: AtomicBool::new(false),
        });
        let thread = ListenerThread {
            shared: shared.clone(),
            socket,
            #[cfg(target_os = "linux")]
            arrivals,
            end: ends,
        };
        // Dropped on an error, which removes the socket and ends the thread.
        let mut listening = Listening { folder, name, shared, end: Some(end), thread: None };
        let spawned = thread::Builder::new().name("millrace-news".to_owned()).spawn(move || thread.run())?;
        listening.thread = Some(spawned);
        // The socket is bound: every commit that gets the write lock after this one finds it.
        locks.write_lock()?.announce_listener()?;
        Ok(listening)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.folder.remove(&self.name);
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // The thread's wakes are of the caller; what they do when they panic is reported by the panic itself.
            let _ = thread.join();
        }
    }
}

impl ListenerThread {
    fn run(mut self) {
        while self.wait() {
            self.read();
            let wakes: Vec<_> = self.shared.wakes.lock().iter().filter_map(Weak::upgrade).collect();
            wakes.iter().for_each(|wake| wake());
            drop(wakes);
            thread::sleep(CALL_GAP);
        }
        // The handle ends, or the system refuses to wait: the handle's users poll from now on.
        self.shared.has_ended.store(true, Relaxed);
    }

    /// Waits until there is something to read. Returns false at the end.
    fn wait(&self) -> bool {
        loop {
            let mut fds =
                vec![PollFd::new(&self.end, PollFlags::IN), PollFd::new(&self.socket, PollFlags::IN)];
            #[cfg(target_os = "linux")]
            fds.extend(self.arrivals.as_ref().map(|arrivals| PollFd::new(arrivals, PollFlags::IN)));
            match poll(&mut fds, None) {
                Ok(_) => return fds.first().is_some_and(|end| end.revents().is_empty()),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Empties the queues, so that everything that is told from now on calls again.
    fn read(&mut self) {
        let received = || self.socket.recv(&mut [0]).map_err(|error| error.kind());
        while let Ok(_) | Err(ErrorKind::Interrupted) = received() {}
        #[cfg(target_os = "linux")]
        if let Some(arrivals) = &self.arrivals
            && !arrivals.read()
        {
            self.arrivals = None;
            self.shared.notices_arrivals.store(false, Relaxed);
        }
    }
}
