//! Messages for a supervisor (`sd_notify`), over a real datagram socket, and those for people on stderr.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use crate::server::Server;

/// Returns the fields of the next datagram.
fn told(socket: &UnixDatagram) -> Vec<(String, String)> {
    let mut bytes = [0; 4096];
    let length = socket.recv(&mut bytes).unwrap();
    let text = std::str::from_utf8(&bytes[..length]).unwrap();
    let field = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().map(|line| field(line).unwrap()).collect()
}

fn names(told: &[(String, String)]) -> Vec<&str> {
    told.iter().map(|(name, _)| name.as_str()).collect()
}

fn server(notify: &Path) -> Server {
    Server::with_env(&[], &[("NOTIFY_SOCKET", notify)])
}

/// The clock that the supervisor compares with.
fn monotonic_us() -> u64 {
    let now = std::fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = now.split(' ').next().unwrap().parse().unwrap();
    (seconds * 1e6) as u64
}

#[test]
fn a_supervisor_hears_of_the_start_of_reloads_and_of_the_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let mut server = server(&path);
    let start = told(&socket);
    assert_eq!(names(&start), ["READY", "STATUS"]);
    let address = server.http_url().replace("http://", "");
    assert_eq!(start[1].1, format!("serves sqlite:///test.db at {address}"));

    server.signal("HUP");
    let reload = told(&socket);
    assert_eq!(names(&reload), ["RELOADING", "MONOTONIC_USEC", "STATUS"]);
    assert!(reload[1].1.parse::<u64>().unwrap() > 0, "{reload:?}");
    assert!(reload[1].1.parse::<u64>().unwrap() <= monotonic_us() + 1_000_000, "{reload:?}");
    let done = told(&socket);
    assert_eq!((names(&done), done[0].1.as_str()), (vec!["READY", "STATUS"], "1"));
    assert!(done[1].1.contains("0 tokens"), "{done:?}");

    assert_eq!(server.terminate(), Some(0));
    assert_eq!(names(&told(&socket)), ["STOPPING", "STATUS"]);
}

#[test]
fn a_reload_that_fails_ends_too_and_its_reason_is_the_status() {
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = (folder.path().join("notify"), folder.path().join("m.toml"));
    std::fs::write(&config, "").unwrap();
    let socket = UnixDatagram::bind(&path).unwrap();
    let flags = ["--config", config.to_str().unwrap()];
    let server = Server::with_env(&flags, &[("NOTIFY_SOCKET", &path)]);
    told(&socket);
    std::fs::write(&config, "listen = 5\n").unwrap();
    server.signal("HUP");
    assert_eq!(told(&socket)[0].0, "RELOADING");
    let done = told(&socket);
    assert_eq!((done[0].0.as_str(), done[1].0.as_str()), ("READY", "STATUS"));
    assert!(done[1].1.contains("not reloaded") && done[1].1.contains("listen"), "{done:?}");
}

#[test]
fn an_abstract_name_is_understood_and_a_supervisor_that_is_gone_harms_nothing() {
    let name = format!("millrace-test-{}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let mut server = server(Path::new(&format!("@{name}")));
    assert_eq!(told(&socket)[0], ("READY".to_owned(), "1".to_owned()));
    drop(socket);
    assert_eq!(server.get("/readyz").0, 200);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn people_are_told_where_the_console_is() {
    let said = |flags: &[&str]| Server::with_log_level("", flags, "info");
    let server = said(&[]);
    assert!(
        server.log().contains(&format!("the console is at {}/console/", server.http_url())),
        "{}",
        server.log()
    );
    // An address that a browser on this machine can open.
    let server = said(&["--listen", "0.0.0.0:0", "--insecure"]);
    let reached = server.http_url().replace("0.0.0.0", "127.0.0.1");
    assert!(server.log().contains(&format!("the console is at {reached}/console/")), "{}", server.log());
    let server = said(&["--console", "off"]);
    assert!(!server.log().contains("console"), "{}", server.log());
}
