//! Which group a stream belongs to.

use highwater_base::GroupId;

/// The group of the stream at `path`, among `groups`: the first eight bytes of the path's BLAKE3 hash, read as a
/// little-endian number, modulo the number of groups.
///
/// Part of the data's meaning: another function would look for every stream in the wrong group.
#[must_use]
pub fn group_of(path: &str, groups: u32) -> GroupId {
    let hash = blake3::hash(path.as_bytes());
    let first = hash.as_bytes()[..8].try_into().expect("a hash has 32 bytes");
    let group = u64::from_le_bytes(first) % u64::from(groups.max(1));
    GroupId(u32::try_from(group).expect("below a u32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_stays_in_its_group_for_ever() {
        let groups = ["a", "bucket/stream", "events/2026", ""].map(|path| group_of(path, 16).0);
        assert_eq!(groups, [7, 11, 7, 15]);
    }

    #[test]
    fn streams_spread_over_the_groups() {
        let mut counts = [0; 16];
        for i in 0..16_000 {
            counts[group_of(&format!("bucket/stream-{i}"), 16).0 as usize] += 1;
        }
        assert!(counts.iter().all(|c| (850..1150).contains(c)), "{counts:?}");
    }
}
