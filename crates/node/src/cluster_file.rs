//! The file that makes a directory a node's data directory (`docs/formats/cluster.md`).

use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_base::{NodeId, Random};
use highwater_disk::{Disk, OpenMode};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The file's name in the data directory.
pub const NAME: &str = "cluster";
const NAME_TEMPORARY: &str = "cluster.tmp";

const MAGIC: &[u8; 8] = b"HWCLUSTR";
/// Version 1 had no control group.
const VERSION: u16 = 2;
const CLUSTER_ID_BYTES_MAX: usize = 64;
/// Far above any cluster's file, so that a wrong file is not read whole.
pub(crate) const FILE_BYTES_MAX: u64 = 4096;
/// Groups of a cluster, so that a flipped bit cannot ask for millions of them.
pub const GROUPS_MAX: u32 = 4096;

/// Why a cluster file is not used. It is left as it is.
#[derive(Debug, Error)]
pub enum ClusterFileError {
    /// The bytes do not match their digest, or are not such a file at all.
    #[error("{0} is damaged: it is not the file that was written")]
    Damaged(PathBuf),
    /// The digest is right and a field is not.
    #[error("{path} cannot be read: {error}")]
    Content {
        /// The file.
        path: PathBuf,
        /// Which field.
        error: DecodeError,
    },
    /// A later program wrote it.
    #[error("{path} has format version {version}, which this program does not know; another release wrote it")]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u16,
    },
    /// The system failed.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// What a node must know before it reads anything else. Written once, and once more when the bootstrap is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFile {
    /// The cluster's identity, drawn when it was made.
    pub cluster_id: String,
    /// This node.
    pub node: NodeId,
    /// Raft groups of the cluster; never changes.
    pub groups: u32,
    /// Whether every group's first record is durable. Until then nothing was ever acknowledged.
    pub bootstrapped: bool,
}

impl ClusterFile {
    /// A new cluster of one node.
    #[must_use]
    pub fn draw(groups: u32, random: &mut dyn Random) -> Self {
        let (high, low) = (random.next_u64(), random.next_u64());
        let cluster_id = format!("hw-{high:016x}{low:016x}");
        Self { cluster_id, node: NodeId(1), groups, bootstrapped: false }
    }

    /// Reads a directory's file; `None` if it has none.
    /// # Errors
    /// [`ClusterFileError`].
    pub fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<Self>, ClusterFileError> {
        let path = directory.join(NAME);
        let failed = |error| ClusterFileError::Io { path: path.clone(), error };
        let file = match disk.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let length = file.length().map_err(failed)?;
        let Some(length) = usize::try_from(length).ok().filter(|_| length <= FILE_BYTES_MAX) else {
            return Err(ClusterFileError::Damaged(path));
        };
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        Self::decode(bytes.into(), &path).map(Some)
    }

    /// Puts this in place of the directory's file, at once and durably.
    /// # Errors
    /// The system's; the old file or the new one is in place.
    pub fn write(&self, disk: &dyn Disk, directory: &Path) -> io::Result<()> {
        let temporary = directory.join(NAME_TEMPORARY);
        let file = disk.open(&temporary, OpenMode::Create)?;
        let bytes = self.encode();
        file.set_length(0)?;
        file.write_at(&bytes, 0)?;
        file.sync_all()?;
        disk.rename(&temporary, &directory.join(NAME))?;
        disk.sync_directory(directory)
    }

    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.raw(MAGIC).u16(VERSION).bool(self.bootstrapped).u64(self.node.0).u32(self.groups);
        writer.bytes(self.cluster_id.as_bytes());
        let mut bytes = writer.into_vec();
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        bytes
    }

    fn decode(bytes: Bytes, path: &Path) -> Result<Self, ClusterFileError> {
        let damaged = || ClusterFileError::Damaged(path.to_owned());
        let body = bytes.len().checked_sub(blake3::OUT_LEN).ok_or_else(damaged)?;
        if bytes.get(..MAGIC.len()) != Some(&MAGIC[..]) || blake3::hash(&bytes[..body]).as_bytes()[..] != bytes[body..]
        {
            return Err(damaged());
        }
        let mut reader = Reader::new(bytes.slice(MAGIC.len()..body));
        let content = |error| ClusterFileError::Content { path: path.to_owned(), error };
        let version = reader.u16().map_err(content)?;
        if version != VERSION {
            return Err(ClusterFileError::Version { path: path.to_owned(), version });
        }
        Self::fields(reader).map_err(content)
    }

    fn fields(mut reader: Reader) -> Result<Self, DecodeError> {
        let bootstrapped = reader.bool()?;
        let node = NodeId(reader.u64()?);
        let groups = reader.u32()?;
        let cluster_id = reader.string()?;
        reader.finish()?;
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if cluster_id.is_empty() || cluster_id.len() > CLUSTER_ID_BYTES_MAX || !cluster_id.bytes().all(allowed) {
            return Err(DecodeError::Invalid("cluster id"));
        }
        if node.0 == 0 {
            return Err(DecodeError::Invalid("node id"));
        }
        if groups == 0 || groups > GROUPS_MAX {
            return Err(DecodeError::Invalid("group count"));
        }
        Ok(Self { cluster_id, node, groups, bootstrapped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_base::random::SplitMix;
    use highwater_disk::SimDisk;

    fn sample() -> ClusterFile {
        ClusterFile { bootstrapped: true, ..ClusterFile::draw(16, &mut SplitMix::new(1)) }
    }

    #[test]
    fn a_cluster_file_reads_back() {
        let disk = SimDisk::new(1);
        let directory = Path::new("/data");
        disk.create_directory(directory).expect("made");
        assert_eq!(ClusterFile::read(&disk, directory).expect("readable"), None);
        for file in [sample(), ClusterFile { groups: 3, ..sample() }] {
            file.write(&disk, directory).expect("written");
            assert_eq!(ClusterFile::read(&disk, directory).expect("readable"), Some(file));
        }
    }

    #[test]
    fn the_bytes_of_version_2_are_those_of_its_golden_file() {
        let golden = include_bytes!("../golden/cluster-2.bin");
        assert_eq!(sample().encode(), golden);
        let decoded = ClusterFile::decode(Bytes::from_static(golden), Path::new("cluster")).expect("readable");
        assert_eq!(decoded, sample());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sample().encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(ClusterFile::decode(flipped.into(), Path::new("cluster")).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_directory_without_a_control_group_is_refused_by_version() {
        let golden = include_bytes!("../golden/cluster-1.bin");
        let refused = ClusterFile::decode(Bytes::from_static(golden), Path::new("cluster"));
        assert!(matches!(refused, Err(ClusterFileError::Version { version: 1, .. })));
    }

    #[test]
    fn a_later_version_is_refused_by_name() {
        let mut bytes = sample().encode();
        bytes[8] = 3;
        let body = bytes.len() - blake3::OUT_LEN;
        let digest = blake3::hash(&bytes[..body]);
        bytes[body..].copy_from_slice(digest.as_bytes());
        let refused = ClusterFile::decode(bytes.into(), Path::new("cluster"));
        assert!(matches!(refused, Err(ClusterFileError::Version { version: 3, .. })));
    }
}
