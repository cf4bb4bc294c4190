//! Which objects are in memory, and how others get there.
//!
//! The store knows of every object, and has the places of some in memory: those are *resident*. The newest that is known of
//! any other stands in the index's base on disk. The caller's own bytes of an object (its state) are the caller's: it keeps
//! them for as long as the object is resident, and gets them with it.
//!
//! # What the caller does
//! Before it asks for an object or changes it, it asks [`Store::residence`]. For a [`Residence::Stored`] one it takes a
//! [`Store::lookup`], lets it [`Lookup::find`] the object on a thread for I/O, and gives what that found to
//! [`Store::admit`]; if that is `false`, the index was written anew meanwhile, and it asks again. An object that comes into
//! being is told to [`Store::create`] when it does. What is not needed any more goes by [`Store::evict`], which never does I/O.
//!
//! # What may be evicted
//! An object of which base and memory say the same. One that changed since the base was written, also one that has records in
//! a delta, stays until the next base: so deltas bound what must be in memory, and one read of the base finds an object.

use crate::index::{Base, Identity, Image, ScanError};
use crate::store::Store;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Where the newest that is known of an object stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residence {
    /// In memory.
    Resident,
    /// Nowhere: the store has neither state nor payload of it.
    Absent,
    /// On disk alone. Of a hundred objects that are absent, about one is said to be stored; looking it up tells.
    Stored,
}

/// What becomes of an object that an open came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// It is resident.
    Resident,
    /// It is left on disk. One that is not [`Visited::evictable`] is resident all the same.
    Stored,
}

/// An object that an open came by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visited {
    /// Its key.
    pub key: u64,
    /// Its state; empty if it was never given one. A slice of a block: whoever keeps it for long copies it.
    pub state: Bytes,
    /// Whether it may be left on disk.
    pub evictable: bool,
}

/// What a lookup found out about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The index whose base said so.
    identity: Identity,
    key: u64,
    image: Option<Image>,
}

impl Found {
    /// The object's key.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The object's state, empty if it was never given one; `None` if there is no such object.
    #[must_use]
    pub fn state(&self) -> Option<&Bytes> {
        self.image.as_ref().map(|image| &image.state)
    }
}

/// Why a lookup found nothing out. The store is as before.
#[derive(Debug, Error)]
pub enum LookupError {
    /// The index does not hold what was written to it.
    #[error("{} is damaged: at byte {position}: {what}", path.display())]
    Damaged {
        /// The index file.
        path: PathBuf,
        /// Position of the block in it, in bytes.
        position: u64,
        /// What is wrong.
        what: String,
    },
    /// The disk's error.
    #[error("{}: {source}", path.display())]
    Io {
        /// The index file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl LookupError {
    fn new(path: PathBuf, error: ScanError) -> Self {
        match error {
            ScanError::Io(source) => Self::Io { path, source },
            ScanError::Damaged { position, what } => Self::Damaged { path, position, what },
            other => Self::Damaged { path, position: 0, what: other.to_string() },
        }
    }
}

/// Finds objects on disk, in the index's base as it was when this was taken; for any thread.
#[derive(Debug, Clone)]
pub struct Lookup {
    base: Arc<Base>,
}

impl Lookup {
    /// Reads what the index says of these objects, in the order of `keys`. Blocks that hold several are read once.
    /// # Errors
    /// A damaged index, by its place, or the disk's error; nothing was found out about any of them then.
    pub fn find(&self, keys: &[u64]) -> Result<Vec<Found>, LookupError> {
        let images = self.base.find(keys).map_err(|error| LookupError::new(self.base.path.clone(), error))?;
        let found = |(key, image)| Found { identity: self.base.identity, key, image };
        Ok(keys.iter().copied().zip(images).map(found).collect())
    }
}

/// Objects that are remembered as absent at the most, the last ones: they are used at once, or looked up again.
const KNOWN_ABSENT_MAX: usize = 4096;

/// Absent objects of which the base's table could not tell.
#[derive(Debug, Default)]
pub(crate) struct KnownAbsent {
    keys: BTreeSet<u64>,
    /// Oldest first.
    order: VecDeque<u64>,
}

impl KnownAbsent {
    fn insert(&mut self, key: u64) {
        if self.keys.insert(key) {
            self.order.push_back(key);
        }
        if self.order.len() > KNOWN_ABSENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }

    /// Another base says something else.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Store {
    /// Where the newest that is known of an object stands. Does no I/O.
    #[must_use]
    pub fn residence(&self, key: u64) -> Residence {
        if self.is_resident(key) {
            return Residence::Resident;
        }
        // Memory knows of every change since the base: what changed and is not here was removed.
        let stored = !self.is_changed(key) && !self.known_absent.keys.contains(&key) && self.index.base.may_hold(key);
        if stored { Residence::Stored } else { Residence::Absent }
    }

    pub(crate) fn assert_in_memory(&self, key: u64) {
        assert!(self.residence(key) != Residence::Stored, "object {key} is on disk and was not looked up");
    }

    /// What finds the objects that are not resident. Cheap, and does no I/O.
    #[must_use]
    pub fn lookup(&self) -> Lookup {
        Lookup { base: Arc::clone(&self.index.base) }
    }

    /// Takes in what a lookup found: the object is resident then, or, if there is none, known to be absent.
    ///
    /// `false` if it changed nothing: the object is not (or no more) one that is only stored, or the index was written anew
    /// since the lookup was taken. [`Self::residence`] tells which; a stored one is looked up again.
    pub fn admit(&mut self, found: &Found) -> bool {
        // What an older base said may be what an object was before it changed, moved or went.
        if found.identity != self.index.base.identity || self.residence(found.key) != Residence::Stored {
            return false;
        }
        match &found.image {
            Some(image) => self.residents.insert(found.key, image.extents.clone()),
            None => self.known_absent.insert(found.key),
        }
        true
    }

    /// Takes note that there is no such object unless it is resident, whatever the base's table says of it: for a caller that keeps every
    /// object in memory, and so knows of all that there are. Does no I/O.
    pub fn note_absent(&mut self, key: u64) {
        if self.residence(key) == Residence::Stored {
            self.known_absent.insert(key);
        }
    }

    /// Takes note of an object that comes into being without payload. For one with payload [`Self::append`] does it too.
    ///
    /// # Panics
    /// If it is stored and not resident.
    pub fn create(&mut self, key: u64) {
        self.assert_in_memory(key);
        if !self.is_resident(key) {
            self.created.insert(key);
        }
        self.residents.ensure(key);
    }

    /// Lets an object leave memory. `false` if it must stay: it is not resident, or changed since the index's base was
    /// written. A change that only the caller knows of yet counts: it does not evict what the next checkpoint is to be told.
    pub fn evict(&mut self, key: u64) -> bool {
        if !self.residents.contains(key) || self.is_changed(key) {
            return false;
        }
        assert!(
            self.index.base.may_hold(key),
            "object {key} did not change since the base, and the base does not hold it"
        );
        self.residents.remove(key);
        true
    }

    /// Objects that are resident, and about how many bytes of memory the store itself takes for them.
    #[must_use]
    pub fn resident(&self) -> (u64, u64) {
        (self.residents.count(), self.residents.bytes())
    }

    /// Bytes of memory that all other objects take: the index's table.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        self.index.base.table.bytes()
    }
}
