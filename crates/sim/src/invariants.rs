//! What must hold, each with its sentence. Everything that the simulator checks is one of these.

use std::fmt;

/// A promise that a run holds the system to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// What was acknowledged, or read by anyone, is there at its offset with its bytes, for as long as its stream is.
    AcknowledgedIsThere,
    /// A repeat is answered with the receipt of the write that it repeats, and no write is applied twice.
    RepeatHasTheReceipt,
    /// Nothing is in a stream that nobody wrote to it, or that was refused.
    NothingUnwritten,
    /// A stream is whole writes one after another: offsets are distinct and contiguous.
    OffsetsContiguous,
    /// Under one producer's key every number applies once and in order, and nothing of an older epoch after a claim.
    EpochsInOrder,
    /// What a stream was given up below never goes back.
    RetainedNeverGoesBack,
    /// A published snapshot is there with the bytes of its digest until a later one takes its place, and an acknowledged
    /// part until a snapshot takes it, or it is discarded or too old.
    SnapshotIsWhole,
    /// A stream that ends by itself is there until its time is over, and not after.
    TimeIsKept,
    /// After a restore of the server's files every stream has another token, and says how much it shares with the old.
    RestoreIsTold,
    /// A key that was revoked is refused from then on, whatever crashes.
    RevokedStaysRevoked,
    /// A bucket is said to hold what is stored in it.
    UsageIsWhatIsStored,
    /// A deleted history never comes back, a closed stream never grows, and neither happens unasked.
    DeletedStaysDeleted,
    /// After every restart the log and the stores agree: every group serves, and no verdict speaks of damage.
    RestartAgrees,
    /// A database's stream is claims and a prefix of its owners' logs, each commit once and in order.
    StreamIsLogPrefix,
    /// A restore at any moment equals the database as it was at that commit, page by page.
    RestoreEqualsDatabase,
    /// What `synced()` answered for is in the stream, and the caller was still the owner when it asked.
    SyncedIsOwned,
    /// What an engine confirmed under a sync, or sent, survives a loss of power; every recovery is some commit whole.
    ConfirmedSurvives,
    /// A database stops only because somebody took its stream from it.
    StopHasACause,
    /// Once the faults are over everything converges: writes succeed, replicators drain, `synced()` resolves, and a server of
    /// accounts starts again whatever its disk did.
    Heals,
    /// A frame that anybody saw is in every later replay of its window with its bytes, in its place.
    FramesStay,
    /// What an account was acknowledged, by a write, a change or a fact, is so after every start.
    AccountsStay,
    /// No answer, a refusal least of all, rests on what a power cut can still undo.
    AnswersAreDurable,
    /// No number of the stream and no revision of an account ever means two things, over all runs and marked restores.
    NumbersOnce,
    /// An account stands where acknowledged changes put it, and counts as announced where its newest `#account` frame says.
    PositionIsTheRow,
    /// A start without a marker signs nothing, and sends only what relays were not told.
    StartTellsOnlyNews,
    /// After a marked restore each account's frames are in the window once, above every number of the lost run and with newer
    /// revisions, and the marker is gone.
    RestoreTellsOnce,
    /// Whenever relays hear that an account is active again, the account's next frame says what it holds.
    LiftTellsHead,
    /// No cursor that a consumer ever got is refused as one of the future, and one of a lost run is told of what it misses.
    CursorsAreKnown,
    /// Who follows the stream by the specification never finds a rule broken.
    FollowersFindNoFault,
    /// Once the faults are over every follower ends with the server's positions, records and revisions.
    FollowersConverge,
    /// Every block that an account's newest commit needs can be read, and makes the records that were acknowledged.
    BlocksAreThere,
}

impl Invariant {
    /// The sentence.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::AcknowledgedIsThere => "what was acknowledged or read is there at its offset with its bytes",
            Self::RepeatHasTheReceipt => "a repeat is answered with the receipt of the write that it repeats",
            Self::NothingUnwritten => "nothing is in a stream that nobody wrote to it, or that was refused",
            Self::OffsetsContiguous => "a stream is whole writes one after another",
            Self::EpochsInOrder => "every number of a key applies once, in order, and no older epoch after a claim",
            Self::RetainedNeverGoesBack => "what a stream was given up below never goes back",
            Self::SnapshotIsWhole => "a published snapshot and an acknowledged part are there with their bytes",
            Self::TimeIsKept => "a stream that ends by itself is there until its time is over, and not after",
            Self::RestoreIsTold => "after a restore of the server's files every stream says so by its token",
            Self::RevokedStaysRevoked => "a key that was revoked is refused from then on, whatever crashes",
            Self::UsageIsWhatIsStored => "a bucket is said to hold what is stored in it",
            Self::DeletedStaysDeleted => "what is deleted stays deleted, what is closed stays closed",
            Self::RestartAgrees => "after every restart the log and the stores agree",
            Self::StreamIsLogPrefix => "a database's stream is claims and a prefix of its owners' logs",
            Self::RestoreEqualsDatabase => "a restore equals the database at that commit, page by page",
            Self::SyncedIsOwned => "what synced() answered for is in the stream, under its caller's ownership",
            Self::ConfirmedSurvives => "what was confirmed under a sync, or sent, survives a loss of power",
            Self::StopHasACause => "a database stops only because somebody took its stream from it",
            Self::Heals => "once the faults are over everything converges",
            Self::FramesStay => "a frame that anybody saw is in every later replay of its window, with its bytes",
            Self::AccountsStay => "what an account was acknowledged is so after every start",
            Self::AnswersAreDurable => "no answer, nor a refusal, rests on what a power cut can still undo",
            Self::NumbersOnce => "no number of the stream and no revision ever means two things",
            Self::PositionIsTheRow => "an account stands where acknowledged changes put it, and is announced so",
            Self::StartTellsOnlyNews => "a start without a marker signs nothing and sends only news",
            Self::RestoreTellsOnce => "a marked restore tells of each account once, above everything of the lost run",
            Self::LiftTellsHead => "an account that is active again is followed by what it holds",
            Self::CursorsAreKnown => "no cursor that a consumer got is refused as one of the future",
            Self::FollowersFindNoFault => "who follows the stream by the specification finds no rule broken",
            Self::FollowersConverge => "every follower ends with the server's positions, records and revisions",
            Self::BlocksAreThere => "every block that an account's newest commit needs can be read",
        }
    }
}

/// A promise that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({}): {}", self.invariant, self.invariant.sentence(), self.seen)
    }
}

/// What a check gives.
pub type Checked<T = ()> = Result<T, Violation>;

/// Reports that a promise did not hold.
/// # Errors
/// Always: the violation.
pub fn violated<T>(invariant: Invariant, seen: impl Into<String>) -> Checked<T> {
    Err(Violation { invariant, seen: seen.into() })
}

/// Holds a promise against what was seen.
/// # Errors
/// The violation, if it does not hold.
pub fn hold(invariant: Invariant, holds: bool, seen: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { violated(invariant, seen()) }
}
