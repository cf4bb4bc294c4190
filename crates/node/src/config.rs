//! The node's settings and limits.

use crate::cold::ColdOptions;
use crate::shard::frame_bytes_max;
use highwater_base::limits;
use std::path::PathBuf;

/// How a node is opened.
#[derive(Debug, Clone)]
pub struct Config {
    /// The data directory.
    pub data: PathBuf,
    /// Raft groups, when the directory is made; an existing one keeps its number.
    pub groups: u32,
    /// Bytes of one log segment.
    pub wal_segment_bytes: u64,
    /// Bytes of the whole log; four segments at the least.
    pub wal_bytes_max: u64,
    /// Bytes written to the log since the last checkpoints that start the next one.
    ///
    /// Bounds what a restart replays: 32 MiB are read and applied in well under a second.
    pub checkpoint_bytes: u64,
    /// Bytes of request bodies in memory, from their arrival to their answer.
    ///
    /// Eight of the largest requests (32 MiB each), or thousands of usual ones. Metric: `ingress_bytes`.
    pub ingress_bytes_max: u64,
    /// Bytes proposed and not yet applied, in all groups.
    ///
    /// Four of the largest requests: at 200 MB/s they are applied within a second. Metric: `uncommitted_bytes`.
    pub uncommitted_bytes_max: u64,
    /// Readers that may wait for more at one time.
    ///
    /// A waiting reader costs about 300 bytes here, and a connection in the front end. Metric: `live_reads`.
    pub live_reads_max: usize,
    /// Bytes that reads hold in memory, from before they are fetched until their readers took them.
    ///
    /// Thirty-two of the largest answers (8 MiB each). Metric: `read_bytes_held`.
    pub read_bytes_held_max: u64,
    /// Milliseconds that a read waits for room among those before it is refused.
    pub read_room_wait_ms_max: u64,
    /// Snapshots that may be committed at one time.
    ///
    /// Each reads up to a gibibyte from the disk in pieces of 8 MiB, so that four keep a disk busy and 32 MiB in memory.
    /// Metric: `snapshot_commits`.
    pub snapshot_commits_max: usize,
    /// The running system's boot id, recorded with the log so that a restart can say whether the machine went down
    /// too. Empty if it is not known.
    pub boot_id: String,
    /// How the groups' stores are kept.
    pub store: highwater_store::Options,
    /// Bytes that the streams in memory and the places of their bytes may take, in all groups; the others are on disk
    /// alone, and are read when somebody asks for them.
    ///
    /// 250 bytes a stream: about a quarter of a million of them. Metric: `highwater_hot_bytes`.
    pub hot_metadata_bytes: u64,
    /// Bytes a second that are copied out of data files that are mostly dead; 0 copies none.
    ///
    /// A third of what a slow disk writes. Metric: `highwater_compacted_bytes`.
    pub compaction_bytes_per_second: u64,
    /// Bytes a second that the scrub reads, a quarter of that while requests are served; 0 scrubs nothing.
    ///
    /// A terabyte in a day and a half, at a twelfth of what a hard disk reads. Metric: `highwater_scrub_bytes`.
    pub scrub_bytes_per_second: u64,
    /// Milliseconds from the beginning of one scrub to that of the next, if it has ended by then.
    pub scrub_interval_ms: u64,
    /// The object store, if there is one.
    pub cold: Option<ColdOptions>,
    /// Reads that may wait for the object store at one time.
    ///
    /// Each may hold 9 MiB of memory for as long as that takes: half of what reads may hold, so that those of the disk go on.
    pub cold_reads_max: usize,
}

impl Config {
    /// The defaults, for this data directory.
    #[must_use]
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            groups: limits::GROUPS_DEFAULT,
            wal_segment_bytes: SEGMENT_BYTES,
            wal_bytes_max: 1 << 30,
            checkpoint_bytes: 32 << 20,
            ingress_bytes_max: 256 << 20,
            uncommitted_bytes_max: 128 << 20,
            live_reads_max: 16_384,
            read_bytes_held_max: 32 * limits::READ_BYTES_MAX,
            read_room_wait_ms_max: 5_000,
            snapshot_commits_max: 4,
            boot_id: String::new(),
            store: highwater_store::Options::default(),
            hot_metadata_bytes: 64 << 20,
            compaction_bytes_per_second: 32 << 20,
            scrub_bytes_per_second: 8 << 20,
            scrub_interval_ms: 24 * 60 * 60 * 1_000,
            cold: None,
            cold_reads_max: 14,
        }
    }
}

impl Config {
    /// [`Self::uncommitted_bytes_max`], kept so far below the log's size that a batch of all of them always finds room
    /// once checkpoints have made it.
    #[must_use]
    pub fn uncommitted_bytes_effective(&self) -> u64 {
        self.uncommitted_bytes_max.min(self.wal_bytes_max / 4)
    }
}

const SEGMENT_BYTES: u64 = 64 << 20;

// The largest request is a frame that fits, with its command's fields (a path, two ids, numbers) around it.
const _: () = assert!(limits::REQUEST_BYTES_MAX + (64 << 10) <= frame_bytes_max(SEGMENT_BYTES));
