//! The bytes inside rows: varints, the record of a commit, the pieces of a folded run. The specification is
//! `docs/formats/store-sqlite.md`; a change here is a change of the format.

use millrace_store::{CopyPosition, Tip};

use crate::reading::index::{Piece, StoredRun};

/// A row's bytes are not as this crate writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The changes that a transaction made to streams, as its row in `commits` stores them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitSummary {
    /// Each run with the id of its stream, in order of `seq` and without gaps, from the row's `seq` on.
    pub(crate) runs: Vec<(i64, StoredRun)>,
    /// Streams whose row in `streams` changed.
    pub(crate) touched: Vec<i64>,
    /// Rows of delayed events were written.
    pub(crate) delayed: bool,
}

/// Stands among the touched streams of a record to say that rows of delayed events were written. No stream has this id,
/// so a build that does not know the mark finds nothing under it.
const DELAYED: u64 = 0;

/// Appends a number as LEB128: seven bits per byte, lowest first.
fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Malformed)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// Appends the checksum of `context` and of all bytes so far.
fn seal(out: &mut Vec<u8>, context: &[u64]) {
    let crc = crc(context, out);
    out.extend_from_slice(&crc.to_le_bytes());
}

fn unseal<'a>(bytes: &'a [u8], context: &[u64]) -> Result<&'a [u8], Malformed> {
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or(Malformed)?;
    if crc(context, body) == u32::from_le_bytes(*sum) { Ok(body) } else { Err(Malformed) }
}

fn crc(context: &[u64], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for number in context {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(bytes);
    hasher.finalize()
}

/// Encodes the key of the hashes with a checksum. Older versions stored the bare key, which is accepted as it is.
pub(crate) fn encode_key(key: &[u8; 16]) -> Vec<u8> {
    let mut out = key.to_vec();
    seal(&mut out, &[]);
    out
}

pub(crate) fn decode_key(bytes: &[u8]) -> Result<[u8; 16], Malformed> {
    let key = if bytes.len() == 16 { bytes } else { unseal(bytes, &[])? };
    key.try_into().map_err(|_| Malformed)
}

/// Encodes where a copy stands in its journal, with a checksum.
pub(crate) fn encode_position(position: &CopyPosition) -> Vec<u8> {
    let mut out = position.store_id.to_le_bytes().to_vec();
    out.extend_from_slice(&position.n.to_le_bytes());
    out.extend_from_slice(&position.tip.0);
    seal(&mut out, &[]);
    out
}

pub(crate) fn decode_position(bytes: &[u8]) -> Result<CopyPosition, Malformed> {
    let body = unseal(bytes, &[])?;
    let (store_id, rest) = body.split_first_chunk::<16>().ok_or(Malformed)?;
    let (n, tip) = rest.split_first_chunk::<8>().ok_or(Malformed)?;
    let tip = Tip(tip.try_into().map_err(|_| Malformed)?);
    Ok(CopyPosition { store_id: u128::from_le_bytes(*store_id), n: u64::from_le_bytes(*n), tip })
}

/// Encodes the record of a commit. `c` and `seq` are columns of their own, which the checksum covers.
pub(crate) fn encode_record(c: u64, seq: u64, record: &CommitSummary) -> Vec<u8> {
    let base_ts = record.runs.iter().map(|(_, run)| run.first_ts).min().unwrap_or(0);
    let mut out = Vec::with_capacity(16 + record.runs.len() * 14 + record.touched.len() * 2);
    write_varint(&mut out, base_ts);
    write_varint(&mut out, record.runs.len() as u64);
    for (stream, run) in &record.runs {
        write_varint(&mut out, *stream as u64);
        write_varint(&mut out, run.offset);
        write_varint(&mut out, run.count);
        write_varint(&mut out, run.bytes);
        write_varint(&mut out, run.brought);
        write_varint(&mut out, run.first_ts - base_ts);
        write_varint(&mut out, run.last_ts - run.first_ts);
    }
    write_varint(&mut out, record.touched.len() as u64 + u64::from(record.delayed));
    for stream in &record.touched {
        write_varint(&mut out, *stream as u64);
    }
    if record.delayed {
        write_varint(&mut out, DELAYED);
    }
    seal(&mut out, &[c, seq]);
    out
}

pub(crate) fn decode_record(c: u64, mut seq: u64, bytes: &[u8]) -> Result<CommitSummary, Malformed> {
    let mut bytes = unseal(bytes, &[c, seq])?;
    let base_ts = read_varint(&mut bytes)?;
    let mut record = CommitSummary::default();
    for _ in 0..read_varint(&mut bytes)? {
        let stream = read_varint(&mut bytes)? as i64;
        let (offset, count) = (read_varint(&mut bytes)?, read_varint(&mut bytes)?);
        let (size, brought) = (read_varint(&mut bytes)?, read_varint(&mut bytes)?);
        let first_ts = base_ts.checked_add(read_varint(&mut bytes)?).ok_or(Malformed)?;
        let last_ts = first_ts.checked_add(read_varint(&mut bytes)?).ok_or(Malformed)?;
        record.runs.push((stream, StoredRun { offset, seq, count, bytes: size, brought, first_ts, last_ts }));
        seq = seq.checked_add(count).ok_or(Malformed)?;
    }
    for _ in 0..read_varint(&mut bytes)? {
        match read_varint(&mut bytes)? {
            DELAYED => record.delayed = true,
            stream => record.touched.push(stream as i64),
        }
    }
    Ok(record)
}

/// Encodes the pieces of a folded run. `context` are the other columns of the row, which the checksum covers.
pub(crate) fn encode_pieces(pieces: &[Piece], context: &[u64]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + pieces.len() * 4);
    let mut end = 0;
    for piece in pieces {
        write_varint(&mut out, piece.seq - end);
        write_varint(&mut out, piece.count);
        end = piece.seq + piece.count;
    }
    seal(&mut out, context);
    out
}

