//! Round trips through a TCP echo server that is a wasm guest, compared with an echo server in plain Rust over epoll.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use crate::BenchOptions;
use crate::aim::ECHO_RATIO;
use crate::error::BenchError;
use crate::report::Collector;

/// The guest, as module text.
const GUEST: &str = include_str!("echo.wat");
const MESSAGE: [u8; 64] = [7; 64];
/// The two servers alternate this often, because a machine's pace changes.
const SLICES: u32 = 10;
/// Round trips between two readings of the clock.
const TOGETHER: u32 = 100;

fn wrong(source: io::Error) -> BenchError {
    BenchError::io("echoing", source)
}

pub(super) fn measure(options: &BenchOptions, out: &mut Collector) -> Result<(), BenchError> {
    let folder = options.scratch()?;
    let module = folder.path().join("echo.wat");
    std::fs::write(&module, GUEST).map_err(wrong)?;
    let mut guest = GuestServer::start(&module)?;
    let mut of_guest = Client::connect(guest.port()?)?;
    let mut of_plain = Client::connect(plain_server()?)?;
    let slice = Duration::from_secs_f64(options.seconds) / (2 * SLICES);
    for _ in 0..SLICES {
        options.go_on()?;
        of_guest.run(slice)?;
        of_plain.run(slice)?;
    }
    let (guest, plain) = (of_guest.rate(), of_plain.rate());
    out.add("echo", "through a wasm guest", "round trips/s", guest);
    out.add("echo", "plain epoll", "round trips/s", plain);
    out.add("echo", ECHO_RATIO, "x", guest / plain);
    Ok(())
}

/// `millrace guest` as a child process, which ends with this value.
struct GuestServer(Child);

impl GuestServer {
    fn start(module: &std::path::Path) -> Result<GuestServer, BenchError> {
        let mut command = Command::new(std::env::current_exe().map_err(wrong)?);
        command.arg("guest").arg(module).args(["--net", "loopback"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(wrong)?;
        Ok(GuestServer(child))
    }

    fn port(&mut self) -> Result<u16, BenchError> {
        let mut port = [0; 4];
        if let Some(out) = &mut self.0.stdout {
            out.read_exact(&mut port).map_err(wrong)?;
        }
        Ok(u32::from_le_bytes(port) as u16)
    }
}

impl Drop for GuestServer {
    fn drop(&mut self) {
        // Fails if the process has already ended, with its client.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Client {
    stream: TcpStream,
    trips: u64,
    took: Duration,
}

impl Client {
    fn connect(port: u16) -> Result<Client, BenchError> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(wrong)?;
        stream.set_nodelay(true).map_err(wrong)?;
        Ok(Client { stream, trips: 0, took: Duration::ZERO })
    }

    fn run(&mut self, time: Duration) -> Result<(), BenchError> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            for _ in 0..TOGETHER {
                self.stream.write_all(&MESSAGE).map_err(wrong)?;
                self.stream.read_exact(&mut [0; MESSAGE.len()]).map_err(wrong)?;
            }
            self.trips += u64::from(TOGETHER);
        }
        self.took += begun.elapsed();
        Ok(())
    }

    fn rate(&self) -> f64 {
        self.trips as f64 / self.took.as_secs_f64()
    }
}

/// Starts an echo server for one client on a thread and returns its port. The server ends with the client.
fn plain_server() -> Result<u16, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(wrong)?;
    let port = listener.local_addr().map_err(wrong)?.port();
    thread::spawn(move || {
        // On an error the client sees the end of the stream.
        let _ = serve(&listener);
    });
    Ok(port)
}

fn serve(listener: &TcpListener) -> io::Result<()> {
    let mut client = listener.accept()?.0;
    client.set_nonblocking(true)?;
    client.set_nodelay(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, client.as_fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    let (mut events, mut bytes) = (Vec::with_capacity(8), vec![0; 65_536]);
    loop {
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        events.clear();
        match client.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => client.write_all(&bytes[..count])?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}
