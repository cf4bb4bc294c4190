//! The file that says what a backup consists of (`docs/formats/backup.md`).

use super::owner_of;
use bytes::Bytes;
use highwater_base::Digest;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_disk::{Disk, OpenMode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The manifest's name in the backup's folder.
pub const NAME: &str = "manifest";
const NAME_TEMPORARY: &str = "manifest.tmp";

const MAGIC: &[u8; 8] = b"HWBACKUP";
const VERSION: u16 = 2;
/// Bytes of a manifest that are read: about 700,000 files, or 44 TB.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The shortest entry: the length of its path, a path of seven bytes, its bytes and its digest.
const ENTRY_BYTES_MIN: usize = 4 + 7 + 8 + blake3::OUT_LEN;

/// Why a manifest is not used.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// There is none.
    #[error("{} is no whole backup: it has no file named `manifest`. One that was interrupted has none", .0.display())]
    Missing(PathBuf),
    /// The bytes do not match their digest, or are not such a file at all.
    #[error("{} is damaged: it is not the file that was written", .0.display())]
    Damaged(PathBuf),
    /// The digest is right and a field is not.
    #[error("{} cannot be read: {error}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Which field.
        error: DecodeError,
    },
    /// A later program wrote it.
    #[error("{} has format version {version}, which this program does not know; another release wrote it", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u16,
    },
    /// The system failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// The shortest entry of a group that is not in a backup: the lengths of its two texts.
const ABSENT_BYTES_MIN: usize = 4 + 2 + 4;

/// A group that a backup does not hold, because it is damaged where the backup was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentGroup {
    /// Its folder below `store/`: `g3`, or `control`.
    pub group: String,
    /// What is wrong with it.
    pub why: String,
}

/// One file of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path in the backup, and in the data directory: `cluster`, or `store/FOLDER/NAME`.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// BLAKE3 of them.
    pub digest: Digest,
}

/// What a backup consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The cluster whose it is.
    pub cluster_id: String,
    /// The node that it was taken from.
    pub node: u64,
    /// Raft groups of streams.
    pub groups: u32,
    /// Milliseconds since the Unix epoch when it began.
    pub began_ms: u64,
    /// Groups that it does not hold, in order of their folders.
    pub absent: Vec<AbsentGroup>,
    /// Its files, in order of their paths.
    pub files: Vec<Entry>,
}

impl Manifest {
    /// Bytes of all its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The entry of a path.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&Entry> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The stores' folders below `store/`.
    pub fn stores(&self) -> BTreeSet<&str> {
        self.files.iter().filter_map(|file| file.path.strip_prefix("store/")?.split('/').next()).collect()
    }

    /// Reads a backup's manifest.
    /// # Errors
    /// [`ManifestError`].
    pub fn read(disk: &dyn Disk, backup: &Path) -> Result<Self, ManifestError> {
        let path = backup.join(NAME);
        let failed = |error| ManifestError::Io { path: path.clone(), error };
        let file = match disk.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ManifestError::Missing(backup.into())),
            opened => opened.map_err(failed)?,
        };
        let length = file.length().map_err(failed)?;
        if length > FILE_BYTES_MAX {
            return Err(ManifestError::Damaged(path));
        }
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        Self::decode(bytes.into(), &path)
    }

    /// Makes this the backup's manifest, at once and durably: from now on the backup is whole.
    /// # Errors
    /// The system's.
    pub fn write(&self, disk: &dyn Disk, backup: &Path) -> io::Result<()> {
        let temporary = backup.join(NAME_TEMPORARY);
        let file = disk.open(&temporary, OpenMode::Create)?;
        file.set_length(0)?;
        file.write_at(&self.encode(), 0)?;
        file.sync_all()?;
        disk.rename(&temporary, &backup.join(NAME))?;
        disk.sync_directory(backup)
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.raw(MAGIC).u16(VERSION).u64(self.node).u32(self.groups).u64(self.began_ms);
        writer.bytes(self.cluster_id.as_bytes()).u32(self.absent.len() as u32);
        for AbsentGroup { group, why } in &self.absent {
            writer.bytes(group.as_bytes()).bytes(why.as_bytes());
        }
        writer.u32(self.files.len() as u32);
        for Entry { path, bytes, digest } in &self.files {
            writer.bytes(path.as_bytes()).u64(*bytes).raw(&digest.0);
        }
        let mut bytes = writer.into_vec();
        let digest = blake3::hash(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        bytes
    }

    /// Reads a manifest's bytes; `path` is for the error.
    /// # Errors
    /// [`ManifestError`], but not for a missing file or a failed read.
    pub fn decode(bytes: Bytes, path: &Path) -> Result<Self, ManifestError> {
        let damaged = || ManifestError::Damaged(path.to_owned());
        let body = bytes.len().checked_sub(blake3::OUT_LEN).ok_or_else(damaged)?;
        let whole = blake3::hash(&bytes[..body]).as_bytes()[..] == bytes[body..];
        if bytes.get(..MAGIC.len()) != Some(&MAGIC[..]) || !whole {
            return Err(damaged());
        }
        let content = |error| ManifestError::Content { path: path.to_owned(), error };
        let mut reader = Reader::new(bytes.slice(MAGIC.len()..body));
        let version = reader.u16().map_err(content)?;
        if version != VERSION {
            return Err(ManifestError::Version { path: path.to_owned(), version });
        }
        Self::fields(reader).map_err(content)
    }

    fn fields(mut reader: Reader) -> Result<Self, DecodeError> {
        let (node, groups, began_ms) = (reader.u64()?, reader.u32()?, reader.u64()?);
        let cluster_id = reader.string()?;
        let absent = Self::absent(&mut reader)?;
        let count = reader.u32()? as usize;
        let mut files: Vec<Entry> = Vec::with_capacity(count.min(reader.remaining() / ENTRY_BYTES_MIN));
        for _ in 0..count {
            let path = reader.string()?;
            let last = files.last().map(|file: &Entry| file.path.as_str());
            if !is_path(&path) || last.is_some_and(|last| last >= path.as_str()) {
                return Err(DecodeError::Invalid("path"));
            }
            files.push(Entry { path, bytes: reader.u64()?, digest: Digest(reader.array()?) });
        }
        reader.finish()?;
        Ok(Self { cluster_id, node, groups, began_ms, absent, files })
    }

    fn absent(reader: &mut Reader) -> Result<Vec<AbsentGroup>, DecodeError> {
        let count = reader.u32()? as usize;
        let mut absent: Vec<AbsentGroup> = Vec::with_capacity(count.min(reader.remaining() / ABSENT_BYTES_MIN));
        for _ in 0..count {
            let (group, why) = (reader.string()?, reader.string()?);
            let last = absent.last().map(|last| last.group.as_str());
            if owner_of(&group).is_none() || last.is_some_and(|last| last >= group.as_str()) {
                return Err(DecodeError::Invalid("group"));
            }
            absent.push(AbsentGroup { group, why });
        }
        Ok(absent)
    }
}

