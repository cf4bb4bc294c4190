//! The small files of a directory of accounts. `docs/formats/pds-directory.md` describes every byte.

use crate::error::OpenError;
use crate::files;
use crate::witness::Witnesses;
use bytes::Bytes;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_disk::{Disk, create_directory_durably};
use highwater_pds::AccountId;
use highwater_repo::Cid;
use std::io;
use std::path::{Path, PathBuf};

/// The layout that this program writes, and the only one that it reads.
pub const LAYOUT: u16 = 1;
/// The version of the file of the floor.
pub const FLOOR_VERSION: u16 = 1;

const LAYOUT_MAGIC: [u8; 8] = *b"HWPDSLAY";
const FLOOR_MAGIC: [u8; 8] = *b"HWPDSSEQ";

const NAME_LAYOUT: &str = "pds.layout";
const NAME_FLOOR: &str = "pds.sequence";
const NAME_MARKER: &str = highwater_pds::restore::MARKER_NAME;
const NAME_NOTE: &str = "pds.backup";
const NAME_LOG: &str = "log";
const NAME_STORE: &str = "store";
const NAME_BLOBS: &str = "blobs";

/// The names in a directory of accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The directory itself.
    pub directory: PathBuf,
}

impl Paths {
    /// Those of a directory.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf() }
    }

    fn name(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// What the directory is.
    #[must_use]
    pub fn layout(&self) -> PathBuf {
        self.name(NAME_LAYOUT)
    }

    /// Above which number the stream goes on.
    #[must_use]
    pub fn floor(&self) -> PathBuf {
        self.name(NAME_FLOOR)
    }

    /// That the directory was restored.
    #[must_use]
    pub fn marker(&self) -> PathBuf {
        self.name(NAME_MARKER)
    }

    /// That the directory is a copy without a log.
    #[must_use]
    pub fn note(&self) -> PathBuf {
        self.name(NAME_NOTE)
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.name(NAME_LOG)
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.name(NAME_STORE)
    }

    /// Blobs: a directory for each account.
    #[must_use]
    pub fn blobs(&self) -> PathBuf {
        self.name(NAME_BLOBS)
    }

    /// The blobs of an account.
    #[must_use]
    pub fn blobs_of(&self, account: AccountId) -> PathBuf {
        self.blobs().join(account.0.to_string())
    }

    /// A blob.
    #[must_use]
    pub fn blob(&self, account: AccountId, cid: &Cid) -> PathBuf {
        self.blobs_of(account).join(cid.to_string())
    }

    /// What a restore announced.
    #[must_use]
    pub fn report(&self, id: u64) -> PathBuf {
        self.name(&format!("restore-report-{id:016x}.json"))
    }
}

