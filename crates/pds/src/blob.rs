//! The blobs that an account holds.

use crate::account::{decode_cid, encode_cid};
use crate::time::Micros;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_repo::Cid;
use std::collections::{BTreeMap, BTreeSet};

/// A blob of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Its bytes.
    pub bytes: u64,
    /// Its media type, as its bytes say.
    pub media_type: String,
    /// When it was uploaded last.
    pub uploaded: Micros,
    /// Keys of the records that refer to it. While there is none, nobody sees it.
    pub records: BTreeSet<String>,
}

/// All blobs of an account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Blobs(pub BTreeMap<Cid, Blob>);

/// A change of an account's blobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was uploaded; its file is durable.
    Uploaded {
        /// Its name.
        cid: Cid,
        /// Its bytes.
        bytes: u64,
        /// Its media type.
        media_type: String,
        /// When.
        at: Micros,
    },
    /// A record refers to it now.
    Referenced(Cid, String),
    /// A record does not refer to it any more.
    Dereferenced(Cid, String),
    /// It is gone.
    Removed(Cid),
}

impl Blobs {
    /// Does a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Uploaded { cid, bytes, media_type, at } => {
                let records = self.0.remove(cid).map(|before| before.records).unwrap_or_default();
                let blob = Blob { bytes: *bytes, media_type: media_type.clone(), uploaded: *at, records };
                self.0.insert(*cid, blob);
            }
            Change::Referenced(cid, record) => {
                if let Some(blob) = self.0.get_mut(cid) {
                    blob.records.insert(record.clone());
                }
            }
            Change::Dereferenced(cid, record) => {
                if let Some(blob) = self.0.get_mut(cid) {
                    blob.records.remove(record);
                }
            }
            Change::Removed(cid) => {
                self.0.remove(cid);
            }
        }
    }

    /// Appends them.
    pub fn encode(&self, out: &mut Writer) {
        out.u32(self.0.len() as u32);
        for (cid, blob) in &self.0 {
            encode_cid(cid, out);
            out.u64(blob.bytes).bytes(blob.media_type.as_bytes()).u64(blob.uploaded.0).u32(blob.records.len() as u32);
            for record in &blob.records {
                out.bytes(record.as_bytes());
            }
        }
    }

    /// Takes them off a record.
    /// # Errors
    /// If they are none.
    pub fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let mut all = BTreeMap::new();
        for _ in 0..input.u32()? {
            let cid = decode_cid(input)?;
            let (bytes, media_type, uploaded) = (input.u64()?, input.string()?, Micros(input.u64()?));
            let mut records = BTreeSet::new();
            for _ in 0..input.u32()? {
                records.insert(input.string()?);
            }
            all.insert(cid, Blob { bytes, media_type, uploaded, records });
        }
        Ok(Self(all))
    }
}

impl Change {
    pub(crate) fn encode(&self, out: &mut Writer) {
        match self {
            Self::Uploaded { cid, bytes, media_type, at } => {
                encode_cid(cid, out.u8(1));
                out.u64(*bytes).bytes(media_type.as_bytes()).u64(at.0);
            }
            Self::Referenced(cid, record) => {
                encode_cid(cid, out.u8(2));
                out.bytes(record.as_bytes());
            }
            Self::Dereferenced(cid, record) => {
                encode_cid(cid, out.u8(3));
                out.bytes(record.as_bytes());
            }
            Self::Removed(cid) => encode_cid(cid, out.u8(4)),
        }
    }

    pub(crate) fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let kind = input.u8()?;
        let cid = decode_cid(input)?;
        Ok(match kind {
            1 => Self::Uploaded { cid, bytes: input.u64()?, media_type: input.string()?, at: Micros(input.u64()?) },
            2 => Self::Referenced(cid, input.string()?),
            3 => Self::Dereferenced(cid, input.string()?),
            4 => Self::Removed(cid),
            _ => return Err(DecodeError::Invalid("change of blobs")),
        })
    }
}
