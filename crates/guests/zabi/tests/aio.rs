//! `file/aio`: every operation on real files, acknowledgements, bounds, and a folder that no path leaves.
#![allow(clippy::unwrap_used)]

mod harness;

use std::fs;

use harness::{FOREVER, Guest, READABLE, Reply, WRITABLE, with_files};
use millrace_reactor::zcl1::FieldWriter;
use millrace_zabi::ProcessOptions;
use tempfile::TempDir;

const PATH: u64 = 512 << 10;
const DATA: u64 = 600 << 10;
const OPEN: u16 = 1;
const CLOSE: u16 = 2;
const READ: u16 = 3;
const WRITE: u16 = 4;
const MKDIR: u16 = 5;
const RMDIR: u16 = 6;
const UNLINK: u16 = 7;
const STAT: u16 = 8;
const READDIR: u16 = 9;
const DONE: u16 = 100;
const RD: u32 = 1;
const WR: u32 = 2;
const CREATE: u32 = 4;
const TRUNC: u32 = 8;
const APPEND: u32 = 0x10;

/// A guest with one handle of `file/aio` and a loop that watches it.
struct Files {
    guest: Guest,
    aio: i32,
    sys_loop: i32,
    folder: TempDir,
}

impl Files {
    fn new() -> Files {
        Files::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ProcessOptions)) -> Files {
        let folder = TempDir::new().unwrap();
        let mut options = ProcessOptions::new("test", with_files(folder.path()));
        change(&mut options);
        let mut guest = Guest::with(options);
        let aio = guest.open_ok("file", "aio");
        let sys_loop = guest.open_ok("sys", "loop");
        assert!(guest.watch(sys_loop, aio, READABLE, 1).is_ok);
        Files { guest, aio, sys_loop, folder }
    }

    fn payload_with_path(&mut self, path: &str, rest: &[u32]) -> Vec<u8> {
        self.guest.put(PATH, path.as_bytes());
        let mut payload = Vec::new();
        FieldWriter::new(&mut payload).u64(PATH).u32(path.len() as u32);
        rest.iter().for_each(|word| payload.extend(word.to_le_bytes()));
        payload
    }

    /// Sends a request and returns its acknowledgement.
    fn submit(&mut self, op: u16, payload: &[u8]) -> Reply {
        let reply = self.guest.request(self.aio, op, payload);
        assert_eq!(reply.op, op, "the acknowledgement comes first");
        reply
    }

    /// Waits for the next completion.
    fn done(&mut self) -> Reply {
        loop {
            match self.guest.read(self.aio) {
                Ok(bytes) => {
                    let reply = Reply::of(&bytes);
                    assert_eq!(reply.op, DONE);
                    return reply;
                }
                Err(code) => assert_eq!(code, -6),
            }
            assert_eq!(self.guest.ready(self.sys_loop, FOREVER), [(1, READABLE)]);
        }
    }

    /// Executes a request: `(result, extra)` or the message of the error.
    fn run(&mut self, op: u16, payload: &[u8]) -> Result<(u32, Vec<u8>), String> {
        let ack = self.submit(op, payload);
        if !ack.is_ok {
            return Err(format!("ack: {}", ack.message()));
        }
        assert_eq!(ack.payload, []);
        let done = self.done();
        assert_eq!(done.rid, ack.rid);
        if !done.is_ok {
            let (trace, message) = done.error();
            assert_eq!(trace, "file.aio");
            return Err(message);
        }
        assert_eq!(done.payload[..4], [op as u8, 0, 0, 0]);
        Ok((u32::from_le_bytes(done.payload[4..8].try_into().unwrap()), done.payload[8..].to_vec()))
    }

    fn on_path(&mut self, op: u16, path: &str, rest: &[u32]) -> Result<(u32, Vec<u8>), String> {
        let payload = self.payload_with_path(path, rest);
        self.run(op, &payload)
    }

    fn open(&mut self, path: &str, flags: u32) -> Result<u64, String> {
        let (_, extra) = self.on_path(OPEN, path, &[flags, 0])?;
        Ok(u64::from_le_bytes(extra.try_into().unwrap()))
    }

    fn read(&mut self, file: u64, offset: u64, max: u32) -> Result<(u32, Vec<u8>), String> {
        let mut payload = Vec::new();
        FieldWriter::new(&mut payload).u64(file).u64(offset).u32(max).u32(0);
        self.run(READ, &payload)
    }

    fn write(&mut self, file: u64, offset: u64, data: &[u8]) -> Result<(u32, Vec<u8>), String> {
        self.guest.put(DATA, data);
        let mut payload = Vec::new();
        FieldWriter::new(&mut payload).u64(file).u64(offset).u64(DATA).u32(data.len() as u32).u32(0);
        self.run(WRITE, &payload)
    }
}

