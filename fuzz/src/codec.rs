//! The ZCL1 codec of `millrace-reactor`, with any bytes.
//!
//! The first four bytes of an input are its shape: the lengths of the pieces that the rest arrives in, the fields that
//! payloads are read as, and the sizes of reads. The rest is a stream of frames, right or wrong.

mod frames;
mod payloads;
mod pieces;
mod queue;

pub(crate) const SHAPE_BYTES: usize = 4;

/// Checks one input: nothing panics, frames that were decoded are encoded to the same bytes, and the place where a
/// stream is split changes nothing.
pub fn check(input: &[u8]) {
    let Some((shape, stream)) = input.split_first_chunk::<SHAPE_BYTES>() else { return };
    let frames = frames::decode_all(stream);
    for frame in &frames {
        payloads::check(shape, frame);
    }
    pieces::check(shape, stream, &frames);
    queue::check(shape, &frames);
}
