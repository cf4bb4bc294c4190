//! Every bound of the system, with its reason.

/// Bytes of one request's body, advertised as `Ursula-Max-Request-Bytes`.
///
/// Eight times the largest batch that a replicator seals (4 MiB), so that no client of ours meets it; one request in
/// flight holds this much memory at the most.
pub const REQUEST_BYTES_MAX: u64 = 32 << 20;

/// Bytes of one snapshot, advertised as `Ursula-Max-Snapshot-Bytes`.
pub const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

/// Parts of one snapshot.
///
/// With parts of 256 KiB the largest snapshot still fits; a list of them is 32 KiB in a stream's record.
pub const SNAPSHOT_PARTS_MAX: usize = 4_096;

/// Parts staged for one stream and not used: two whole snapshots under way.
pub const STAGED_PARTS_MAX: u64 = 8_192;

/// Bytes of these parts; the same two snapshots.
pub const STAGED_BYTES_MAX: u64 = 2 * SNAPSHOT_BYTES_MAX;

/// Milliseconds after which a part that no snapshot took is removed: one day.
pub const STAGED_MS_MAX: u64 = 24 * 3_600_000;

/// Bytes of the body of one read's answer; a longer range is read in several requests.
///
/// Two batches of 4 MiB, so that a restore moves at full speed with a bounded buffer.
pub const READ_BYTES_MAX: u64 = 8 << 20;

/// Milliseconds that a long-poll waits at the most.
pub const LONG_POLL_MS_MAX: u64 = 60_000;

/// Milliseconds that a long-poll waits unless it says otherwise.
///
/// The published suite gives a test five seconds, and a second is short enough for a client that polls in a loop.
pub const LONG_POLL_MS_DEFAULT: u64 = 1_000;

/// Bytes of a stream's path.
///
/// Document paths of real clients pass 256 bytes; 1,024 keeps a stream's record small.
pub const PATH_BYTES_MAX: usize = 1_024;

/// Bytes of a producer's id, and of a `Stream-Seq`.
pub const PRODUCER_ID_BYTES_MAX: usize = 256;

/// Producers remembered for one stream; a new one then takes the place of those idle for an hour.
pub const PRODUCERS_PER_STREAM_MAX: usize = 4_096;

/// Milliseconds after which an idle producer is forgotten: seven days.
pub const PRODUCER_IDLE_MS_MAX: u64 = 7 * 24 * 3_600_000;

/// Milliseconds of idleness after which a producer may be forgotten to make room for another: one hour.
pub const PRODUCER_EVICTABLE_MS_MIN: u64 = 3_600_000;

/// Bytes of a content type after normalising.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// The largest producer epoch or sequence number: 2^53 - 1, which every JSON reader keeps exact.
pub const PRODUCER_NUMBER_MAX: u64 = (1 << 53) - 1;

/// Raft groups of a cluster unless its creator says otherwise. A group is a unit of leadership, not of throughput.
pub const GROUPS_DEFAULT: u32 = 16;

// A batch of a replicator always fits in a request, and an answer always moves a whole batch.
const _: () = assert!(4 << 20 <= READ_BYTES_MAX && READ_BYTES_MAX <= REQUEST_BYTES_MAX);
