//! The file that says under which name a data directory writes to its object store (`docs/formats/cold.md`).

use crate::open::OpenError;
use bytes::Bytes;
use highwater_base::Random;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_disk::{Disk, OpenMode};
use highwater_store::Life;
use std::io;
use std::path::Path;

/// Its name in the data directory.
pub(crate) const NAME: &str = "life";
const NAME_TEMPORARY: &str = "life.tmp";
const MAGIC: &[u8; 8] = b"HWLIFE\0\0";
const VERSION: u16 = 1;
const FILE_BYTES: usize = 8 + 2 + 8 + 8 + 1 + blake3::OUT_LEN;

/// A life of a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LifeFile {
    pub life: Life,
    /// The nonce of the mark of a restore for which it was drawn; 0 if for none.
    pub mark: u64,
    /// Whether the object store was once known to be this cluster's.
    pub established: bool,
}

impl LifeFile {
    pub fn draw(mark: u64, established: bool, random: &mut dyn Random) -> Self {
        Self { life: Life(random.next_u64()), mark, established }
    }

    /// The directory's file, if it has one.
    pub fn read(disk: &dyn Disk, data: &Path) -> Result<Option<Self>, OpenError> {
        let path = data.join(NAME);
        let failed = |error| OpenError::Io { path: path.clone(), error };
        let file = match disk.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let mut bytes = vec![0; FILE_BYTES + 1];
        let length = file.read_at(&mut bytes, 0).map_err(failed)?;
        bytes.truncate(length);
        let refused = |what: String| {
            OpenError::ObjectStore(format!(
                "{}: {what}. It says which objects are this directory's: restore it, or remove it, and the objects that it \
                 stood for are left alone",
                path.display()
            ))
        };
        Self::decode(bytes.into()).map(Some).map_err(refused)
    }

    /// Puts this in place of the directory's file, at once and durably.
    pub fn write(&self, disk: &dyn Disk, data: &Path) -> io::Result<()> {
        let temporary = data.join(NAME_TEMPORARY);
        let file = disk.open(&temporary, OpenMode::Create)?;
        file.set_length(0)?;
        file.write_at(&self.encode(), 0)?;
        file.sync_all()?;
        disk.rename(&temporary, &data.join(NAME))?;
        disk.sync_directory(data)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.raw(MAGIC).u16(VERSION).u64(self.life.0).u64(self.mark).bool(self.established);
        with_digest(writer)
    }

    pub fn decode(bytes: Bytes) -> Result<Self, String> {
        let mut reader = checked(MAGIC, VERSION, &bytes)?;
        let mut fields = || {
            let file = Self { life: Life(reader.u64()?), mark: reader.u64()?, established: reader.bool()? };
            Ok::<_, DecodeError>(file)
        };
        let file = fields().map_err(|error| error.to_string())?;
        reader.finish().map_err(|error| error.to_string())?;
        Ok(file)
    }
}

/// A record's bytes, with the digest of all of them behind.
pub(super) fn with_digest(writer: Writer) -> Vec<u8> {
    let mut bytes = writer.into_vec();
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    bytes
}

/// The fields of such a record, if it has this magic and version and the digest is right.
pub(super) fn checked(magic: &[u8; 8], version: u16, bytes: &Bytes) -> Result<Reader, String> {
    let damaged = || "it is damaged".to_owned();
    let body = bytes.len().checked_sub(blake3::OUT_LEN).filter(|body| *body >= magic.len()).ok_or_else(damaged)?;
    if bytes[..magic.len()] != magic[..] || blake3::hash(&bytes[..body]).as_bytes()[..] != bytes[body..] {
        return Err(damaged());
    }
    let mut reader = Reader::new(bytes.slice(magic.len()..body));
    match reader.u16().map_err(|error| error.to_string())? {
        found if found == version => Ok(reader),
        found => Err(format!("it has format version {found}, which this program does not know")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_base::random::SplitMix;
    use highwater_disk::SimDisk;

    fn sample() -> LifeFile {
        LifeFile { life: Life(0x0123_4567_89ab_cdef), mark: 7, established: true }
    }

    #[test]
    fn the_bytes_of_version_1_are_those_of_the_golden_file_and_no_others_are_read() {
        let golden = include_bytes!("../../golden/life-1.bin");
        assert_eq!(sample().encode(), golden);
        assert_eq!(LifeFile::decode(Bytes::from_static(golden)), Ok(sample()));
        for bit in 0..golden.len() * 8 {
            let mut flipped = golden.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(LifeFile::decode(flipped.into()).is_err(), "bit {bit}");
        }
        for cut in 0..golden.len() {
            assert!(LifeFile::decode(Bytes::from_static(&golden[..cut])).is_err(), "cut at {cut}");
        }
        let mut later = golden[..golden.len() - blake3::OUT_LEN].to_vec();
        later[8] = 2;
        later.extend_from_slice(blake3::hash(&later).as_bytes());
        assert!(LifeFile::decode(later.into()).expect_err("a later version").contains("version 2"));
    }

    #[test]
    fn one_that_is_damaged_refuses_and_one_that_is_missing_does_not() {
        let (disk, data) = (SimDisk::new(1), Path::new("/data"));
        disk.create_directory(data).expect("made");
        disk.sync_directory(Path::new("/")).expect("synced");
        assert_eq!(LifeFile::read(&disk, data).expect("readable"), None);
        let file = LifeFile::draw(0, false, &mut SplitMix::new(1));
        file.write(&disk, data).expect("written");
        disk.power_loss();
        assert_eq!(LifeFile::read(&disk, data).expect("readable"), Some(file));
        disk.flip_bit(&data.join(NAME), 12).expect("a byte");
        assert!(matches!(LifeFile::read(&disk, data), Err(OpenError::ObjectStore(_))));
    }
}