#[test]
fn a_file_is_copied() {
    let mut files = Files::new();
    let content: Vec<u8> = (0..200_003u32).map(|n| (n * 7) as u8).collect();
    fs::write(files.folder.path().join("from"), &content).unwrap();
    let (from, to) = (files.open("/from", RD).unwrap(), files.open("/to", WR | CREATE | TRUNC).unwrap());
    assert_eq!((from, to), (1, 2));
    let mut offset = 0;
    loop {
        let (count, bytes) = files.read(from, offset, u32::MAX).unwrap();
        assert!(count as usize == bytes.len() && count <= 60_000);
        if count == 0 {
            break;
        }
        assert_eq!(files.write(to, offset, &bytes).unwrap(), (count, vec![]));
        offset += u64::from(count);
    }
    for file in [from, to] {
        assert_eq!(files.run(CLOSE, &file.to_le_bytes()), Ok((0, vec![])));
        assert_eq!(files.run(CLOSE, &file.to_le_bytes()), Err("unknown file_id".into()));
    }
    assert!(fs::read(files.folder.path().join("to")).unwrap() == content);
}

#[test]
fn folders_are_made_listed_described_and_removed() {
    let mut files = Files::new();
    assert_eq!(files.on_path(MKDIR, "/d", &[0, 0]), Ok((0, vec![])));
    assert_eq!(files.on_path(MKDIR, "/d", &[0, 0]), Err("mkdir failed: -1".into()), "it exists");
    assert_eq!(files.on_path(MKDIR, "/x/y", &[0, 0]), Err("mkdir failed: -3".into()));
    let file = files.open("/d/file", WR | CREATE).unwrap();
    files.write(file, 0, b"12345").unwrap();
    std::os::unix::fs::symlink("file", files.folder.path().join("d/link")).unwrap();
    let (count, extra) = files.on_path(READDIR, "/d", &[0, 0]).unwrap();
    assert_eq!((count, &extra[..4]), (2, &[0; 4][..]));
    let mut entries = [
        [&1u32.to_le_bytes()[..], &4u32.to_le_bytes(), b"file"].concat(),
        [&3u32.to_le_bytes()[..], &4u32.to_le_bytes(), b"link"].concat(),
    ];
    if extra[4] == 3 {
        entries.reverse();
    }
    assert_eq!(extra[4..], entries.concat());
    let (count, extra) = files.on_path(READDIR, "/d", &[12, 0]).unwrap();
    assert_eq!((count, extra.len(), extra[0]), (1, 16, 1), "truncated");
    let (_, extra) = files.on_path(STAT, "/d/file", &[0]).unwrap();
    assert_eq!((extra.len(), u64::from_le_bytes(extra[..8].try_into().unwrap())), (32, 5));
    let mode = u32::from_le_bytes(extra[16..20].try_into().unwrap());
    assert_eq!(mode & 0o170_777, 0o100_644);
    let (_, extra) = files.on_path(STAT, "/d/link", &[0]).unwrap();
    assert_eq!(
        u32::from_le_bytes(extra[16..20].try_into().unwrap()) & 0o170_000,
        0o120_000,
        "the link itself"
    );
    assert_eq!(files.on_path(STAT, "/none", &[0]), Err("stat failed: -3".into()));
    assert_eq!(files.on_path(RMDIR, "/d", &[0]), Err("rmdir failed: -1".into()), "it is not empty");
    for name in ["/d/file", "/d/link"] {
        assert_eq!(files.on_path(UNLINK, name, &[0]), Ok((0, vec![])));
    }
    assert_eq!(files.on_path(UNLINK, "/d/file", &[0]), Err("unlink failed: -3".into()));
    assert_eq!(files.on_path(RMDIR, "/d", &[0]), Ok((0, vec![])));
    assert_eq!(files.on_path(READDIR, "/d", &[0, 0]), Err("readdir open failed".into()));
    assert!(files.on_path(READDIR, "/", &[0, 0]).is_ok(), "the root itself");
}

