//! What opening a log found.

use crate::reader::LogReader;
use crate::types::{Location, ReadError};
use bytes::Bytes;
use highwater_base::OwnerId;
use std::collections::BTreeMap;
use thiserror::Error;

/// How an owner's frames came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every frame that was ever reported durable, and is still needed, is there.
    Whole,
    /// A frame at the log's end is complete but bad: it may have been acknowledged, and is lost.
    Recovering {
        /// Where.
        segment: u64,
        /// Where in the segment, in bytes.
        offset: u64,
    },
    /// Frames that were durable are lost.
    Damaged {
        /// Where.
        segment: u64,
        /// Where in the segment, in bytes.
        offset: u64,
    },
}

impl Verdict {
    /// Whether nothing is missing.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self == Self::Whole
    }

    /// Whether it is not a frame that is missing but the state file, without which nobody knows what is: every owner has
    /// this verdict then. No frame begins at a segment's first byte, and a missing segment is `Damaged`.
    #[must_use]
    pub fn is_state_lost(self) -> bool {
        matches!(self, Self::Recovering { offset: 0, .. })
    }
}

/// What is known about one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRecovery {
    /// How its frames came through. Durably recorded where it is not `Whole`.
    pub verdict: Verdict,
    /// The position below which the owner said it needs nothing, as far as that was recorded.
    pub first_needed: u64,
    /// Frames that survive.
    pub frames: u64,
}

/// How the log's last user ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LastRun {
    /// There was none.
    New,
    /// It closed the log.
    Clean,
    /// It did not; whether the machine went down with it, as far as the boot id tells.
    Crashed {
        /// The boot id is the same.
        same_boot: bool,
    },
    /// A write or a sync had failed.
    Poisoned(String),
}

/// A frame that survives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayedFrame {
    /// Whose it is.
    pub owner: OwnerId,
    /// What it is, in the owner's own numbering.
    pub kind: u8,
    /// Where it stands in the owner's own order.
    pub position: u64,
    /// Where its payload lies.
    pub location: Location,
    /// The payload, verified.
    pub payload: Bytes,
}

/// Why a replay ended early.
#[derive(Debug, Error)]
pub enum ReplayError<E> {
    /// A frame could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// The caller gave up.
    #[error("the replay was given up")]
    Given(E),
}

/// A surviving frame without its payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Survivor {
    pub owner: OwnerId,
    pub kind: u8,
    pub position: u64,
    pub location: Location,
}

/// What opening found.
pub struct Recovered {
    pub(crate) owners: BTreeMap<OwnerId, OwnerRecovery>,
    pub(crate) unlisted: Verdict,
    pub(crate) last_run: LastRun,
    pub(crate) cut: Option<(u64, u64)>,
    pub(crate) survivors: Vec<Survivor>,
    pub(crate) reader: LogReader,
}

impl Recovered {
    /// Every owner that the log has heard of.
    #[must_use]
    pub fn owners(&self) -> &BTreeMap<OwnerId, OwnerRecovery> {
        &self.owners
    }

    /// An owner's verdict, for one that the log has not heard of too: it is not whole if a damage may have taken
    /// every trace of an owner.
    #[must_use]
    pub fn verdict(&self, owner: OwnerId) -> Verdict {
        self.owners.get(&owner).map_or(self.unlisted, |owner| owner.verdict)
    }

    /// How the log's last user ended.
    #[must_use]
    pub fn last_run(&self) -> &LastRun {
        &self.last_run
    }

    /// Segment and offset from which a torn end was cut off, if there was one. Nothing in it was ever acknowledged.
    #[must_use]
    pub fn cut(&self) -> Option<(u64, u64)> {
        self.cut
    }

    /// Where an owner's surviving frames stand in its own order, in the order of the log.
    pub fn positions(&self, owner: OwnerId) -> impl Iterator<Item = u64> {
        self.survivors.iter().filter(move |survivor| survivor.owner == owner).map(|survivor| survivor.position)
    }

    /// Hands every surviving frame of the owners that `wanted` names to `each`, in the order of the log.
    ///
    /// A damaged owner's frames are handed over too, with gaps.
    /// # Errors
    /// `Read` if a frame that opening found good cannot be read any more; `Given` with what `each` returned.
    pub fn replay<E>(
        &self,
        wanted: impl Fn(OwnerId) -> bool,
        mut each: impl FnMut(ReplayedFrame) -> Result<(), E>,
    ) -> Result<(), ReplayError<E>> {
        for survivor in self.survivors.iter().filter(|survivor| wanted(survivor.owner)) {
            let Survivor { owner, kind, position, location } = *survivor;
            let payload = self.reader.read(location).map_err(ReplayError::Read)?;
            each(ReplayedFrame { owner, kind, position, location, payload }).map_err(ReplayError::Given)?;
        }
        Ok(())
    }
}
