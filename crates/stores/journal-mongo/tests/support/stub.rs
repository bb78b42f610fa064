//! A server that speaks just enough of MongoDB's protocol to give answers that the engine on this machine cannot give:
//! those of a replica set, of an old version, of a primary that steps down, and no answer at all.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use mongodb::bson::{Document, doc};

/// `None`: the connection is kept, and no answer is ever given.
type Answer = dyn Fn(&Document) -> Option<Document> + Send + Sync;

pub(crate) struct StubServer {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Document>>>,
}

impl StubServer {
    /// Starts a server with an answer for every command. Its threads end with the process.
    pub(crate) fn start(
        answer: impl Fn(&Document) -> Option<Document> + Send + Sync + 'static,
    ) -> StubServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let answer: Arc<Answer> = Arc::new(answer);
        let seen_by_server = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, seen) = (answer.clone(), seen_by_server.clone());
                thread::spawn(move || serve(stream, &answer, &seen));
            }
        });
        StubServer { address, seen }
    }

    /// Returns all commands of a name that have arrived so far.
    pub(crate) fn seen(&self, command: &str) -> Vec<Document> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|document| name_of(document) == command).cloned().collect()
    }
}

/// Returns the name of a command: its first key.
pub(crate) fn name_of(command: &Document) -> &str {
    command.keys().next().map_or("", String::as_str)
}

pub(crate) fn is_hello(command: &Document) -> bool {
    ["hello", "isMaster", "ismaster"].contains(&name_of(command))
}

/// The answer of the primary of a replica set to `hello`.
pub(crate) fn primary_of_set(address: SocketAddr, others: &[&str]) -> Document {
    let me = address.to_string();
    let hosts: Vec<String> = [me.as_str()].iter().chain(others).map(|host| (*host).to_owned()).collect();
    let mut hello = standalone();
    hello.extend(doc! { "setName": "rs0", "setVersion": 1, "hosts": hosts, "primary": &me, "me": &me });
    hello
}

pub(crate) fn standalone() -> Document {
    doc! {
        "ok": 1, "helloOk": true, "ismaster": true, "isWritablePrimary": true, "minWireVersion": 0,
        "maxWireVersion": 21, "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000,
    }
}

pub(crate) fn failure(code: i32, text: &str) -> Document {
    doc! { "ok": 0, "code": code, "errmsg": text }
}

fn serve(mut stream: TcpStream, answer: &Arc<Answer>, seen: &Arc<Mutex<Vec<Document>>>) {
    // Ends with an error when the driver closes the connection.
    while let Ok((id, command)) = receive(&mut stream) {
        seen.lock().unwrap().push(command.clone());
        if let Some(reply) = answer(&command)
            && send(&mut stream, id, &reply).is_err()
        {
            return;
        }
    }
}

/// Reads a message of the kind OP_MSG. Documents of an insert stand behind the command; they are put into it.
fn receive(stream: &mut TcpStream) -> io::Result<(i32, Document)> {
    let mut header = [0; 16];
    stream.read_exact(&mut header)?;
    let length = i32_at(&header, 0) as usize;
    let mut body = vec![0; length - header.len()];
    stream.read_exact(&mut body)?;
    let mut rest = &body[4..];
    let mut command = Document::new();
    while let Some((kind, section)) = rest.split_first() {
        let size = i32_at(section, 0) as usize;
        if *kind == 0 {
            command = Document::from_reader(&section[..size]).unwrap();
        } else {
            let name_end = 4 + section[4..].iter().position(|byte| *byte == 0).unwrap();
            let name = String::from_utf8(section[4..name_end].to_vec()).unwrap();
            command.insert(name, Document::from_reader(&section[name_end + 1..size]).unwrap());
        }
        rest = &section[size..];
    }
    Ok((i32_at(&header, 4), command))
}

fn send(stream: &mut TcpStream, to: i32, reply: &Document) -> io::Result<()> {
    let document = reply.to_vec().unwrap();
    let length = i32::try_from(16 + 4 + 1 + document.len()).unwrap();
    let mut message = Vec::new();
    for number in [length, 0, to, 2013, 0] {
        message.extend(number.to_le_bytes());
    }
    message.push(0);
    message.extend(document);
    stream.write_all(&message)
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}