#[test]
fn nothing_outside_the_folder_can_be_named() {
    let mut files = Files::new();
    let outside = TempDir::new().unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    let links = [("to_file", outside.path().join("secret")), ("to_folder", outside.path().to_owned())];
    for (name, target) in &links {
        std::os::unix::fs::symlink(target, files.folder.path().join(name)).unwrap();
    }
    fs::create_dir(files.folder.path().join("d")).unwrap();
    let denied = ["/../x", "/d/../../x", "/to_file", "/to_folder/secret", "relative", "/d/.."];
    for path in denied {
        for flags in [RD, WR, WR | CREATE] {
            assert_eq!(files.open(path, flags), Err("denied".into()), "{path}");
        }
    }
    for op in [RMDIR, READDIR, MKDIR] {
        let rest: &[u32] = if op == RMDIR { &[0] } else { &[0, 0] };
        assert_eq!(files.on_path(op, "/to_folder", rest), Err("denied".into()), "op {op}");
    }
    for op in [UNLINK, STAT] {
        assert_eq!(files.on_path(op, "/to_folder/secret", &[0]), Err("denied".into()), "op {op}");
    }
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn flags_of_open_are_obeyed() {
    let mut files = Files::new();
    assert_eq!(files.open("/f", RD), Err("open failed: -3".into()));
    for wrong in [0, CREATE, 0x21] {
        assert_eq!(files.open("/f", wrong), Err("bad oflags".into()), "{wrong}");
    }
    for wrong in [RD | TRUNC, RD | APPEND] {
        assert_eq!(files.open("/f", wrong), Err("TRUNC/APPEND requires write".into()), "{wrong}");
    }
    let file = files.open("/f", RD | CREATE).unwrap();
    assert_eq!(files.write(file, 0, b"x"), Err("write failed".into()), "opened for reading");
    let file = files.open("/f", WR).unwrap();
    files.write(file, 0, b"0123456789").unwrap();
    assert_eq!(files.read(file, 0, 4), Err("read failed".into()), "opened for writing");
    let file = files.open("/f", WR | APPEND).unwrap();
    files.write(file, 0, b"ab").unwrap();
    let file = files.open("/f", RD | WR).unwrap();
    assert_eq!(files.read(file, 8, 100), Ok((4, b"89ab".to_vec())));
    assert_eq!(files.read(file, 1 << 40, 100), Ok((0, vec![])));
    let file = files.open("/f", RD | WR | TRUNC).unwrap();
    assert_eq!(files.read(file, 0, 100), Ok((0, vec![])));
    fs::create_dir(files.folder.path().join("d")).unwrap();
    assert_eq!(files.open("/d", RD), Err("open failed: -1".into()), "only files");
    assert_eq!(files.read(99, 0, 1), Err("unknown file_id".into()));
}

#[test]
fn fields_that_are_wrong_are_refused_by_the_acknowledgement() {
    let mut files = Files::new();
    for length in [0, 4, 7, 9, 15, 19, 33] {
        let payload = vec![0; length];
        for (op, name) in [(2, "CLOSE"), (3, "READ"), (4, "WRITE"), (5, "MKDIR"), (8, "STAT"), (9, "READDIR")]
        {
            assert_eq!(files.submit(op, &payload).message(), format!("bad {name} payload"));
        }
        if length < 20 {
            assert_eq!(files.submit(OPEN, &payload).message(), "bad OPEN payload");
        }
    }
    assert_eq!(files.submit(10, &[]).message(), "unknown op");
    assert_eq!(files.submit(DONE, &[]).message(), "unknown op");
    assert_eq!(files.on_path(STAT, "", &[0]), Err("ack: empty path".into()));
    assert_eq!(files.on_path(STAT, "/a\0b", &[0]), Err("ack: path contains NUL".into()));
    assert_eq!(files.on_path(STAT, "/a", &[1]), Err("ack: flags must be 0".into()));
    assert_eq!(files.on_path(STAT, &"/a".repeat(3000), &[0]), Err("ack: path out of bounds".into()));
    let mut payload = Vec::new();
    FieldWriter::new(&mut payload).u64(u64::MAX).u32(3).u32(0);
    assert_eq!(files.submit(STAT, &payload).message(), "path out of bounds");
    for (address, length, message) in
        [(u64::MAX, 1, "src out of bounds"), (0, (1 << 20) + 1, "write too large")]
    {
        let mut payload = Vec::new();
        FieldWriter::new(&mut payload).u64(1).u64(0).u64(address).u32(length).u32(0);
        assert_eq!(files.submit(WRITE, &payload).message(), message);
    }
}

#[test]
fn acknowledgements_come_before_completions_and_completions_in_order() {
    let mut files = Files::new();
    fs::write(files.folder.path().join("f"), b"content").unwrap();
    let payload = files.payload_with_path("/f", &[0]);
    let rids: Vec<u32> = (0..50).map(|_| files.submit(STAT, &payload).rid).collect();
    let done: Vec<u32> = (0..50).map(|_| files.done().rid).collect();
    assert_eq!(done, rids);
}

#[test]
fn requests_of_one_handle_are_executed_in_order() {
    let mut files = Files::new();
    let file = files.open("/f", RD | WR | CREATE).unwrap();
    let mut glued = Vec::new();
    for n in 0..20u8 {
        files.guest.put(DATA + u64::from(n), &[n]);
        let mut payload = Vec::new();
        FieldWriter::new(&mut payload).u64(file).u64(0).u64(DATA + u64::from(n)).u32(1).u32(0);
        glued.extend(files.guest.frame(WRITE, &payload));
    }
    glued.extend(files.guest.frame(CLOSE, &file.to_le_bytes()));
    assert_eq!(files.guest.write(files.aio, &glued), glued.len() as i32, "many frames in one write");
    (0..21).for_each(|_| assert!(Reply::of(&files.guest.read(files.aio).unwrap()).op != DONE));
    (0..21).for_each(|_| assert!(files.done().is_ok));
    assert_eq!(fs::read(files.folder.path().join("f")).unwrap(), [19]);
}

#[test]
fn a_full_queue_refuses_and_nothing_is_lost() {
    let mut files = Files::with(|options| options.limits.aio_output_bytes_max = 1 << 20);
    fs::write(files.folder.path().join("f"), vec![5; 100_000]).unwrap();
    let file = files.open("/f", RD).unwrap();
    let mut payload = Vec::new();
    FieldWriter::new(&mut payload).u64(file).u64(0).u32(60_000).u32(0);
    let acks: Vec<Reply> = (0..40).map(|_| files.submit(READ, &payload)).collect();
    let accepted = acks.iter().filter(|ack| ack.is_ok).count();
    assert_eq!(accepted, 17, "their completions fit into a MiB");
    assert!(acks.iter().filter(|ack| !ack.is_ok).all(|ack| ack.message() == "queue full"));
    for _ in 0..accepted {
        assert_eq!(files.done().payload.len(), 60_008);
    }
    assert_eq!(files.read(file, 0, 60_000).unwrap().0, 60_000, "there is room again");
}

#[test]
fn unread_acknowledgements_are_bounded() {
    let mut files = Files::new();
    let frame = files.guest.frame(10, &[]);
    let mut refused = 0;
    for _ in 0..200_000 {
        match files.guest.write(files.aio, &frame) {
            -6 => refused += 1,
            code => assert_eq!(code, frame.len() as i32),
        }
        if refused == 2 {
            break;
        }
    }
    assert_eq!(refused, 2, "the queue of frames has an end");
    files.guest.replies(files.aio);
    assert!(files.on_path(STAT, "/", &[0]).is_ok());
}

#[test]
fn files_are_bounded_per_handle() {
    let mut files = Files::with(|options| options.limits.aio_files_max = 3);
    let open: Vec<u64> = (0..3).map(|n| files.open(&format!("/{n}"), WR | CREATE).unwrap()).collect();
    assert_eq!(files.open("/x", WR | CREATE), Err("too many open files".into()));
    files.run(CLOSE, &open[1].to_le_bytes()).unwrap();
    assert_eq!(files.open("/x", WR | CREATE), Ok(4), "ids are not used again");
}

#[test]
fn a_handle_is_writable_while_it_takes_requests() {
    let mut files = Files::new();
    assert!(files.guest.watch(files.sys_loop, files.aio, WRITABLE, 2).is_ok);
    assert_eq!(files.guest.ready(files.sys_loop, FOREVER), [(2, WRITABLE)]);
}

#[test]
fn a_handle_whose_completions_are_not_read_is_not_writable() {
    let mut files = Files::with(|options| options.limits.aio_output_bytes_max = 200_000);
    fs::write(files.folder.path().join("f"), vec![1; 60_000]).unwrap();
    let file = files.open("/f", RD).unwrap();
    let second = files.guest.open_ok("sys", "loop");
    assert!(files.guest.watch(second, files.aio, WRITABLE, 2).is_ok);
    assert_eq!(files.guest.ready(second, 0), [(2, WRITABLE)]);
    let mut payload = Vec::new();
    FieldWriter::new(&mut payload).u64(file).u64(0).u32(60_000).u32(0);
    let accepted = (0..).take_while(|_| files.submit(READ, &payload).is_ok).count();
    assert_eq!(accepted, 3, "three completions of 60,000 bytes have room");
    // A guest that waits for room waits, and does not spin.
    assert_eq!(files.guest.ready(second, 20), []);
    assert_eq!(files.done().payload.len(), 8 + 60_000);
    assert_eq!(files.guest.ready(second, FOREVER), [(2, WRITABLE)]);
    assert!(files.submit(READ, &payload).is_ok, "what is reported as writable takes any request");
}

#[test]
fn completions_of_many_handles_share_one_budget() {
    let mut files = Files::with(|options| options.limits.queued_bytes_max = 200_000);
    fs::write(files.folder.path().join("f"), vec![1; 60_000]).unwrap();
    // Each handle opens the file while there is room for that.
    let handles: Vec<(i32, u64)> = (0..5)
        .map(|_| {
            files.aio = files.guest.open_ok("file", "aio");
            files.sys_loop = files.guest.open_ok("sys", "loop");
            assert!(files.guest.watch(files.sys_loop, files.aio, READABLE, 1).is_ok);
            (files.aio, files.open("/f", RD).unwrap())
        })
        .collect();
    let mut accepted = Vec::new();
    for (aio, file) in handles {
        files.aio = aio;
        let mut payload = Vec::new();
        FieldWriter::new(&mut payload).u64(file).u64(0).u32(60_000).u32(0);
        accepted.push((0..2).filter(|_| files.submit(READ, &payload).is_ok).count());
    }
    assert_eq!(accepted, [2, 1, 0, 0, 0], "whatever the number of handles");
}
