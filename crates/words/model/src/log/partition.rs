//! The partition of a key. The hash is fixed by the protocol: clients compute it too.

use crate::log::stream::Partition;

/// Most partitions a topic may have.
pub const PARTITIONS_MAX: u32 = 1024;

/// Hashes UTF-16 code units in wrapping 32-bit arithmetic, as a JavaScript client does with `charCodeAt`.
pub fn key_hash(units: impl Iterator<Item = u16>) -> i32 {
    units.fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Returns the partition of a key. Uses `unsigned_abs`, because the absolute value of the smallest `i32` does not fit
/// into an `i32`.
pub fn partition_of(key: &str, partitions: u32) -> Partition {
    if partitions <= 1 {
        return Partition(0);
    }
    Partition(key_hash(key.encode_utf16()).unsigned_abs() % partitions)
}
