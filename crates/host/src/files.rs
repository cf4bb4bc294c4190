//! Small files that are replaced as a whole.

use bytes::Bytes;
use highwater_disk::{Disk, OpenMode};
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a small file at the most: a flipped bit of a length does not ask for more.
const BYTES_MAX: u64 = 16 << 20;

/// What a file holds; `None` if there is none.
/// # Errors
/// The system's, or `InvalidData` for a file that is larger than any of ours.
pub fn read(disk: &dyn Disk, path: &Path) -> io::Result<Option<Bytes>> {
    let file = match disk.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.length()?;
    if length > BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Some(bytes.into()))
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Replaces a file, durably: whoever dies in the middle leaves the one of before or this one.
/// # Errors
/// The system's; the file is then the one of before, or this one.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = temporary(path);
    let file = disk.open(&new, OpenMode::Create)?;
    file.set_length(0)?;
    file.write_at(bytes, 0)?;
    file.sync_all()?;
    disk.rename(&new, path)?;
    sync_parent(disk, path)
}

/// Removes a file, durably; one that is gone already is fine.
/// # Errors
/// The system's.
pub fn remove(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => other?,
    }
    sync_parent(disk, path)
}

fn sync_parent(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| disk.sync_directory(parent))
}
