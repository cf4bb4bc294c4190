//! What every handle of a server, its writer and its subscribers share.

use crate::blobs::BlobFiles;
use crate::error::{OpenError, ReadError};
use crate::export::Exports;
use crate::layout::Paths;
use crate::options::{Options, Sealer};
use crate::queue::Queue;
use crate::ring::Ring;
use crate::slot::{Slots, lock};
use crate::witness::Witnesses;
use bytes::{Bytes, BytesMut};
use highwater_base::{Clock, Random};
use highwater_disk::Disk;
use highwater_pds::names::Zone;
use highwater_pds::{AccountId, Micros, State};
use highwater_repo::Cid;
use highwater_store::{Store, StoreReader};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The object of the store that holds all events.
pub(crate) const EVENTS: u64 = 1;
/// Attempts at a read while its bytes move: a checkpoint moves them once, and takes longer than a read.
const READ_ATTEMPTS: usize = 16;

// Objects of accounts are numbered in fours, and no account has a number above the largest.
const _: () = assert!(AccountId::MAX <= u64::MAX >> 2);

/// The object of an account's row and blocks.
pub(crate) fn row_object(account: AccountId) -> u64 {
    account.0 << 2 | 2
}

/// The object of an account's list of blobs.
pub(crate) fn blobs_object(account: AccountId) -> u64 {
    account.0 << 2 | 3
}

/// The store, for what is done to an object of it. Every object of accounts is resident from its beginning on, so that one which is not does
/// not exist: what the index's table says of it is said of another one.
pub(crate) fn with_object(store: &mut Store, object: u64) -> &mut Store {
    store.note_absent(object);
    store
}

/// Names of accounts that are on their way into the log.
#[derive(Debug, Default)]
pub(crate) struct Naming {
    /// The number that the next account gets, if it is above what the state says.
    pub next: u64,
    /// Each with what is set once its account was refused.
    pub taken: BTreeMap<String, Arc<AtomicBool>>,
}

/// Figures that only the writer of the log knows, or what is done beside it.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriterFigures {
    pub log: highwater_wal::Metrics,
    pub lsn: u64,
    pub turns_refused: u64,
    pub checkpoints: u64,
    pub checkpoint_error: Option<String>,
    pub memory_bytes: u64,
    pub compactions: u64,
    pub blobs_expired: u64,
}

pub(crate) struct Shared {
    pub options: Options,
    pub zone: Zone,
    pub paths: Paths,
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub random: Mutex<Box<dyn Random>>,
    pub sealer: Option<Arc<dyn Sealer>>,
    /// What is remembered outside the directory.
    pub witnesses: Witnesses,
    /// What tells this run's revisions and keys from those of other clocks, in ten bits.
    pub clock_id: u16,
    /// What is durable.
    pub state: RwLock<State>,
    /// Where its bytes lie. Locked after `state`, by whoever locks both.
    pub store: Mutex<Store>,
    pub reader: StoreReader,
    pub slots: Slots,
    pub queue: Queue,
    pub ring: Ring,
    pub blob_files: Arc<BlobFiles>,
    pub naming: Mutex<Naming>,
    /// Held while names are given, until the account is handed over.
    pub naming_turn: Mutex<()>,
    pub exports: Exports,
    pub figures: Mutex<WriterFigures>,
    /// Whether the log holds so much that a checkpoint has to come before anything that can wait.
    pub log_long: AtomicBool,
    /// The last time that was given out once.
    pub instant: AtomicU64,
}

/// Bytes that cannot be had from the store.
#[derive(Debug)]
pub(crate) enum Fault {
    /// They were given up.
    Gone,
    Damaged(String),
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Gone => Self::Damaged("bytes that the index names are not there".into()),
            Fault::Damaged(why) => Self::Damaged(why),
        }
    }
}

impl Shared {
    pub fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an account has a row of a blob.
    pub fn holds_blob(&self, account: AccountId, cid: &Cid) -> bool {
        self.state().blobs.get(&account).is_some_and(|blobs| blobs.0.contains_key(cid))
    }

    pub fn now(&self) -> Micros {
        Micros(self.clock.wall().0.saturating_mul(1_000))
    }

    /// A time that is given out once in this run: the clock's, or the one behind the last.
    pub fn now_once(&self) -> Micros {
        let now = self.now().0;
        let next = |last: u64| Some(now.max(last + 1));
        let last = self.instant.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        Micros(now.max(last + 1))
    }

    pub fn random_u64(&self) -> u64 {
        lock(&self.random).next_u64()
    }

    /// Bytes of an object, all of them, verified.
    pub fn read(&self, object: u64, range: Range<u64>) -> Result<Bytes, Fault> {
        let mut whole: Option<BytesMut> = None;
        let mut at = range.start;
        loop {
            let part = self.read_some(object, at, range.end - at)?;
            if part.is_empty() {
                return Err(Fault::Gone);
            }
            at += part.len() as u64;
            match &mut whole {
                None if at >= range.end => return Ok(part),
                None => whole = Some(BytesMut::from(&part[..])),
                Some(whole) => whole.extend_from_slice(&part),
            }
            if at >= range.end {
                return Ok(whole.map(BytesMut::freeze).unwrap_or_default());
            }
        }
    }

    /// Some bytes of an object from an offset on; none if there are none.
    pub fn read_some(&self, object: u64, from: u64, bytes_max: u64) -> Result<Bytes, Fault> {
        for _ in 0..READ_ATTEMPTS {
            let plan = with_object(&mut lock(&self.store), object).plan_read(object, from, bytes_max);
            if plan.is_empty() {
                return Ok(Bytes::new());
            }
            match self.reader.read(&plan) {
                Err(highwater_store::ReadError::Moved) => {}
                other => return other.map_err(|error| Fault::Damaged(error.to_string())),
            }
        }
        Err(Fault::Damaged("the bytes moved again and again while they were read".into()))
    }

    /// Encrypts a secret, if secrets are.
    pub fn seal(&self, secret: &[u8]) -> (bool, Bytes) {
        let Some(sealer) = &self.sealer else { return (false, Bytes::copy_from_slice(secret)) };
        let mut nonce = [0; 24];
        let mut random = lock(&self.random);
        nonce.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random.next_u64().to_le_bytes()));
        drop(random);
        (true, sealer.seal(secret, nonce))
    }

    /// Decrypts a secret, if it is encrypted.
    pub fn unseal(&self, sealed: bool, secret: &[u8]) -> Option<Vec<u8>> {
        match (sealed, &self.sealer) {
            (false, _) => Some(secret.to_vec()),
            (true, Some(sealer)) => sealer.open(secret),
            (true, None) => None,
        }
    }
}

/// The zone of the options.
pub(crate) fn zone(options: &Options) -> Result<Zone, OpenError> {
    options.zone.parse().map_err(|error: highwater_pds::names::NameError| OpenError::Settings(error.to_string()))
}
