//! What one run is made of: drawn from its seed, so that runs differ in kind and not only in luck.

use highwater_base::Random;
use highwater_base::random::SplitMix;

/// Bytes of the largest request that a layer before the server takes: the smallest that it may, and up to one that
/// still fits into half of the smallest segment.
pub const REQUEST_LIMITS: [u64; 3] = [4 << 10, 12 << 10, 60 << 10];

/// The shape of a run. Some runs have no faults of a kind at all, so that the other kinds get deep.
#[derive(Debug, Clone)]
pub struct Swarm {
    /// Events of the safety phase.
    pub steps: u64,
    /// Raft groups.
    pub groups: u32,
    /// Raw streams that clients share.
    pub streams: usize,
    /// Keyed clients.
    pub producers: usize,
    /// Clients without a key.
    pub visitors: usize,
    /// Clients that publish snapshots of raw streams, and give their fronts up.
    pub publishers: usize,
    /// Clients that change keys, accounts and plans.
    pub administrators: usize,
    /// Whether some of the raw streams end by themselves.
    pub expires: bool,
    /// Databases, each with its own stream.
    pub databases: usize,
    /// Bytes of a segment of the server's log.
    pub segment_bytes: u64,
    /// Bytes in the log that start a checkpoint.
    pub checkpoint_bytes: u64,
    /// Bytes of the largest body of a raw write.
    pub body_bytes_max: u64,
    /// The request limit that the server advertises to databases, in bytes: small ones make runs of parts.
    pub request_bytes_max: u64,
    /// Bytes of a database page.
    pub page_size: u32,
    /// Requests out of 1000 that are lost.
    pub lose_request: u64,
    /// Answers out of 1000 that are lost.
    pub lose_answer: u64,
    /// Keyed requests out of 1000 that a layer sends twice.
    pub duplicate: u64,
    /// Messages out of 1000 that take seconds.
    pub slow: u64,
    /// Milliseconds of a usual trip.
    pub latency_ms: u64,
    /// Milliseconds between two faults of the world; 0 for none.
    pub fault_every_ms: u64,
    /// Kinds of faults that happen.
    pub kinds: Vec<FaultKind>,
}

/// What can go wrong beside single messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// The server's process dies, now or in the middle of a later write.
    ServerCrash,
    /// The server's machine loses power, now or in the middle of a later write.
    ServerPowerLoss,
    /// The server is stopped in good order.
    ServerStop,
    /// The server's disk fails a write, a sync or a read.
    ServerEio,
    /// The server's disk is full for a while.
    ServerFull,
    /// The server's wall clock jumps.
    ClockJump,
    /// A copy of the server's files is taken, or put in their place.
    ServerOldFiles,
    /// A layer before the server takes other sizes of requests than before.
    RequestLimit,
    /// A party is cut off from the server for a while.
    Cut,
    /// A database's process dies.
    DatabaseCrash,
    /// A database's machine loses power.
    DatabasePowerLoss,
    /// A database's disk fails a write or a sync.
    DatabaseEio,
    /// A database's disk is full for a while.
    DatabaseFull,
    /// A database's process does not run for a while.
    DatabasePause,
    /// A database's files are replaced by an older copy of them.
    DatabaseOldFiles,
    /// Another process restores a database and goes on with it.
    Takeover,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 16] = [
        Self::ServerCrash,
        Self::ServerPowerLoss,
        Self::ServerStop,
        Self::ServerEio,
        Self::ServerFull,
        Self::ClockJump,
        Self::ServerOldFiles,
        Self::RequestLimit,
        Self::Cut,
        Self::DatabaseCrash,
        Self::DatabasePowerLoss,
        Self::DatabaseEio,
        Self::DatabaseFull,
        Self::DatabasePause,
        Self::DatabaseOldFiles,
        Self::Takeover,
    ];
}

impl Swarm {
    /// The shape that follows from a run's random numbers.
    pub fn draw(random: &mut SplitMix) -> Self {
        let pick = |choices: &[u64], random: &mut SplitMix| choices[random.below(choices.len() as u64) as usize];
        let many = random.below(3);
        let mut kinds: Vec<_> = FaultKind::ALL.into_iter().filter(|_| many == 0 || random.below(2) == 0).collect();
        if random.below(2) == 0 {
            // Owners that race for a stream are worth more than their share.
            kinds.extend([FaultKind::Takeover; 6]);
        }
        let databases = pick(&[0, 1, 1, 2], random) as usize;
        Self {
            steps: pick(&[600, 1_200, 2_400], random),
            groups: pick(&[1, 2, 3], random) as u32,
            streams: 1 + random.below(3) as usize,
            producers: if databases == 0 { 2 + random.below(4) } else { random.below(4) } as usize,
            visitors: random.below(4) as usize,
            publishers: random.below(3) as usize,
            administrators: random.below(2) as usize,
            expires: random.below(3) == 0,
            databases,
            segment_bytes: pick(&[128 << 10, 256 << 10], random),
            checkpoint_bytes: pick(&[24 << 10, 96 << 10, 256 << 10], random),
            body_bytes_max: pick(&[64, 1 << 10, 16 << 10], random),
            request_bytes_max: pick(&REQUEST_LIMITS, random),
            page_size: pick(&[512, 1024, 4096], random) as u32,
            lose_request: pick(&[0, 10, 100, 300], random),
            lose_answer: pick(&[0, 20, 100, 300], random),
            duplicate: pick(&[0, 0, 50, 300], random),
            slow: pick(&[0, 20, 100], random),
            latency_ms: pick(&[2, 20, 200], random),
            fault_every_ms: pick(&[0, 300, 1_000, 5_000], random),
            kinds,
        }
    }
}

/// Whether something happens that happens `of_1000` times out of a thousand.
pub fn chance(random: &mut SplitMix, of_1000: u64) -> bool {
    random.below(1_000) < of_1000
}
