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

mod reading {
    use super::*;
    use crate::record::{Encoder, Header as RecordHeader};
    use std::io;

    /// A record of `pages` pages that do not compress.
    fn record(lsn: u64, pages: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut sink = |part: &[u8]| {
            bytes.extend_from_slice(part);
            Ok(())
        };
        let mut encoder = Encoder::take().expect("an encoder");
        encoder.begin(RecordHeader { lsn, synced: 0, page_size: 512, pages_after: pages, page_count: pages });
        let mut state = lsn;
        for number in 1..=pages {
            let mut fill = |page: &mut [u8]| {
                for byte in page {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    *byte = (state >> 56) as u8;
                }
                Ok(())
            };
            encoder.page(number, &mut fill, &mut sink).expect("a page");
        }
        encoder.finish(lsn, &mut sink).expect("a record");
        bytes
    }

    #[derive(Default)]
    struct Seen {
        partial: Vec<u8>,
        commits: Vec<(u64, Vec<u8>)>,
        voids: usize,
    }

    impl Sink for Seen {
        fn record_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.partial.extend_from_slice(bytes);
            Ok(())
        }

        fn void(&mut self) {
            self.partial.clear();
            self.voids += 1;
        }

        fn committed(&mut self, lsn: u64) -> io::Result<()> {
            self.commits.push((lsn, std::mem::take(&mut self.partial)));
            Ok(())
        }
    }

    fn read(stream: &[u8], piece: usize) -> Result<(StreamReader, Seen), (u64, String)> {
        let (mut reader, mut seen) = (StreamReader::new(), Seen::default());
        for piece in stream.chunks(piece) {
            reader.push(piece, &mut seen).map_err(|fault| (reader.offset().0, fault.to_string()))?;
        }
        Ok((reader, seen))
    }

    fn claim_of(epoch: u64, base_lsn: u64) -> Vec<u8> {
        encode_claim(&Claim { epoch, nonce: [epoch as u8; 16], lineage: [9; 16], base_lsn })
    }

    /// A claim, a run of two parts broken by a second claim, and the record sent anew.
    fn broken_run() -> Vec<u8> {
        let one = record(1, 4);
        let mut stream = claim_of(1, 0);
        stream.extend(data(1, 1, 0, &one[..700]));
        stream.extend(data(1, 1, 700, &one[700..1_000]));
        stream.extend(claim_of(2, 0));
        stream.extend(data(2, 1, 0, &one));
        stream
    }

    #[test]
    fn records_cut_anywhere_and_runs_that_were_voided_read_back() {
        let (one, two, three) = (record(1, 1), record(2, 40), record(3, 2));
        let both = [two.clone(), three.clone()].concat();
        let mut stream = claim_of(3, 0);
        stream.extend(data(3, 1, 0, &one));
        stream.extend(data(3, 2, 0, &both[..9_000]));
        stream.extend(claim_of(7, 1));
        // The run starts anew, and its last part carries the beginning of the next record.
        stream.extend(data(7, 2, 0, &both[..12_345]));
        stream.extend(data(7, 2, 12_345, &both[12_345..two.len() + 100]));
        stream.extend(data(7, 3, 100, &both[two.len() + 100..]));
        for piece in [1, 100, 4_096, stream.len()] {
            let (reader, seen) = read(&stream, piece).expect("a stream that follows its rules");
            assert_eq!((reader.lsn(), reader.epoch(), reader.offset().0), (3, 7, stream.len() as u64));
            assert_eq!(seen.voids, 1);
            assert_eq!(seen.commits, [(1, one.clone()), (2, two.clone()), (3, three.clone())]);
            assert!(seen.partial.is_empty());
        }
    }

    #[test]
    fn the_golden_stream_reads_as_ever() {
        let golden = include_bytes!("../../golden/batch-v1.bin");
        let (reader, seen) = read(golden, 64).expect("version 1");
        assert_eq!((reader.lsn(), reader.epoch(), seen.voids), (1, 2, 1));
        let [(1, whole)] = seen.commits.as_slice() else { panic!("one commit") };
        assert!(golden.ends_with(whole), "the record as it was sent anew");
        // The batches themselves are still written like this; the record inside depends on the compressor.
        let mut written = claim_of(1, 0);
        written.extend(data(1, 1, 0, &whole[..700]));
        written.extend(data(1, 1, 700, &whole[700..1_000]));
        written.extend(claim_of(2, 0));
        written.extend(data(2, 1, 0, whole));
        assert_eq!(written, golden);
    }

    #[test]
    fn every_broken_rule_is_named_and_placed() {
        let (one, two) = (record(1, 1), record(2, 1));
        let first = [claim_of(3, 0), data(3, 1, 0, &one)].concat();
        let end = first.len() as u64;
        let rows: [(Vec<u8>, &str); 8] = [
            (claim_of(3, 1), "a claim of epoch 3 follows epoch 3"),
            (claim_of(2, 1), "a claim of epoch 2 follows epoch 3"),
            (claim_of(4, 2), "a claim knows of commit 2, the stream holds 1 before it"),
            (data(4, 2, 0, &two), "commits of epoch 4 follow a claim of epoch 3"),
            (data(3, 1, 0, &one), "commit 1 goes on at byte 0 of its record, the stream is at byte 0 of commit 2"),
            (data(3, 2, 5, &two[5..]), "commit 2 goes on at byte 5 of its record, the stream is at byte 0 of commit 2"),
            (data(3, 2, 0, &record(3, 1)), "commit 3 follows commit 1"),
            (data(3, 2, 0, b"not a record, though its batch is whole and long enough"), "no record begins here"),
        ];
        for (next, text) in rows {
            let stream = [first.clone(), next.clone()].concat();
            let Err((at, found)) = read(&stream, 1_000) else { panic!("{text}") };
            assert!(found.starts_with(text), "{found}");
            // A fault is found once its whole batch is there, and placed where the batch begins or ends.
            assert!(at == end || at == end + next.len() as u64, "{at}");
        }
    }

    #[test]
    fn a_stream_that_does_not_open_with_a_claim_is_another_makers() {
        let (mut reader, mut seen) = (StreamReader::new(), Seen::default());
        let stream = data(1, 1, 0, &record(1, 1));
        assert!(matches!(reader.push(&stream, &mut seen), Err(StreamFault::Foreign(_))));
        let mut reader = StreamReader::new();
        assert!(matches!(reader.push(&[b'x'; 60], &mut seen), Err(StreamFault::Foreign(_))));
    }

    proptest! {
        #[test]
        fn a_damaged_stream_never_gives_out_a_wrong_commit(at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut stream = broken_run();
            let at = at.index(stream.len());
            stream[at] ^= 1 << bit;
            let (mut reader, mut seen) = (StreamReader::new(), Seen::default());
            prop_assert!(reader.push(&stream, &mut seen).is_err());
            prop_assert!(seen.commits.is_empty() || seen.commits == [(1, record(1, 4))]);
        }
    }
}
