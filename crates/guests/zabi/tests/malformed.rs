//! Wrong input to the host, for every capability that takes requests: the answer is an error frame or a negative code,
//! and the next good request works.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Guest, Reply, with_files};
use millrace_reactor::zcl1::{FRAME_BYTES_MAX, FieldWriter, Frame, Header};
use millrace_zabi::ProcessOptions;
use tempfile::TempDir;

/// A capability, the requests to spoil, and a request that must work afterwards.
struct Subject {
    guest: Guest,
    handle: i32,
    name: &'static str,
    requests: Vec<(u16, Vec<u8>)>,
    probe: (u16, Vec<u8>),
    /// Frames may come in pieces and several in one write.
    is_stream: bool,
    _folder: TempDir,
}

const PATH: u64 = 512 << 10;

fn fields(build: impl FnOnce(&mut FieldWriter<'_>)) -> Vec<u8> {
    let mut payload = Vec::new();
    build(&mut FieldWriter::new(&mut payload));
    payload
}

fn subjects() -> Vec<Subject> {
    let subject = |kind, name: &'static str, requests, probe, is_stream| {
        let folder = TempDir::new().unwrap();
        let mut options = ProcessOptions::new("test", with_files(folder.path()));
        // The requests come faster than the workers execute them.
        (options.limits.aio_jobs_max, options.limits.aio_output_bytes_max) = (1 << 20, 1 << 40);
        options.limits.http_listeners_max = usize::MAX;
        let mut guest = Guest::with(options);
        guest.put(PATH, b"/file");
        let handle = guest.open_ok(kind, name);
        Subject { guest, handle, name, requests, probe, is_stream, _folder: folder }
    };
    let path = |rest: &[u32]| {
        let mut payload = fields(|to| {
            to.u64(PATH).u32(5);
        });
        rest.iter().for_each(|word| payload.extend(word.to_le_bytes()));
        payload
    };
    let text = |parts: &[&[u8]]| {
        fields(|to| {
            parts.iter().for_each(|part| {
                to.prefixed(part);
            });
        })
    };
    let poll = fields(|to| {
        to.u32(1).u32(0);
    });
    let invoke =
        [text(&[b"async", b"default", b"ping.v1"]), vec![1, 0, 0, 0, 0, 0, 0, 0], text(&[b""])].concat();
    vec![
        subject(
            "sys",
            "loop",
            vec![(1, vec![3; 20]), (2, vec![1; 8]), (3, vec![1; 28]), (4, vec![2; 8]), (5, poll.clone())],
            (5, poll),
            true,
        ),
        subject("sys", "info", vec![(1, vec![]), (3, vec![]), (4, vec![])], (3, vec![]), true),
        subject(
            "file",
            "aio",
            vec![
                (1, path(&[6, 0])),
                (2, vec![1, 0, 0, 0, 0, 0, 0, 0]),
                (3, vec![1; 24]),
                (4, vec![0; 32]),
                (5, path(&[0, 0])),
                (7, path(&[0])),
                (9, path(&[0, 0])),
            ],
            (2, vec![0xEE; 8]),
            true,
        ),
        subject(
            "event",
            "bus",
            vec![
                (1, [text(&[b"topic"]), vec![0; 4]].concat()),
                (2, vec![1, 0, 0, 0]),
                (3, text(&[b"t", b"d"])),
            ],
            (2, vec![0xEE; 4]),
            false,
        ),
        subject(
            "net",
            "http",
            vec![
                (1, [vec![0; 8], text(&[b"127.0.0.1"])].concat()),
                (2, vec![9, 0, 0, 0]),
                (10, [vec![200, 0, 0, 0], vec![0; 8]].concat()),
                (
                    11,
                    [vec![200, 0, 0, 0], vec![0; 4], vec![1, 0, 0, 0], text(&[b"a", b"b", b"body"])].concat(),
                ),
            ],
            (1, [vec![0; 8], text(&[b"127.0.0.1"])].concat()),
            false,
        ),
        subject("async", "default", vec![(1, vec![]), (2, invoke), (3, vec![1; 8])], (1, vec![]), false),
    ]
}

impl Subject {
    /// Writes any bytes. If they contain a POLL, its wait ends at once.
    fn write(&mut self, bytes: &[u8]) -> i32 {
        self.guest.process.interrupter().interrupt_poll();
        self.guest.write(self.handle, bytes)
    }

    /// Returns whether the capability answers a good request, with its own op and rid.
    fn works(&mut self, rid: u32) -> bool {
        self.guest.replies(self.handle);
        let (op, payload) = &self.probe;
        let (op, frame) = (*op, Frame::encode(Header::request(*op, rid), payload).unwrap());
        let code = self.write(&frame);
        let replies = self.guest.replies(self.handle);
        if self.name == "http" {
            self.close_listeners(&replies);
        }
        code == frame.len() as i32 && replies.iter().any(|reply| is_answer(reply, op, rid))
    }
}

impl Subject {
    /// Closes the listeners that the probe of `net/http` opens each time.
    fn close_listeners(&mut self, replies: &[Reply]) {
        for reply in replies.iter().filter(|reply| reply.op == 1 && reply.is_ok) {
            let frame = encode(2, &reply.payload[..4]);
            assert_eq!(self.write(&frame), frame.len() as i32);
            assert!(Reply::of(&self.guest.read(self.handle).unwrap()).is_ok);
        }
    }
}

fn is_answer(reply: &Reply, op: u16, rid: u32) -> bool {
    reply.op == op && reply.rid == rid && reply.is_ok
}

