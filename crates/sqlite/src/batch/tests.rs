use super::*;
use bytes::Bytes;
use proptest::prelude::*;

fn claim(epoch: u64) -> Claim {
    Claim { epoch, nonce: [epoch as u8; 16], lineage: [9; 16], base_lsn: 3 }
}

fn data(epoch: u64, lsn: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = encode_data_header(epoch, lsn, offset, payload).to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

fn split(bytes: &[u8], piece: usize) -> Result<Vec<Batch>, Fault> {
    let (mut splitter, mut batches) = (Splitter::at(0), Vec::new());
    for mut piece in bytes.chunks(piece) {
        while let Some(batch) = splitter.next(&mut piece)? {
            batches.push(batch);
        }
    }
    assert_eq!(splitter.offset() as usize + splitter.held_bytes(), bytes.len());
    Ok(batches)
}

#[test]
fn batches_read_back_however_the_bytes_arrive() {
    let mut bytes = encode_claim(&claim(4));
    bytes.extend(data(4, 4, 0, b"first"));
    bytes.extend(data(4, 4, 5, b"second"));
    for piece in [1, 7, 48, 80, 4096] {
        let batches = split(&bytes, piece).expect("whole batches");
        assert_eq!(batches.len(), 3);
        assert_eq!(batches[0].body, Body::Claim(claim(4)));
        assert_eq!(batches[1].body, Body::Data(Bytes::from_static(b"first")));
        assert_eq!((batches[2].header.lsn, batches[2].header.offset), (4, 5));
    }
}

#[test]
fn only_a_claim_of_ours_opens_a_stream() {
    assert_eq!(opening(b""), Opening::Empty);
    assert_eq!(opening(&encode_claim(&claim(1))), Opening::Ours(claim(1)));
    assert_eq!(
        opening(b"SQLite format 3\0 and more bytes than a batch's header has, by far"),
        Opening::Foreign(Fault::Magic)
    );
    assert_eq!(opening(b"short"), Opening::Foreign(Fault::Magic));
    assert_eq!(opening(&data(1, 1, 0, b"x")), Opening::Foreign(Fault::Magic));
    let mut later = encode_claim(&claim(1));
    later[8] = 2;
    assert_eq!(opening(&later), Opening::Foreign(Fault::Version(2)));
}

#[test]
fn the_next_versions_batches_are_refused() {
    let mut bytes = data(1, 1, 0, b"payload");
    bytes[8..10].copy_from_slice(&2u16.to_le_bytes());
    assert_eq!(split(&bytes, 64), Err(Fault::Version(2)));
}

proptest! {
    #[test]
    fn any_flipped_bit_is_found(payload in proptest::collection::vec(any::<u8>(), 1..200), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = data(7, 3, 1, &payload);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        // A longer length makes the batch wait for bytes, which its header's checksum already forbids.
        prop_assert!(split(&bytes, 64).is_err());
    }

    #[test]
    fn any_bytes_are_split_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), start in any::<bool>()) {
        let mut all = if start { encode_claim(&claim(1)) } else { Vec::new() };
        all.extend(bytes);
        drop(split(&all, 50));
        drop(opening(&all));
    }
}
