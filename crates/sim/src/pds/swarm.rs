//! What one run is made of: drawn from its seed, so that runs differ in kind and not only in luck.

use highwater_base::Random;
use highwater_base::random::SplitMix;
use highwater_pds::lifecycle::Announce;

/// What can go wrong, or is done to the server as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The process dies, now or in the middle of a later operation of its disk.
    Crash,
    /// The machine loses power, in the same way.
    PowerLoss,
    /// The process ends in good order.
    Stop,
    /// One operation of the disk fails.
    Eio,
    /// The disk is full for a while.
    Full,
    /// A copy is made of the stopped server's files, or put back with a marker.
    OldFiles,
}

/// The shape of a run.
#[derive(Debug, Clone)]
pub struct Swarm {
    /// Steps of the safety phase.
    pub steps: u64,
    /// Accounts at the most.
    pub accounts_max: usize,
    /// Consumers.
    pub observers: usize,
    /// Keys of records for each account.
    pub keys: u64,
    /// Bytes of a large record.
    pub record_bytes_max: u64,
    /// When relays hear of accounts.
    pub announce: Announce,
    /// Seconds for which frames are kept.
    pub retention_seconds: u64,
    /// Bytes of frames that are kept at the most.
    pub events_bytes_max: u64,
    /// Bytes in the log that start a checkpoint.
    pub checkpoint_bytes: u64,
    /// Seconds that start one.
    pub checkpoint_seconds: u64,
    /// Bytes that trees and places may take.
    pub memory_bytes_max: u64,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// Segments at the most.
    pub log_segments: u64,
    /// Milliseconds that pass with a step at the most.
    pub step_ms_max: u64,
    /// Whether something outside the volume remembers what was handed out.
    pub witness: bool,
    /// A fault out of so many steps; 0 for none.
    pub fault_every: u64,
    /// Kinds of faults that happen.
    pub kinds: Vec<FaultKind>,
}

/// The bytes of frames that no run reaches.
pub const EVENTS_BYTES_UNBOUND: u64 = 1 << 40;

impl Swarm {
    /// The shape of a seed's run.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut random = SplitMix::new(seed ^ 0x5a_4d1e);
        let mut pick = |choices: &[u64]| choices[random.below(choices.len() as u64) as usize];
        let steps = 150 + pick(&[0, 50, 150]);
        let announce = if pick(&[0, 0, 1]) == 0 { Announce::OnActivation } else { Announce::OnFirstWrite };
        let segment_bytes = pick(&[128 << 10, 256 << 10]);
        let all = [
            FaultKind::Crash,
            FaultKind::PowerLoss,
            FaultKind::Stop,
            FaultKind::Eio,
            FaultKind::Full,
            FaultKind::OldFiles,
        ];
        // Some runs lack a kind, so that the others get deep; restores are what this is for.
        let mut kinds: Vec<FaultKind> = all.into_iter().filter(|_| pick(&[0, 1, 1]) == 1).collect();
        if pick(&[0, 1, 1]) == 1 {
            kinds.extend([FaultKind::OldFiles, FaultKind::PowerLoss]);
        }
        let fault_every = if kinds.is_empty() { 0 } else { pick(&[8, 15, 30]) };
        Self {
            steps,
            accounts_max: pick(&[1, 3, 5]) as usize,
            observers: pick(&[1, 2, 3]) as usize,
            keys: pick(&[3, 10, 30]),
            record_bytes_max: pick(&[200, 200, 4 << 10, 24 << 10]),
            announce,
            retention_seconds: pick(&[60, 600, 72 * 3_600, 72 * 3_600]),
            events_bytes_max: pick(&[300 << 10, EVENTS_BYTES_UNBOUND, EVENTS_BYTES_UNBOUND]),
            checkpoint_bytes: pick(&[16 << 10, 256 << 10]),
            checkpoint_seconds: pick(&[5, 60, 3_600]),
            memory_bytes_max: pick(&[0, 200_000, 64 << 20]),
            segment_bytes,
            log_segments: pick(&[6, 16]),
            step_ms_max: pick(&[50, 2_000, 30_000]),
            witness: pick(&[0, 1, 1]) == 1,
            fault_every,
            kinds,
        }
    }
}
