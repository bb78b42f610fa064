//! Just enough of an HTTP/1.1 server: a thread for each connection, bodies with a length.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[derive(Debug)]
pub(crate) struct StubRequest {
    pub(crate) method: String,
    /// Without the query.
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl StubRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

pub(crate) enum StubAnswer {
    Answer {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// A success with a body that is shorter than it says; then the connection is closed.
    Short {
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
        length: usize,
    },
    /// An answer as it is; then the connection is closed.
    Raw(Vec<u8>),
    /// The connection is closed without an answer.
    Cut,
    /// The connection stays open without an answer, until the stub is gone.
    Silence,
}

pub(crate) fn answer(status: u16, body: &str) -> StubAnswer {
    StubAnswer::Answer { status, headers: Vec::new(), body: body.as_bytes().to_vec() }
}

pub(crate) struct HttpStub {
    pub(crate) endpoint: String,
    address: std::net::SocketAddr,
    is_over: Arc<AtomicBool>,
    acceptor: Option<thread::JoinHandle<()>>,
}

impl HttpStub {
    pub(crate) fn start(respond: impl Fn(&StubRequest) -> StubAnswer + Send + Sync + 'static) -> HttpStub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, respond) = (Arc::clone(&is_over), Arc::new(respond));
        let acceptor = thread::spawn(move || {
            // Connections that were answered with silence live as long as the stub.
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { return };
                silent.push(stream.try_clone());
                let respond = Arc::clone(&respond);
                thread::spawn(move || serve(&stream, &*respond));
            }
        });
        let endpoint = format!("http://{address}");
        HttpStub { endpoint, address, is_over, acceptor: Some(acceptor) }
    }
}

impl Drop for HttpStub {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn serve(stream: &TcpStream, respond: &(impl Fn(&StubRequest) -> StubAnswer + ?Sized)) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader) {
        let written = match respond(&request) {
            StubAnswer::Answer { status, headers, body } => {
                write_answer(stream, status, &headers, &body, body.len())
            }
            StubAnswer::Short { headers, body, length } => {
                let _ = write_answer(stream, 200, &headers, &body, length);
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            }
            StubAnswer::Raw(bytes) => {
                let _ = (&mut &*stream).write_all(&bytes);
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            }
            StubAnswer::Cut => {
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            }
            StubAnswer::Silence => return,
        };
        if written.is_err() {
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>) -> Option<StubRequest> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    let mut request = StubRequest { method, path, query, headers, body: Vec::new() };
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    request.body = vec![0; length];
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}

fn write_answer(
    mut stream: &TcpStream,
    status: u16,
    headers: &[(&'static str, String)],
    body: &[u8],
    length: usize,
) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Stub\r\ncontent-length: {length}\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(&[head.as_bytes(), body].concat())
}
