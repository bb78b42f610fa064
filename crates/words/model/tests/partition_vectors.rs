//! The partition hash against the protocol's 43 vectors.

use millrace_model::{key_hash, partition_of};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    count: usize,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    key: Option<String>,
    utf16: Option<Vec<u16>>,
    partitions: i64,
    hash_i32: i32,
    partition: u32,
}

#[test]
fn every_vector_gives_its_hash_and_partition() {
    let file: Vectors = serde_json::from_str(include_str!("vectors/partition.json")).expect("vectors parse");
    assert_eq!(file.vectors.len(), file.count);
    assert_eq!(file.count, 43);
    for vector in file.vectors {
        match (&vector.key, &vector.utf16) {
            (Some(key), _) => {
                assert_eq!(key_hash(key.encode_utf16()), vector.hash_i32, "{key:?}");
                let partitions = u32::try_from(vector.partitions).unwrap_or(0);
                assert_eq!(partition_of(key, partitions).0, vector.partition, "{key:?} of {partitions}");
            }
            // A lone surrogate is no Rust string: such a key is refused when it is read, but the hash itself agrees.
            (None, Some(units)) => assert_eq!(key_hash(units.iter().copied()), vector.hash_i32),
            (None, None) => panic!("a vector without a key"),
        }
    }
}
