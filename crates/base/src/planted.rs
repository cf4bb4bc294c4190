//! Deliberate faults, for proving that the simulator finds them.
//!
//! Compiled to nothing without the feature `planted`. With it, a test plants one fault for its own thread.

/// A fault that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The log's writer reports a batch as durable before it synced.
    AcknowledgeBeforeSync,
    /// The log makes a segment without syncing the directory.
    SkipDirectorySync,
    /// The stream machine takes a write of an older producer epoch.
    ForgetEpochCheck,
    /// The replicator seals a batch anew when it sends it again.
    RecompressOnRetry,
    /// The replicator leaves one part of a large commit out.
    DropPart,
    /// A stream is stored without the offset below which it is given up.
    ForgetRetained,
    /// The control machine revokes a key and does not note that the key changed.
    ForgetRevocation,
    /// The stream machine publishes a snapshot whose bytes have another digest.
    SkipSnapshotDigest,
    /// Discarded parts still count as stored.
    MiscountParts,
    /// A stream keeps its token through a restore of the server's files.
    KeepTokens,
    /// A restore raises the floor behind its own frames.
    RaiseFloorLate,
    /// A restore removes its marker before relays are told.
    RemoveMarkerEarly,
    /// A fresh commit has the revision of the one before it.
    RepeatRevision,
    /// A replay begins with what is in memory.
    CutReplay,
    /// The frame at which a replay meets what comes live is sent twice.
    RepeatAtCutover,
    /// A lift does not say what the account holds.
    LiftWithoutSync,
    /// Cursors are held against the newest frame, not against what could have been numbered.
    ForgetCeiling,
    /// The machine of accounts sends where one stands and does not note that it did.
    ForgetAnnounced,
    /// A restore does not raise the floor of the stream's numbers.
    KeepFloor,
    /// A restore signs nothing, and tells where accounts stand alone.
    SkipFreshCommits,
    /// A turn that changes nothing, a refusal for example, is answered before what it rests on is durable.
    AnswerEarly,
    /// A restore does not heed what lies outside the volume.
    ForgetWitness,
}

#[cfg(feature = "planted")]
mod switch {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a fault for this thread, in place of an earlier one.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether this fault is planted here.
    #[must_use]
    pub fn active(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub use switch::{active, plant};

/// Whether this fault is planted here: never, in this build.
#[cfg(not(feature = "planted"))]
#[must_use]
#[inline(always)]
pub fn active(_bug: Bug) -> bool {
    false
}
