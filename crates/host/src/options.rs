//! How a server of accounts is kept, and what it gets from outside.

use bytes::Bytes;
use highwater_base::{Clock, Random};
use highwater_disk::Disk;
use highwater_pds::lifecycle::Announce;
use std::path::PathBuf;
use std::sync::Arc;

/// How a server is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its directory, `<data>/pds`.
    pub directory: PathBuf,
    /// The host name below which accounts get theirs, such as `pds.example`; `localhost:2583` for tests.
    pub zone: String,
    /// When relays hear of a new account.
    pub announce: Announce,
    /// Seconds for which frames are kept for replays: 72 hours, a weekend during which a consumer is down.
    pub retention_seconds: u64,
    /// Bytes of frames that are kept at the most; those of a restore younger than the retention stay all the same.
    pub events_bytes_max: u64,
    /// Bytes that lie in the log alone before a checkpoint moves them: replayed at a start after a crash.
    pub checkpoint_bytes: u64,
    /// Seconds after which a checkpoint is made all the same if anything changed.
    pub checkpoint_seconds: u64,
    /// Bytes of memory that the places of blocks and the trees of all accounts may take together; idle ones leave first.
    pub memory_bytes_max: u64,
    /// Repositories that are exported at once, each with up to 32 MiB of memory; identical exports count once, and nobody gets more
    /// of them than are left for others.
    pub exports_max: usize,
    /// Bytes of each export that are kept for others who join it, or who read it more slowly: whoever is further behind has them
    /// read once more.
    pub export_kept_bytes_max: usize,
    /// Milliseconds that an export waits for a place.
    pub export_wait_ms_max: u64,
    /// Accounts of which relays accept frames from one host; more than these are warned of.
    pub account_limit: u64,
    /// A file outside the volume that remembers what was handed out, so that a volume which went back is noticed, and what it handed out
    /// is not handed out again.
    pub witness_path: Option<PathBuf>,
    /// A file that remembers the same in the data directory, beside the directory of accounts: what is known if that alone goes back, or
    /// is gone.
    pub witness_beside_path: Option<PathBuf>,
    /// The log.
    pub log: highwater_wal::Options,
    /// The store.
    pub store: highwater_store::Options,
}

/// Seconds of the default retention.
pub const RETENTION_SECONDS_DEFAULT: u64 = 72 * 3_600;

impl Options {
    /// The usual ones.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>, zone: impl Into<String>) -> Self {
        Self {
            directory: directory.into(),
            zone: zone.into(),
            announce: Announce::default(),
            retention_seconds: RETENTION_SECONDS_DEFAULT,
            events_bytes_max: 16 << 30,
            checkpoint_bytes: 64 << 20,
            checkpoint_seconds: 300,
            memory_bytes_max: 64 << 20,
            exports_max: 8,
            export_kept_bytes_max: 32 << 20,
            export_wait_ms_max: 10_000,
            account_limit: 100,
            witness_path: None,
            witness_beside_path: None,
            log: highwater_wal::Options { log_bytes_max: 1 << 30, spare_segments_max: 2, ..Default::default() },
            store: highwater_store::Options::default(),
        }
    }
}

/// Encrypts secrets under a key that lies outside the volume.
pub trait Sealer: Send + Sync + 'static {
    /// Which key it is; the directory is bound to it.
    fn id(&self) -> u64;

    /// Encrypts a secret.
    fn seal(&self, secret: &[u8], nonce: [u8; 24]) -> Bytes;

    /// Decrypts a secret; `None` if it was encrypted under another key, or is not whole.
    fn open(&self, sealed: &[u8]) -> Option<Vec<u8>>;
}

/// What a server gets from outside.
pub struct Seams {
    /// Where its files lie.
    pub disk: Arc<dyn Disk>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Entropy; that of the operating system in production, because keys are drawn from it.
    pub random: Box<dyn Random>,
    /// What encrypts keys and secrets, if they are to be.
    pub sealer: Option<Arc<dyn Sealer>>,
}