/// Whether a path may stand in a manifest: nothing that leads elsewhere is ever written.
fn is_path(path: &str) -> bool {
    let name = |name: &str, prefix: &str, digits: usize| {
        let hex = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        name.strip_prefix(prefix).is_some_and(|rest| rest.len() == digits && rest.bytes().all(hex))
    };
    match path.strip_prefix("store/").map(|rest| rest.split_once('/')) {
        Some(Some((folder, file))) => {
            owner_of(folder).is_some() && (name(file, "index-", 16) || name(file, "data-", 8))
        }
        Some(None) => false,
        None => path == crate::cluster_file::NAME,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let entry =
            |path: &str, bytes: u64| Entry { path: path.to_owned(), bytes, digest: Digest::of(path.as_bytes()) };
        Manifest {
            cluster_id: "hw-00112233445566778899aabbccddeeff".to_owned(),
            node: 1,
            groups: 2,
            began_ms: 1_700_000_000_000,
            absent: vec![AbsentGroup { group: "g1".to_owned(), why: "its log is damaged".to_owned() }],
            files: vec![
                entry("cluster", 90),
                entry("store/control/index-0000000000000001", 200),
                entry("store/g0/data-00000001", 70_000),
                entry("store/g0/index-000000000000000a", 300),
            ],
        }
    }

    fn decode(bytes: Vec<u8>) -> Result<Manifest, ManifestError> {
        Manifest::decode(bytes.into(), Path::new("/backup/manifest"))
    }

    /// Puts the digest right again behind a change.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let body = bytes.len() - blake3::OUT_LEN;
        let digest = blake3::hash(&bytes[..body]);
        bytes.splice(body.., digest.as_bytes().iter().copied());
        bytes
    }

    #[test]
    fn a_manifest_reads_back_and_every_flipped_bit_is_found() {
        let bytes = manifest().encode();
        assert_eq!(decode(bytes.clone()).expect("whole"), manifest());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(flipped).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(decode(bytes[..length].to_vec()).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn the_manifest_of_version_2_is_read_and_written_as_ever() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join("backup-manifest-2.bin");
        let kept = std::fs::read(&golden).unwrap_or_default();
        if std::env::var_os("HIGHWATER_WRITE_GOLDEN").is_some() && kept.is_empty() {
            std::fs::write(&golden, manifest().encode()).expect("the folder is there");
        }
        assert!(kept == manifest().encode(), "today's bytes differ from the golden file");
        assert_eq!(decode(kept).expect("version 2"), manifest());
    }

    #[test]
    fn another_version_is_refused_by_number() {
        let mut bytes = manifest().encode();
        bytes[8] = 3;
        assert!(matches!(decode(sealed(bytes)), Err(ManifestError::Version { version: 3, .. })));
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join("backup-manifest-1.bin");
        let before = std::fs::read(golden).expect("the golden file is there");
        assert!(matches!(decode(before), Err(ManifestError::Version { version: 1, .. })));
    }

    #[test]
    fn what_is_no_group_is_not_absent() {
        for groups in [&["g01"][..], &["other"], &[""], &["g1", "g0"], &["g1", "g1"]] {
            let absent = groups.iter().map(|group| AbsentGroup { group: (*group).to_owned(), why: String::new() });
            let bad = Manifest { absent: absent.collect(), ..manifest() };
            assert!(matches!(decode(bad.encode()), Err(ManifestError::Content { .. })), "{groups:?}");
        }
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for path in [
            "../cluster",
            "/etc/passwd",
            "store/g0/../../cluster",
            "store/g0/data-0000000A",
            "store/g01/data-00000001",
            "store/other/data-00000001",
            "store/g0",
            "wal/state",
            "restored",
        ] {
            let mut bad = manifest();
            bad.files = vec![Entry { path: path.to_owned(), bytes: 1, digest: Digest::of(b"") }];
            assert!(matches!(decode(bad.encode()), Err(ManifestError::Content { .. })), "{path}");
        }
        let mut twice = manifest();
        twice.files.push(twice.files[3].clone());
        assert!(decode(twice.encode()).is_err());
    }
}