pub(crate) fn decode_pieces(bytes: &[u8], mut offset: u64, context: &[u64]) -> Result<Vec<Piece>, Malformed> {
    let mut bytes = unseal(bytes, context)?;
    let mut pieces = Vec::new();
    let mut end: u64 = 0;
    while !bytes.is_empty() {
        let seq = end.checked_add(read_varint(&mut bytes)?).ok_or(Malformed)?;
        let count = read_varint(&mut bytes)?;
        pieces.push(Piece { offset, seq, count });
        end = seq.checked_add(count).ok_or(Malformed)?;
        offset = offset.checked_add(count).ok_or(Malformed)?;
    }
    Ok(pieces)
}

/// Encodes pairs of hash and seq, in order of seq.
pub(crate) fn encode_ids(ids: &[(u64, u64)], last_ts: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + ids.len() * 10);
    let mut end = 0;
    for (hash, seq) in ids {
        write_varint(&mut out, seq - end);
        out.extend_from_slice(&hash.to_le_bytes());
        end = *seq;
    }
    seal(&mut out, &[last_ts]);
    out
}

/// Decodes pairs of hash and seq and appends them to `ids`.
pub(crate) fn decode_ids(bytes: &[u8], last_ts: u64, ids: &mut Vec<(u64, u64)>) -> Result<(), Malformed> {
    let mut bytes = unseal(bytes, &[last_ts])?;
    let mut seq: u64 = 0;
    while !bytes.is_empty() {
        seq = seq.checked_add(read_varint(&mut bytes)?).ok_or(Malformed)?;
        let (hash, rest) = bytes.split_first_chunk::<8>().ok_or(Malformed)?;
        bytes = rest;
        ids.push((u64::from_le_bytes(*hash), seq));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> CommitSummary {
        let run = |offset, seq, count, first_ts| StoredRun {
            offset,
            seq,
            count,
            bytes: 300,
            brought: 1,
            first_ts,
            last_ts: first_ts + 2,
        };
        CommitSummary {
            runs: vec![(1, run(7, 100, 3, 1_723_140_000_000)), (900, run(1, 103, 1, 9))],
            touched: vec![900],
            delayed: false,
        }
    }

    #[test]
    fn records_come_back() {
        let delayed = CommitSummary { delayed: true, ..CommitSummary::default() };
        for given in
            [record(), CommitSummary { delayed: true, ..record() }, delayed, CommitSummary::default()]
        {
            let bytes = encode_record(5, 100, &given);
            assert_eq!(decode_record(5, 100, &bytes), Ok(given));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = encode_record(5, 100, &record());
        assert_eq!(decode_record(6, 100, &bytes), Err(Malformed));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert_eq!(decode_record(5, 100, &damaged), Err(Malformed));
            }
            assert_eq!(decode_record(5, 100, &bytes[..at]), Err(Malformed));
        }
    }

    #[test]
    fn pieces_come_back_with_their_offsets() {
        let pieces = [
            Piece { offset: 11, seq: 500, count: 2 },
            Piece { offset: 13, seq: 502, count: 300 },
            Piece { offset: 313, seq: 90_000, count: 1 },
        ];
        let bytes = encode_pieces(&pieces, &[1, 2]);
        assert_eq!(decode_pieces(&bytes, 11, &[1, 2]), Ok(pieces.to_vec()));
        assert_eq!(decode_pieces(&bytes, 11, &[1, 3]), Err(Malformed));
    }

    #[test]
    fn ids_come_back() {
        let ids = [(u64::MAX, 1), (7, 2), (0, 1_000_000)];
        let mut back = vec![(5, 5)];
        let bytes = encode_ids(&ids, 99);
        assert_eq!(decode_ids(&bytes, 98, &mut back), Err(Malformed));
        assert_eq!(decode_ids(&bytes, 99, &mut back), Ok(()));
        assert_eq!(back[1..], ids);
    }

    #[test]
    fn an_endless_varint_is_malformed() {
        assert_eq!(read_varint(&mut &[0xff; 11][..]), Err(Malformed));
    }
}
