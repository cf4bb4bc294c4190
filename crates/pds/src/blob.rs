//! The blobs that an account holds, and what writes of records mean for them.
//!
//! An uploaded blob is *temporary*: nobody sees it until a record refers to it, and it goes after a while. It goes for good with
//! the last reference.
//!
//! Source: atproto blob specification; `com.atproto.repo.uploadBlob`.

mod media;
#[cfg(test)]
mod tests;

pub use media::{HEAD_BYTES, media_type};

use crate::account::{decode_cid, decode_tid, encode_cid, encode_tid};
use crate::time::Micros;
use highwater_base::codec::{DecodeError, Reader, Writer};
use highwater_repo::cid::{CID_BYTES, Codec};
use highwater_repo::data::Value;
use highwater_repo::{Cid, Tid};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Temporary blobs of an account at once: five for each of the 200 records of the largest commit.
pub const TEMPORARY_MAX: usize = 1_000;

/// A blob of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Its bytes.
    pub bytes: u64,
    /// Its media type, as its bytes say.
    pub media_type: String,
    /// When it was uploaded last.
    pub uploaded: Micros,
    /// Keys of the records that refer to it, with the revisions since which they do. While there is none, nobody sees it.
    pub records: BTreeMap<String, Tid>,
}

/// Bytes of an account's list of blobs, encoded, beyond which no reference and no upload adds to it: with what is on its way, it stays
/// below the 64 MiB that the store takes of one object. A picture in each of 700,000 posts.
pub const LIST_BYTES_MAX: u64 = 32 << 20;
/// References that one commit may add: fifty for each of the 200 records of the largest.
pub const REFERENCES_MAX: usize = 10_000;

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
    /// A record refers to it now, since a revision.
    Referenced(Cid, String, Tid),
    /// A record does not refer to it any more.
    Dereferenced(Cid, String),
    /// It is gone. Nothing happens while a record refers to it.
    Removed(Cid),
}

/// What a write did at a record's key.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// The key: `kind/record-key`.
    pub path: &'a str,
    /// The record that was there before.
    pub before: Option<&'a Value>,
    /// The record that is there now.
    pub after: Option<&'a Value>,
}

/// Why a record may not refer to a blob as it does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReferenceError {
    /// It was not uploaded, or is gone.
    #[error("the record at {path} refers to the blob {cid}, which this account does not hold: upload it first")]
    Absent {
        /// The record's key.
        path: String,
        /// The blob.
        cid: Cid,
    },
    /// One commit refers to blobs too often.
    #[error("the writes refer to blobs more than {REFERENCES_MAX} times: write fewer records at once")]
    TooMany,
    /// The account's list of blobs would grow beyond what is kept.
    #[error(
        "the account's records refer to blobs as often as the server keeps account of ({LIST_BYTES_MAX} bytes): delete records that do"
    )]
    ListFull,
    /// The record says another size or media type than the blob has.
    #[error("the record at {path} says of the blob {cid} that {said}, but {found}")]
    Unlike {
        /// The record's key.
        path: String,
        /// The blob.
        cid: Cid,
        /// As the record has it.
        said: String,
        /// As it is.
        found: String,
    },
}

/// What a record says of a blob that it refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    bytes: Option<i64>,
    media_type: Option<String>,
}

/// The blobs that a record refers to, in order, and everything that it says of each.
///
/// References in the form that was given up before the network opened (`cid` and `mimeType` alone) are data like any other.
fn references(record: &Value) -> BTreeMap<Cid, BTreeSet<Reference>> {
    // A stack of its own: values come nested as deeply as a record allows.
    let (mut found, mut open) = (BTreeMap::<_, BTreeSet<_>>::new(), vec![record]);
    while let Some(value) = open.pop() {
        match value {
            Value::List(values) => open.extend(values),
            Value::Map(map) => match (map.get("$type"), map.get("ref")) {
                (Some(Value::Text(kind)), Some(Value::Link(cid))) if kind == "blob" && cid.codec() == Codec::Raw => {
                    let bytes = map.get("size").and_then(|size| match size {
                        Value::Integer(size) => Some(*size),
                        _ => None,
                    });
                    let media_type = map.get("mimeType").and_then(|kind| match kind {
                        Value::Text(kind) => Some(kind.clone()),
                        _ => None,
                    });
                    found.entry(*cid).or_default().insert(Reference { bytes, media_type });
                }
                _ => open.extend(map.iter().map(|(_, value)| value)),
            },
            _ => {}
        }
    }
    found
}

