//! `FrameQueue`: compared with the plainest queue that keeps its rules.

use std::collections::VecDeque;

use millrace_reactor::zcl1::{Frame, FrameClass, FrameQueue, QueueFull};

use super::SHAPE_BYTES;

/// Frames whole, each in a vector of its own.
#[derive(Debug, Default)]
struct PlainQueue {
    replies: VecDeque<Vec<u8>>,
    events: VecDeque<Vec<u8>>,
    /// The rest of a frame of which a part was read.
    open: Option<Vec<u8>>,
}

/// Queues every frame, reads a little after each, and reads the rest at the end.
pub(super) fn check(shape: &[u8; SHAPE_BYTES], frames: &[Frame<'_>]) {
    let [room, read_bytes, classes, _] = shape.map(usize::from);
    let bytes_max = room * 8;
    let (mut queue, mut plain) = (FrameQueue::new(bytes_max), PlainQueue::default());
    for (index, frame) in frames.iter().enumerate() {
        let class = if classes >> (index % 8) & 1 == 0 { FrameClass::Reply } else { FrameClass::Event };
        let bytes = Frame::encode(frame.header, frame.payload).expect("the frame was decoded");
        let room = bytes_max - plain.len_bytes();
        let expected = match bytes.len() <= room {
            true => Ok(()),
            false => Err(QueueFull { bytes: bytes.len(), room }),
        };
        assert_eq!(queue.push(class, frame.header, frame.payload), expected);
        if expected.is_ok() {
            plain.push(class, bytes);
        }
        read_both(&mut queue, &mut plain, read_bytes);
    }
    while read_both(&mut queue, &mut plain, read_bytes.max(1)) {}
    assert!(queue.is_empty());
}

/// Returns whether there was a frame.
fn read_both(queue: &mut FrameQueue, plain: &mut PlainQueue, bytes: usize) -> bool {
    let mut to = vec![0; bytes];
    let read = queue.read(&mut to).map(|count| to[..count].to_vec());
    let expected = plain.read(bytes);
    assert_eq!(read, expected);
    assert_eq!(queue.len_bytes(), plain.len_bytes());
    read.is_some()
}

impl PlainQueue {
    fn push(&mut self, class: FrameClass, frame: Vec<u8>) {
        match class {
            FrameClass::Reply => self.replies.push_back(frame),
            FrameClass::Event => self.events.push_back(frame),
        }
    }

    fn read(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let next = self.open.take().or_else(|| self.replies.pop_front());
        let mut frame = next.or_else(|| self.events.pop_front())?;
        let rest = frame.split_off(bytes.min(frame.len()));
        self.open = (!rest.is_empty()).then_some(rest);
        Some(frame)
    }

    fn len_bytes(&self) -> usize {
        self.replies.iter().chain(&self.events).chain(&self.open).map(Vec::len).sum()
    }
}
