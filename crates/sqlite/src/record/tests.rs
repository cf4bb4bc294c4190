use super::*;
use proptest::prelude::*;
use std::io;

/// A commit in memory: what goes in and must come out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Commit {
    header: Header,
    pages: Vec<(PageNumber, Vec<u8>)>,
    checksum: u64,
}

fn encode(commit: &Commit) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sink = |part: &[u8]| {
        bytes.extend_from_slice(part);
        Ok(())
    };
    let mut encoder = Encoder::take().expect("an encoder");
    encoder.begin(commit.header);
    for (number, image) in &commit.pages {
        let mut fill = |buffer: &mut [u8]| {
            buffer.copy_from_slice(image);
            Ok(())
        };
        let hash = encoder.page(*number, &mut fill, &mut sink).expect("a page");
        assert_eq!(hash, page_hash(*number, image));
    }
    let length = encoder.finish(commit.checksum, &mut sink).expect("the end");
    encoder.give_back();
    assert_eq!(length, bytes.len() as u64);
    bytes
}

/// Decodes bytes that arrive in pieces of `piece`; the commits, or the first error.
fn decode(bytes: &[u8], piece: usize) -> Result<Vec<Commit>, RecordError> {
    let mut decoder = Decoder::new().expect("a decoder");
    let mut checker = Decoder::checking();
    let (mut commits, mut pages, mut checked) = (Vec::new(), Vec::new(), 0);
    for mut input in bytes.chunks(piece.max(1)) {
        let mut again = input;
        while let Some(event) = checker.next(&mut again)? {
            checked += usize::from(matches!(event, Event::Commit { .. }));
        }
        while let Some(event) = decoder.next(&mut input)? {
            match event {
                Event::Begin(_) => pages.clear(),
                Event::Pages { numbers, images } => {
                    let size = images.len() / numbers.len();
                    let both = numbers.iter().zip(images.chunks(size));
                    pages.extend(both.map(|(number, image)| (*number, image.to_vec())));
                }
                Event::Commit { header, checksum, .. } => {
                    commits.push(Commit { header, pages: std::mem::take(&mut pages), checksum });
                }
            }
        }
    }
    assert_eq!(checked, commits.len(), "a checking decoder sees the same records");
    assert_eq!(decoder.at_boundary(), decoder.partial_bytes() == 0);
    Ok(commits)
}

fn image() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0u8), any::<u8>()]
}

