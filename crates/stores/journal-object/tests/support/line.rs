//! A line to a server on which every connection ends between the headers and the body of its first request.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

pub(crate) struct LineWithoutBodies {
    pub(crate) endpoint: String,
    is_over: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl LineWithoutBodies {
    pub(crate) fn start(server: &str) -> LineWithoutBodies {
        let target = server.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let acceptor = thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if ends.load(SeqCst) {
                    return;
                }
                // A client that is cut learns nothing, whatever went wrong here.
                let _ = pass_headers(client, &target);
            }
        });
        LineWithoutBodies { endpoint, is_over, acceptor: Some(acceptor) }
    }
}

impl Drop for LineWithoutBodies {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.endpoint.trim_start_matches("http://"));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn pass_headers(mut client: TcpStream, target: &str) -> std::io::Result<()> {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") && client.read(&mut byte)? > 0 {
        request.extend(byte);
    }
    let mut server = TcpStream::connect(target)?;
    server.write_all(&request)?;
    server.shutdown(Shutdown::Both)?;
    client.shutdown(Shutdown::Both)
}
