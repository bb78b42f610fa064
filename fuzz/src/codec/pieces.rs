//! `FrameReader`: a stream that arrives in pieces gives the same frames and faults as the whole stream at once.

use millrace_reactor::zcl1::{FRAME_BYTES_MAX, Frame, FrameReader, Header, MAGIC, NotAFrame};

use super::SHAPE_BYTES;

/// Streams up to this length are also cut into single bytes.
const SINGLE_BYTES_MAX: usize = 512;

/// A frame or a fault that the reader found in the stream.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Frame(Header, Vec<u8>),
    /// The header has a wrong field; the payload was passed over.
    Refused(Header),
    /// Nothing can be found behind this fault.
    NotAFrame(NotAFrame),
}

/// Everything that the reader made of a stream.
#[derive(Debug, PartialEq, Eq)]
struct Cut {
    found: Vec<Found>,
    held: Vec<u8>,
    discard_bytes: usize,
}

/// `frames` are the frames at the beginning of the stream, as [`Frame::decode_first`] finds them.
pub(super) fn check(shape: &[u8; SHAPE_BYTES], stream: &[u8], frames: &[Frame<'_>]) {
    let whole = cut([stream].into_iter());
    assert_eq!(cut(Pieces { rest: stream, lengths: shape.iter().cycle() }), whole);
    if stream.len() <= SINGLE_BYTES_MAX {
        assert_eq!(cut(stream.chunks(1)), whole);
    }
    same_frames(&whole.found, frames);
}

/// The reader refuses a frame as soon as its header is there, so it may find one more than the decoder.
fn same_frames(found: &[Found], frames: &[Frame<'_>]) {
    let mut found = found.iter();
    for frame in frames {
        match found.next() {
            Some(Found::Frame(header, payload)) => {
                assert_eq!((*header, payload.as_slice()), (frame.header, frame.payload));
            }
            Some(Found::Refused(header)) => assert_eq!(*header, frame.header),
            other => panic!("the decoder found {frame:?} where the reader found {other:?}"),
        }
    }
    assert!(!found.any(|found| matches!(found, Found::Frame(..))), "the decoder finds every frame");
}

fn cut<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Cut {
    let (mut reader, mut found) = (FrameReader::new(FRAME_BYTES_MAX), Vec::new());
    for piece in pieces {
        let mut rest = piece;
        while !rest.is_empty() && !matches!(found.last(), Some(Found::NotAFrame(_))) {
            let consumed = consume(&mut reader, rest, &mut found);
            rest = &rest[consumed..];
            assert!(reader.held().len() < FRAME_BYTES_MAX, "the reader never holds a whole frame");
            let is_magic = reader.held().iter().zip(&MAGIC).all(|(held, expected)| held == expected);
            assert!(is_magic, "the first wrong byte of the magic is a fault");
        }
    }
    Cut { found, held: reader.held().to_vec(), discard_bytes: reader.discard_bytes() }
}

/// Returns how many bytes belong to what was found. Capabilities that read a stream follow the same steps.
fn consume(reader: &mut FrameReader, input: &[u8], found: &mut Vec<Found>) -> usize {
    if reader.discard_bytes() > 0 {
        return reader.discard(input);
    }
    match reader.header(input) {
        Err(fault) => {
            found.push(Found::NotAFrame(fault));
            reader.clear();
            input.len()
        }
        Ok(Some(header)) if header.check_request().is_err() => {
            found.push(Found::Refused(header));
            reader.refuse(&header);
            reader.discard(input)
        }
        Ok(Some(header)) if reader.bytes_to_finish(&header) <= input.len() => {
            let end = reader.bytes_to_finish(&header);
            let payload = reader.finish(&input[..end], <[u8]>::to_vec);
            found.push(Found::Frame(header, payload));
            end
        }
        Ok(_) => {
            reader.hold(input);
            input.len()
        }
    }
}

/// Cuts a stream into pieces of 1 to 256 bytes.
struct Pieces<'a, L> {
    rest: &'a [u8],
    lengths: L,
}

impl<'a, 'l, L: Iterator<Item = &'l u8>> Iterator for Pieces<'a, L> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(*self.lengths.next()?) + 1;
        let (piece, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        (!piece.is_empty()).then_some(piece)
    }
}
