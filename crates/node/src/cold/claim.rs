//! Whose an object store is.

use super::life::{checked, with_digest};
use bytes::Bytes;
use highwater_base::codec::Writer;
use highwater_store::cold::Pieces;
use highwater_store::{ColdError, ColdTier};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// The object that says it.
pub(crate) const NAME: &str = "highwater-cluster";
const MAGIC: &[u8; 8] = b"HWBUCKET";
const VERSION: u16 = 1;
const BYTES_MAX: u64 = 4096;

/// An object store of another cluster.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{place} is the object store of cluster {found}, and this directory belongs to cluster {ours}: give each cluster a place \
     of its own, such as another folder or prefix"
)]
pub(crate) struct Foreign {
    pub place: String,
    pub found: String,
    pub ours: String,
}

/// Why an object store is not used.
#[derive(Debug, Error)]
pub(crate) enum ClaimError {
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// It was ours, and does not say so any more.
    #[error("{0} has no object {NAME}, which it had: another folder or bucket, or one that is not mounted")]
    Gone(String),
    #[error("its object {NAME} does not read: {0}")]
    Unreadable(String),
    #[error(transparent)]
    Tier(#[from] ColdError),
}

/// The cluster that an object store says it belongs to.
pub(crate) fn owner(tier: &dyn ColdTier) -> Result<Option<String>, ClaimError> {
    match tier.read(NAME, 0, BYTES_MAX) {
        Err(ColdError::Missing) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(bytes) => decode(&bytes).map(Some).map_err(ClaimError::Unreadable),
    }
}

pub(crate) fn encode(cluster_id: &str) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.raw(MAGIC).u16(VERSION).bytes(cluster_id.as_bytes());
    with_digest(writer)
}

pub(crate) fn decode(bytes: &Bytes) -> Result<String, String> {
    let mut reader = checked(MAGIC, VERSION, bytes)?;
    let cluster_id = reader.string().map_err(|error| error.to_string())?;
    reader.finish().map_err(|error| error.to_string())?;
    Ok(cluster_id)
}

/// An object store that is asked whose it is before anything is written to it, and again when it misses something: a folder
/// whose disk is not mounted has lost nothing.
pub(crate) struct Claimed {
    tier: Arc<dyn ColdTier>,
    cluster_id: String,
    /// Whether it was ours at one time.
    established: AtomicBool,
    /// Whether it is now, as far as is known.
    ours: AtomicBool,
}

impl Claimed {
    pub fn new(tier: Arc<dyn ColdTier>, cluster_id: String, established: bool) -> Self {
        Self { tier, cluster_id, established: AtomicBool::new(established), ours: AtomicBool::new(false) }
    }

    /// Finds that it is this cluster's, or makes it so if it is nobody's and was never ours.
    pub fn claim(&self) -> Result<(), ClaimError> {
        let place = || self.tier.place();
        let mut found = owner(&*self.tier)?;
        if found.is_none() {
            if self.established.load(Ordering::Relaxed) {
                self.ours.store(false, Ordering::Relaxed);
                return Err(ClaimError::Gone(place()));
            }
            let mut record = Bytes::from(encode(&self.cluster_id));
            self.tier.put(NAME, record.len() as u64, &mut || Ok(std::mem::take(&mut record)))?;
            found = owner(&*self.tier)?;
        }
        match found {
            Some(found) if found == self.cluster_id => {
                self.established.store(true, Ordering::Relaxed);
                self.ours.store(true, Ordering::Relaxed);
                Ok(())
            }
            Some(found) => Err(Foreign { place: place(), found, ours: self.cluster_id.clone() }.into()),
            None => Err(ClaimError::Tier(ColdError::Unreachable("it does not keep what it is given".to_owned()))),
        }
    }

    /// Whether it was found to be this cluster's.
    pub fn is_ours(&self) -> bool {
        self.ours.load(Ordering::Relaxed)
    }

    /// Nothing is written to one that was not found to be ours.
    fn check(&self) -> Result<(), ColdError> {
        if self.is_ours() {
            return Ok(());
        }
        self.claim().map_err(|error| match error {
            ClaimError::Tier(error) => error,
            other => ColdError::Unreachable(other.to_string()),
        })
    }
}

impl ColdTier for Claimed {
    fn put(&self, name: &str, bytes: u64, pieces: Pieces<'_>) -> Result<(), ColdError> {
        self.check()?;
        self.tier.put(name, bytes, pieces)
    }

    fn read(&self, name: &str, offset: u64, length: u64) -> Result<Bytes, ColdError> {
        match self.tier.read(name, offset, length) {
            Err(ColdError::Missing) => match owner(&*self.tier) {
                Ok(Some(found)) if found == self.cluster_id => Err(ColdError::Missing),
                Ok(_) => Err(ColdError::Unreachable(ClaimError::Gone(self.tier.place()).to_string())),
                Err(error) => Err(ColdError::Unreachable(error.to_string())),
            },
            other => other,
        }
    }

    fn delete(&self, name: &str) -> Result<(), ColdError> {
        self.check()?;
        self.tier.delete(name)
    }

    fn place(&self) -> String {
        self.tier.place()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_disk::{Disk, SimDisk};
    use highwater_store::Folder;
    use std::path::Path;

    fn folder() -> (SimDisk, Arc<dyn ColdTier>) {
        let disk = SimDisk::new(1);
        disk.create_directory(Path::new("/cold")).expect("made");
        let tier = Arc::new(Folder::new(Arc::new(disk.clone()), "/cold"));
        (disk, tier)
    }

    #[test]
    fn the_bytes_of_version_1_are_those_of_the_golden_file_and_no_others_are_read() {
        let golden = include_bytes!("../../golden/bucket-1.bin");
        let id = "hw-00112233445566778899aabbccddeeff";
        assert_eq!(encode(id), golden);
        assert_eq!(decode(&Bytes::from_static(golden)).as_deref(), Ok(id));
        for bit in 0..golden.len() * 8 {
            let mut flipped = golden.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped.into()).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_place_is_claimed_once_and_refuses_other_clusters() {
        let (_disk, tier) = folder();
        let ours = Claimed::new(tier.clone(), "hw-1".to_owned(), false);
        ours.claim().expect("nobody's");
        Claimed::new(tier.clone(), "hw-1".to_owned(), false).claim().expect("ours, in another life");
        let other = Claimed::new(tier.clone(), "hw-2".to_owned(), false);
        assert!(matches!(other.claim(), Err(ClaimError::Foreign(_))));
        let refused = other.put("x", 1, &mut || Ok(Bytes::new()));
        assert!(matches!(refused, Err(ColdError::Unreachable(why)) if why.contains("hw-1")), "nothing is written");
        assert!(other.delete("x").is_err());
    }

    /// A folder whose disk is not mounted looks empty.
    #[test]
    fn a_place_that_is_empty_and_was_not_is_neither_written_to_nor_believed_to_have_lost_anything() {
        let (disk, tier) = folder();
        let ours = Claimed::new(tier.clone(), "hw-1".to_owned(), true);
        assert!(matches!(ours.claim(), Err(ClaimError::Gone(_))));
        assert!(matches!(ours.put("x", 0, &mut || Ok(Bytes::new())), Err(ColdError::Unreachable(_))));
        assert!(matches!(ours.read("x", 0, 1), Err(ColdError::Unreachable(_))));
        assert!(disk.files().is_empty());
        Claimed::new(tier, "hw-1".to_owned(), false).claim().expect("nobody's");
        assert!(matches!(ours.read("x", 0, 1), Err(ColdError::Missing)));
    }
}