/// Encodes a request with rid 77.
fn encode(op: u16, payload: &[u8]) -> Vec<u8> {
    Frame::encode(Header::request(op, 77), payload).unwrap()
}

#[test]
fn after_every_truncation_the_next_request_works() {
    for mut subject in subjects() {
        for (op, payload) in subject.requests.clone() {
            let frame = encode(op, &payload);
            for length in 1..frame.len() {
                let code = subject.write(&frame[..length]);
                assert!(code == length as i32 || code == -1, "{} op {op}: {code}", subject.name);
                assert!(subject.works(1000 + length as u32), "{} op {op}, {length} bytes", subject.name);
            }
        }
    }
}

#[test]
fn after_every_corrupted_byte_the_next_request_works() {
    for mut subject in subjects() {
        for (op, payload) in subject.requests.clone() {
            let frame = encode(op, &payload);
            for at in 0..frame.len() {
                for change in [0xFF, 0x01, 0x80] {
                    let mut wrong = frame.clone();
                    wrong[at] ^= change;
                    let code = subject.write(&wrong);
                    assert!(
                        code == frame.len() as i32 || (-2..0).contains(&code),
                        "{}: {code}",
                        subject.name
                    );
                    let works = subject.works(1000 + at as u32);
                    assert!(works, "{} op {op}, byte {at} ^ {change:#x}", subject.name);
                }
            }
        }
    }
}

#[test]
fn header_fields_are_checked_and_answered() {
    for mut subject in subjects() {
        let (op, payload) = subject.probe.clone();
        for (at, message) in [(4, "version must be 1"), (12, "status must be 0"), (16, "reserved must be 0")]
        {
            let mut wrong = encode(op, &payload);
            wrong[at] = 9;
            assert_eq!(subject.write(&wrong), wrong.len() as i32);
            let reply = Reply::of(&subject.guest.read(subject.handle).unwrap());
            assert_eq!(
                (reply.op, reply.rid, reply.message().as_str()),
                (op, 77, message),
                "{}",
                subject.name
            );
        }
    }
}

#[test]
fn garbage_and_absurd_lengths_are_refused() {
    for mut subject in subjects() {
        let mut seed = 0x2545_F491_4F6C_DD1Du64;
        for round in 0..300 {
            let mut bytes = Vec::new();
            for _ in 0..=(round % 97) {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                bytes.push(seed as u8);
            }
            // A `Z` alone could be the beginning of a frame.
            bytes[0] |= 0x80;
            let code = subject.write(&bytes);
            assert!(code < 0, "{}: {code} for {bytes:?}", subject.name);
            assert!(subject.works(5000 + round), "{}", subject.name);
        }
        for length in [FRAME_BYTES_MAX as u32 - 23, 1 << 20, u32::MAX] {
            let mut wrong = encode(subject.probe.0, &subject.probe.1);
            wrong[20..24].copy_from_slice(&length.to_le_bytes());
            let code = subject.write(&wrong);
            // A response of HTTP may be longer than other frames; then its missing bytes are the error.
            assert!(code == -2 || (subject.name == "http" && code == -1), "{}: {code}", subject.name);
            assert!(subject.works(length), "{}", subject.name);
        }
        assert_eq!(subject.write(&vec![0; FRAME_BYTES_MAX + 1]), if subject.is_stream { -2 } else { -1 });
        assert!(subject.works(1), "{}", subject.name);
    }
}

#[test]
fn frames_may_be_glued_and_split_where_the_handle_is_a_stream() {
    for mut subject in subjects() {
        let (op, payload) = subject.probe.clone();
        let frame = |rid| Frame::encode(Header::request(op, rid), &payload).unwrap();
        let glued = [frame(1), frame(2), frame(3)].concat();
        let code = subject.write(&glued);
        if !subject.is_stream {
            assert_eq!(code, -1, "{}: one frame per write", subject.name);
            assert!(subject.guest.replies(subject.handle).is_empty());
            continue;
        }
        assert_eq!(code, glued.len() as i32);
        let answered: Vec<u32> =
            subject.guest.replies(subject.handle).iter().filter(|r| r.op == op).map(|r| r.rid).collect();
        assert_eq!(answered, [1, 2, 3], "{}", subject.name);
        for split in 1..frame(9).len() {
            let whole = frame(9);
            for part in [&whole[..split], &whole[split..]] {
                assert_eq!(subject.write(part), part.len() as i32);
            }
            let replies = subject.guest.replies(subject.handle);
            assert!(replies.iter().any(|reply| is_answer(reply, op, 9)), "{} split at {split}", subject.name);
        }
    }
}

#[test]
fn wrong_control_requests_are_answered() {
    let mut guest = Guest::new(harness::everything_here());
    let mut control = |bytes: &[u8]| {
        guest.put(harness::REQUEST, bytes);
        let (process, memory) = (&mut guest.process, &mut guest.memory);
        let count = process.zi_ctl(memory, harness::REQUEST, bytes.len() as u32, harness::RESPONSE, 4096);
        assert!(count >= 24, "{count}");
        Reply::of(&guest.at(harness::RESPONSE, count as usize))
    };
    let good = encode(1, &[]);
    for length in 0..good.len() {
        assert_eq!(control(&good[..length]).error().0, "t_ctl_bad_frame");
    }
    for at in 0..good.len() {
        let mut wrong = good.clone();
        wrong[at] ^= 0xFF;
        let reply = control(&wrong);
        assert!(!reply.is_ok || (8..12).contains(&at), "byte {at}: the rid may be any");
        assert!(control(&good).is_ok);
    }
}
