//! The other examples in C: the file copier, the HTTP server, the chat.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};

use crate::run::{Ran, run_in};
use crate::stage::{Running, Stage, compiled, connect};

fn copy(stage: &Stage, words: &[&str]) -> Ran {
    run_in(stage.folder(), &[], &[&["guest", &compiled("copy"), "--dir", ".", "--"], words].concat())
}

#[test]
fn files_are_copied_byte_for_byte() {
    let stage = Stage::empty();
    for bytes in [0_usize, 1, 60_000, 60_001, 500_000] {
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        fs::write(stage.path("source"), &content).unwrap();
        assert_eq!(copy(&stage, &["/source", "/target"]).ok(), format!("copied {bytes} bytes\n"));
        assert!(fs::read(stage.path("target")).unwrap() == content, "{bytes} bytes");
    }
}

#[test]
fn the_copier_says_what_it_cannot_do() {
    let stage = Stage::empty();
    fs::write(stage.path("source"), "x").unwrap();
    copy(&stage, &["/nothing", "/target"]).refused(1, &["copy: cannot open /nothing"]);
    copy(&stage, &["/source", "/no/folder"]).refused(1, &["copy: cannot open /no/folder"]);
    copy(&stage, &["/source", "/../outside"]).refused(1, &["copy: cannot open /../outside"]);
    copy(&stage, &["/source"]).refused(2, &["copy: give two paths"]);
    run_in(stage.folder(), &[], &["guest", &compiled("copy"), "--", "/source", "/target"])
        .refused(1, &["grant it with --dir"]);
}

#[test]
fn the_folder_is_the_only_one_there_is() {
    let stage = Stage::empty();
    fs::create_dir(stage.path("inside")).unwrap();
    fs::write(stage.path("secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret", stage.path("inside/link")).unwrap();
    for path in ["/../secret", "/link", stage.path("secret").to_str().unwrap()] {
        let ran = run_in(
            stage.folder(),
            &[],
            &["guest", &compiled("copy"), "--dir", "inside", "--", path, "/stolen"],
        );
        ran.refused(1, &["copy: cannot open"]);
    }
    assert!(!stage.path("inside/stolen").exists());
}

fn get(address: &str, path: &str) -> String {
    let mut stream = connect(address);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_http_server_greets_every_request() {
    let (guest, address) = Running::listening("hello", &["--net", "loopback"]);
    for path in ["/", "/world", "/a/long/path?with=a&query"] {
        let answer = get(&address, path);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("content-type: text/plain"), "{answer}");
        assert!(answer.contains(&format!("hello {}", path.split('?').next().unwrap())), "{answer}");
    }
    let threads: Vec<_> = (0..20)
        .map(|number| {
            let address = address.clone();
            std::thread::spawn(move || get(&address, &format!("/{number}")))
        })
        .collect();
    for (number, thread) in threads.into_iter().enumerate() {
        let answer = thread.join().unwrap();
        assert!(answer.ends_with(&format!("hello /{number}\n")), "{answer}");
    }
    assert_eq!(guest.interrupt("TERM").code, Some(130));
}

#[test]
fn the_chat_reaches_everyone_in_the_room() {
    let flags = ["--net", "loopback", "--allow", "event/bus"];
    let (_guest, address) = Running::listening("chat", &flags);
    let mut clients: Vec<_> = (0..8).map(|_| BufReader::new(connect(&address))).collect();
    let next = |client: &mut BufReader<std::net::TcpStream>| {
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        line
    };
    for client in &mut clients {
        assert_eq!(next(client), "welcome\n");
    }
    for speaker in 0..clients.len() {
        let said = format!("line of {speaker}\n");
        // In two pieces: only whole lines are published.
        let (first, second) = said.split_at(4);
        clients[speaker].get_mut().write_all(first.as_bytes()).unwrap();
        clients[speaker].get_mut().write_all(second.as_bytes()).unwrap();
        for client in &mut clients {
            assert_eq!(next(client), said);
        }
    }
    // A client that leaves does not disturb the others.
    drop(clients.remove(0));
    clients[0].get_mut().write_all(b"who is left?\n").unwrap();
    for client in &mut clients {
        assert_eq!(next(client), "who is left?\n");
    }
}

#[test]
fn the_chat_needs_its_bus() {
    let ran = crate::run::run(&["guest", &compiled("chat"), "--net", "loopback"]);
    ran.refused(1, &["opening event/bus (granted by --allow event/bus) failed"]);
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    let stage = Stage::empty();
    fs::write(stage.path("source"), "x").unwrap();
    copy(&stage, &["/source", "/source"]).refused(1, &["copy onto itself"]);
    assert_eq!(fs::read(stage.path("source")).unwrap(), b"x");
}

#[test]
fn a_long_body_does_not_harm_the_http_server() {
    let (guest, address) = Running::listening("hello", &["--net", "loopback"]);
    let mut stream = connect(&address);
    let body = "b".repeat(190_000);
    write!(stream, "POST /long HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("hello /long\n"), "{answer}");
    assert!(get(&address, "/next").ends_with("hello /next\n"));
    assert_eq!(guest.interrupt("TERM").code, Some(130));
}

#[test]
fn a_chat_client_may_paste_more_than_the_servers_buffers_hold() {
    let (_guest, address) = Running::listening("chat", &["--net", "loopback", "--allow", "event/bus"]);
    let mut clients: Vec<_> = (0..2).map(|_| BufReader::new(connect(&address))).collect();
    let text: String = (0..3_000).map(|line| format!("line {line:>6} {}\n", "x".repeat(40))).collect();
    let mut speaker = clients[0].get_ref().try_clone().unwrap();
    let spoken = text.clone();
    let paste = std::thread::spawn(move || speaker.write_all(spoken.as_bytes()).unwrap());
    let readers = clients.drain(..).map(|mut client| {
        let lines = text.lines().count() + 1;
        std::thread::spawn(move || {
            let mut heard = String::new();
            for _ in 0..lines {
                client.read_line(&mut heard).unwrap();
            }
            heard
        })
    });
    let readers: Vec<_> = readers.collect();
    for reader in readers {
        assert!(reader.join().unwrap() == format!("welcome\n{text}"), "every line arrives, in order");
    }
    paste.join().unwrap();
}