/// Bytes of a blob in the list, beside its media type and the records that refer to it.
const BLOB_BYTES: u64 = CID_BYTES as u64 + 8 + 4 + 8 + 4;

/// Bytes of a record in it that refers to a blob.
fn reference_bytes(path: &str) -> u64 {
    4 + path.len() as u64 + 8
}

impl Blob {
    fn check(&self, path: &str, cid: Cid, reference: &Reference) -> Result<(), ReferenceError> {
        let unlike = |said: String, found: String| ReferenceError::Unlike { path: path.to_owned(), cid, said, found };
        if reference.bytes.is_some_and(|said| u64::try_from(said) != Ok(self.bytes)) {
            let said = reference.bytes.unwrap_or_default();
            return Err(unlike(format!("it has {said} bytes"), format!("it has {}", self.bytes)));
        }
        match &reference.media_type {
            Some(said) if *said != self.media_type => {
                Err(unlike(format!("it is of the type {said:?}"), format!("it is of {:?}", self.media_type)))
            }
            _ => Ok(()),
        }
    }
}

impl Blobs {
    /// What the writes of a commit mean for the account's blobs: references that come and go, and blobs that go with their last
    /// one. They belong into the record of the commit.
    /// # Errors
    /// [`ReferenceError`] for the first reference that must not be made; one that stood there before, word by word, is not judged again.
    pub fn written(&self, writes: &[Written], rev: Tid) -> Result<Vec<Change>, ReferenceError> {
        let (mut changes, mut touched) = (Vec::new(), BTreeMap::new());
        let (mut added, mut added_bytes) = (0, 0);
        for write in writes {
            let before = write.before.map(references).unwrap_or_default();
            let after = write.after.map(references).unwrap_or_default();
            for (cid, said) in &after {
                let said_before = before.get(cid);
                let mut said = said.iter().filter(|said| said_before.is_none_or(|before| !before.contains(said)));
                let Some(first) = said.next() else { continue };
                let blob = self.0.get(cid);
                let blob = blob.ok_or_else(|| ReferenceError::Absent { path: write.path.to_owned(), cid: *cid })?;
                std::iter::once(first).chain(said).try_for_each(|said| blob.check(write.path, *cid, said))?;
                if said_before.is_some() {
                    continue;
                }
                added += 1;
                added_bytes += reference_bytes(write.path);
                touched.entry(*cid).or_insert_with(|| self.referring(cid)).insert(write.path);
                changes.push(Change::Referenced(*cid, write.path.to_owned(), rev));
            }
            for cid in before.keys().filter(|cid| !after.contains_key(cid) && self.0.contains_key(cid)) {
                touched.entry(*cid).or_insert_with(|| self.referring(cid)).remove(write.path);
                changes.push(Change::Dereferenced(*cid, write.path.to_owned()));
            }
        }
        if added > REFERENCES_MAX {
            return Err(ReferenceError::TooMany);
        }
        if added > 0 && self.bytes() + added_bytes > LIST_BYTES_MAX {
            return Err(ReferenceError::ListFull);
        }
        let last = touched.into_iter().filter(|(_, records)| records.is_empty());
        changes.extend(last.map(|(cid, _)| Change::Removed(cid)));
        Ok(changes)
    }