/// A record between its magic and its checksum.
pub(crate) fn sealed(magic: [u8; 8], version: u16, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut out = Writer::new();
    out.raw(&magic).u16(version);
    write(&mut out);
    let mut bytes = out.into_vec();
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// The fields of such a record.
pub(crate) fn unsealed(bytes: &Bytes, magic: [u8; 8], version: u16) -> Result<Reader, DecodeError> {
    let mut input = Reader::new(bytes.clone());
    if input.array::<8>()? != magic {
        return Err(DecodeError::Invalid("magic"));
    }
    match input.u16()? {
        known if known == version => {}
        other => return Err(DecodeError::Version(other)),
    }
    let end = bytes.len().checked_sub(4).filter(|end| *end >= 10).ok_or(DecodeError::Short)?;
    let checksum = crc32c::crc32c(&bytes[..end]);
    if bytes[end..] != checksum.to_le_bytes() {
        return Err(DecodeError::Invalid("checksum"));
    }
    Ok(Reader::new(bytes.slice(10..end)))
}

/// The file that says what the directory is: under which key its secrets are encrypted, if under any.
#[must_use]
pub fn encode_layout(key: Option<u64>) -> Vec<u8> {
    sealed(LAYOUT_MAGIC, LAYOUT, |out| {
        out.option(key, |out, key| {
            out.u64(key);
        });
    })
}

/// Reads it.
/// # Errors
/// What is wrong with it.
pub fn decode_layout(bytes: &Bytes) -> Result<Option<u64>, DecodeError> {
    let mut input = unsealed(bytes, LAYOUT_MAGIC, LAYOUT)?;
    let key = input.option(Reader::u64)?;
    input.finish()?;
    Ok(key)
}

/// The file of the floor.
#[must_use]
pub fn encode_floor(floor: u64) -> Vec<u8> {
    sealed(FLOOR_MAGIC, FLOOR_VERSION, |out| {
        out.u64(floor);
    })
}

/// Reads it.
/// # Errors
/// What is wrong with it.
pub fn decode_floor(bytes: &Bytes) -> Result<u64, DecodeError> {
    let mut input = unsealed(bytes, FLOOR_MAGIC, FLOOR_VERSION)?;
    let floor = input.u64()?;
    input.finish()?;
    Ok(floor)
}

pub(crate) fn damaged(path: PathBuf) -> impl FnOnce(DecodeError) -> OpenError {
    move |error| match error {
        DecodeError::Version(layout) => OpenError::Layout { path, layout },
        other => OpenError::Damaged { path, what: other.to_string() },
    }
}

/// Makes sure that the directory is one of accounts, and that its secrets can be read with this key. An empty or absent
/// directory becomes one, unless a witness knows that there were accounts and nobody said with a marker that they are given up. Whether it
/// was made now.
/// # Errors
/// A directory of something else, of a later layout, or bound to another key; one that is gone.
pub(crate) fn enter(
    disk: &dyn Disk,
    paths: &Paths,
    key: Option<u64>,
    witnesses: &Witnesses,
) -> Result<bool, OpenError> {
    let path = paths.layout();
    let Some(bytes) = files::read(disk, &path).map_err(OpenError::io(&path))? else {
        return create(disk, paths, key, witnesses).map(|()| true);
    };
    check_key(decode_layout(&bytes).map_err(damaged(path))?, key).map(|()| false)
}

/// Whether a key is the one that a directory is bound to.
pub(crate) fn check_key(bound: Option<u64>, key: Option<u64>) -> Result<(), OpenError> {
    match (bound, key) {
        (bound, key) if bound == key => Ok(()),
        (Some(bound), None) => Err(OpenError::Key(format!(
            "the secrets of this directory are encrypted under key {bound:016x}, and no key is set: name its file in the settings"
        ))),
        (Some(bound), Some(other)) => Err(OpenError::Key(format!(
            "the secrets of this directory are encrypted under key {bound:016x}, and the file that is set holds key {other:016x}"
        ))),
        (None, _) => Err(OpenError::Key(
            "the secrets of this directory are not encrypted, and a key is set: unset it, or begin with an empty directory".into(),
        )),
    }
}

fn create(disk: &dyn Disk, paths: &Paths, key: Option<u64>, witnesses: &Witnesses) -> Result<(), OpenError> {
    let directory = &paths.directory;
    let names = match disk.list(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names.map_err(OpenError::io(directory))?,
    };
    // What a start that died left behind is no data.
    let harmless = |name: &String| [NAME_MARKER, "lost+found"].contains(&name.as_str()) || name.ends_with(".new");
    if let Some(name) = names.iter().find(|name| !harmless(name)) {
        return Err(OpenError::NoLayout { path: directory.clone(), name: name.clone() });
    }
    if !names.iter().any(|name| name == NAME_MARKER) {
        witnesses.refuse_gone(directory)?;
    }
    create_directory_durably(disk, directory).map_err(OpenError::io(directory))?;
    let path = paths.layout();
    files::replace(disk, &path, &encode_layout(key)).map_err(OpenError::io(&path))
}

/// The floor that was written last; 0 if none was.
/// # Errors
/// A file that does not read.
pub fn read_floor(disk: &dyn Disk, paths: &Paths) -> Result<u64, OpenError> {
    let path = paths.floor();
    match files::read(disk, &path).map_err(OpenError::io(&path))? {
        Some(bytes) => decode_floor(&bytes).map_err(damaged(path)),
        None => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_disk::SimDisk;

    #[test]
    fn small_files_read_back_and_a_flipped_bit_is_refused() {
        for bytes in [encode_layout(None), encode_layout(Some(7)), encode_floor(1 << 40)] {
            let whole = Bytes::from(bytes.clone());
            assert!(decode_layout(&whole).is_ok() != decode_floor(&whole).is_ok());
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let flipped = Bytes::from(flipped);
                assert!(decode_layout(&flipped).is_err() && decode_floor(&flipped).is_err(), "bit {bit}");
            }
        }
        assert_eq!(decode_layout(&encode_layout(Some(7)).into()), Ok(Some(7)));
        assert_eq!(decode_floor(&encode_floor(9).into()), Ok(9));
        let later = Bytes::from(sealed(LAYOUT_MAGIC, 2, |_| ()));
        assert_eq!(decode_layout(&later), Err(DecodeError::Version(2)));
    }

    #[test]
    fn a_directory_is_bound_to_what_it_was_made_with() {
        let disk = SimDisk::new(1);
        let paths = Paths::new(Path::new("/data/pds"));
        let enter = |disk: &SimDisk, key| {
            let witnesses = Witnesses::read(disk, &crate::options::Options::new("/data/pds", "pds.example"));
            enter(disk, &paths, key, &witnesses)
        };
        assert!(enter(&disk, Some(7)).expect("made"));
        disk.power_loss();
        assert!(!enter(&disk, Some(7)).expect("known"));
        for key in [None, Some(8)] {
            assert!(matches!(enter(&disk, key), Err(OpenError::Key(_))));
        }
        disk.remove(&paths.layout()).expect("removed");
        disk.create_directory(&paths.log()).expect("made");
        assert!(matches!(enter(&disk, None), Err(OpenError::NoLayout { .. })));
    }
}
