//! The two slots.

use super::Meta;
use bytes::Bytes;
use highwater_base::codec::DecodeError;
use highwater_disk::File;
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// Bytes of one slot: what a disk writes in one piece, mostly.
pub const SLOT_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"HWDBMETA";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 24;
const BODY_BYTES_MAX: usize = SLOT_BYTES - HEAD_BYTES - 4;

// The texts and everything else fit.
const _: () =
    assert!(super::URL_BYTES_MAX + super::CLUSTER_ID_BYTES_MAX + super::STOP_TEXT_BYTES_MAX + 512 <= BODY_BYTES_MAX);

/// Why `meta` cannot be read.
#[derive(Debug, Error)]
pub enum MetaError {
    /// Neither slot is whole.
    #[error("neither slot of it is whole")]
    Damaged,
    /// A later program wrote it.
    #[error(
        "it has format version {0}, which this program does not know; use the program that wrote it, or a later one"
    )]
    Version(u16),
    /// A whole slot holds what it cannot.
    #[error("it is whole but says what it cannot: {0}")]
    Content(#[from] DecodeError),
    /// The system's.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The open file, and which slot must not be touched.
pub struct MetaFile {
    file: Arc<dyn File>,
    generation: u64,
    /// The slot of the last synced save; the next save goes to the other one.
    synced_slot: usize,
    /// Whether a save since then waits for a sync.
    unsynced: bool,
    /// Whether `synced_slot` is the newest only in the cache, left by a process that died.
    unsettled: bool,
}

impl MetaFile {
    /// Fills an empty file, synced.
    /// # Errors
    /// The system's.
    pub fn create(file: Arc<dyn File>, meta: &Meta) -> io::Result<Self> {
        let mut new = Self { file, generation: 0, synced_slot: 1, unsynced: false, unsettled: false };
        // Written, not only made longer: a save must find its space on a full disk.
        new.file.write_at(&[0; 2 * SLOT_BYTES], 0)?;
        new.save(meta, true)?;
        Ok(new)
    }

    /// Reads the newest whole slot.
    /// # Errors
    /// See [`MetaError`].
    pub fn open(file: Arc<dyn File>) -> Result<(Self, Meta), MetaError> {
        let mut newest: Option<(u64, usize, Bytes)> = None;
        for slot in 0..2 {
            let mut bytes = vec![0; SLOT_BYTES];
            let read = file.read_at(&mut bytes, (slot * SLOT_BYTES) as u64)?;
            if let Some((generation, body)) = read_slot(&bytes[..read])?
                && newest.as_ref().is_none_or(|(other, ..)| *other < generation)
            {
                newest = Some((generation, slot, body));
            }
        }
        let (generation, slot, body) = newest.ok_or(MetaError::Damaged)?;
        let meta = Meta::decode(body)?;
        Ok((Self { file, generation, synced_slot: slot, unsynced: false, unsettled: true }, meta))
    }

    /// Whether nothing was saved since it was created: its very name may not be durable.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.generation <= 1
    }

    /// Writes the slot that is not the last synced one, and syncs if asked to.
    ///
    /// A save without a sync may be lost with the power, together with those unsynced before it, but never takes the
    /// last synced one with it.
    /// # Errors
    /// The system's.
    pub fn save(&mut self, meta: &Meta, sync: bool) -> io::Result<()> {
        self.settle()?;
        let bytes = write_slot(self.generation + 1, &meta.encode())?;
        self.file.write_at(&bytes, ((1 - self.synced_slot) * SLOT_BYTES) as u64)?;
        self.generation += 1;
        self.unsynced = true;
        if sync { self.sync() } else { Ok(()) }
    }

    /// Makes the last save durable; free if it is.
    /// # Errors
    /// The system's.
    pub fn sync(&mut self) -> io::Result<()> {
        self.settle()?;
        if self.unsynced {
            self.file.sync_data()?;
            self.unsynced = false;
            self.synced_slot = 1 - self.synced_slot;
        }
        Ok(())
    }

    fn settle(&mut self) -> io::Result<()> {
        if self.unsettled {
            self.file.sync_data()?;
            self.unsettled = false;
        }
        Ok(())
    }
}

fn write_slot(generation: u64, body: &[u8]) -> io::Result<Vec<u8>> {
    if body.len() > BODY_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "meta does not fit into its slot"));
    }
    let mut bytes = Vec::with_capacity(SLOT_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(body);
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    Ok(bytes)
}

/// The generation and body of a whole slot, `None` for anything else, an error for a whole slot of another version.
fn read_slot(bytes: &[u8]) -> Result<Option<(u64, Bytes)>, MetaError> {
    if bytes.len() < HEAD_BYTES || bytes[..8] != MAGIC {
        return Ok(None);
    }
    let length = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
    if length > BODY_BYTES_MAX || bytes.len() < HEAD_BYTES + length + 4 {
        return Ok(None);
    }
    let (covered, rest) = bytes.split_at(HEAD_BYTES + length);
    if rest[..4] != crc32c::crc32c(covered).to_le_bytes() {
        return Ok(None);
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if version != VERSION {
        return Err(MetaError::Version(version));
    }
    let mut generation = [0; 8];
    generation.copy_from_slice(&bytes[16..24]);
    Ok(Some((u64::from_le_bytes(generation), Bytes::copy_from_slice(&covered[HEAD_BYTES..]))))
}
