//! The file that says where a data file went (`docs/formats/store.md`).

use super::{Cold, Life};
use highwater_base::OwnerId;
use highwater_disk::{Disk, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The format version of markers.
pub(crate) const VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"HWCOLD\0\0";
pub(crate) const BYTES: usize = 84;
const SUFFIX: &str = ".cold";
const SUFFIX_TEMPORARY: &str = ".cold.tmp";
const UNDER_WAY: u8 = 1;
const MOVED: u8 = 2;

/// BLAKE3 of a data file's bytes.
pub(crate) type FileDigest = [u8; blake3::OUT_LEN];

/// Why a marker is not believed.
#[derive(Debug, Error)]
pub(crate) enum MarkerError {
    #[error("it is damaged")]
    Damaged,
    #[error("another owner's, or another file's")]
    Identity,
    #[error("format version {0}")]
    Version(u16),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A marker's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marker {
    pub cold: Cold,
    /// Of the object's bytes; zeros while it is under way.
    pub digest: FileDigest,
}

pub(crate) fn path(directory: &Path, file: u32) -> PathBuf {
    directory.join(format!("data-{file:08x}{SUFFIX}"))
}

/// The data file of the marker with this name, if it is one.
pub(crate) fn number(name: &str) -> Option<u32> {
    crate::files::number(name.strip_suffix(SUFFIX)?)
}

/// Whether a file with this name was being written when the machine stopped.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.strip_suffix(SUFFIX_TEMPORARY).and_then(crate::files::number).is_some()
}

pub(crate) fn temporary_path(directory: &Path, file: u32) -> PathBuf {
    directory.join(format!("data-{file:08x}{SUFFIX_TEMPORARY}"))
}

impl Marker {
    pub fn encode(&self, owner: OwnerId, file: u32) -> Vec<u8> {
        let Cold { life, nonce, bytes, moved } = self.cold;
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[if moved { MOVED } else { UNDER_WAY }, 0]);
        out.extend_from_slice(&file.to_le_bytes());
        for field in [owner.0, life.0, nonce, bytes] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.digest);
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8], owner: OwnerId, file: u32) -> Result<Self, MarkerError> {
        let mut field = bytes;
        let mut take = |length: usize| {
            let (taken, rest) = field.split_at_checked(length).ok_or(MarkerError::Damaged)?;
            field = rest;
            Ok::<&[u8], MarkerError>(taken)
        };
        if take(MAGIC.len())? != MAGIC {
            return Err(MarkerError::Damaged);
        }
        let version = u16::from_le_bytes(array(take(2)?));
        if version != VERSION {
            return Err(MarkerError::Version(version));
        }
        let body = bytes.get(..BYTES - 4).filter(|_| bytes.len() == BYTES).ok_or(MarkerError::Damaged)?;
        if crc32c::crc32c(body).to_le_bytes() != bytes[BYTES - 4..] {
            return Err(MarkerError::Damaged);
        }
        let state: [u8; 2] = array(take(2)?);
        let moved = match state {
            [UNDER_WAY, 0] => false,
            [MOVED, 0] => true,
            _ => return Err(MarkerError::Damaged),
        };
        let number = u32::from_le_bytes(array(take(4)?));
        let mut long = || Ok::<u64, MarkerError>(u64::from_le_bytes(array(take(8)?)));
        let (of, life, nonce, length) = (long()?, Life(long()?), long()?, long()?);
        if (OwnerId(of), number) != (owner, file) {
            return Err(MarkerError::Identity);
        }
        let digest = array(take(blake3::OUT_LEN)?);
        Ok(Self { cold: Cold { life, nonce, bytes: length, moved }, digest })
    }

    pub fn read(disk: &dyn Disk, directory: &Path, owner: OwnerId, file: u32) -> Result<Self, MarkerError> {
        let opened = disk.open(&path(directory, file), OpenMode::Read)?;
        let mut bytes = [0; BYTES + 1];
        let length = opened.read_at(&mut bytes, 0)?;
        Self::decode(&bytes[..length], owner, file)
    }

    /// Puts this in place of the file's marker, at once and durably.
    pub fn write(&self, disk: &dyn Disk, directory: &Path, owner: OwnerId, file: u32) -> io::Result<()> {
        let temporary = temporary_path(directory, file);
        let opened = disk.open(&temporary, OpenMode::Create)?;
        opened.set_length(0)?;
        opened.write_at(&self.encode(owner, file), 0)?;
        opened.sync_all()?;
        disk.rename(&temporary, &path(directory, file))?;
        disk.sync_directory(directory)
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWNER: OwnerId = OwnerId(7);

    fn marker(moved: bool) -> Marker {
        let cold = Cold { life: Life(0x0102), nonce: 0x0304, bytes: if moved { 67_108_864 } else { 0 }, moved };
        Marker { cold, digest: [if moved { 9 } else { 0 }; 32] }
    }

    #[test]
    fn markers_are_the_bytes_that_were_always_written() {
        for (moved, golden) in [
            (false, include_bytes!("../../golden/cold/under-way-1.bin")),
            (true, include_bytes!("../../golden/cold/moved-1.bin")),
        ] {
            assert_eq!(marker(moved).encode(OWNER, 3), golden, "{moved}");
            assert_eq!(Marker::decode(golden, OWNER, 3).unwrap(), marker(moved), "{moved}");
        }
    }

    #[test]
    fn a_marker_of_a_later_version_is_refused_by_its_number() {
        let mut bytes = marker(true).encode(OWNER, 3);
        bytes[8] = 2;
        assert!(matches!(Marker::decode(&bytes, OWNER, 3), Err(MarkerError::Version(2))));
    }

    #[test]
    fn a_marker_of_another_file_or_owner_is_refused() {
        let bytes = marker(true).encode(OWNER, 3);
        assert!(matches!(Marker::decode(&bytes, OWNER, 4), Err(MarkerError::Identity)));
        assert!(matches!(Marker::decode(&bytes, OwnerId(8), 3), Err(MarkerError::Identity)));
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(Marker::decode(&longer, OWNER, 3), Err(MarkerError::Damaged)));
    }

    #[test]
    fn only_names_of_markers_are_taken_for_them() {
        assert_eq!(number("data-0000001f.cold"), Some(31));
        assert!(is_temporary("data-0000001f.cold.tmp") && !is_temporary("data-0000001f.cold"));
        for other in ["data-0000001f", "data-1f.cold", "data-0000001f.cold.tmp", "index-0000001f.cold"] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn every_flipped_bit_of_a_marker_is_found(bit in 0..BYTES * 8, moved: bool) {
            let mut bytes = marker(moved).encode(OWNER, 3);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Marker::decode(&bytes, OWNER, 3).is_err());
        }

        #[test]
        fn random_bytes_are_no_marker(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Marker::decode(&bytes, OWNER, 3).is_err());
        }
    }
}