fn commit() -> impl Strategy<Value = Commit> {
    let size = prop_oneof![4 => Just(512u32), 2 => Just(1024), 1 => Just(4096), 1 => Just(65_536)];
    let numbers = proptest::collection::btree_set(1u32..400, 0..150);
    (size, numbers, any::<[u64; 3]>(), image(), any::<u64>()).prop_map(
        |(page_size, numbers, [lsn, synced, checksum], fill, seed)| {
            let most = if page_size > 4096 { 9 } else { 150 };
            let mut random = highwater_base::random::SplitMix::new(seed);
            let numbers: Vec<_> = numbers.into_iter().take(most).collect();
            let pages: Vec<_> = numbers
                .iter()
                .map(|number| {
                    let mut image = vec![fill; page_size as usize];
                    if number % 2 == 0 {
                        let noise = highwater_base::Random::next_u64(&mut random).to_le_bytes();
                        image.iter_mut().zip(noise.iter().cycle()).for_each(|(byte, noise)| *byte ^= noise);
                    }
                    (*number, image)
                })
                .collect();
            let page_count = pages.len() as u32;
            Commit { header: Header { lsn, synced, page_size, pages_after: 400, page_count }, pages, checksum }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn records_decode_to_what_was_encoded_in_any_pieces(
        commits in proptest::collection::vec(commit(), 1..4), piece in 1usize..5000,
    ) {
        let bytes: Vec<u8> = commits.iter().flat_map(encode).collect();
        prop_assert!(decode(&bytes, piece) == Ok(commits));
    }

    #[test]
    fn random_bytes_are_refused_without_panic_or_allocation(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
        prop_assert!(!matches!(decode(&bytes, 100), Ok(commits) if !commits.is_empty()));
    }

    /// Behind a valid header anything may follow: no cap may be passed and no panic reached.
    #[test]
    fn random_chunks_behind_a_valid_header_are_refused(
        bytes in proptest::collection::vec(any::<u8>(), 24..4000), pages in 0u32..10, small in any::<bool>(),
    ) {
        let header = Header { lsn: 1, synced: 0, page_size: 65_536, pages_after: 10, page_count: pages };
        let mut record = header.encode().to_vec();
        if small {
            record.extend_from_slice(&1u32.to_le_bytes());
            record.extend_from_slice(&(bytes.len() as u32 / 2).to_le_bytes());
        }
        record.extend_from_slice(&bytes);
        prop_assert!(!matches!(decode(&record, 77), Ok(commits) if !commits.is_empty()));
    }
}

fn sample() -> Commit {
    let pages: Vec<_> = [1u32, 2, 5].iter().map(|n| (*n, vec![*n as u8 * 17; 512])).collect();
    let header = Header { lsn: 7, synced: 100, page_size: 512, pages_after: 6, page_count: 3 };
    Commit { header, pages, checksum: 0x0123_4567_89ab_cdef }
}

#[test]
fn every_single_bit_flip_is_detected() {
    let bytes = encode(&sample());
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        // A flip in a length may make the record longer than what is there: then it is not whole, which is as good.
        assert!(!matches!(decode(&flipped, 4096), Ok(commits) if !commits.is_empty()), "bit {bit}");
    }
}

#[test]
fn every_prefix_is_not_whole() {
    let bytes = encode(&sample());
    for length in 0..bytes.len() {
        assert_eq!(decode(&bytes[..length], 64), Ok(Vec::new()), "{length} bytes");
    }
}

/// A chunk of one attempt and one of another have valid checksums of their own; the trailer covers them together.
/// A batch ended within the 48 bytes of a record's header, and the next batch went on there. A restore still counted
/// the bytes of the record before, took the place for another one, and called a sound stream damaged.
#[test]
fn the_bytes_of_a_record_are_counted_from_its_own_start() {
    let record = encode(&sample());
    let mut decoder = Decoder::checking();
    for (taken, byte) in (1..).zip([record.as_slice(), &record].concat()) {
        let mut input: &[u8] = &[byte];
        while decoder.next(&mut input).expect("a sound record").is_some() {}
        assert_eq!(decoder.partial_bytes(), taken % record.len() as u64);
    }
}

#[test]
fn a_record_put_together_from_two_attempts_is_refused() {
    let mut pages: Vec<_> = (1..=128u32).map(|n| (n, vec![n as u8; 512])).collect();
    let header = Header { lsn: 1, synced: 0, page_size: 512, pages_after: 200, page_count: 128 };
    let first = encode(&Commit { header, pages: pages.clone(), checksum: 1 });
    pages[0].1[0] ^= 0xff;
    let second = encode(&Commit { header, pages, checksum: 1 });
    assert_eq!(first.len(), second.len(), "the mixture must fit");
    assert!(decode(&second, 4096).is_ok());
    let packed = u32::from_le_bytes([first[52], first[53], first[54], first[55]]) as usize;
    let next = HEADER_BYTES + CHUNK_HEAD_BYTES + 4 * 64 + packed + CHECKSUM_BYTES;
    assert_ne!(first[..next], second[..next]);
    let mixed = [&second[..next], &first[next..]].concat();
    assert_eq!(decode(&mixed, 4096).err(), Some(RecordError::TrailerChecksum));
}

#[test]
fn an_unknown_version_and_unknown_flags_are_refused() {
    let reseal = |at: usize, value: u8| {
        let mut bytes = sample().header.encode();
        bytes[at] = value;
        let checksum = crc32c::crc32c(&bytes[..44]);
        bytes[44..].copy_from_slice(&checksum.to_le_bytes());
        Header::decode(&bytes)
    };
    assert_eq!(reseal(4, 2), Err(RecordError::Version(2)));
    assert_eq!(reseal(6, 1), Err(RecordError::Field("flags")));
    assert_eq!(reseal(40, 1), Err(RecordError::Field("reserved")));
    assert_eq!(reseal(24, 3), Err(RecordError::Field("page size")));
}

#[test]
fn the_lock_byte_page_is_refused() {
    let lock = lock_page(65_536);
    assert_eq!((lock, lock_page(4096)), (16_385, 262_145));
    let header = Header { lsn: 1, synced: 0, page_size: 65_536, pages_after: lock + 1, page_count: 1 };
    let commit = |number| Commit { header, pages: vec![(number, vec![1; 65_536])], checksum: 0 };
    assert_eq!(decode(&encode(&commit(lock)), 1 << 20), Err(RecordError::Field("page number")));
    assert!(decode(&encode(&commit(lock + 1)), 1 << 20).is_ok());
    assert_eq!(decode(&encode(&commit(lock + 2)), 1 << 20), Err(RecordError::Field("page number")));
}

#[test]
fn an_encoder_holds_little_whatever_it_encodes() {
    let header = Header { lsn: 1, synced: 0, page_size: 4096, pages_after: 25_000, page_count: 25_000 };
    let mut encoder = Encoder::take().expect("an encoder");
    let (mut most, mut total) = (0, 0);
    let mut sink = |part: &[u8]| {
        most = most.max(part.len());
        total += part.len();
        io::Result::Ok(())
    };
    encoder.begin(header);
    let mut random = highwater_base::random::SplitMix::new(1);
    for number in 1..=25_000 {
        let mut fill = |buffer: &mut [u8]| {
            buffer.chunks_exact_mut(8).for_each(|word| {
                word.copy_from_slice(&highwater_base::Random::next_u64(&mut random).to_le_bytes());
            });
            Ok(())
        };
        encoder.page(number, &mut fill, &mut sink).expect("a page");
    }
    encoder.finish(0, &mut sink).expect("the end");
    assert!(total > 100_000_000, "100 MB that do not compress, {total}");
    assert!(most < 1 << 20, "{most} bytes held at once");
}

#[test]
fn a_zero_page_hashes_to_nothing_wherever_it_is() {
    assert_eq!(page_hash(3, &[0; 512]), 0);
    let mut page = [0; 512];
    page[511] = 1;
    assert_ne!(page_hash(3, &page), 0);
    assert_ne!(page_hash(3, &page), page_hash(4, &page), "the number counts");
}
