//! Random bytes to every decoder, and every encoder back.

use super::batch::{BatchHeader, BatchKind, FrameHeader, Range, Table};
use super::segment::{HeaderFound, SegmentHeader, segment_name, segment_number};
use super::state::{Condition, OwnerState, Spot, State};
use super::{Place, sector};
use crate::Location;
use crate::recovered::Verdict;
use highwater_base::OwnerId;
use highwater_base::codec::{Reader, Writer};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

const PLACE: Place = Place { identity: 0x1234_5678_9abc_def0, segment: 7 };

/// Data bytes of what was laid out in sectors.
fn data_of(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(512).flat_map(|sector| &sector[..508]).copied().collect()
}

fn range() -> impl Strategy<Value = Range> {
    any::<[u64; 4]>().prop_map(|[position_min, position_max, sequence_first, sequence_last]| Range {
        position_min,
        position_max,
        sequence_first,
        sequence_last,
    })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    (0..3, any::<u64>(), any::<u64>()).prop_map(|(kind, segment, offset)| match kind {
        0 => Verdict::Whole,
        1 => Verdict::Recovering { segment, offset },
        _ => Verdict::Damaged { segment, offset },
    })
}

fn owner_state() -> impl Strategy<Value = OwnerState> {
    (any::<[u64; 4]>(), verdict()).prop_map(|([first_needed, segment, offset, base_sequence], mark)| OwnerState {
        first_needed,
        base: Spot { segment, offset },
        base_sequence,
        mark,
    })
}

fn state() -> impl Strategy<Value = State> {
    let condition =
        prop_oneof![Just(Condition::Open), Just(Condition::Clean), "[a-z ]{0,40}".prop_map(Condition::Poisoned)];
    let owners = btree_map(any::<u64>().prop_map(OwnerId), owner_state(), 0..20);
    (any::<[u64; 4]>(), condition, "[a-z0-9-]{0,64}", verdict(), owners).prop_map(
        |([identity, first_segment, segment, offset], condition, boot_id, unlisted, owners)| State {
            identity,
            condition,
            boot_id,
            first_segment,
            synced: Spot { segment, offset },
            unlisted,
            owners,
        },
    )
}

proptest! {
    #[test]
    fn random_bytes_panic_no_decoder(bytes in vec(any::<u8>(), 0..600), offset in any::<u64>()) {
        prop_assert!(crate::decode_anything(&bytes, offset) <= 7);
    }

    #[test]
    fn a_frame_header_reads_back_only_where_it_belongs(
        fields in any::<[u64; 3]>(), crc in any::<u32>(), length in any::<u32>(), kind in any::<u8>(), bit in 0usize..320,
    ) {
        let [owner, position, sequence] = fields;
        let header = FrameHeader { payload_crc: crc, length, kind, owner: OwnerId(owner), position, sequence };
        let bytes = header.encode(PLACE, 4128);
        prop_assert_eq!(FrameHeader::decode(&bytes, PLACE, 4128), Some(header));
        prop_assert_eq!(FrameHeader::decode(&bytes, PLACE, 4129), None);
        prop_assert_eq!(FrameHeader::decode(&bytes, Place { segment: 8, ..PLACE }, 4128), None);
        prop_assert_eq!(FrameHeader::decode(&bytes, Place { identity: 1, ..PLACE }, 4128), None);
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(FrameHeader::decode(&flipped, PLACE, 4128), None);
        prop_assert_eq!(FrameHeader::attribute(&flipped, PLACE, 4128), Some(header));
    }

    #[test]
    fn a_batch_header_reads_back(count in any::<u32>(), length in 32u64.., synced in any::<u64>(), table in any::<bool>()) {
        let kind = if table { BatchKind::Table } else { BatchKind::Frames };
        let header = BatchHeader { kind, count, length, synced };
        let bytes = header.encode(PLACE, 8192);
        prop_assert_eq!(BatchHeader::decode(&bytes, PLACE, 8192), Some(header));
        prop_assert_eq!(BatchHeader::decode(&bytes, PLACE, 4096), None);
    }

    #[test]
    fn a_table_reads_back(frames_end in any::<u64>(), owners in btree_map(any::<u64>().prop_map(OwnerId), range(), 0..300)) {
        let table = Table { frames_end, owners };
        let mut bytes = Vec::new();
        table.encode(PLACE, 8192, &mut bytes);
        prop_assert_eq!(bytes.len() as u64, Table::file_bytes(table.owners.len()));
        let data = data_of(&bytes);
        let header = BatchHeader::decode(&data, PLACE, 8192).expect("a header");
        prop_assert_eq!(Table::decode(&header, &data, PLACE, 8192), Some(table));
    }

    #[test]
    fn a_state_reads_back_and_a_turned_bit_is_noticed(state in state(), bit in any::<prop::sample::Index>()) {
        let bytes = state.encode();
        prop_assert_eq!(State::decode(bytes.clone()), Ok(state));
        let mut flipped = bytes;
        let bit = bit.index(flipped.len() * 8);
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = State::decode(flipped).expect_err("damaged");
        prop_assert!(!matches!(error, highwater_base::codec::DecodeError::Version(_)), "damage is no later version");
    }

    #[test]
    fn a_segment_header_reads_back_and_a_turned_bit_is_noticed(fields in any::<[u64; 5]>(), bit in 0usize..512) {
        let [identity, segment, bytes, previous_end, previous_table] = fields;
        let header = SegmentHeader { place: Place { identity, segment }, bytes, previous_end, previous_table };
        let mut encoded = header.encode();
        prop_assert_eq!(SegmentHeader::decode(&encoded), HeaderFound::Good(header));
        encoded[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(SegmentHeader::decode(&encoded), HeaderFound::Damaged);
        prop_assert_eq!(segment_number(&segment_name(segment)), Some(segment));
    }

    #[test]
    fn a_location_reads_back(segment in any::<u64>(), offset in any::<u64>(), length in any::<u32>()) {
        let location = Location { segment, offset, length };
        let mut writer = Writer::new();
        location.encode(&mut writer);
        prop_assert_eq!(writer.len(), Location::ENCODED_BYTES);
        let mut reader = Reader::new(writer.into_vec().into());
        prop_assert_eq!(Location::decode(&mut reader), Ok(location));
    }

    #[test]
    fn a_mark_is_never_taken_for_that_of_another_life(segment in 1u64..1_000_000, other in 1u64..1_000_000, sector in 8u64..1_000_000) {
        let place = Place { segment, ..PLACE };
        let mut bytes = [0x5a; 512];
        bytes[508..].copy_from_slice(&sector::mark(Place { segment: other, ..PLACE }, sector).to_le_bytes());
        let expected = match other.cmp(&segment) {
            std::cmp::Ordering::Equal => sector::Class::Written,
            std::cmp::Ordering::Less => sector::Class::Unwritten,
            // A later segment's mark does not occur; whether it looks like one turned bit of an earlier is chance.
            std::cmp::Ordering::Greater => return Ok(()),
        };
        prop_assert_eq!(sector::classify(place, sector, &bytes), expected);
    }
}
