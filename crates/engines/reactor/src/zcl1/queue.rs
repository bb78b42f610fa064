//! The queue of frames for a guest to read: bounded, one frame per read, replies ahead of events.

use std::collections::VecDeque;

use thiserror::Error;

use super::frame::header_for;
use super::header::{HEADER_BYTES, Header};

/// The order in which frames are read. Guests take the first frame after a request for its reply, so a reply overtakes
/// events that are already queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClass {
    Reply,
    Event,
}

/// The frame does not fit; nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a frame of {bytes} bytes does not fit into the {room} bytes that are left")]
pub struct QueueFull {
    pub bytes: usize,
    pub room: usize,
}

#[derive(Debug)]
pub struct FrameQueue {
    replies: FrameRing,
    events: FrameRing,
    /// A frame that the guest has read in part. The rest of it is read before any other frame.
    open: Option<OpenFrame>,
    bytes_max: usize,
}

#[derive(Debug)]
struct OpenFrame {
    class: FrameClass,
    bytes_left: usize,
}

/// The bytes of several frames in sequence, without an allocation per frame.
#[derive(Debug, Default)]
struct FrameRing {
    bytes: VecDeque<u8>,
    lengths: VecDeque<usize>,
}

impl FrameQueue {
    /// `bytes_max` limits the bytes of all queued frames, headers included.
    pub fn new(bytes_max: usize) -> FrameQueue {
        FrameQueue { replies: FrameRing::default(), events: FrameRing::default(), open: None, bytes_max }
    }

    /// Returns how many more bytes of frames fit.
    pub fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.len_bytes())
    }

    pub fn len_bytes(&self) -> usize {
        self.replies.bytes.len() + self.events.bytes.len()
    }

    /// Returns how many frames wait, including one that was read in part.
    pub fn frames(&self) -> usize {
        self.replies.lengths.len() + self.events.lengths.len() + usize::from(self.open.is_some())
    }

    pub fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    /// Queues a frame; the header's `payload_bytes` is replaced by the payload's length.
    ///
    /// # Errors
    ///
    /// [`QueueFull`]
    pub fn push(&mut self, class: FrameClass, header: Header, payload: &[u8]) -> Result<(), QueueFull> {
        let room = self.room();
        let full = QueueFull { bytes: HEADER_BYTES.saturating_add(payload.len()), room };
        let header = header_for(header, payload.len(), room).map_err(|_| full)?;
        let ring = self.ring(class);
        ring.bytes.extend(&header.encode());
        ring.bytes.extend(payload);
        ring.lengths.push_back(header.frame_bytes());
        Ok(())
    }

    /// Copies bytes of the next frame to `to` and returns their number; `None` if no frame waits. A read never goes
    /// beyond the end of a frame: clients of the reference read with a large buffer and keep only the first frame.
    pub fn read(&mut self, to: &mut [u8]) -> Option<usize> {
        let OpenFrame { class, bytes_left } = match self.open.take() {
            Some(open) => open,
            None => self.next_frame()?,
        };
        let count = bytes_left.min(to.len());
        self.ring(class).read(&mut to[..count]);
        if count < bytes_left {
            self.open = Some(OpenFrame { class, bytes_left: bytes_left - count });
        }
        Some(count)
    }

    fn next_frame(&mut self) -> Option<OpenFrame> {
        let mut open = |class| {
            let bytes_left = self.ring(class).lengths.pop_front()?;
            Some(OpenFrame { class, bytes_left })
        };
        open(FrameClass::Reply).or_else(|| open(FrameClass::Event))
    }

    fn ring(&mut self, class: FrameClass) -> &mut FrameRing {
        match class {
            FrameClass::Reply => &mut self.replies,
            FrameClass::Event => &mut self.events,
        }
    }
}

impl FrameRing {
    /// The caller has checked that the ring holds that many bytes.
    fn read(&mut self, to: &mut [u8]) {
        let (front, back) = self.bytes.as_slices();
        let (to_front, to_back) = to.split_at_mut(front.len().min(to.len()));
        to_front.copy_from_slice(&front[..to_front.len()]);
        to_back.copy_from_slice(&back[..to_back.len()]);
        self.bytes.drain(..to.len());
    }
}