    /// Bytes that the list takes where it is stored.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let blob = |blob: &Blob| {
            let records: u64 = blob.records.keys().map(|path| reference_bytes(path)).sum();
            BLOB_BYTES + blob.media_type.len() as u64 + records
        };
        self.0.values().map(blob).sum()
    }

    fn referring(&self, cid: &Cid) -> BTreeSet<&str> {
        self.0.get(cid).into_iter().flat_map(|blob| blob.records.keys().map(String::as_str)).collect()
    }

    /// A blob that everybody may see: a record refers to it.
    #[must_use]
    pub fn public(&self, cid: &Cid) -> Option<&Blob> {
        self.0.get(cid).filter(|blob| !blob.records.is_empty())
    }

    /// Blobs that everybody may see, after one of them, and if `since` is given only those that got a reference after that revision.
    pub fn list(&self, after: Option<Cid>, since: Option<Tid>) -> impl Iterator<Item = &Cid> {
        use std::ops::Bound::{Excluded, Unbounded};
        let blobs = self.0.range((after.map_or(Unbounded, Excluded), Unbounded));
        let newer = move |blob: &Blob| blob.records.values().any(|rev| since.is_none_or(|since| *rev > since));
        blobs.filter(move |(_, blob)| newer(blob)).map(|(cid, _)| cid)
    }

    /// Temporary blobs.
    #[must_use]
    pub fn temporary(&self) -> usize {
        self.0.values().filter(|blob| blob.records.is_empty()).count()
    }

    /// Temporary blobs whose upload is so many seconds ago.
    #[must_use]
    pub fn expired(&self, now: Micros, lifetime_seconds: u64) -> Vec<Cid> {
        let over = |blob: &Blob| blob.records.is_empty() && blob.uploaded.plus_seconds(lifetime_seconds) <= now;
        self.0.iter().filter(|(_, blob)| over(blob)).map(|(cid, _)| *cid).collect()
    }

    /// Does a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Uploaded { cid, bytes, media_type, at } => match self.0.get_mut(cid) {
                // What records say of it must go on to fit.
                Some(blob) if !blob.records.is_empty() => blob.uploaded = *at,
                _ => {
                    let (media_type, records) = (media_type.clone(), BTreeMap::new());
                    self.0.insert(*cid, Blob { bytes: *bytes, media_type, uploaded: *at, records });
                }
            },
            Change::Referenced(cid, record, rev) => {
                if let Some(blob) = self.0.get_mut(cid) {
                    blob.records.insert(record.clone(), *rev);
                }
            }
            Change::Dereferenced(cid, record) => {
                if let Some(blob) = self.0.get_mut(cid) {
                    blob.records.remove(record);
                }
            }
            Change::Removed(cid) => {
                if self.0.get(cid).is_some_and(|blob| blob.records.is_empty()) {
                    self.0.remove(cid);
                }
            }
        }
    }

    /// Appends them.
    pub fn encode(&self, out: &mut Writer) {
        out.u32(self.0.len() as u32);
        for (cid, blob) in &self.0 {
            encode_cid(cid, out);
            out.u64(blob.bytes).bytes(blob.media_type.as_bytes()).u64(blob.uploaded.0).u32(blob.records.len() as u32);
            for (record, rev) in &blob.records {
                out.bytes(record.as_bytes());
                encode_tid(*rev, out);
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
            let mut records = BTreeMap::new();
            for _ in 0..input.u32()? {
                if records.insert(input.string()?, decode_tid(input)?).is_some() {
                    return Err(DecodeError::Invalid("record that refers to a blob"));
                }
            }
            if all.insert(cid, Blob { bytes, media_type, uploaded, records }).is_some() {
                return Err(DecodeError::Invalid("blob"));
            }
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
            Self::Referenced(cid, record, rev) => {
                encode_cid(cid, out.u8(2));
                encode_tid(*rev, out.bytes(record.as_bytes()));
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
            2 => Self::Referenced(cid, input.string()?, decode_tid(input)?),
            3 => Self::Dereferenced(cid, input.string()?),
            4 => Self::Removed(cid),
            _ => return Err(DecodeError::Invalid("change of blobs")),
        })
    }
}
