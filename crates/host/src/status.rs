//! How a server stands, in numbers.

use crate::host::Host;
use crate::slot::lock;
use highwater_pds::{Micros, Position, boot};
use highwater_store::StoreStatus;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The oldest frame that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oldest {
    /// Its number.
    pub seq: u64,
    /// Its time.
    pub at: Micros,
}

/// Frames that are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InMemory {
    /// How many.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreFigures {
    /// Its number.
    pub id: u64,
    /// Accounts of which it told.
    pub accounts: u64,
    /// Whether it ended.
    pub done: bool,
}

/// How a server stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Why nothing is written any more, once that is so.
    pub ended: Option<String>,
    /// Accounts by where they stand, in the protocol's words; `none` for those of which relays are not to hear yet.
    pub accounts: BTreeMap<&'static str, u64>,
    /// The number of the newest frame; 0 before the first.
    pub seq: u64,
    /// The highest number that could have been handed out.
    pub ceiling: u64,
    /// The oldest frame that is kept.
    pub oldest: Option<Oldest>,
    /// Bytes of the frames that are kept.
    pub events_bytes: u64,
    /// The newest frames, which are in memory.
    pub ring: InMemory,
    /// Frames sent since the start.
    pub frames_sent: u64,
    /// Who follows the stream, in the order in which they came.
    pub subscribers: Vec<Subscriber>,
    /// The log's newest record.
    pub lsn: u64,
    /// The log's figures.
    pub log: highwater_wal::Metrics,
    /// The store's figures.
    pub store: StoreStatus,
    /// Checkpoints since the start.
    pub checkpoints: u64,
    /// Why the last checkpoint failed, if it did.
    pub checkpoint_error: Option<String>,
    /// Repositories whose blocks were written together since the start.
    pub compactions: u64,
    /// Uploads that no record referred to in time, removed since the start.
    pub blobs_expired: u64,
    /// Accounts of which relays were told something else than holds, or nothing yet.
    pub unannounced: u64,
    /// Turns that were refused since the start, most for want of space.
    pub turns_refused: u64,
    /// Bytes of memory that trees and places of blocks took when they were last looked at.
    pub memory_bytes: u64,
    /// The newest restore.
    pub restore: Option<RestoreFigures>,
    /// Relays have to be asked to crawl.
    pub relay_poke_pending: bool,
    /// The file outside the volume that remembers what was given out, if there is to be one.
    pub witness: Option<PathBuf>,
    /// Why that file, or the one beside the directory, could not be written when it was tried last: a restore would not know by it.
    pub witness_error: Option<String>,
    /// The newest record's time.
    pub newest: Micros,
    /// Bytes that the disk has room for.
    pub disk_free_bytes: Option<u64>,
}

/// Somebody who follows the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscriber {
    /// Which one: [`crate::Subscription::id`].
    pub id: u64,
    /// The number of the last event that it took or passed over; its cursor before the first.
    pub at: u64,
    /// Events that it has yet to take.
    pub behind: u64,
    /// Whether it takes what comes, and does not read what is kept any more.
    pub live: bool,
}

impl Host {
    /// How it stands.
    #[must_use]
    pub fn status(&self) -> Status {
        let shared = &self.shared;
        let mut status = Status::default();
        {
            let state = shared.state();
            for account in state.accounts.values() {
                let word = match account.position() {
                    None => "none",
                    Some(Position::Active) => "active",
                    Some(Position::Inactive(status)) => status.as_str(),
                };
                *status.accounts.entry(word).or_default() += 1;
            }
            status.seq = state.events.newest.map_or(0, |seq| seq.0);
            status.ceiling = state.sequence.ceiling();
            status.oldest = state.events.oldest().map(|point| Oldest { seq: point.seq.0, at: point.at });
            status.events_bytes = state.events.oldest().map_or(0, |point| state.events.end - point.offset);
            status.restore = state.restore.as_ref().map(|restore| RestoreFigures {
                id: restore.id,
                accounts: restore.progress.len() as u64,
                done: restore.done,
            });
            status.relay_poke_pending = state.poke_pending;
            status.unannounced = boot::due(&state).count() as u64;
            status.newest = state.newest;
            status.store = lock(&shared.store).status();
        }
        (status.ring, status.frames_sent) = shared.ring.figures();
        let subscribers = shared.ring.subscribers().into_iter();
        status.subscribers = subscribers
            .map(|(id, reached, behind)| Subscriber { id, at: reached.seq, behind, live: reached.live })
            .collect();
        let figures = lock(&shared.figures).clone();
        (status.lsn, status.log) = (figures.lsn, figures.log);
        (status.checkpoints, status.checkpoint_error) = (figures.checkpoints, figures.checkpoint_error);
        (status.compactions, status.blobs_expired) = (figures.compactions, figures.blobs_expired);
        (status.turns_refused, status.memory_bytes) = (figures.turns_refused, figures.memory_bytes);
        (status.witness, status.witness_error) = (shared.options.witness_path.clone(), shared.witnesses.failed());
        status.ended = shared.queue.ended();
        status.disk_free_bytes = shared.disk.free_bytes(&shared.paths.directory).ok();
        status
    }
}
