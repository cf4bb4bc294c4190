//! Checking a backup: its files against the manifest, and what they say against itself.

use super::manifest::{Entry, Manifest, ManifestError};
use super::{PIECE_BYTES, owner_of};
use highwater_base::{Digest, OwnerId};
use highwater_disk::{Disk, OpenMode};
use highwater_stream::{Machine, Options};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Something of a backup that cannot be believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackupFault {
    /// The file, by its path in the backup.
    pub file: String,
    /// What is wrong.
    pub what: String,
    /// The stream whose bytes it hits, if it hits one.
    pub stream: Option<String>,
}

/// A backup that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// What it consists of.
    pub manifest: Manifest,
    /// Streams in it.
    pub streams: u64,
    /// What cannot be believed.
    pub faults: Vec<BackupFault>,
}

/// Reads a whole backup: every file must have the digest that the manifest says, every index must read, and every block of
/// a stream must be what the index says. Changes nothing. `progress` is told how many bytes are through, of twice the
/// manifest's.
/// # Errors
/// The manifest's; all else is among the faults.
pub fn verify(disk: &Arc<dyn Disk>, backup: &Path, progress: &mut dyn FnMut(u64)) -> Result<Verified, ManifestError> {
    let manifest = Manifest::read(&**disk, backup)?;
    let mut verified = Verified { manifest: manifest.clone(), streams: 0, faults: Vec::new() };
    let mut through = 0;
    for entry in &manifest.files {
        let mut noted = |bytes| {
            through += bytes;
            progress(through);
        };
        if let Err(what) = check_file(&**disk, backup, entry, &mut noted) {
            verified.faults.push(BackupFault { file: entry.path.clone(), what, stream: None });
        }
    }
    for folder in manifest.stores() {
        let Some(owner) = owner_of(folder) else { continue };
        check_store(disk, backup, folder, owner, &mut verified, &mut |bytes| {
            through += bytes;
            progress(through);
            true
        });
    }
    let stores = manifest.stores();
    let both = manifest.absent.iter().any(|absent| stores.contains(absent.group.as_str()));
    let stores = (stores.len() + manifest.absent.len()) as u64;
    if both || stores != u64::from(manifest.groups) + 1 {
        let what = format!("the backup has or names {stores} stores, and the cluster {} groups", manifest.groups + 1);
        verified.faults.push(BackupFault { file: "store".to_owned(), what, stream: None });
    }
    Ok(verified)
}

/// Checks a file against its entry.
pub(super) fn check_file(
    disk: &dyn Disk,
    backup: &Path,
    entry: &Entry,
    progress: &mut dyn FnMut(u64),
) -> Result<(), String> {
    let words = |error: io::Error| error.to_string();
    let file = disk.open(&backup.join(&entry.path), OpenMode::Read).map_err(words)?;
    let length = file.length().map_err(words)?;
    if length != entry.bytes {
        return Err(format!("it has {length} bytes and not {}", entry.bytes));
    }
    let mut hasher = blake3::Hasher::new();
    let (mut offset, mut piece) = (0, Vec::new());
    while offset < length {
        piece.resize(PIECE_BYTES.min(length - offset) as usize, 0);
        file.read_exact_at(&mut piece, offset).map_err(words)?;
        hasher.update(&piece);
        offset += piece.len() as u64;
        progress(piece.len() as u64);
    }
    if Digest(*hasher.finalize().as_bytes()) == entry.digest {
        Ok(())
    } else {
        Err("its bytes are not those that were copied".to_owned())
    }
}

fn check_store(
    disk: &Arc<dyn Disk>,
    backup: &Path,
    folder: &str,
    owner: OwnerId,
    verified: &mut Verified,
    pace: &mut dyn FnMut(u64) -> bool,
) {
    let directory = backup.join("store").join(folder);
    let store = match highwater_store::verify(Arc::clone(disk), &directory, owner, pace) {
        Ok(store) => store,
        Err(error) => {
            let fault = BackupFault { file: format!("store/{folder}"), what: error.to_string(), stream: None };
            return verified.faults.push(fault);
        }
    };
    let machine = match streams(owner, &store) {
        Ok(machine) => machine,
        Err(what) => {
            verified.faults.push(BackupFault { file: format!("store/{folder}"), what, stream: None });
            None
        }
    };
    verified.streams += machine.as_ref().map_or(0, Machine::streams);
    for fault in store.faults {
        let stream = fault.object.and_then(|(object, _)| machine.as_ref()?.holder_of(object));
        let name = fault.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        verified.faults.push(BackupFault {
            file: format!("store/{folder}/{name}"),
            what: format!("byte {}: {}", fault.position, fault.what),
            stream: stream.map(|holder| holder.path.to_owned()),
        });
    }
}

/// The streams of a group's checkpoint; `None` for the control group.
fn streams(owner: OwnerId, store: &highwater_store::Verified) -> Result<Option<Machine>, String> {
    if owner == OwnerId::CONTROL {
        return Ok(None);
    }
    let (_, meta) = crate::shard::checkpoint_meta(store.meta.clone()).map_err(|error| error.to_string())?;
    let machine = Machine::load(Options::default(), meta, store.objects.clone());
    machine.map(Some).map_err(|error| format!("a stream does not read: {error}"))
}
